"""Answers that have a format, with models whose tokens are bytes.

    formats.py same PIPELINES N     N requests of each format: whoever drafts, the tokens are those of `sampled`, and each
                                    answer begins a text of its format
    formats.py spell                says in the file `spelled` that half of the tokens spell several bytes; all others of these
                                    take it where it stands
    formats.py forced PIPELINES     how many passes `structured` takes, of a model that says what is forced as it drafts it
    formats.py refused PIPELINES    what is no request, and what ends one
    formats.py kernels PIPELINES N NAME...
                                    requests with formats, penalties, bias and the like, N of each kind: kernels on the CPU
                                    executor give the tokens and ends of the reference executor, which accepts their traces
"""
import base64
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


def spelling():
    """Of each token its bytes, and the options that say so."""
    if not pathlib.Path("spelled").exists():
        return [bytes([t]) for t in range(256)] + [b""] * 4, []
    lines = (line.split() for line in pathlib.Path("spelled").read_text().splitlines())
    spelled = {int(token): base64.b64decode(text) for text, token in lines}
    return [spelled.get(t, b"") for t in range(260)], ["--token-bytes=spelled"]


def spell():
    rng = random.Random(3)
    parts = ['"true', "true", '{"', '{"y', '":', '": ', '"name"', '":true', ', "a', "ab", "é", '", "', "fal", "lse", "no", "long enough for no word"]
    spelled = [bytes([t]) for t in range(128)] + [b"\xc3", b"\xa9"]
    spelled += [rng.choice([p.encode() for p in parts] + [b"\xc3", b""]) for _ in range(len(spelled), 255)]
    lines = (f"{base64.b64encode(text).decode()} {token}\n" for token, text in enumerate(spelled) if text)
    pathlib.Path("spelled").write_text("".join(lines))


def forced(pipelines):
    """The bias lets the model say the longest token that begins what is forced, of equal ones the last."""
    spelled, options = spelling()
    wanted = [t for t, text in enumerate(spelled) if text in (b'{"y', b'": ', b"true", b', "a', b'"x', b"}")]
    bias = [[t, 60 + 20 * len(spelled[t]) + t / 100] for t in wanted] + [[ord("x"), 30], [ord(" "), 50]]
    line = {"id": "a", "tokens": [5], "max_new_tokens": 60, "eos": [EOS],
            "sampling": {"format": {"json_schema": {"type": "array", "items": POINT, "minItems": 3, "maxItems": 3}}, "bias": bias}}
    answers = {}
    for more in ({}, {"banned": [t for t, text in enumerate(spelled) if text == b'": ']}):
        pathlib.Path("f.jsonl").write_text(json.dumps(line | {"sampling": line["sampling"] | more}) + "\n")
        for name in ("structured", "sampled"):
            run = subprocess.run(["megalith", "run", f"{pipelines}/{name}.yaml", "--model=m", "--requests=f.jsonl", "--device=reference", *options],
                                 capture_output=True, text=True, check=True)
            answers[name] = json.loads(run.stdout.splitlines()[0])
        assert answers["structured"]["tokens"] == answers["sampled"]["tokens"] and answers["sampled"]["format"] == "complete"
        if not more:
            print(", ".join(f"{name}: {answer['passes']} passes" for name, answer in answers.items()))
            print("".join(spelled[t].decode() for t in answers["sampled"]["tokens"]), file=sys.stderr)
    print("banned: the same tokens")


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
                          "--device=reference", "--set", "kv_pages=4000", *spelling()[1], *options], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{pipeline}: {run.stderr}")
    return {line["id"]: (line["tokens"], line["finish"], line["format"]) for line in map(json.loads, run.stdout.splitlines()) if "id" in line}


def check(answers, counts):
    spelled, _ = spelling()
    for name, (tokens, finish, said) in answers.items():
        text = b"".join(spelled[t] for t in tokens if t != EOS)
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
    def run(name, sampling, model="m", **more):
        line = {"id": "a", "tokens": [5], "max_new_tokens": 9, "eos": [EOS]} | more | {"sampling": sampling}
        pathlib.Path("r.jsonl").write_text(json.dumps(line) + "\n")
        file = f"{name}.yaml" if pathlib.Path(f"{name}.yaml").exists() else f"{pipelines}/{name}.yaml"
        got = subprocess.run(["megalith", "run", file, "--model", model, "--requests", "r.jsonl",
                              "--device=reference"], capture_output=True, text=True)
        said = [text for text in got.stderr.splitlines() if "error" in text or "note" in text]
        print(*(said or [f"accepted: {sampling}", json.loads(got.stdout.splitlines()[0]).get("text")]), sep="\n", flush=True)
    run("autoregressive", {"format": {"regex": "a"}})
    run("canvas_refinement", {"format": {"regex": "a"}})
    run("sampled", {"format": {"regex": "a"}}, model="bpe")
    run("sampled", {"format": {"regex": "(a"}})
    run("sampled", {"format": {"regex": r"\bword"}})
    run("sampled", {"format": {"json_schema": {"type": "number", "multipleOf": 3}}})
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


