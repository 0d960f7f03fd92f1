#!/usr/bin/env python3
"""How many drafts of a small model are accepted at a temperature, by how they are drawn and verified.

    coupling.py --megalith build/bin/megalith [--device cpu|cuda|reference] [--temperature 0.8]

coupled: drafts are drawn with the noise of the large model's own draws, and accepted where both drew the same token.
greedy: drafts are the small model's best tokens, accepted where the large model drew them. leviathan: drafts have noise of
their own, and are accepted with probability min(1, p / q) (stochastic_speculative). The demo model and its drafter, 40
requests of 64 tokens, blocks of 4. alpha is the part of the drafts that were looked at (those after a rejected one are not).
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ("In the beginning ", "And Moses said unto ", "The LORD is my shepherd; I shall ", "And it came to pass, when the king ",
         "Blessed are the ", "Now these are the generations of the sons of ", "Then answered Jesus and said unto them, ", "And David ")
COUNTS = """      - block_size.observe: accepted, len(draft)
      - count: drafts_accepted += accepted
      - count: drafts_rejected += 1 if accepted < len(draft) else 0
"""
DRAWN = "sample(l[-1:], sampling)"


def pipelines():
    for name, file, old, new in (("coupled", "draft_model_speculative", DRAWN, DRAWN),
                                 ("greedy", "draft_model_speculative", DRAWN, "argmax(l[-1:])"),
                                 ("leviathan", "stochastic_speculative", "", "")):
        text = (ROOT / "pipelines" / f"{file}.yaml").read_text()
        for a, b in ((old, new), ("      - block_size.observe: accepted, len(draft)\n", COUNTS)):
            if a not in text:
                sys.exit(f"{file}.yaml has no `{a.strip()}`")
            text = text.replace(a, b) if a else text
        yield name, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megalith", required=True)
    parser.add_argument("--device", default="reference")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--block", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        (work / "models").symlink_to(ROOT / "pipelines" / "models")
        with open(work / "requests.jsonl", "w") as out:
            for i in range(args.requests):
                print(json.dumps({"id": f"r{i}", "tokens": list(TEXTS[i % len(TEXTS)].encode()),
                                  "max_new_tokens": args.tokens,
                                  "sampling": {"temperature": args.temperature, "seed": i}}), file=out)
        print(f"{'drafts':<10} {'alpha':>6} {'tokens a block':>15} {'tokens':>7}")
        for name, text in pipelines():
            (work / f"{name}.yaml").write_text(text)
            command = [args.megalith, "run", work / f"{name}.yaml", "--model", f"target={ROOT}/models/demo", "--model",
                       f"small={ROOT}/models/demo-draft", "--requests", work / "requests.jsonl", f"--device={args.device}"]
            for param in ("max_block", "mid_block", "min_block", "pressure_block"):
                command += ["--set", f"{param}={args.block}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
            summary = json.loads(done.stdout.splitlines()[-1])["summary"]
            metrics = summary["metrics"]
            accepted, rejected, tokens = (metrics[k] for k in ("drafts_accepted", "drafts_rejected", "tokens_committed"))
            # Each block gives its accepted drafts and one token more.
            print(f"{name:<10} {accepted / (accepted + rejected):6.3f} {tokens / (tokens - accepted):15.2f} {tokens:7}")


main()
