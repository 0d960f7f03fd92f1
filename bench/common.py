"""What the scripts share and that needs no PyTorch: shapes, peers, results, tables."""
import argparse
import csv
import dataclasses
import json
import pathlib
import statistics
import sys
import time

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
MEGALITH = "megalith"
# Name: what it is. The order is that of the tables.
PEERS = {
    "eager": "PyTorch, eager",
    "reduce-overhead": "torch.compile, mode reduce-overhead",
    "max-autotune": "torch.compile, mode max-autotune",
    "cuda-graph": "the eager step, captured once in a CUDA graph",
}
PREFILL_PEERS = ("eager", "compiled")
SWEEP_CONTEXT, SWEEP_BATCHES = 512, (1, 2, 4, 8, 16, 32, 64)
START = time.monotonic()


def progress(text):
    print(f"[{time.monotonic() - START:6.1f} s] {text}", file=sys.stderr, flush=True)


def fail(text):
    sys.exit(f"error: {text}")


def shape_names():
    return sorted(path.stem for path in (BENCH / "shapes").glob("*.json"))


def find_shape(text):
    """(name, path, config) of a shape of this folder, or of a config.json."""
    path = BENCH / "shapes" / f"{text}.json"
    if text not in shape_names():
        path = pathlib.Path(text)
        if not path.is_file():
            fail(f"`{text}` is neither a shape ({', '.join(shape_names())}) nor a file")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        fail(f"{path} is not JSON: {error}")
    if config.get("model_type") not in ("llama", "qwen3"):
        fail(f"{path}: `model_type` must be `llama` or `qwen3`")
    # Of two files `config.json`, the folders tell which is which.
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return name, path.resolve(), config


def integers(text):
    """argparse type: positive integers by comma, each once."""
    try:
        values = [int(part) for part in text.split(",")]
    except ValueError:
        values = [0]
    if min(values) < 1:
        raise argparse.ArgumentTypeError(f"`{text}`: positive integers by comma are expected")
    return list(dict.fromkeys(values))


def peer_names(text):
    """argparse type: peers by comma, in the order of PEERS."""
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no peer `{', '.join(unknown)}`; there are {', '.join(PEERS)}")
    return [name for name in PEERS if name in names]


def add_measuring_options(parser):
    """The options of peers.py and compare.py alike."""
    parser.add_argument("--context", type=integers, default=[128],
                        help="positions in the KV cache before decoding (default 128)")
    parser.add_argument("--batch", type=integers, default=[1], help="sequences (default 1)")
    parser.add_argument("--sweep", action="store_true",
                        help=f"also batch {SWEEP_BATCHES[0]} to {SWEEP_BATCHES[-1]} "
                        f"at context {SWEEP_CONTEXT}")
    parser.add_argument("--tokens", type=int, default=64, metavar="N",
                        help="decode steps per measurement (default 64)")
    parser.add_argument("--repeats", type=int, default=5, metavar="N",
                        help="measurements, of which the median counts (default 5)")
    parser.add_argument("--prefill", type=integers, default=[], metavar="N,...",
                        help="also time one forward over prompts of N tokens, batch 1")
    parser.add_argument("--peers", type=peer_names, default=list(PEERS),
                        help=f"by comma, of {', '.join(PEERS)}; default all")
    parser.add_argument("--attention", choices=("grouped", "sdpa"), default="grouped",
                        help="of the peers' decode step; see README.md (default grouped)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu is for trying the scripts out only")


def check_measuring_options(parser, args):
    if args.tokens < 1 or args.repeats < 1:
        parser.error("--tokens and --repeats must be at least 1")
    if args.device == "cpu" and "cuda-graph" in args.peers:
        progress("no peer cuda-graph on a CPU")
        args.peers.remove("cuda-graph")