def edited(rng, i, draws):
    """A request with settings that follow its text, and no format."""
    s = {"repetition_penalty": rng.choice([.7, 1, 1.3, 2]), "presence_penalty": rng.choice([-1, 0, .5, 3]),
         "frequency_penalty": rng.choice([-.5, 0, .25, 2]), "min_new_tokens": rng.choice([0, 0, 3, 7])}
    if rng.random() < .4:
        s["bias"] = [[token, rng.uniform(-5, 5)] for token in rng.sample(range(256), rng.choice([1, 5, 90]))]
    if rng.random() < .4:
        s["banned"] = rng.sample(range(256), 30)
    if rng.random() < .3:
        s["allowed"] = rng.sample(range(256), 60)
    if draws:
        s |= {"temperature": rng.choice([.6, 1, 1.3]), "top_p": rng.choice([1, .9]), "top_k": rng.choice([0, 0, 12]),
              "min_p": rng.choice([0, 0, .05]), "seed": i}
    return {"id": f"edited.{i}", "tokens": [rng.randrange(256) for _ in range(rng.randrange(1, 40))], "sampling": s,
            "max_new_tokens": rng.randrange(3, 30), "eos": rng.choice([[], [255], [3, 7]]), "stop": rng.choice([[], [[9]], [[1, 2], [5]]])}


def kernels(pipelines, count, names):
    def run(file, models, *options):
        got = subprocess.run(["megalith", "run", str(file), *[f"--model={m}" for m in models], "--requests", "k.jsonl", "--set",
                              "kv_pages=4000", *spelling()[1], *options], capture_output=True, text=True)
        lines = [json.loads(line) for line in got.stdout.splitlines()]
        return ([(r["id"], r["tokens"], r["finish"], r.get("format")) for r in lines if "id" in r], got.stderr.split("note: in the")[0])
    models = {name: given for draws in (True, False) for given, of in runs(draws) for name in of}
    equal = 0
    for name in names:
        for draws in (True, False):
            rng = random.Random(11 + draws)
            given = [request(rng, i, which, draws) for which in range(len(FORMATS)) for i in range(count)]
            given += [edited(rng, i, draws) for i in range(3 * count)]
            rng.shuffle(given)
            pathlib.Path("k.jsonl").write_text("".join(json.dumps(r) + "\n" for r in given))
            file, of = f"{pipelines}/{name}.yaml", models.get(name, ["m"])
            ours, kernel = run(file, of, "--device=reference"), run(file, of, "--device=cpu", "--trace=k.trace")
            replay = run(file, of, "--device=reference", "--replay=k.trace")
            equal += ours[0] == kernel[0] == replay[0] and len(ours[0]) == len(given)
            if not ours[0] == kernel[0] == replay[0]:
                print(f"{name}: DIFFERENT", kernel[1], replay[1], [pair for pair in zip(ours[0], kernel[0]) if pair[0] != pair[1]][:1])
    print(f"{equal} of {2 * len(names)} runs with the tokens of the reference executor")
    if "sampled" not in names:
        return
    pathlib.Path("models").symlink_to(pathlib.Path(pipelines, "models").resolve())
    text = pathlib.Path(pipelines, "sampled.yaml").read_text()
    pathlib.Path("closes.yaml").write_text(text.replace("append(next)", "append(next + [33])"))
    for name, sampling in (("closes", {"format": {"regex": "[a-z]{3}!?"}}), (f"{pipelines}/sampled", {"format": {"regex": "abc"}, "banned": [98]})):
        pathlib.Path("k.jsonl").write_text(json.dumps({"id": "a", "tokens": [5], "max_new_tokens": 9, "eos": [], "sampling": sampling}) + "\n")
        ours, kernel = (run(f"{name}.yaml", ["m"], f"--device={device}") for device in ("reference", "cpu"))
        print(kernel[1].splitlines()[0] if ours == kernel else f"DIFFERENT: {ours}, {kernel}")


if __name__ == "__main__":
    if sys.argv[1] == "kernels":
        kernels(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    elif sys.argv[1] == "spell":
        spell()
    elif sys.argv[1] == "forced":
        forced(sys.argv[2])
    else:
        same(sys.argv[2], int(sys.argv[3])) if sys.argv[1] == "same" else refused(sys.argv[2])
