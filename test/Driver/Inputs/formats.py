"""Answers that have a format, with models whose tokens are bytes.

    formats.py same PIPELINES N     N requests of each format: whoever drafts, the tokens are those of `sampled`, and each
                                    answer begins a text of its format
    formats.py refused PIPELINES    what is no request, and what ends one
"""
import json
import pathlib
import random
import re
import subprocess
import sys

from edits import runs

EOS = 255
STRING = r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
POINT = {"type": "object", "properties": {"y": {"type": "boolean"}, "a": {"enum": ["x", "yy", None]}}, "required": ["y", "a"],
         "additionalProperties": False}
LIST = {"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 1, "maxItems": 3}
FORMATS = [({"regex": "[a-c]{2,5}(-[0-9]{1,2})?"}, lambda t: re.fullmatch("[a-c]{2,5}(-[0-9]{1,2})?", t)),
           ({"choice": ["yes", "no", "nobody", "é"]}, lambda t: t in ("yes", "no", "nobody", "é")),
           ({"json_schema": POINT}, lambda t: (v := json.loads(t)) and list(v) == ["y", "a"] and v["y"] in (True, False)
            and v["a"] in ("x", "yy", None)),
           ({"json_schema": LIST}, lambda t: 1 <= len(v := json.loads(t)) <= 3 and all(isinstance(s, str) and len(s) <= 3 for s in v)),
           ({"json": 1}, lambda t: json.loads(t) is not ...)]


def request(rng, i, which, draws):
    sampling = {"format": FORMATS[which][0]}
    if draws:
        sampling |= {"temperature": rng.choice([.6, 1, 1.3]), "top_p": rng.choice([1, .9]), "top_k": rng.choice([0, 0, 12]), "seed": i}
    if rng.random() < .3:
        sampling["repetition_penalty"] = 1.5
    stop = rng.choice([[], [], [[ord("b")]], [[ord("a"), ord("a")]]])
    if rng.random() < .3 and [ord("b")] not in stop:  # a `b` that may not come yet may be the only token left
        sampling["min_new_tokens"] = rng.randrange(1, 6)
    if rng.random() < .3:
        sampling["bias"] = [[EOS, 4], [ord('"'), 3]]
    return {"id": f"{which}.{i}", "tokens": [rng.randrange(255) for _ in range(rng.randrange(1, 14))], "max_new_tokens": rng.randrange(4, 40),
            "eos": [EOS], "stop": stop, "sampling": sampling}


def results(pipeline, models, *options):
    run = subprocess.run(["megalith", "run", str(pipeline), *[f"--model={m}" for m in models], "--requests", "f.jsonl",
                          "--device=reference", "--set", "kv_pages=4000", *options], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{pipeline}: {run.stderr}")
    return {line["id"]: (line["tokens"], line["finish"], line["format"]) for line in map(json.loads, run.stdout.splitlines()) if "id" in line}


def check(answers, counts):
    for name, (tokens, finish, said) in answers.items():
        text = bytes(t for t in tokens if t != EOS)
        complete = False
        try:
            complete = bool(FORMATS[int(name.split(".")[0])][1](text.decode()))
        except ValueError:
            pass
        if complete != (said == "complete") or (EOS in tokens and not complete):
            print(f"WRONG: {name}: {tokens}, {said}")
        counts[said] += 1


def same(pipelines, count):
    folder, equal, counts = pathlib.Path(pipelines), 0, {"complete": 0, "partial": 0}
    for draws in (True, False):
        rng = random.Random(7)
        given = [request(rng, i, which, draws) for which in range(len(FORMATS)) for i in range(count)]
        pathlib.Path("f.jsonl").write_text("".join(json.dumps(r) + "\n" for r in given))
        for models, names in runs(draws):
            plain = results(folder / "sampled.yaml", [m.removeprefix("target=") for m in models[:1]])
            check(plain, counts)
            for name in names:
                got = results(folder / f"{name}.yaml", models, "--trace=f.trace")
                if results(folder / f"{name}.yaml", models, "--replay=f.trace") != got:
                    print(f"{name}: its replay is WRONG")
                wrong = [i for i in plain if got[i] != plain[i]]
                equal += not wrong and not draws
                if wrong:
                    print(f"{name}: DIFFERENT, request {wrong[0]}: {plain[wrong[0]]}, {got[wrong[0]]}")
    print(f"{equal} pipelines, each with the tokens of `sampled`; {'many' if counts['complete'] > count else 'few'} complete answers")


def refused(pipelines):
    def run(name, sampling, device="reference", model="m", **more):
        line = {"id": "a", "tokens": [5], "max_new_tokens": 9, "eos": [EOS]} | more | {"sampling": sampling}
        pathlib.Path("r.jsonl").write_text(json.dumps(line) + "\n")
        file = f"{name}.yaml" if pathlib.Path(f"{name}.yaml").exists() else f"{pipelines}/{name}.yaml"
        got = subprocess.run(["megalith", "run", file, "--model", model, "--requests", "r.jsonl",
                              f"--device={device}"], capture_output=True, text=True)
        said = [text for text in got.stderr.splitlines() if "error" in text or "note" in text]
        print(*(said or [f"accepted: {sampling}", json.loads(got.stdout.splitlines()[0]).get("text")]), sep="\n", flush=True)
    run("autoregressive", {"format": {"regex": "a"}})
    run("canvas_refinement", {"format": {"regex": "a"}})
    run("sampled", {"format": {"regex": "a"}}, device="cpu")
    run("sampled", {"format": {"regex": "a"}}, model="bpe")
    run("sampled", {"format": {"regex": "(a"}})
    run("sampled", {"format": {"regex": r"\bword"}})
    run("sampled", {"format": {"json_schema": {"type": "number", "minimum": 3}}})
    run("sampled", {"format": {"grammar": "x"}})
    run("sampled", {"format": 5})
    run("sampled", {"format": "{"})
    run("sampled", {"format": {"regex": ""}})
    run("sampled", {"format": {"regex": "a"}, "banned": [97]})
    run("sampled", {"format": '{"regex": "ab?"}', "banned": [EOS, 98]})
    run("sampled", {"format": {"regex": "abc"}, "banned": [98]})
    run("sampled", {"format": {"regex": "a"}, "min_new_tokens": 4})
    pathlib.Path("models").symlink_to(pathlib.Path(pipelines, "models").resolve())
    text = pathlib.Path(pipelines, "sampled.yaml").read_text()
    assert text.count("append(next)") == 1
    pathlib.Path("closes.yaml").write_text(text.replace("append(next)", "append(next + [33])"))
    run("closes", {"format": {"regex": "[a-z]{3}!?"}})


if __name__ == "__main__":
    same(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == "same" else refused(sys.argv[2])