def combinations(args):
    """(batch, context) of every decode measurement."""
    pairs = [(batch, context) for context in args.context for batch in args.batch]
    if args.sweep:
        pairs += [(batch, SWEEP_CONTEXT) for batch in SWEEP_BATCHES]
    return list(dict.fromkeys(pairs))


@dataclasses.dataclass
class Result:
    """Measurements of one peer at one place. `times`: ms per token in phase `decode` (one
    step, in which every sequence of the batch gets one token), ms per prompt in `prefill`."""
    shape: str
    phase: str
    context: int  # of prefill: tokens of the prompt
    batch: int
    peer: str
    times: list = dataclasses.field(default_factory=list)
    setup_s: float = 0.0
    dtype: str = "bf16"
    note: str = ""
    more: dict = dataclasses.field(default_factory=dict)  # what else megalith said

    @property
    def ms(self):
        return statistics.median(self.times) if self.times else None

    @property
    def place(self):
        return self.shape, self.phase, self.context, self.batch

    def json(self):
        return {"shape": self.shape, "phase": self.phase, "context": self.context,
                "batch": self.batch, "dtype": self.dtype, "peer": self.peer, "ms": self.ms,
                "times": self.times, "setup_s": round(self.setup_s, 1), "note": self.note}


def ratio(result, results):
    """How many times megalith's time `result` took; None without one of the two."""
    ours = next((other.ms for other in results
                 if other.peer == MEGALITH and other.place == result.place), None)
    return result.ms / ours if ours and result.ms else None


def fixed(value, digits):
    return "" if value is None else f"{value:.{digits}f}"


def markdown(results):
    """One table per phase; the best peer of a place is in bold."""
    lines = []
    for phase, unit in (("decode", "ms per token"), ("prefill", "ms per prompt")):
        rows = [result for result in results if result.phase == phase]
        if not rows:
            continue
        size = "context" if phase == "decode" else "prompt"
        lines += [f"| shape | {size} | batch | dtype | peer | {unit} | min to max | ratio | note |",
                  "| --- | ---: | ---: | --- | --- | ---: | ---: | ---: | --- |"]
        for row in rows:
            others = [other.ms for other in rows
                      if other.place == row.place and other.peer != MEGALITH and other.ms]
            best = len(others) > 1 and row.peer != MEGALITH and row.ms == min(others)
            peer = f"**{row.peer}**" if best else row.peer
            times = fixed(row.ms, 3)
            spread = f"{min(row.times):.3f} to {max(row.times):.3f}" if row.times else ""
            factor = "" if row.peer == MEGALITH else fixed(ratio(row, results), 2)
            note = row.note
            if row.more.get("percent_of_floor") is not None:
                note = f"{row.more['percent_of_floor']:.1f} % of the floor " \
                       f"of {fixed(row.more.get('floor_ms'), 3)} ms" + (f"; {note}" if note else "")
            lines.append(f"| {row.shape} | {row.context} | {row.batch} | {row.dtype} | {peer} "
                         f"| {times} | {spread} | {factor} | {note} |")
        lines.append("")
    return "\n".join(lines)


def write_csv(path, results):
    columns = ("shape", "phase", "context", "batch", "dtype", "peer", "ms", "min_ms", "max_ms",
               "repeats", "ratio", "setup_s", "floor_ms", "bandwidth_gb_s", "percent_of_floor",
               "note")
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row in results:
            known = {key: row.more.get(key) for key in
                     ("floor_ms", "bandwidth_gb_s", "percent_of_floor")}
            factor = ratio(row, results)
            writer.writerow(known | {
                "shape": row.shape, "phase": row.phase, "context": row.context,
                "batch": row.batch, "dtype": row.dtype, "peer": row.peer, "note": row.note,
                "ms": fixed(row.ms, 5), "repeats": len(row.times),
                "min_ms": fixed(min(row.times, default=None), 5),
                "max_ms": fixed(max(row.times, default=None), 5),
                "ratio": fixed(factor, 3), "setup_s": round(row.setup_s, 1)})
