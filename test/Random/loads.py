#!/usr/bin/env python3
"""Random loads on pools that wait: loads.py --megalith BUILD/tools/megalith --model DIR --count 500

Each load is a shipped pipeline with `on_full: wait`, random sizes and random requests, each of
which fits the pool alone. It has to hold that

* no request faults, and each gets the tokens that it gets when it has the pool for itself;
* nothing stands still that could go: what the trace shows is checked here against the rules of
  docs/ir.md by other means than the executors' (who agree with each other, right or wrong):
    admission  requests are seated in the order (priority, number), and whoever is not seated
               finds no free slot, or too few pages beside what those in the slots may come to need
    rows       a pass is full, or every request in a slot has all the rows it can use; prompts may have all that
               `rows_beside` leaves them while somebody decodes
    turns      nobody has rows while a request that waits longer has none, but for prompts that have all of these
    pages      no page belongs to two requests, and nobody holds more than it reserved; all pages are
               there that a request's next row sees, and where all layers have a window none in front of them

With --device=cpu the emitted kernel runs, its trace is checked the same way, and the reference
executor replays it. Sizes are constants of a kernel, so --kernels says how many there are. With --whole,
passes have more than 128 rows, and run whole.
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

PIPELINES = ("autoregressive", "speculative_lookup", "adaptive_speculative", "adaptive_aimd", "adaptive_expected_gain")


def ceil_div(a, b):
    return -(-a // b)


class Wrong(Exception):
    pass


def require(condition, *what):
    if not condition:
        raise Wrong(" ".join(map(str, what)))


def random_sizes(rng, whole):
    name = rng.choice(PIPELINES)
    plain = name == "autoregressive"
    block = 0 if plain else rng.randint(1, 8)
    sizes = {
        "slots": rng.choice((1, 2, 3, 4, 8)),
        "rows_per_pass": rng.randint(1 if plain else block + 1, 40),
        "prefill_chunk": rng.choice((1, 2, 3, 5, 8, 16, 64)),
        "page_tokens": rng.choice((16, 16, 32)),
    }
    window = rng.choice((0, 0, 1, 5, 16, 40))
    if window:
        sizes["page_tokens"] = rng.choice((1, 4, 8, 16))
    if whole:
        sizes.update(rows_per_pass=rng.randint(129, 300), prefill_chunk=rng.choice((100, 150, 300)), page_tokens=rng.choice((8, 16)))
    if name == "speculative_lookup":
        sizes["block"] = block
    elif name == "adaptive_speculative":
        sizes.update(max_block=block, mid_block=max(1, block // 2), min_block=1, pressure_block=min(2, block))
    elif not plain:
        sizes.update(max_block=block, pressure_block=min(2, block))
    sizes["rows_beside"] = rng.choice((sizes["rows_per_pass"], rng.randint(1, sizes["rows_per_pass"])))
    return name, window, sizes, 0 if plain else block + 1


def random_requests(rng, beyond, sizes, whole):
    requests, size = [], rng.choice((150, 400) if whole else (8, 40, 90))
    for i in range(rng.randint(1, 10)):
        period = rng.randint(1, 12)
        requests.append({
            "id": f"r{i}",
            "tokens": [10 + (rng.randrange(period) if rng.random() < 0.2 else j % period) * 3 + i
                       for j in range(rng.randint(1, size))],
            "max_new_tokens": rng.choice((0, 1, 2, 3, 7, 20, min(size, 90))),
            "eos": rng.choice(([], [], [rng.randrange(300)], list(range(0, 300, 7)))),
            "priority": rng.choice((0, 0, 0, -1, 1, 2)),
        })
    worst = [ceil_div(len(r["tokens"]) + r["max_new_tokens"] + beyond, sizes["page_tokens"]) for r in requests]
    return requests, worst


class Checker:
    """Follows a trace. What a request may need, and what it wants of a pass, is computed from its
    prompt, its budget and the lengths in the trace alone."""

    def __init__(self, name, window, sizes, pages, requests, worst, trace):
        self.plain = name == "autoregressive"
        self.window, self.sizes, self.pages, self.requests, self.worst = window, sizes, pages, requests, worst
        if window:  # what a row sees, drafts of the pass before, and a pass
            most = ceil_div(window + 2 * sizes["rows_per_pass"] - 2, sizes["page_tokens"]) + 1
            self.worst = [min(w, most) for w in worst]
        self.trace = trace
        self.state = ["QUEUED"] * len(requests)
        self.slot = [None] * len(requests)
        self.length = [0] * len(requests)   # valid positions
        self.tokens = [len(r["tokens"]) for r in requests]
        self.since = [None] * len(requests)  # tick in which its call was issued

    def run(self):
        for tick in self.trace[1:-1]:
            require("faults" not in tick, "a fault in tick", tick["tick"], tick.get("faults"))
            self.admission(tick)
            if self.plain:
                self.passes(tick)
            self.page_tables(tick)
            self.take(tick)
        for i, state in enumerate(self.state):
            require(state == "COMPLETE", "request", i, "ended in", state)

    def admission(self, tick):
        """The states after the tick say who left the queue; rules say who had to."""
        number = tick["tick"]
        # Slots of those that ended in an earlier tick are free by now.
        for i, state in enumerate(self.state):
            if state == "COMPLETE":
                self.slot[i] = None
        queue = [i for i, state in enumerate(self.state) if state == "QUEUED"]
        queue.sort(key=lambda i: (-self.requests[i]["priority"], i))
        after = {entry["request"]: entry for entry in tick["slots"]}
        left = [i for i in queue if i in after and after[i]["after"] != "QUEUED"]
        require(left == queue[:len(left)], "tick", number, "overtook:", left, "left, in front was", queue)
        seated = [i for i, slot in enumerate(self.slot) if slot is not None]
        reserved = sum(self.worst[i] for i in seated)
        for i in left:
            require(len(seated) < self.sizes["slots"], "tick", number, ": no slot for", i)
            require(reserved + self.worst[i] <= self.pages, "tick", number, ":", i, "reserved too much")
            if after[i]["slot"] >= 0:
                seated.append(i)
                reserved += self.worst[i]
                self.slot[i] = after[i]["slot"]
                self.state[i] = "PREFILL"
                self.since[i] = number
            else:
                require(self.requests[i]["max_new_tokens"] == 0, i, "ended without a slot")
        if len(left) < len(queue):
            head = queue[len(left)]
            require(len(seated) == self.sizes["slots"] or reserved + self.worst[head] > self.pages,
                    "tick", number, ":", head, "could have been seated;", reserved, "of", self.pages,
                    "pages reserved, it needs", self.worst[head])

    def passes(self, tick):
        number, rows = tick["tick"], {}
        for a_pass in tick["passes"]:
            for row in a_pass["rows"]:
                rows[row[0]] = rows.get(row[0], 0) + 1
        wants = {}
        for i, slot in enumerate(self.slot):
            if slot is None or self.state[i] == "COMPLETE":
                continue
            pending = self.tokens[i] - 1 - self.length[i]
            wants[i] = 1 if self.state[i] == "DECODE" else min(pending, self.sizes["prefill_chunk"])
        got = {i: rows.get(self.slot[i], 0) for i in wants}
        require(sum(got.values()) == sum(rows.values()), "tick", number, ": rows of nobody")
        most = self.sizes["rows_per_pass"]
        prompts = [i for i in wants if self.state[i] == "PREFILL"]
        decodes = len(wants) - len(prompts)
        limit = self.sizes["rows_beside"] if decodes else most
        fed = sum(got[i] for i in prompts)
        require(fed <= limit, "tick", number, ": prompts got", fed, "rows beside others")
        require(sum(got.values()) == min(most, decodes + min(limit, sum(wants[i] for i in prompts))),
                "tick", number, ": stood still:", got, "of", wants)
        for i in wants:
            require(got[i] <= wants[i], "tick", number, ": request", i, "got", got[i], "rows, wanted", wants[i])
            if wants[i] > 0 and got[i] == 0:
                for other in prompts if i in prompts and fed == limit else wants:
                    require(got[other] == 0 or self.since[other] <= self.since[i],
                            "tick", number, ":", other, "had rows, and", i, "waits longer")
        for i in wants:
            if got[i] > 0 or wants[i] == 0:
                self.since[i] = number + 1  # its next call
            if got[i] > 0 and self.state[i] == "DECODE":
                self.tokens[i] += 1

    def take(self, tick):
        for entry in tick["slots"]:
            i = entry["request"]
            require(entry["before"] in (self.state[i], "QUEUED"), i, "was in", self.state[i])
            self.state[i] = entry["after"]
            self.length[i] = entry["kv"][0]["len"]

    def page_tables(self, tick):
        owner = {}
        for entry in tick["slots"]:
            i, table = entry["request"], entry["kv"][0]["pages"]
            length, first = entry["kv"][0]["len"], entry["kv"][0].get("first", 0)
            require(len(table) <= self.worst[i], "request", i, "holds", len(table), "pages of", self.worst[i])
            # The tick began with the length of the one before. No position in front of `seen` will be seen again.
            size = self.sizes["page_tokens"]
            seen = max(0, self.length[i] - self.window + 1) if self.window else 0
            require(first == seen // size, "request", i, "gave", first, "pages back, its next row sees", seen, "and on")
            require(length <= (first + len(table)) * size, "request", i, "lacks pages of its", length, "positions")
            for page in table:
                require(0 <= page < self.pages and owner.setdefault(page, i) == i, "page", page, "has two owners")


class Tool:
    def __init__(self, args, scratch):
        self.megalith, self.model, self.scratch = args.megalith, args.model, pathlib.Path(scratch)
        self.whole = args.whole
        self.root = pathlib.Path(__file__).resolve().parents[2]
        for name in PIPELINES:
            text = (self.root / "pipelines" / f"{name}.yaml").read_text()
            (self.scratch / f"{name}.yaml").write_text(re.sub(r"on_full: fail", "on_full: wait", text))
        (self.scratch / "models").symlink_to(self.root / "pipelines/models")

    def model_with(self, window):
        """The checkpoint; with a window, the same weights as those of a model of another family."""
        if not window:
            return self.model
        folder = self.scratch / f"window-{window}"
        if not folder.exists():
            made = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
            for path in pathlib.Path(self.model).resolve().iterdir():
                if path.name != "config.json":
                    (made / path.name).symlink_to(path)
            config = json.loads((pathlib.Path(self.model) / "config.json").read_text())
            for key in ("attention_bias", "mlp_bias"):
                config.pop(key)
            config.update(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=window)
            (made / "config.json").write_text(json.dumps(config))
            try:
                made.rename(folder)
            except OSError:  # another thread was faster
                require(folder.exists(), "no model with a window")
        return folder

    def run(self, name, window, sizes, pages, requests, device, *more):
        command = [self.megalith, "run", self.scratch / f"{name}.yaml", "--model", self.model_with(window),
                   "--requests", requests, f"--device={device}"]
        if device == "cpu":
            command += ["--plan", f"passes={'whole' if self.whole else 'pieces'}"]
        for key, value in {**sizes, "kv_pages": pages}.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run([*map(str, command), *map(str, more)], capture_output=True, text=True)
        require(done.returncode == 0, done.stderr.partition("\n")[0] or f"exit code {done.returncode}")
        return [json.loads(line) for line in done.stdout.splitlines()]


def one_load(tool, seed, device, kernels):
    """Returns what was wrong, or nothing."""
    # A kernel's sizes are those of its number; the pool is large enough for the largest request.
    rng = random.Random(f"kernel {seed % kernels}") if kernels else random.Random(seed)
    name, window, sizes, beyond = random_sizes(rng, tool.whole)
    pages = rng.choice((60, 90) if tool.whole else (6, 8, 12, 20)) if kernels else None
    rng = random.Random(f"load {seed}")
    requests, worst = random_requests(rng, beyond, sizes, tool.whole)
    if pages:
        fitting = [i for i, w in enumerate(worst) if w <= pages]
        requests, worst = [requests[i] for i in fitting], [worst[i] for i in fitting]
        if not requests:
            return ""
    else:
        pages = max(worst) + rng.choice((0, 0, 1, 2, 5))
    files = {}
    for what in ("requests", "trace"):
        files[what] = tool.scratch / f"{device}-{seed}-{what}.jsonl"
    files["requests"].write_text("".join(json.dumps(r) + "\n" for r in requests))
    try:
        results = tool.run(name, window, sizes, pages, files["requests"], device, "--trace", files["trace"])
        trace = [json.loads(line) for line in files["trace"].read_text().splitlines()]
        if device != "reference":
            tool.run(name, window, sizes, pages, files["requests"], "reference", "--replay", files["trace"])
        else:
            alone = tool.run(name, window, {**sizes, "slots": 1}, pages, files["requests"], device)
            for one, other in zip(results[:-1], alone[:-1]):
                require(one["tokens"] == other["tokens"], one["id"], "has other tokens than alone")
        Checker(name, window, sizes, pages, requests, worst, trace).run()
    except Wrong as wrong:
        return f"load {seed}: {name} with {sizes}, {pages} pages and a window of {window}: {wrong}"
    finally:
        for path in files.values():
            path.unlink(missing_ok=True)
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megalith", default="megalith", help="the tool")
    parser.add_argument("--model", required=True, help="checkpoint, of make_random_model.py --shape tiny say")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--device", default="reference", choices=("reference", "cpu"))
    parser.add_argument("--kernels", type=int, default=0, help="kernels that the loads share (of --device=cpu)")
    parser.add_argument("--whole", action="store_true", help="large passes, which run whole")
    args = parser.parse_args()
    if args.device == "cpu" and args.kernels < 1:
        parser.error("--device=cpu needs --kernels")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        tool = Tool(args, scratch)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            seeds = range(args.first, args.first + args.count)
            if args.kernels:  # each kernel is compiled once, before others look for it
                list(pool.map(lambda seed: one_load(tool, seed, args.device, args.kernels), seeds[:args.kernels]))
            for number, wrong in enumerate(pool.map(
                    lambda seed: one_load(tool, seed, args.device, args.kernels), seeds), 1):
                if wrong:
                    failed += 1
                    print(wrong, flush=True)
                if number % 100 == 0 and sys.stderr.isatty():
                    print(f"\r{number} of {args.count} loads", end="", file=sys.stderr, flush=True)
    print(f"{args.count} loads on {args.device}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
