"""Compare a family's checkpoint with what `transformers` computed.

    compare.py DEVICE PROMPTS NAME... -- PIPELINE.yaml [OPTION...]

NAME is a file of ../goldens, or `all` for those whose family has a model file, or `quantised` or `kv` for those of
../goldens/quantised, or `tools` for those of ../goldens/tools, whose checkpoints lie in tools/ (one alone: tools/NAME).
Writes each other checkpoint anew, runs it on the device and compares the logits of every recorded row of the
first PROMPTS prompts: each is asked for as a request of its own, whose last token is that
row. A row's error is ||row - fp32|| / ||fp32||. A prompt may have 1.25 times the error that
transformers' own bf16 has, as a mean over its rows. The least cosine of a row is told, too.
"""
import base64
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDENS = ROOT / "test/Families/goldens"
sys.path.insert(0, str(ROOT / "tools"))
import golden_checkpoint

LIMIT = 1.25


def logits_of(model, requests, pipeline, options, device):
    pathlib.Path(f"{model}.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))
    run = subprocess.run(["megalith", "run", pipeline, "--model", model, "--requests", f"{model}.jsonl",
                          f"--device={device}", f"--logits={model}.logits", *options],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{model}: {run.stderr}")
    with open(f"{model}.logits", "rb") as file:
        header = json.loads(file.readline())
        assert header["ids"] == [request["id"] for request in requests]
        return [struct.unpack(f"<{width}f", file.read(4 * width)) for _, width in header["shapes"]]


def distance(x, y):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def cosine(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))


def compare(path, device, prompts, pipeline, options):
    golden = json.loads(path.read_text())
    if "tool" in golden:
        shutil.rmtree(path.stem, ignore_errors=True)
        shutil.copytree(ROOT / "test/Families/Inputs/tools" / path.stem, path.stem)
    else:
        golden_checkpoint.write(golden, path.stem)
    prompts = golden["prompts"][:prompts]
    requests = [{"id": f"{len(prompt['tokens'])}:{row['position']}", "eos": [], "max_new_tokens": 1,
                 "tokens": prompt["tokens"][:row["position"] + 1]} for prompt in prompts for row in prompt["rows"]]
    logits = iter(logits_of(path.stem, requests, pipeline, options, device))
    right, found, least = True, [], 1
    for prompt in prompts:
        ours = theirs = 0
        for row in prompt["rows"]:
            data = base64.b64decode(row["exact"])
            exact = struct.unpack(f"<{len(data) // 4}f", data)
            row_of = next(logits)
            ours += distance(row_of, exact) / math.hypot(*exact)
            least = min(least, cosine(row_of, exact))
            theirs += row["error"]
        count = len(prompt["rows"])
        right &= ours <= LIMIT * theirs
        found.append(f"{count} rows of {len(prompt['tokens'])} tokens {ours / count:.5f} / {theirs / count:.5f} = "
                     f"{ours / theirs:.3f}")
    print(f"{'right' if right else 'WRONG'}: {path.stem} on {device}: {', '.join(found)}; cosine {least:.5f}", flush=True)
    return right


def main():
    split = sys.argv.index("--") if "--" in sys.argv else 0
    if split < 4 or not sys.argv[2].isdecimal() or split + 1 == len(sys.argv):
        sys.exit(__doc__)
    device, prompts, *names = sys.argv[1:split]
    pipeline, *options = sys.argv[split + 1:]
    sets = {"all": golden_checkpoint.FAMILIES, "quantised": golden_checkpoint.QUANTISED, "kv": golden_checkpoint.KV,
            "tools": sorted(f"tools/{path.stem}" for path in (GOLDENS / "tools").iterdir())}
    names = sets.get(names[0], names)
    paths = [GOLDENS / ("quantised" if name in sets["quantised"] + sets["kv"] else "") / f"{name}.json" for name in names]
    if absent := [path.stem for path in paths if not path.is_file()]:
        sys.exit(f"compare.py: no golden {', '.join(absent)} in test/Families/goldens")
    results = [compare(path, device, int(prompts), pipeline, options) for path in paths]
    print(f"{sum(results)} of {len(results)} families right on {device}")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
