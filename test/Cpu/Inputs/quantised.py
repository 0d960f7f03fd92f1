"""Logits of quantised checkpoints on the CPU executor beside those of the reference executor.

    quantised.py PIPELINE some|all

Checkpoints are those of ../../Families/goldens/quantised, and of shapes whose columns are no whole number of blocks, or
fill several chunks.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import golden_checkpoint
import quantise_checkpoint

# Columns of the products, format, options of the run.
SHAPES = [(1376, ["gptq-asym", "--group", "32"], []), (2048, ["ct-int4", "--group", "128"], ["--schedule=random:3"]),
          (1440, ["fp8-block"], [])]  # whose last block ends in the middle
SOME = {"llama-fbgemm": [], "qwen3-ct-fp8-block": ["--arch=sm_80"], "llama-awq": ["--check"], "llama-ct-int8-asym": [],
        "qwen3-gptq-v2": []}
ORDERED = ("llama-ct-int4-order", "llama-gptq-order")  # of these there is no kernel yet


def tokens(length, seed):
    return [(seed * 37 + i * i * 11 + i * 5) % 120 + 3 for i in range(length)]


REQUESTS = [{"id": str(i), "tokens": tokens(length, i), "max_new_tokens": new, "eos": []}
            for i, (length, new) in enumerate(((45, 3), (3, 7), (20, 4)))]


def logits(model, pipeline, device, options):
    out = f"{model}.{device}"
    run = subprocess.run(["megalith", "run", pipeline, "--model", model, "--requests", "r.jsonl", f"--device={device}",
                          f"--logits={out}", "--set", "rows_per_pass=128", "--set", "kv_pages=16", *options],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{model} on {device}: {run.stderr}")
    return pathlib.Path(out).read_bytes()


def main():
    pipeline, which = sys.argv[1:]
    pathlib.Path("r.jsonl").write_text("".join(json.dumps(request) + "\n" for request in REQUESTS))
    cases = []
    for name in SOME if which == "some" else golden_checkpoint.QUANTISED:
        if name not in ORDERED:
            golden = ROOT / f"test/Families/goldens/quantised/{name}.json"
            golden_checkpoint.write(json.loads(golden.read_text()), name)
            cases.append((name, SOME.get(name, [])))
    for columns, form, options in SHAPES:
        shape = {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4,
                 "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": columns, "vocab_size": 128,
                 "tie_word_embeddings": True}
        subprocess.run([sys.executable, str(ROOT / "tools/make_random_model.py"), "--shape", json.dumps(shape), "--out",
                        "plain"], check=True, capture_output=True)
        quantise_checkpoint.main(["plain", "--out", f"of-{columns}", "--format", *form])
        cases.append((f"of-{columns}", options))
    equal = 0
    for name, options in cases:
        same = logits(name, pipeline, "reference", []) == logits(name, pipeline, "cpu", options)
        equal += same
        print(f"{name}: {'equal' if same else 'DIFFERENT'}", flush=True)
    print(f"{equal} of {len(cases)} equal, without findings")


main()
