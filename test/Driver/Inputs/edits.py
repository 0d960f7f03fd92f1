"""Settings that follow a row's text, beside an implementation of their own here.

    edits.py rows PIPELINE MODEL N      N random requests, greedy: each token is the best of its edited row of logits
    edits.py same PIPELINES N           the same ones, drawn and not: all pipelines give the tokens of `sampled`
    edits.py refused PIPELINES          what is no request
    edits.py requests N [draws]         such requests, to stdout
"""
import json
import math
import pathlib
import random
import struct
import subprocess
import sys

VOCAB = 64


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def request(rng, i, draws):
    sampling = {}
    if rng.random() < .6:
        sampling["repetition_penalty"] = rng.choice([.7, 1.05, 1.3, 2.5])
    if rng.random() < .5:
        sampling["presence_penalty"] = rng.choice([-.6, .4, 1.5])
    if rng.random() < .5:
        sampling["frequency_penalty"] = rng.choice([-.3, .25, 1.1])
    if rng.random() < .4:
        sampling["min_new_tokens"] = rng.randrange(1, 9)
    if rng.random() < .4:
        sampling["bias"] = [[t, rng.choice([-4.5, -.75, .5, 2.25])] for t in rng.sample(range(VOCAB), rng.randrange(1, 6))]
    if rng.random() < .4:
        sampling["banned"] = rng.sample(range(VOCAB), rng.randrange(1, 12))
    if rng.random() < .3:
        sampling["allowed"] = rng.sample(range(VOCAB), rng.randrange(30, 50))
    if draws:
        sampling |= {"temperature": rng.choice([0, .4, .8, 1.3]), "top_p": rng.choice([1, .9]), "top_k": rng.choice([0, 0, 12]),
                     "min_p": rng.choice([0, 0, .02]), "seed": rng.randrange(1 << 30)}
    return {"id": str(i), "tokens": [rng.randrange(VOCAB) for _ in range(rng.randrange(1, 14))], "max_new_tokens": rng.randrange(4, 20),
            "eos": rng.sample(range(VOCAB), 3), "stop": [[rng.randrange(VOCAB) for _ in range(rng.choice([1, 2]))] for _ in range(rng.choice([0, 0, 1, 30]))][:16],
            "sampling": sampling}


def requests(count, draws=False):
    rng = random.Random(5)
    return [request(rng, i, draws) for i in range(count)]


def best(of, text, logits):
    """The token that the request gets after `text`."""
    s, prompt = of["sampling"], len(of["tokens"])
    z = list(logits)
    for token, number in s.get("bias", []):
        z[token] = f32(z[token] + f32(number))
    penalty = f32(s.get("repetition_penalty", 1))
    for token in set(text):
        if penalty != 1:
            z[token] = f32(z[token] / penalty if z[token] > 0 else z[token] * penalty)
    for token in set(text[prompt:]):
        if "frequency_penalty" in s:
            z[token] = f32(z[token] - f32(f32(s["frequency_penalty"]) * text[prompt:].count(token)))
        if "presence_penalty" in s:
            z[token] = f32(z[token] - f32(s["presence_penalty"]))
    out = set(s.get("banned", []))
    if "allowed" in s:
        out |= set(range(len(z))) - set(s["allowed"])
    if len(text) - prompt < s.get("min_new_tokens", 0):
        out |= set(of["eos"]) | {sequence[0] for sequence in of["stop"] if len(sequence) == 1}
    return max((t for t in range(len(z)) if t not in out), key=lambda t: (z[t], -t))


def ends(of, answer):
    """Whether the request ends behind these tokens."""
    early = len(answer) < of["sampling"].get("min_new_tokens", 0)
    return answer[-1] in of["eos"] or any(answer[-len(s):] == s and not (early and len(s) > 1) for s in of["stop"])


