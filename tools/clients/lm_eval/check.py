#!/usr/bin/env python3
"""Runs lm-eval's `loglikelihood` against a megalith-serve, and compares with `transformers` in f32.

    pip install lm_eval[api] torch transformers
    megalith-serve autoregressive --model models/demo --port 8000
    python tools/clients/lm_eval/check.py http://127.0.0.1:8000 models/demo

The checkpoint has a byte vocabulary. Its tokenizer is made here, so that lm-eval knows the tokens. The server computes
in the numerics of bf16 weights, so a log likelihood may be off by --tolerance for each token.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile


def scores_of(model, context, end):
    import torch

    tokens = list((context + end).encode())
    with torch.no_grad():
        logprobs = model(torch.tensor([tokens])).logits[0].float().log_softmax(-1)
    first = len(context.rstrip().encode())  # lm-eval counts spaces between the two to the end
    rows = range(first, len(tokens))
    is_greedy = all(int(logprobs[i - 1].argmax()) == tokens[i] for i in rows)
    return sum(float(logprobs[i - 1, tokens[i]]) for i in rows), is_greedy, len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("checkpoint")
    parser.add_argument("--model", default="demo", help="its name on the server")
    parser.add_argument("--tolerance", type=float, default=0.03, help="of each token; default: %(default)s")
    parsed = parser.parse_args()
    here = pathlib.Path(__file__).resolve().parent
    sys.path.insert(0, str(here.parent))
    import byte_tokenizer

    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        byte_tokenizer.write(folder / "tokenizer")
        (folder / "judged.yaml").write_text((here / "judged.yaml").read_text().replace("TEXTS", str(here / "texts.jsonl")))
        subprocess.run(
            [pathlib.Path(sys.executable).parent / "lm_eval", "--model", "local-completions", "--tasks", "judged", "--include_path", folder,
             "--model_args", f"model={parsed.model},base_url={parsed.url}/v1/completions,tokenizer_backend=huggingface,"
             f"tokenizer={folder / 'tokenizer'},num_concurrent=2,max_length=1024",
             "--log_samples", "--output_path", folder / "out"], check=True)  # fmt: skip
        import torch
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(parsed.checkpoint, dtype=torch.float32)
        (samples,) = (folder / "out").rglob("samples_judged*.jsonl")
        bad = 0
        for line in samples.read_text().splitlines():
            sample = json.loads(line)
            for end, told in zip(sample["doc"]["choices"], sample["filtered_resps"]):
                should, is_greedy, count = scores_of(model, sample["doc"]["context"], end)
                off = abs(float(told[0]) - should) / count
                bad += off > parsed.tolerance or str(told[1]) != str(is_greedy)
                print(f"{sample['doc']['context'] + end!r}: {float(told[0]):.4f}, transformers {should:.4f}, {off:.4f} off for each token; the likeliest: {told[1]}, transformers {is_greedy}")
        sys.exit(f"{bad} are farther off than {parsed.tolerance}, or the likeliest text in one place alone" if bad else 0)


if __name__ == "__main__":
    main()
