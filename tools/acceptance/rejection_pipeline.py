#!/usr/bin/env python3
"""The law of what stochastic_speculative gives, against plain sampling, through `megalith run`.

    rejection_pipeline.py --megalith build/bin/megalith --device cuda

Two random models with a vocabulary of 64 that disagree. In each of --runs runs --requests requests with one prompt and
seeds of their own generate 6 tokens, with drafts and without. Two-sample chi squared of each position's tokens and of the
pairs of the first two; the p-values of all must be above 0.001 divided by their number. (A run of 10,000 requests takes
some seconds on a GPU; rejection_law.cu has the rule itself, with 200,000 draws.)
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_random_model  # noqa: E402
from law import gamma_q  # noqa: E402

SETTINGS = ({"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.3, "top_k": 20},
            {"temperature": 0.9, "min_p": 0.05})
TOKENS = 6


def p_value(a, b):
    """Of two histograms of as many draws: that they have one law."""
    chi, cells, rest = 0.0, 0, [0, 0]
    for key in set(a) | set(b):
        if a[key] + b[key] < 16:
            rest[0] += a[key]
            rest[1] += b[key]
            continue
        chi += (a[key] - b[key]) ** 2 / (a[key] + b[key])
        cells += 1
    if sum(rest):
        chi += (rest[0] - rest[1]) ** 2 / sum(rest)
        cells += 1
    return gamma_q((cells - 1) / 2, chi / 2) if cells > 1 else 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megalith", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--requests", type=int, default=10000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        shape = dict(make_random_model.SHAPES["tiny"])
        shape["vocab_size"] = 64
        (work / "shape.json").write_text(json.dumps(shape))
        for seed, name in ((1, "target"), (2, "small")):
            subprocess.run([sys.executable, ROOT / "tools" / "make_random_model.py", "--shape", work / "shape.json", "--seed",
                            str(seed), "--out", work / name], check=True)
        ps = []
        for run in range(args.runs):
            settings = SETTINGS[run % len(SETTINGS)]
            with open(work / "requests.jsonl", "w") as out:
                for i in range(args.requests):
                    print(json.dumps({"id": f"r{i}", "tokens": [5, 17, 40], "max_new_tokens": TOKENS, "eos": [],
                                      "sampling": {**settings, "seed": run * args.requests + i}}), file=out)
            both = []
            for name, models in (("sampled", ["--model", f"{work}/target"]),
                                 ("stochastic_speculative", ["--model", f"target={work}/target", "--model", f"small={work}/small"])):
                sets = ["--set", "max_block=3", "--set", "mid_block=2"] if name != "sampled" else []
                done = subprocess.run([args.megalith, "run", ROOT / "pipelines" / f"{name}.yaml", *models, "--requests",
                                       work / "requests.jsonl", f"--device={args.device}", *sets], capture_output=True, text=True)
                if done.returncode:
                    sys.exit(done.stderr)
                both.append([json.loads(line)["tokens"] for line in done.stdout.splitlines() if '"tokens":[' in line])
            draws = [[tokens[i] for tokens in one] for one in both for i in range(TOKENS)]
            own = [p_value(collections.Counter(draws[i]), collections.Counter(draws[TOKENS + i])) for i in range(TOKENS)]
            own.append(p_value(*(collections.Counter(tuple(tokens[:2]) for tokens in one) for one in both)))
            print(f"run {run} {settings}: p " + " ".join(f"{p:.4f}" for p in own), flush=True)
            ps += own
        good = min(ps) > 0.001 / len(ps)
        print("ok" if good else "the law is another one")
        sys.exit(not good)


main()
