#!/usr/bin/env python3
"""Random loads whose requests begin alike: prefixes.py --megalith BUILD/tools/megalith --model DIR --count 500

Each load is a pipeline with `index: true` in its pools, beside the same file without: every shipped one, and one that cuts
its KV at random places. Sizes, arrivals, cancellations and `cache` numbers are random. It has to hold that

* each request gets the tokens and the logits that it gets without an index; a cancelled one as many as it has;
* rows at a position behind the same tokens have the same K and V, whoever fed them and whether they were found;
* no request faults that does not without, and nothing is fed again that was found.

The executor checks after every tick that counts of holders are right and that pages add up. With `--device=cpu` the kernel
runs each load as well: it gives the reference executor's trace, results and logits. With `--device=cuda` kernels run both
files, and the reference executor goes through the trace of the one with an index (`--replay`). Then sizes are the same for all
loads of a pipeline, since each set of them is a kernel.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Goes back to a random place of its text now and then, as a rolling draft model does.
CUTS = """\
pipeline: cuts
models: {target: {}}
params: {slots: 4, rows_per_pass: 16, prefill_chunk: 8, kv_pages: 64, page_tokens: 4}
request: {cuts: i32 = 0}
states:
  fault: FAILED
  QUEUED:   {initial: true, next: [PREFILL, COMPLETE]}
  PREFILL:  {slot: true, next: [PREFILL, DECODE]}
  DECODE:   {slot: true, next: [PREFILL, COMPLETE]}
  COMPLETE: {terminal: true}
  FAILED:   {terminal: true}
kv:
  target: {pages: kv_pages, page_tokens: page_tokens, on_full: wait}
stages:
  admit: {on: QUEUED, do: [], goto: COMPLETE if finished else PREFILL}
  prefill:
    on: PREFILL
    do:
      - target(tokens[kv.target.len:-1], chunk=prefill_chunk, keep=none)
    goto: DECODE if kv.target.lag == 1 else PREFILL
  decode:
    on: DECODE
    do:
      - next: argmax(target([last]))
      - appended: append(next)
      - cuts: cuts + 1
      - back: (i32(last) * 7 + cuts * 13) % len(tokens)
      - kv.target.keep: back if cuts % 3 == 0 else len(tokens) - 1
      - count: tokens_committed += appended
    goto: COMPLETE if finished else PREFILL
