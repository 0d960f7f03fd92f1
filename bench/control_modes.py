#!/usr/bin/env python3
"""Who keeps the loop: time a token of `megalith bench` by --control, idle and with all cores busy.

    control_modes.py --shapes=llama-3.2-1b --batch=1,8 --eager

Prints a table and writes it to --out. README.md says what is measured.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import statistics

import megalith
from common import ROOT, find_shape, integers, progress

MODES = {"resident": [], "host": ["--control=host"], "graph": ["--control=graph"],
         "graph, 16 ticks": ["--control=graph", "--ticks-per-launch=16"],
         "resident, 16 ticks": ["--ticks-per-launch=16"]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default="llama-3.2-1b", help="by comma, as compare.py has them")
    parser.add_argument("--batch", type=integers, default=[1, 8])
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3, help="of all modes in turn (default 3)")
    parser.add_argument("--busy", type=int, default=os.cpu_count(), metavar="N",
                        help="processes that compute beside it (default: one a core)")
    parser.add_argument("--eager", action="store_true",
                        help="also the launches and the time of PyTorch's eager step")
    parser.add_argument("--megalith", metavar="PROGRAM")
    parser.add_argument("--out", default="bench-results", metavar="DIR")
    args = parser.parse_args()
    args.shapes = [find_shape(text) for text in args.shapes.split(",")]
    args.program = megalith.find(args.megalith)
    return args


def spin(ready):
    ready.set()
    x = 1
    while True:
        x = x * 3 % 1000003


class Busy:
    """Processes that compute, as many as asked for, as long as this lives."""

    def __init__(self, count):
        ready = [multiprocessing.Event() for _ in range(count)]
        self.processes = [multiprocessing.Process(target=spin, args=(event,), daemon=True)
                          for event in ready]
        for process in self.processes:
            process.start()
        for event in ready:
            event.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.join()


def measure(args, shape, batch, pipeline):
    """mode -> {False: times, True: times with busy cores} in ms, sorted; rounds alternate."""
    name, path, _ = shape
    times = {mode: {False: [], True: []} for mode in MODES}
    options = megalith.decode_options(path, args.context, batch, args.tokens)
    for number in range(args.rounds):
        for busy in (False, True):
            with Busy(args.busy if busy else 0):
                for mode, more in MODES.items():
                    found = megalith.bench(args.program, pipeline, [*options, *more], batch=batch)
                    times[mode][busy].append(found["ms"])
        progress(f"{name}, batch {batch}: round {number + 1} of {args.rounds}")
    return {mode: {busy: sorted(values) for busy, values in of.items()} for mode, of in times.items()}


def eager(args, shape, batch):
    """Launches of kernels and copies of one eager step by PyTorch's profiler, and its ms."""
    import peers
    import torch
    from torch.profiler import ProfilerActivity, profile
    progress(peers.open_device("cuda"))
    model = peers.build_model(shape[2], "cuda")
    work = peers.Decoder(model, batch, args.context, args.tokens)
    ready, _ = peers.prepare_all(work, ["eager"], (shape[0], "decode", args.context, batch))
    step = ready[0][1]
    ms = statistics.median(work.measure(step) for _ in range(args.rounds))
    work.reset()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(4):
            step()
        torch.cuda.synchronize()
    launches = sum(event.count for event in recorded.key_averages()
                   if event.key.startswith(("cudaLaunchKernel", "cuLaunchKernel")))
    del work, model
    peers.release()
    return {"ms": ms, "launches": launches / 4}


def main():
    args = arguments()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    pipeline = megalith.pipeline_at(ROOT / "pipelines/autoregressive.yaml")
    for shape in args.shapes:
        for batch in args.batch:
            times = measure(args, shape, batch, pipeline)
            plain = statistics.median(times["resident"][False])
            for mode, of in times.items():
                idle, busy = (statistics.median(of[which]) for which in (False, True))
                rows.append({"shape": shape[0], "batch": batch, "control": mode,
                             "launches_per_step": None,  # `megalith sweep` counts them
                             "ms": idle, "ratio": idle / plain, "busy_ms": busy,
                             "busy_most_ms": of[True][-1], "idle_by_busy": idle / busy})
            if args.eager:
                found = eager(args, shape, batch)
                rows.append({"shape": shape[0], "batch": batch, "control": "PyTorch eager",
                             "launches_per_step": found["launches"],
                             "ms": found["ms"], "ratio": found["ms"] / plain, "busy_ms": None,
                             "busy_most_ms": None, "idle_by_busy": None})
    heads = list(rows[0])
    shown = [[("-" if row[head] is None else f"{row[head]:.4g}" if isinstance(row[head], float)
               else str(row[head])) for head in heads] for row in rows]
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in
                     [heads, ["---"] * len(heads), *shown]) + "\n"
    print(text)
    (out / "control_modes.md").write_text(text)
    (out / "control_modes.json").write_text(json.dumps(
        {"context": args.context, "tokens": args.tokens, "busy": args.busy, "rows": rows},
        indent=1) + "\n")


if __name__ == "__main__":
    main()
