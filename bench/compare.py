#!/usr/bin/env python3
"""Measure `megalith bench` and the PyTorch peers in turn, on one machine, and compare.

    compare.py --shapes=llama-3.2-1b --context=128 --peers=eager,cuda-graph

Prints a table and writes it with all measurements to --out. README.md says what is measured.
"""
import argparse
import json
import pathlib

import megalith
import peers
from common import (MEGALITH, PREFILL_PEERS, ROOT, Result, add_measuring_options,
                    check_measuring_options, combinations, fixed, find_shape, markdown, progress,
                    write_csv)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default="llama-3.2-1b",
                        help="by comma: names in shapes/, or config.json files "
                        "(default llama-3.2-1b)")
    parser.add_argument("--megalith", metavar="PROGRAM",
                        help="default: the one in build/tools, else in the PATH")
    parser.add_argument("--no-megalith", action="store_true", help="the peers alone")
    parser.add_argument("--pipeline", help="of megalith (default pipelines/autoregressive.yaml, and of prompts "
                        "pipelines/sampled.yaml: the pass of a prompt gives the token after it)")
    parser.add_argument("--megalith-options", default="", metavar="'--x=1 ...'",
                        help="more options for `megalith bench`")
    parser.add_argument("--out", default="bench-results", metavar="DIR",
                        help="folder for results.md, .csv and .json (default bench-results)")
    parser.add_argument("--check-tokens", action="store_true",
                        help="also compare megalith's tokens with PyTorch's logits")
    add_measuring_options(parser)
    args = parser.parse_args()
    check_measuring_options(parser, args)
    args.shapes = [find_shape(text) for text in args.shapes.split(",")]
    args.program = None if args.no_megalith else megalith.find(args.megalith)
    return args


class Megalith:
    """`megalith bench` as one more peer: every measurement is a process of its own."""

    def __init__(self, args, shape, phase, batch, size):
        path = shape[1]
        self.program, self.phase = args.program, phase
        default = ROOT / ("pipelines/autoregressive.yaml" if phase == "decode" else "pipelines/sampled.yaml")
        self.pipeline = megalith.pipeline_at(args.pipeline or default)
        if phase == "decode":
            self.options = megalith.decode_options(path, size, batch, args.tokens)
        else:
            self.options = megalith.prefill_options(path, size)
        self.options += args.megalith_options.split()
        self.wanted = {"context": size, "batch": batch}

    def call(self, *options):
        return megalith.bench(self.program, self.pipeline, [*self.options, *options],
                              **self.wanted)

    def measure(self, result):
        """Adds a time to `result`; after a failure, says so there and is not run again."""
        if result.note:
            return
        try:
            found = self.call()
            time = found["ms"] if self.phase == "decode" else megalith.prefill_ms(found)
        except (megalith.MegalithError, KeyError) as error:
            if isinstance(error, KeyError):
                error = f"no `{megalith.KEYS[error.args[0]]}` in its output"
            progress(f"megalith failed: {error}")
            result.note = "failed: " + str(error).split("\n")[0][:160].replace("|", "/")
            return
        result.times.append(time)
        if self.phase == "decode":  # the floor is that of decoding
            result.more = {key: value for key, value in found.items() if key != "tokens"}


class Comparison:
    def __init__(self, args, machine):
        self.args, self.machine, self.results, self.wrong = args, machine, [], 0
        self.out = pathlib.Path(args.out)

    def run(self, shape, model):
        jobs = [("decode", *pair) for pair in combinations(self.args)] + \
            [("prefill", 1, length) for length in self.args.prefill]
        for job in jobs:
            progress(f"{shape[0]}: {job[0]}, batch {job[1]}, {job[2]} positions")
            self.measure(shape, model, *job)
            self.write()  # what is there stays if a later one is interrupted
            peers.release()

    def measure(self, shape, model, phase, batch, size):
        """All peers at one place, in turn: every other round in reverse."""
        args, place = self.args, (shape[0], phase, size, batch)
        if phase == "decode":
            work, names = peers.Decoder(model, batch, size, args.tokens,
                                        args.attention), args.peers
        else:
            work, names = peers.Prefill(model, size), PREFILL_PEERS
        ready, failed = peers.prepare_all(work, names, place)
        turns = [(result, lambda result, step=step: result.times.append(work.measure(step)))
                 for result, step in ready]
        if args.program:
            ours = Megalith(args, shape, phase, batch, size)
            turns.insert(0, (Result(*place, MEGALITH), ours.measure))
        for repeat in range(args.repeats):
            for result, turn in turns[::-1] if repeat % 2 else turns:
                turn(result)
            progress(f"round {repeat + 1} of {args.repeats}: " + ", ".join(
                f"{result.peer} {fixed(result.times[-1], 3)}" for result, _ in turns
                if result.times))
        self.results += [result for result, _ in turns] + failed
        if args.program and args.check_tokens and phase == "decode":
            self.check(shape, model, size, ours, turns[0][0])

    def check(self, shape, model, context, ours, result):
        """One more run, which feeds its prompt: K and V of the others are random numbers."""
        import check_tokens
        if result.note:
            return
        try:
            tokens = ours.call("--prefill").get("tokens")
        except megalith.MegalithError as error:
            progress(f"megalith failed: {error}")
            tokens = None
        if not tokens:
            result.note = "failed: no tokens to check"
            return
        verdict = check_tokens.check(model, shape[2], context, tokens)
        progress(f"tokens: {verdict}")
        result.note = "tokens wrong" if verdict.wrong else "tokens right"
        self.wrong += bool(verdict.wrong)

    def text(self):
        return (f"{self.machine}. Median of {self.args.repeats} rounds of {self.args.tokens} "
                "steps, the peers in turn; ratio: the peer's time by megalith's; in bold: the "
                f"fastest peer.\n\n{markdown(self.results)}")

    def write(self):
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "results.md").write_text(self.text())
        write_csv(self.out / "results.csv", self.results)
        (self.out / "results.json").write_text(json.dumps(
            {"machine": self.machine, "tokens": self.args.tokens,
             "results": [result.json() | {"megalith": result.more} for result in self.results]},
            indent=1) + "\n")


def main():
    args = arguments()
    machine = peers.open_device(args.device)
    progress(machine)
    comparison = Comparison(args, machine)
    for shape in args.shapes:
        model = peers.build_model(shape[2], args.device)
        comparison.run(shape, model)
        del model
        peers.release()
    print(comparison.text())
    progress(f"written to {comparison.out}/results.md, .csv and .json")
    failed = any(result.note.startswith("failed") for result in comparison.results)
    return 1 if failed or comparison.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
