"""Logits of quantised checkpoints on the CPU executor beside those of the reference executor.

    quantised.py PIPELINE some|all

Checkpoints are those of ../../Families/goldens/quantised, and of shapes whose columns are no whole number of blocks, or
fill several chunks; and shapes in passes of more than 128 rows, which run whole.
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
          (1440, ["fp8-block"], []),  # whose last block ends in the middle
          (1312, ["gptq-order", "--group", "32"], ["--schedule=random:5"])]
# The same in such passes: eighths of one block, of two and of three.
WHOLE = [(512, ["awq", "--group", "32"], ["--check"]), (768, ["fp8-block"], []), (512, ["fbgemm"], []),
         (512, ["gptq-order", "--group", "64"], ["--check"]),
         (1280, ["ct-int8-asym", "--group", "64"], ["--check"]), (512, ["gptq", "--group", "128"], []), (768, ["ct-int8"], [])]
SOME = {"qwen3-ct-fp8-block": ["--arch=sm_80"], "llama-ct-int8-asym": [], "qwen3-gptq-v2": [], "llama-gptq-order": []}


def tokens(length, seed):
    return [(seed * 37 + i * i * 11 + i * 5) % 120 + 3 for i in range(length)]


REQUESTS = [{"id": str(i), "tokens": tokens(length, i), "max_new_tokens": new, "eos": []}
            for i, (length, new) in enumerate(((45, 3), (3, 7), (20, 4)))]


SMALL = ["--set", "rows_per_pass=128", "--set", "kv_pages=16"]
LARGE = ["--set", "rows_per_pass=320", "--set", "prefill_chunk=320", "--set", "page_tokens=8", "--set", "kv_pages=128"]
PLAN = ["--plan", "ctas=4"]


def logits(model, requests, pipeline, device, options):
    out = f"{model}.{device}"
    run = subprocess.run(["megalith", "run", pipeline, "--model", model, "--requests", requests, f"--device={device}",
                          f"--logits={out}", *options], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{model} on {device}: {run.stderr}")
    return pathlib.Path(out).read_bytes()


def make(name, columns, form, shape):
    shape = {"model_type": "llama", "num_attention_heads": 4, "intermediate_size": columns, "tie_word_embeddings": True} | shape
    subprocess.run([sys.executable, str(ROOT / "tools/make_random_model.py"), "--shape", json.dumps(shape), "--out",
                    "plain"], check=True, capture_output=True)
    quantise_checkpoint.main(["plain", "--out", name, "--format", *form])


def runs_whole(model, pipeline):
    plan = subprocess.run(["megalith", "compile", pipeline, "--model", model, "--device-profile=cpu", "--emit=plan", *LARGE,
                           *PLAN], capture_output=True, text=True, check=True).stdout
    return "passes of more than 128 rows run whole" in plan


def main():
    pipeline, which = sys.argv[1:]
    pathlib.Path("r.jsonl").write_text("".join(json.dumps(request) + "\n" for request in REQUESTS))
    pathlib.Path("long.jsonl").write_text("".join(
        json.dumps({"id": str(n), "tokens": tokens(n, n), "max_new_tokens": 2, "eos": []}) + "\n" for n in (133, 160, 20)))
    cases = []
    for name in SOME if which == "some" else golden_checkpoint.QUANTISED:
        golden = ROOT / f"test/Families/goldens/quantised/{name}.json"
        golden_checkpoint.write(json.loads(golden.read_text()), name)
        cases.append((name, "r.jsonl", SMALL, SOME.get(name, [])))
    for columns, form, options in SHAPES:
        make(f"of-{columns}", columns, form, {"hidden_size": 128, "num_hidden_layers": 1, "num_key_value_heads": 1,
                                              "head_dim": 32, "vocab_size": 128})
        cases.append((f"of-{columns}", "r.jsonl", SMALL, options))
    for columns, form in ((96, ["fbgemm", "--skip", "q_proj"]), (160, ["awq", "--group", "32", "--skip", "gate_proj"]),
                          (192, ["gptq-order", "--group", "32", "--skip", "q_proj"])):
        # Streams of one operand, each of its own format.
        make(f"mixed-{columns}", columns, form, {"hidden_size": 128, "num_hidden_layers": 2, "num_key_value_heads": 2,
                                                 "head_dim": 32, "vocab_size": 128})
        cases.append((f"mixed-{columns}", "r.jsonl", SMALL, []))
        if which == "some":
            break
    for columns, form, options in WHOLE[:4] if which == "some" else WHOLE:
        name = f"whole-{columns}-{form[0]}"
        make(name, columns, form, {"hidden_size": 256, "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 64,
                                   "vocab_size": 128})
        if not runs_whole(name, pipeline):
            sys.exit(f"{name} does not run whole")
        cases.append((name, "long.jsonl", LARGE, PLAN + options))
    equal = 0
    for name, requests, sets, options in cases:
        same = logits(name, requests, pipeline, "reference", sets) == logits(name, requests, pipeline, "cpu", sets + options)
        equal += same
        print(f"{name}: {'equal' if same else 'DIFFERENT'}", flush=True)
    print(f"{equal} of {len(cases)} equal, without findings")


main()
