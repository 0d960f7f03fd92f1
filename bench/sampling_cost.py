#!/usr/bin/env python3
"""What sampling costs against `argmax`: microseconds a pass, by settings and batch.

    python3 bench/sampling_cost.py --shape=llama-3.2-1b --batch=1,8

Runs `megalith bench` on pipelines/autoregressive.yaml with its `argmax` replaced. Needs a GPU. Every other round goes
in reverse order, so that a drift of clocks meets all alike; the medians over the rounds are printed.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
PLAIN = "argmax(target([last]))"
VARIANTS = {
    "argmax": PLAIN,
    "T 0": "sample(target([last]), temperature=0.0)",
    "T 0.8": "sample(target([last]), temperature=0.8)",
    "T 0.8, top_p 0.9": "sample(target([last]), temperature=0.8, top_p=0.9)",
    "T 0.8, top_p 0.3": "sample(target([last]), temperature=0.8, top_p=0.3)",
    "T 0.8, top_k 50": "sample(target([last]), temperature=0.8, top_k=50)",
    "T 0.8, top_k 50, top_p 0.9": "sample(target([last]), temperature=0.8, top_k=50, top_p=0.9)",
    "T 0.8, min_p 0.05": "sample(target([last]), temperature=0.8, min_p=0.05)",
}


def measure(arguments, pipeline):
    command = [arguments.megalith, "bench", pipeline, f"--config={root}/bench/shapes/{arguments.shape}.json",
               f"--context={arguments.context}", f"--batch={arguments.batch}", f"--tokens={arguments.tokens}",
               "--json"] + (["--device=cpu"] if arguments.cpu else [])
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}\n{run.stderr}")
    return {line["batch"]: line for line in map(json.loads, run.stdout.splitlines()) if "batch" in line}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--context", default="128")
    parser.add_argument("--tokens", default="64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megalith", default=str(root / "build/tools/megalith"))
    parser.add_argument("--cpu", action="store_true", help="whether the pipelines run at all; no times")
    arguments = parser.parse_args()
    text = (root / "pipelines/autoregressive.yaml").read_text()
    assert PLAIN in text
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for number, (name, call) in enumerate(VARIANTS.items()):
            files[name] = f"{folder}/variant{number}.yaml"
            pathlib.Path(files[name]).write_text(text.replace(PLAIN, call))
        (pathlib.Path(folder) / "models").symlink_to(root / "pipelines/models")
        times = {}
        for turn in range(arguments.rounds):
            for name in list(files)[:: -1 if turn % 2 else 1]:
                for batch, line in measure(arguments, files[name]).items():
                    times.setdefault((name, batch), []).append(line.get("ms_per_token") or 0.0)
    print("| settings | batch | ms a token | us more than argmax |")
    print("| --- | --- | --- | --- |")
    for (name, batch), all_times in sorted(times.items(), key=lambda item: (item[0][1], list(VARIANTS).index(item[0][0]))):
        ms, plain = statistics.median(all_times), statistics.median(times["argmax", batch])
        print(f"| {name} | {batch} | {ms:.4f} | {(ms - plain) * 1000:+.1f} |")


if __name__ == "__main__":
    main()
