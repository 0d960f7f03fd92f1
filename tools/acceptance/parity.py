"""Logits against `transformers` in fp32, with `transformers` in bf16 as the yardstick."""
import json
import os
import pathlib
import sys

from common import ROOT, Failure, Run

LIMIT = 1.25


def parity(suite):
    models = ["demo", "awkward"] if suite.quick else ["demo", "awkward", "llama-1b", "qwen3-0.6b"]
    new_tokens = 16 if suite.quick else 64
    runs = [Run("autoregressive", model, suite.prompts(model, new_tokens), logits=True,
                sets={"kv_pages": 256}) for model in models]
    outcomes = suite.all(runs, jobs=2)
    jobs = [{"model": model, "directory": str(suite.model(model)),
             "logits": str(outcome.folder / "logits.bin"),
             "requests": [{"id": request["id"], "prompt": request["tokens"],
                           "tokens": outcome.requests[request["id"]]["tokens"]}
                          for request in outcome.run.requests]}
            for model, outcome in zip(models, outcomes)]
    path = suite.work / "parity_jobs.json"
    path.write_text(json.dumps(jobs))
    # A process of its own, so that no other CUDA context stays during later sections.
    worker = suite.execute([sys.executable, pathlib.Path(__file__).with_name("parity_worker.py"),
                            path], timeout=400)
    if worker.returncode:
        raise Failure(f"parity_worker.py: {worker.stderr.strip()[-800:]}")
    for line in worker.stdout.splitlines():
        if line.startswith("{"):
            report(suite, json.loads(line), new_tokens)


def report(suite, found, new_tokens):
    name = f"{found['model']}, {len(found['prompts'])} prompts x {new_tokens}"
    rows = sum(len(prompt["ours"]) for prompt in found["prompts"])
    expected = len(found["prompts"]) * new_tokens
    ours = [e for prompt in found["prompts"] for e in prompt["ours"]]
    theirs = [e for prompt in found["prompts"] for e in prompt["theirs"]]
    suite.parity_error[found["model"]] = max(ours)
    mean = (sum(ours) / rows) / (sum(theirs) / rows)
    per_prompt = [sum(p["ours"]) / sum(p["theirs"]) for p in found["prompts"]]
    suite.bar(f"{name}: error, ratio of means",
              f"{sum(ours) / rows:.5f} / {sum(theirs) / rows:.5f} = {mean:.3f}",
              f"<= {LIMIT}", mean <= LIMIT and rows == expected)
    suite.bar(f"{name}: the worst prompt's ratio", f"{max(per_prompt):.3f}", f"<= {LIMIT}",
              max(per_prompt) <= LIMIT)
    suite.bar(f"{name}: largest error of a row", f"{max(ours):.5f} (theirs {max(theirs):.5f})",
              "recorded", None)
    other = sum(p["not_argmax"] for p in found["prompts"])
    far = sum(p["too_far"] for p in found["prompts"])
    suite.bar(f"{name}: tokens neither fp32's argmax nor within the error",
              f"{far} of {rows} ({other} not argmax)", "0", far == 0)
    wrong = sum(p["not_own_argmax"] for p in found["prompts"])
    suite.bar(f"{name}: tokens that are not the lowest argmax of our logits", wrong, "0",
              wrong == 0)


def families(suite):
    """Tiny checkpoints of every family against the recorded logits of `transformers`."""
    compare = ROOT / "test/Families/Inputs/compare.py"
    folder = suite.folder()
    done = suite.execute([sys.executable, compare, suite.device, 2, "all", "--", suite.pipeline("autoregressive")],
                         {"PATH": f"{suite.megalith.parent}{os.pathsep}{os.environ['PATH']}"}, 600, folder)
    lines = done.stdout.splitlines()
    for line in lines[:-1]:
        verdict, name, what = line.split(": ", 2)
        suite.bar(name, what, f"<= {LIMIT}", verdict == "right")
    if not lines or " families right " not in lines[-1]:
        raise Failure(f"compare.py: {(done.stderr or done.stdout).strip()[-800:]}")


SECTIONS = {"parity": parity, "families": families}