def rows(pipeline, model, count):
    given = requests(count)
    pathlib.Path("edits.jsonl").write_text("".join(json.dumps(r) + "\n" for r in given))
    run = subprocess.run(["megalith", "run", pipeline, "--model", model, "--requests", "edits.jsonl", "--device=reference",
                          "--logits=edits.logits", "--set", "kv_pages=64"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    results = {line["id"]: line for line in map(json.loads, run.stdout.splitlines()) if "id" in line}
    data = pathlib.Path("edits.logits").read_bytes()
    begin = data.index(b"\n") + 1
    numbers = struct.unpack(f"<{(len(data) - begin) // 4}f", data[begin:])
    at = wrong = tokens = changed = 0
    for of in given:
        text = list(of["tokens"])
        for token in results[of["id"]]["tokens"]:
            line = numbers[at:at + VOCAB]
            at += VOCAB
            wrong += best(of, text, line) != token or (len(text) > len(of["tokens"]) and ends(of, text[len(of["tokens"]):]))
            changed += max(range(VOCAB), key=lambda t: (line[t], -t)) != token
            text.append(token)
            tokens += 1
        answer = text[len(of["tokens"]):]
        wrong += not ends(of, answer) and len(answer) < of["max_new_tokens"]
    assert at == len(numbers)
    print(f"{tokens} tokens of {count} requests, {wrong} wrong; {'some' if changed > tokens / 10 else 'few'} are another one than without")


def results(pipeline, given, models, *options):
    run = subprocess.run(["megalith", "run", str(pipeline), *[f"--model={m}" for m in models], "--requests", given,
                          "--device=reference", "--set", "kv_pages=2000", *options], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{pipeline}: {run.stderr}")
    return {line["id"]: (line["tokens"], line["finish"]) for line in map(json.loads, run.stdout.splitlines()) if "id" in line}


SINGLE = ("adaptive_aimd", "adaptive_expected_gain", "adaptive_speculative", "lookahead", "prefix_cache", "priority_serving",
          "reference_speculative", "speculative_lookup", "structured", "token_tree_lookup", "trace_replay")
TWO = ("draft_model_speculative", "speculative_speculative", "token_tree_draft_model")
GREEDY = ("typical_acceptance", "stochastic_speculative")  # of draws they keep a law, not tokens


def runs(draws):
    """Models, and the pipelines that give the tokens of `sampled` with them."""
    two = ["target=m", "small=small"]
    return ((["m"], SINGLE if draws else SINGLE + GREEDY[:1]), (two, TWO if draws else TWO + GREEDY[1:]),
            (["heads"], ("multi_token", "medusa")))


def same(pipelines, count):
    folder, equal = pathlib.Path(pipelines), 0
    for draws in (True, False):
        pathlib.Path("s.jsonl").write_text("".join(json.dumps(r) + "\n" for r in requests(count, draws)))
        for models, names in runs(draws):
            plain = results(folder / "sampled.yaml", "s.jsonl", [m.removeprefix("target=") for m in models[:1]])
            for name in names:
                got = results(folder / f"{name}.yaml", "s.jsonl", models)
                wrong = [i for i in plain if got[i] != plain[i]]
                equal += not wrong and not draws
                if wrong:
                    print(f"{name}: DIFFERENT, request {wrong[0]}: {plain[wrong[0]]}, {got[wrong[0]]}")
    print(f"{equal} pipelines, each with the tokens of `sampled`")


def refused(pipelines):
    def run(name, sampling, **more):
        line = {"id": "a", "tokens": [5], "max_new_tokens": 3, "eos": [1]} | more | {"sampling": sampling}
        pathlib.Path("r.jsonl").write_text(json.dumps(line).replace("Infinity", "1e39") + "\n")
        file = f"{name}.yaml" if pathlib.Path(f"{name}.yaml").exists() else f"{pipelines}/{name}.yaml"
        got = subprocess.run(["megalith", "run", file, "--model", "m", "--requests", "r.jsonl",
                              "--device=reference"], capture_output=True, text=True)
        print(got.stderr.splitlines()[0] if got.returncode else f"accepted: {sampling}", flush=True)
    run("autoregressive", {"banned": [3]})
    run("canvas_refinement", {"presence_penalty": 1})
    text = pathlib.Path(pipelines, "sampled.yaml").read_text()
    pathlib.Path("models").symlink_to(pathlib.Path(pipelines, "models").resolve())
    line = "      - next: sample(rows[-1:], sampling)\n"
    best = "      - other: sample(rows[-1:], sampling)\n      - next: argmax(rows[-1:])\n"
    assert line in text
    pathlib.Path("argmax.yaml").write_text(text.replace(line, best).replace("append(next)", "append(next if len(other) > 0 else other)"))
    pathlib.Path("ahead.yaml").write_text(text.replace(line, line.replace("sampling", "sampling, ahead=min(0, len(tokens))")))
    run("argmax", {"banned": [3]})
    run("ahead", {"frequency_penalty": 1})
    run("ahead", {"banned": [3]})
    run("sampled", {"banned": list(range(64))})
    run("sampled", {"min_new_tokens": 1, "allowed": [1, 2]}, eos=[1], stop=[[2]])
    for sampling in ({"repetition_penalty": 0}, {"frequency_penalty": "1"}, {"presence_penalty": math.inf}, {"min_new_tokens": -1},
                     {"bias": [5]}, {"bias": [[5, 1], [5, 2]]}, {"bias": [[1.0, 2]]}, {"allowed": [1.5]}, {"bias": [[5, 2e4]]}, {"bias": {"5": 1}}, {"allowed": []}, {"banned": [5] * 1025},
                     {"banned": [64]}):
        run("sampled", sampling)


if __name__ == "__main__":
    if sys.argv[1] == "rows":
        rows(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1] == "same":
        same(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "refused":
        refused(sys.argv[2])
    else:
        for line in requests(int(sys.argv[2]), len(sys.argv) > 3):
            print(json.dumps(line))
