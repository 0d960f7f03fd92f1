#!/usr/bin/env python3
"""Measure what megalith promises, and print one line per bar.

    acceptance.py --megalith build/bin/megalith --work DIR [--only parity,bits] [--quick]

Needs a GPU with its driver, numpy, and for `parity` PyTorch and transformers. With
`--device reference` the sections run that make sense without a GPU. Checkpoints, inputs
and outputs of every run stay under --work, with `commands.log` and `results.json`.
The exit status is 1 if a bar was missed.
"""
import argparse
import concurrent.futures
import json
import pathlib
import sys
import time
import traceback

import bits
import control
import drafting
import inputs
import parity
import speed
from common import ROOT, Failure, Suite

SECTIONS = {**parity.SECTIONS, **bits.SECTIONS, **control.SECTIONS, **drafting.SECTIONS, **inputs.SECTIONS,
            **speed.SECTIONS}
# Sections of one phase run side by side; what counts time or launches runs alone.
# `replay` uses the error that `parity` measured.
PHASES = (("parity", "families", "bits", "lossless", "policy", "faults", "inputs", "passes", "greedy",
           "drawn", "replayed"),
          ("replay", "sanitizer"), ("launches",), ("modes",), ("interrupted",), ("speed",))
WITHOUT_GPU = ("families", "lossless", "bits", "passes", "replay", "policy", "inputs", "faults", "greedy", "drawn", "interrupted")


def find_shim(megalith):
    """launch_counter.so near the program, or in a build folder of the checkout."""
    places = [pathlib.Path(megalith).resolve().parents[1], ROOT / "build"]
    for place in places:
        for path in sorted(place.rglob("*launch_counter*.so")) if place.is_dir() else ():
            return path
    return None


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megalith", required=True, help="the program")
    parser.add_argument("--work", required=True, help="folder for checkpoints and outputs")
    parser.add_argument("--only", help=f"sections, by comma: {', '.join(SECTIONS)}")
    parser.add_argument("--skip", default="", help="sections to leave out")
    parser.add_argument("--quick", action="store_true", help="small models, few repetitions")
    parser.add_argument("--device", default="cuda", choices=("cuda", "reference"))
    parser.add_argument("--jobs", type=int, default=6,
                        help="processes at a time, but for timings; 1: nothing side by side")
    parser.add_argument("--shim", help="launch_counter.so")
    args = parser.parse_args()
    default = WITHOUT_GPU if args.device == "reference" else tuple(SECTIONS)
    args.sections = args.only.split(",") if args.only else default
    args.sections = [name for name in args.sections if name not in args.skip.split(",")]
    unknown = [name for name in args.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    args.shim = args.shim or find_shim(args.megalith)
    return args


def run_section(suite, name):
    """Runs one section; returns its seconds."""
    suite.section, begin = name, time.time()
    try:
        SECTIONS[name](suite)
    except Failure as failure:
        suite.bar("stopped", str(failure), "runs", False)
    except Exception as error:  # one section's trouble must not hide the others
        place = traceback.extract_tb(error.__traceback__)[-1]
        suite.bar("stopped", f"{type(error).__name__}: {error} "
                  f"({pathlib.Path(place.filename).name}:{place.lineno})", "runs", False)
    return round(time.time() - begin, 1)


def main():
    args = arguments()
    suite, times, begin = Suite(args), {}, time.time()
    for phase in PHASES:
        names = [name for name in phase if name in args.sections]
        workers = 1 if args.jobs == 1 else len(PHASES[0])
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            futures = {pool.submit(run_section, suite, name): name for name in names}
            for future in concurrent.futures.as_completed(futures):
                name = futures[future]
                times[name] = future.result()
                order = list(SECTIONS)
                bars = sorted(suite.rows, key=lambda row: order.index(row["section"]))
                (suite.work / "results.json").write_text(json.dumps(
                    {"device": args.device, "quick": args.quick, "seconds": times,
                     "bars": bars}, indent=1) + "\n")
    missed = [row for row in suite.rows if row["verdict"] == "FAIL"]
    held = sum(row["verdict"] == "PASS" for row in suite.rows)
    print("\nseconds: " + ", ".join(f"{name} {took}" for name, took in times.items()))
    for row in missed:
        print(f"MISSED {row['section']}: {row['what']}: {row['measured']}; bar: {row['bar']}")
    print(f"{held} bars held, {len(missed)} missed, {time.time() - begin:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
