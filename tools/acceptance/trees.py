#!/usr/bin/env python3
"""Random trees of drafts on a GPU, against plain decoding and the reference executor.

    trees.py --megalith build/tools/megalith --work DIR [--device cuda] [--trees 20] [--model DIR]

Of each tree: tokens and logits are those of `autoregressive`, rows with equal paths have the same K and V and the same
results, and the reference replays the trace. Shapes of trees, calls, requests and plans differ. The exit status is 1 if
something does. (MEGALITH_TREES=2000 build/test/Unit/ReferenceTests --gtest_filter='Trees.*' tries as many trees on the
reference alone.)
"""
import argparse
import filecmp
import json
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INPUTS = ROOT / "test/Cpu/Inputs"
sys.path.insert(0, str(ROOT / "tools"))
from make_random_model import LLAMA, sized  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megalith", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--model", help="a checkpoint; else a random one of two layers")
    args = parser.parse_args()
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    megalith, pipeline = str(pathlib.Path(args.megalith).resolve()), str(ROOT / "pipelines/autoregressive.yaml")

    def call(*command):
        done = subprocess.run([str(c) for c in command], cwd=work, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return done.stdout

    model = pathlib.Path(args.model).resolve() if args.model else work / "model"
    if not args.model and not model.exists():
        (work / "model.json").write_text(json.dumps(sized(LLAMA, 64, 2, 4, 2, 32, 16, 300, False, 4096, 1, 2)))
        call(sys.executable, ROOT / "tools/make_random_model.py", "--shape", "model.json", "--out", "model")
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    settings = ("--set", "rows_per_pass=128", "--set", "page_tokens=4", "--set", "kv_pages=1024")
    call(megalith, "compile", pipeline, "--model", model, *settings, "--stop-after=lower", "-o", "base.ir")

    failed = 0
    for seed in range(args.trees):
        rnd = random.Random(seed)
        name = f"t{seed}"
        requests, rows = rnd.choice((1, 1, 3, 4)), rnd.randint(2, 32)
        calls = rnd.randint(1, min(3, rows - 1))
        sizes = [rnd.choice((rnd.randint(1, 40), rnd.randint(235, 300))) for _ in range(requests)]
        lines = [json.dumps({"id": f"r{i}", "tokens": [rnd.randrange(min(vocab, 300)) for _ in range(size)],
                             "max_new_tokens": 16, "eos": []}) for i, size in enumerate(sizes)]
        (work / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))
        plan = [option for key, values in (("wide", (0, 1, 2)), ("edges", ("words", "barrier")))
                for option in ("--plan", f"{key}={rnd.choice(values)}")]
        run = (megalith, "run", pipeline, "--model", model, "--requests", f"{name}.jsonl", "--kv-hash")
        shuffle = f"--shuffle-pages={seed}"
        try:
            call(*run, *settings, f"--device={args.device}", "--trace", f"{name}.plain", f"--logits={name}.logits")
            results = json.loads((work / f"{name}.plain").read_text().splitlines()[-1])["results"]
            (work / f"{name}.drafts").write_text("".join(json.dumps(
                {"id": r["id"], "tokens": [t if rnd.random() < 0.8 else (t + 1) % vocab for t in r["tokens"]]}) + "\n"
                for r in results))
            call(sys.executable, INPUTS / "tree_ir.py", "base.ir", f"{name}.ir", rows, calls, seed)
            tree = ("--ir", f"{name}.ir", "--inject-drafts", f"{name}.drafts", shuffle)
            call(*run, *tree, *plan, f"--device={args.device}", "--trace", f"{name}.tree", f"--logits={name}.own")
            found = call(sys.executable, INPUTS / "tree_paths.py", f"{name}.jsonl", f"{name}.plain", f"{name}.tree")
            if not filecmp.cmp(work / f"{name}.logits", work / f"{name}.own", shallow=False):
                raise RuntimeError("other logits")
            call(*run, *tree, "--device=reference", f"--replay={name}.tree")
            print(f"tree {seed}: {rows} rows in {calls} calls, {requests} requests, {' '.join(plan)}: {found.strip()}", flush=True)
        except RuntimeError as e:
            failed += 1
            print(f"tree {seed}: FAILED: {e}", flush=True)
    print(f"{args.trees - failed} of {args.trees} trees are right")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