"""


PLAIN = ("autoregressive", "sampled", "cuts", "priority_serving")  # no row is a draft


class Wrong(Exception):
    pass


def require(condition, *what):
    if not condition:
        raise Wrong(" ".join(map(str, what)))


def with_index(text):
    """The file with an index in each of its pools, whose requests wait for pages."""
    head, pools = re.split(r"(?m)^kv:\n", text)
    end = re.search(r"(?m)^\S", pools)
    kv, rest = pools[:end.start()], pools[end.start():]
    kv = re.sub(r"on_full: \w+", "on_full: wait", kv)
    return f"{head}kv:\n{kv}{rest}", f"{head}kv:\n" + re.sub(r"\}(\s*(#.*)?)$", r", index: true}\1", kv, flags=re.M) + rest


class Loads:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.lock, self.hashes = threading.Lock(), {}  # of the kernel: by pipeline, then by text
        self.texts = {path.stem: path.read_text() for path in sorted((ROOT / "pipelines").glob("*.yaml"))}
        # Of heads that it needs, of inputs, and of a trace.
        for name in ("medusa", "multi_token", "trace_replay"):
            self.texts.pop(name, None)
        self.texts["cuts"] = CUTS
        if args.only:
            self.texts = {name: self.texts[name] for name in args.only.split(",")}
        self.texts = {name: re.sub(", index: (share|auto)", "", text) for name, text in self.texts.items()}
        (folder / "models").symlink_to(ROOT / "pipelines/models")
        for name, text in self.texts.items():
            plain, indexed = with_index(text)
            require(indexed.count("index: true") == len(re.findall(r"on_full", plain)) > 0, name, "has no pool to index")
            (folder / f"{name}.plain.yaml").write_text(plain)
            (folder / f"{name}.index.yaml").write_text(indexed)

    def run(self, seed):
        rng = random.Random(seed)
        name = sorted(self.texts)[seed % len(self.texts)]
        page = rng.choice((1, 2, 4, 8))
        common = [[10 + rng.randrange(280) for _ in range(rng.choice((3, 8, 17, 40)))] for _ in range(rng.randint(1, 3))]
        requests, tick = [], 0
        for i in range(rng.randint(2, 12)):
            # Parts come behind different ones, too, at places where pages begin.
            prefix = sum((rng.choice(common) for _ in range(rng.choice((1, 1, 2, 3)))), [])
            prefix = prefix[:rng.choice((len(prefix), rng.randint(0, len(prefix))))]
            tick += rng.choice((0, 0, 0, 1, 5, 20))
            request = {"id": f"r{i}", "tokens": prefix + [10 + rng.randrange(280) for _ in range(rng.choice((0, 1, 6, 20)))] or [7],
                       "max_new_tokens": rng.choice((0, 1, 5, 17)), "eos": [], "priority": rng.choice((0, 0, 0, 1)),
                       "cache": rng.choice((0, 0, 0, 0, 5)), "arrives": {"tick": tick}}
            if rng.random() < 0.15:
                request["cancelled"] = {"tick": tick + rng.randint(0, 20)}
            if "sampl" in name and rng.random() < 0.5:
                request["sampling"] = {"temperature": 0.8, "seed": i}
            requests.append(request)
        beyond = 0 if name in PLAIN else 250  # rows that calls write behind the tokens
        longest = max(len(r["tokens"]) + r["max_new_tokens"] for r in requests) + beyond
        sizes = {"slots": rng.choice((1, 2, 3, 4)), "page_tokens": page, "prefill_chunk": rng.choice((1, 3, 8, 64)),
                 "kv_pages": rng.choice((1, 1, 2, 4)) * (longest // page + 2)}
        if self.args.device != "reference":
            sizes = {"slots": 3, "page_tokens": 4, "prefill_chunk": 8, "kv_pages": 2 * ((200 + beyond) // 4)}
        for other in ("draft_pages", "small_pages"):
            if re.search(rf"\b{other}:", self.texts[name]):
                sizes[other] = sizes["kv_pages"]
        options = [f"--set={key}={value}" for key, value in sizes.items() if re.search(rf"\b{key}:", self.texts[name])]
        device = "cuda" if self.args.device == "cuda" else "reference"
        results = [self.execute(seed, name, kind, requests, options, device) for kind in ("plain", "index")]
        self.compare(requests, *results)
        if self.args.device == "cpu":
            self.compare_kernel(requests, results[1], self.execute(seed, name, "index", requests, options, "cpu"))
        if self.args.device == "cuda" and name in PLAIN:
            with self.lock:
                self.collect(requests, results[1], self.hashes.setdefault(name, {}))
        return results

    def execute(self, seed, name, kind, requests, options, device):
        base = self.folder / f"{seed}.{kind}.{device}"
        paths = {key: base.with_suffix(f".{key}") for key in ("requests", "logits", "trace")}
        paths["requests"].write_text("".join(json.dumps(r) + "\n" for r in requests))
        line = [self.args.megalith, "run", self.folder / f"{name}.{kind}.yaml", f"--model={self.args.model}",
                f"--requests={paths['requests']}", f"--logits={paths['logits']}", f"--trace={paths['trace']}", "--kv-hash",
                f"--device={device}", "--format=json", f"--shuffle-pages={seed}", *options]
        if device != "reference":
            line += self.args.options.split()
        run = subprocess.run(list(map(str, line)), capture_output=True, text=True)
        require(run.returncode == 0, name, kind, *options, run.stderr[:600])
        if device == "cuda" and kind == "index":
            line = [self.args.megalith, "run", self.folder / f"{name}.{kind}.yaml", f"--model={self.args.model}",
                    f"--requests={paths['requests']}", "--device=reference", f"--replay={paths['trace']}",
                    f"--shuffle-pages={seed}", *options]
            again = subprocess.run(list(map(str, line)), capture_output=True, text=True)
            require(again.returncode == 0, name, "the trace is no run of the reference executor:", again.stderr[:600])
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        logits = paths["logits"].read_bytes()
        trace = [json.loads(line) for line in paths["trace"].read_text().splitlines()]
        for path in paths.values():
            path.unlink()
        return {"name": name, "results": lines[:-1], "summary": lines[-1]["summary"], "logits": logits, "trace": trace}

    def compare(self, requests, plain, indexed):
        for request, a, b in zip(requests, plain["results"], indexed["results"]):
            require(b["finish"] != "fault" or a["finish"] == "fault", request["id"], "faults:", b)
            if "cancelled" in request:
                count = min(len(a["tokens"]), len(b["tokens"]))
                require(a["tokens"][:count] == b["tokens"][:count], request["id"], "has other tokens")
            else:
                require(a["tokens"] == b["tokens"], request["id"], "has other tokens:", a["tokens"], b["tokens"])
        if not any("cancelled" in request for request in requests):
            require(plain["logits"] == indexed["logits"], "the logits differ")
        if plain["name"] in PLAIN:
            hashes = {}
            for run in (plain, indexed):
                self.collect(requests, run, hashes)

    def compare_kernel(self, requests, reference, kernel):
        def without_hash(trace):
            return [{**tick, "passes": [{k: v for k, v in p.items() if k != "kv_hash"} for p in tick.get("passes", [])]}
                    for tick in trace[1:-1]]

        def of_requests(run):
            return [(r["tokens"], r["finish"], r["passes"], r["rows"], r["found"]) for r in run["results"]]

        require(of_requests(reference) == of_requests(kernel), "the kernel's results differ:", of_requests(kernel))
        for a, b in zip(without_hash(reference["trace"]), without_hash(kernel["trace"])):
            require(a == b, "the kernel's trace differs in tick", a["tick"])
        require(len(reference["trace"]) == len(kernel["trace"]), "the kernel's trace has another length")
        require(reference["name"] == "canvas_refinement" or reference["logits"] == kernel["logits"], "the kernel's logits differ")
        if kernel["name"] in PLAIN:
            with self.lock:
                self.collect(requests, kernel, self.hashes.setdefault(kernel["name"], {}))

    def collect(self, requests, run, hashes):
        """K and V are a function of the tokens up to the position."""
        texts = [r["tokens"] + result["tokens"] for r, result in zip(requests, run["results"])]
        owner = {}
        for tick in run["trace"][1:-1]:
            for entry in tick["slots"]:
                if entry["slot"] >= 0:
                    owner[entry["slot"]] = entry["request"]
            for a_pass in tick["passes"]:
                for row, value in zip(a_pass["rows"], a_pass["kv_hash"]):
                    text = texts[owner[row[0]]][:row[2] + 1]
                    if len(text) == row[2] + 1:
                        require(hashes.setdefault(tuple(text), value) == value, "other K and V at position", row[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megalith", default="megalith")
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first load")
    parser.add_argument("--device", default="reference", choices=("reference", "cpu", "cuda"))
    parser.add_argument("--only", help="of these pipelines, separated by commas")
    parser.add_argument("--options", default="", help="for runs of the kernel, as `--check`")
    args = parser.parse_args()
    failed = found = 0
    with tempfile.TemporaryDirectory() as folder:
        loads = Loads(args, pathlib.Path(folder))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            numbers = range(args.first, args.first + args.count)
            for number, job in [(n, pool.submit(loads.run, n)) for n in numbers]:
                try:
                    plain, indexed = job.result()
                    found += indexed["summary"]["rows"] < plain["summary"]["rows"]
                except Wrong as error:
                    failed += 1
                    print(f"load {number}: {error}", file=sys.stderr)
    print(f"{args.count} loads on {args.device}: {failed} failed; in {found} of them less was fed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
