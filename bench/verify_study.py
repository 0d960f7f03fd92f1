#!/usr/bin/env python3
"""Verify drafts and pack what is accepted, on a GPU: pipelines/verify/ beside PyTorch and kernels written by hand.

    python3 bench/verify_study.py --minutes=9
    python3 bench/verify_study.py --figures=docs/figures

A run needs a GPU, PyTorch and the Python package `megalith`; with CuPy there are kernels written by hand as well. Each
peer's outputs are compared bit for bit with NumPy's before it is timed. All measurements go to --json; tables follow at
the end and stand beside it as Markdown. `--figures` and `--tables` read such files and need no GPU.

Times are in microseconds a call, medians:

    wall    host clock around a call in a stream and a synchronisation
    host    host clock around the call alone, on an idle GPU
    graph   host clock around a replay of a CUDA graph of 20 calls and a synchronisation, divided
    gpu     CUDA events around replays of that graph, queued behind a long kernel, divided
    queue   CUDA events around 20 calls in a stream, queued behind a long kernel, divided
    kernel  sum of the kernels' times by PyTorch's profiler, at a few places

A peer that synchronises on its own (`kv[mask]` asks how many rows there are) has neither graph, gpu nor queue.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import gc
import json
import math
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import plot
from common import BENCH, ROOT, START, fail, fixed, integers, progress

# What our files call their buffers, and what this script calls them.
BUFFERS = {"draft": "draft", "target": "target", "kv": "kv", "guess": "guess", "accepted": "accepted",
           "mismatch": "mismatch", "next": "next", "offset": "offset", "packed": "packed", "order": "order",
           "keep": "keep", "place": "place"}
INPUTS = ("draft", "target", "kv", "guess")
DTYPES = {"draft": "i64", "target": "i64", "kv": "f16", "guess": "i32", "accepted": "i64", "mismatch": "bool",
          "next": "i64", "offset": "i32", "packed": "f16", "order": "i32", "keep": "bool", "place": "i32"}
SCAN_OUTPUTS = ("accepted", "mismatch", "next")
PACK_OUTPUTS = (*SCAN_OUTPUTS, "offset", "packed")
SCAN_BUFFERS = ("draft", "target", *SCAN_OUTPUTS)
PACK_BUFFERS = ("draft", "target", "kv", *PACK_OUTPUTS)
# Peer: file in --pipelines, and its buffers where the file's text does not tell.
FILES = {"ours_serial": ("verify_serial", SCAN_BUFFERS), "ours_naive": ("verify_naive", SCAN_BUFFERS),
         "ours_ballot": ("verify_ballot", SCAN_BUFFERS),
         "ours_sorted": ("verify_sorted", (*SCAN_BUFFERS, "guess", "order")),
         "ours_fused": ("verify_pack", PACK_BUFFERS),
         "ours_two_step": ("verify_two_step", ("draft", "target", "kv", *SCAN_OUTPUTS, "keep", "place", "packed"))}
TEXTS = {
    "ours_serial": "Megalith, serial", "ours_naive": "Megalith, naive (a lane a sequence)",
    "ours_ballot": "Megalith, ballot (a warp a sequence)", "ours_sorted": "Megalith, sorted lanes",
    "cuda_thread": "CUDA by hand, a thread a sequence", "cuda_block": "CUDA by hand, a block a sequence",
    "cuda_ballot": "CUDA by hand, ballot", "torch_scan": "PyTorch: eq, cumprod, sum, gather",
    "compiled_scan": "PyTorch, torch.compile", "empty": "an empty kernel (CuPy)",
    "ours_fused": "Megalith, fused", "ours_fused_stream": "Megalith, fused, stream given",
    "ours_fused_host": "Megalith, fused file, a launch a stage", "ours_two_step": "Megalith, two steps",
    "two_step": "two steps: ballot, then kv[mask]", "two_step_gather": "two steps: ballot, then a static gather",
    "torch_mask": "PyTorch: scan, then kv[mask]", "torch_scatter": "PyTorch: scan, then index_copy_ (static)",
    "torch_gather": "PyTorch: scan, then index_select (static)", "compiled_pack": "PyTorch, torch.compile (static gather)",
    "copy": "copy of the packed bytes",
}
SCAN_CORE, PACK_CORE = ("ours_naive", "ours_ballot"), ("ours_fused", "two_step")
ONLY_AT_KEY = ("empty", "ours_fused_stream")  # these say the same everywhere
COMPILED = ("compiled_scan", "compiled_pack")
BATCHES, GAMMAS, ALPHAS, WIDTHS = [1, 4, 16, 32, 128, 512], [4, 8, 16, 32, 64, 128], [0.3, 0.6, 0.9], [128, 512, 2048, 8192]
VOCABULARY = 128256
CALLS, GRAPH_CALLS, ROUNDS, COPIES = 200, 20, 2, 4
TIMES = ("wall", "host", "graph", "gpu", "queue", "kernel")
POISON = 0x5A5A  # 16 bits
REAL = "real"  # the α of lengths from a file

# As engines have it: SGLang's greedy verification starts a block of one thread a sequence, vLLM's a Triton program a
# sequence with a scalar loop. `scan` in blocks of one thread is that, in blocks of 256 it is a thread a sequence.
CUDA_SOURCE = r"""
extern "C" __global__ void scan(const long long* draft, const long long* target, long long* accepted, bool* mismatch,
                                long long* next, int b, int g) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= b)
    return;
  const long long* d = draft + (long long)i * g;
  const long long* t = target + (long long)i * (g + 1);
  int n = 0;
  while (n < g && d[n] == t[n])
    ++n;
  accepted[i] = n;
  mismatch[i] = n < g;
  next[i] = t[n];
}

extern "C" __global__ void ballot(const long long* draft, const long long* target, long long* accepted, bool* mismatch,
                                  long long* next, int b, int g) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (i >= b)
    return;
  const long long* d = draft + (long long)i * g;
  const long long* t = target + (long long)i * (g + 1);
  int n = g;
  for (int start = 0; start < g; start += 32) {
    const int j = start + lane;
    const unsigned wrong = __ballot_sync(0xffffffffu, j < g && d[j] != t[j]);
    if (wrong) {
      n = start + __ffs(wrong) - 1;
      break;
    }
  }
  if (lane == 0) {
    accepted[i] = n;
    mismatch[i] = n < g;
    next[i] = t[n];
  }
}

extern "C" __global__ void empty() {}
"""


class Place(NamedTuple):
    """A shape, and the law of its accepted lengths."""
    kind: str  # scan, pack
    b: int
    gamma: int
    alpha: float | str
    width: int = 0  # of a pack

    def __str__(self) -> str:
        return f"b {self.b}, γ {self.gamma}, α {self.alpha}" + (f", width {self.width:,}" if self.width else "")


# ---- inputs, and what is right ----

def load_lengths(path: str) -> tuple[list[int], int | None]:
    """Accepted lengths of a run, and its γ where the file says it.

    The file has numbers by space, comma or line, or JSON (whole, or a value a line): numbers, lists, or objects with
    `accepted` (a number or a list) and maybe `gamma` or `drafted`."""
    found: list[int] = []
    gammas: list[int] = []

    def take(value: Any) -> None:
        if isinstance(value, bool):
            raise ValueError(f"`{value}` is no length")
        if isinstance(value, (int, float)):
            if value != int(value) or value < 0:
                raise ValueError(f"`{value}` is no length")
            found.append(int(value))
        elif isinstance(value, list):
            for each in value:
                take(each)
        elif isinstance(value, dict):
            for key in ("accepted", "accepted_lengths", "lengths"):
                if key in value:
                    take(value[key])
            for key in ("gamma", "drafted"):
                if key in value:
                    gammas.append(int(value[key]))
        else:
            raise ValueError(f"`{value}` is no length")

    try:
        text = pathlib.Path(path).read_text()
        try:
            take(json.loads(text))
        except json.JSONDecodeError:
            for line in text.splitlines():
                if not line.strip():
                    continue
                try:
                    take(json.loads(line))
                except json.JSONDecodeError:
                    take([int(part) for part in re.split(r"[\s,;]+", line.strip()) if part])
    except OSError as error:
        fail(f"{path}: {error.strerror} (--lengths)")
    except ValueError as error:
        fail(f"{path}: {error} (--lengths)")
    if not found:
        fail(f"{path}: there are no lengths in it (--lengths)")
    return found, max(gammas, default=None)


def make_tokens(place: Place, number: int, seed: int, lengths: Sequence[int] | None) -> dict[str, Any]:
    """Drafts and targets of one copy of the inputs, and a guess of the lengths, as NumPy arrays.

    A draft is the target's up to the length, then another token. Behind that it may be right again, which must not
    count."""
    import numpy
    b, g, alpha = place.b, place.gamma, place.alpha
    chance = 0.5 if alpha == REAL else float(alpha)
    rng = numpy.random.default_rng([seed, b, g, round(chance * 1000), number, int(alpha == REAL)])
    if lengths is None:
        accepted = rng.binomial(g, chance, b)
    else:
        accepted = rng.choice(numpy.asarray(lengths), b)
    target = rng.integers(0, VOCABULARY, (b, g + 1), dtype=numpy.int64)
    other = (target[:, :g] + rng.integers(1, VOCABULARY, (b, g))) % VOCABULARY
    position = numpy.arange(g)[None, :]
    right = (position < accepted[:, None]) | ((position > accepted[:, None]) & (rng.random((b, g)) < chance))
    guess = numpy.clip(accepted + rng.integers(-2, 3, b), 0, g).astype(numpy.int32)
    return {"draft": numpy.where(right, target[:, :g], other), "target": target, "guess": guess, "lengths": accepted}


def oracle(draft: Any, target: Any, guess: Any) -> dict[str, Any]:
    """What all outputs must be. `rows`: the row of kv, as [b * g, w], of each row of packed. `order` has two values, by
    ascending and by descending guess."""
    import numpy
    b, g = draft.shape
    accepted = numpy.cumprod(draft == target[:, :g], axis=1).sum(axis=1)
    keep = (numpy.arange(g)[None, :] < accepted[:, None]).reshape(-1)
    return {"accepted": accepted, "mismatch": accepted < g, "next": target[numpy.arange(b), accepted],
            "offset": numpy.concatenate([[0], numpy.cumsum(accepted)]), "rows": numpy.flatnonzero(keep), "keep": keep,
            "place": numpy.concatenate([[0], numpy.cumsum(keep)]),
            "order": (numpy.argsort(guess, kind="stable"), numpy.argsort(-guess, kind="stable"))}


class Copy:
    """One set of buffers of a place on the device, with what must be in them after a call."""

    def __init__(self, study: Study, place: Place, number: int) -> None:
        import numpy
        torch = study.torch
        self.torch, self.place = torch, place
        tokens = make_tokens(place, number, study.args.seed, study.args.real)
        self.wanted = oracle(tokens["draft"], tokens["target"], tokens["guess"])
        assert (self.wanted["accepted"] == tokens["lengths"]).all()
        self.rows = len(self.wanted["rows"])
        b, g, w = place.b, place.gamma, place.width
        self.found: dict[tuple[str, str], Any] = {}
        for name in ("draft", "target", "guess"):
            self.found[name, DTYPES[name]] = torch.from_numpy(numpy.ascontiguousarray(tokens[name])).to(study.device.kind)
        self.shapes = {"accepted": (b,), "mismatch": (b,), "next": (b,), "offset": (b + 1,), "order": (b,),
                       "keep": (b * g,), "place": (b * g + 1,)}
        if w:
            size = b * g * w
            self.found["kv", "f16"] = study.kv[number * size:(number + 1) * size].view(b, g, w)
            # A row more, where a static composition may leave what is not accepted.
            self.spare = study.packed[number * (size + w):(number + 1) * (size + w)].view(b * g + 1, w)
            self.found["packed", "f16"] = self.spare[:b * g]
        self.columns = torch.arange(g, device=study.device.kind)
        self.numbers = torch.arange(b * g, device=study.device.kind)

    @property
    def packed_bytes(self) -> int:
        return self.rows * self.place.width * 2

    @property
    def moved_bytes(self) -> int:
        """Read and written by a call, at least."""
        read = 16 * (int(self.wanted["accepted"].sum()) + self.place.b)
        return read + 2 * self.packed_bytes + 17 * self.place.b

    def tensor(self, name: str, dtype: str = "") -> Any:
        """A buffer by our name. Of one name and type there is one."""
        torch = self.torch
        dtype = dtype or DTYPES[name]
        if (name, dtype) not in self.found:
            type_ = {"i32": torch.int32, "i64": torch.int64, "bool": torch.bool, "f32": torch.float32,
                     "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
            if name in ("kv", "packed"):
                self.found[name, dtype] = self.found[name, "f16"].view(type_)
            elif name in INPUTS:
                self.found[name, dtype] = self.found[name, DTYPES[name]].to(type_)
            else:
                self.found[name, dtype] = torch.empty(self.shapes[name], dtype=type_, device=self.columns.device)
        return self.found[name, dtype]

    def poison(self, outputs: dict[str, str]) -> None:
        """Makes these outputs wrong."""
        torch = self.torch
        for name, dtype in outputs.items():
            if name == "packed":
                self.spare.view(torch.int16).fill_(POISON)
            elif name in ("mismatch", "keep"):
                self.tensor(name, dtype).copy_(torch.from_numpy(~self.wanted[name]))
            else:
                self.tensor(name, dtype).fill_(-7)

    def wrong(self, outputs: dict[str, str], returned: dict[str, Any], tail: bool) -> str:
        """What is wrong of these outputs; empty if all is right. `tail`: what is behind the packed rows must be as
        poisoned."""
        import numpy
        for name, dtype in outputs.items():
            found = returned[name] if name in returned else self.tensor(name, dtype)
            if name == "packed":
                text = self.wrong_rows(found, tail)
                if text:
                    return text
                continue
            values = found.cpu().numpy().astype(numpy.int64)
            choices = self.wanted[name] if name == "order" else (self.wanted[name],)
            if not any(values.shape == wanted.shape and (values == wanted).all() for wanted in choices):
                if values.shape != choices[0].shape:
                    return f"`{name}` has the shape {list(values.shape)}"
                at = int(numpy.flatnonzero(values != choices[0])[0])
                return f"{name}[{at}] is {values[at]}, expected {int(choices[0][at])}"
        return ""

    def wrong_rows(self, packed: Any, tail: bool) -> str:
        """Packed rows, as 16-bit numbers. Small ones are compared by NumPy, large ones on the device."""
        import numpy
        torch, w, rows = self.torch, self.place.width, self.rows
        if packed.shape[0] < rows or packed.shape[1] != w:
            return f"`packed` has the shape {list(packed.shape)}, expected {rows} rows of {w}"
        kv, found = (each.view(torch.int16) for each in (self.tensor("kv").view(-1, w), packed))
        if kv.numel() <= 1 << 21:
            equal = numpy.array_equal(found[:rows].cpu().numpy(), kv.cpu().numpy()[self.wanted["rows"]])
        else:
            equal, step = True, max(1, (1 << 27) // w)
            source = torch.from_numpy(self.wanted["rows"]).to(kv.device)
            for begin in range(0, rows, step):
                part = kv.index_select(0, source[begin:begin + step])
                equal = equal and torch.equal(found[begin:min(rows, begin + step)], part)
        if not equal:
            return "rows of `packed` are wrong"
        if tail and not bool((found[rows:] == POISON).all()):
            return "rows of `packed` behind the last were changed"
        return ""


# ---- peers ----

@dataclasses.dataclass
class Peer:
    """`make` gives a call for one copy. What the call returns are the outputs `returns`; the others stand in the copy."""
    name: str
    kind: str
    make: Callable[[Copy], Callable[[], Any]]
    outputs: dict[str, str]  # those that are compared, with their types
    returns: tuple[str, ...] = ()
    capture: bool = True  # it does not synchronise
    tail: bool = False  # it leaves what is behind the packed rows
    check: Callable[[], None] | None = None  # raises after a fault
    buffers: dict[str, str] = dataclasses.field(default_factory=dict)  # of our files: their names and types


def typed(names: Iterable[str]) -> dict[str, str]:
    return {name: DTYPES[name] for name in names}


def torch_scan(draft: Any, target: Any) -> tuple[Any, Any, Any]:
    accepted = (draft == target[:, :-1]).cumprod(1).sum(1)
    return accepted, accepted < draft.shape[1], target.gather(1, accepted[:, None]).squeeze(1)


def torch_offset(torch: Any, accepted: Any) -> Any:
    return torch.nn.functional.pad(accepted.cumsum(0), (1, 0))


def pack_mask(kv: Any, accepted: Any, columns: Any) -> Any:
    return kv[columns < accepted[:, None]]


def pack_scatter(torch: Any, kv: Any, accepted: Any, columns: Any, spare: Any) -> Any:
    """All rows are written, those that are not accepted to the spare one. Returns offset."""
    b, g, w = kv.shape
    offset = torch_offset(torch, accepted)
    places = torch.where(columns < accepted[:, None], offset[:-1, None] + columns, b * g)
    spare.index_copy_(0, places.view(-1), kv.view(-1, w))
    return offset


def gather_source(torch: Any, g: int, offset: Any, numbers: Any) -> Any:
    """The row of kv of each row of packed; 0 behind the last."""
    sequence = torch.searchsorted(offset, numbers, right=True) - 1
    return torch.where(numbers < offset[-1], sequence * g + numbers - offset[sequence], 0)


def pack_gather(torch: Any, kv: Any, accepted: Any, numbers: Any, packed: Any) -> Any:
    """All rows of packed are written. Returns offset."""
    offset = torch_offset(torch, accepted)
    torch.index_select(kv.view(-1, kv.shape[2]), 0, gather_source(torch, kv.shape[1], offset, numbers), out=packed)
    return offset


def torch_peers(torch: Any, ballot: Peer | None) -> list[Peer]:
    """PyTorch's compositions; `ballot` is the first of the two steps."""

    def scan(copy: Copy) -> Callable[[], Any]:
        draft, target = copy.tensor("draft"), copy.tensor("target")
        return lambda: torch_scan(draft, target)

    def mask(copy: Copy) -> Callable[[], Any]:
        draft, target, kv, columns = copy.tensor("draft"), copy.tensor("target"), copy.tensor("kv"), copy.columns

        def call() -> Any:
            accepted, mismatch, following = torch_scan(draft, target)
            return accepted, mismatch, following, pack_mask(kv, accepted, columns)
        return call

    def scatter(copy: Copy) -> Callable[[], Any]:
        draft, target, kv, columns = copy.tensor("draft"), copy.tensor("target"), copy.tensor("kv"), copy.columns
        spare = copy.spare

        def call() -> Any:
            found = torch_scan(draft, target)
            return (*found, pack_scatter(torch, kv, found[0], columns, spare))
        return call

    def gather(copy: Copy) -> Callable[[], Any]:
        draft, target, kv, numbers = copy.tensor("draft"), copy.tensor("target"), copy.tensor("kv"), copy.numbers
        packed = copy.tensor("packed")

        def call() -> Any:
            found = torch_scan(draft, target)
            return (*found, pack_gather(torch, kv, found[0], numbers, packed))
        return call

    def two_step(copy: Copy) -> Callable[[], Any]:
        kv, columns, accepted, first = copy.tensor("kv"), copy.columns, accepted_of(copy), ballot.make(copy)

        def call() -> Any:
            first()
            return (pack_mask(kv, accepted, columns),)
        return call

    def two_step_gather(copy: Copy) -> Callable[[], Any]:
        kv, numbers, accepted, first = copy.tensor("kv"), copy.numbers, accepted_of(copy), ballot.make(copy)
        packed = copy.tensor("packed")

        def call() -> Any:
            first()
            return (pack_gather(torch, kv, accepted, numbers, packed),)
        return call

    def accepted_of(copy: Copy) -> Any:
        return copy.tensor("accepted", ballot.outputs["accepted"])

    def copying(copy: Copy) -> Callable[[], Any]:
        count = copy.rows * copy.place.width
        return lambda source=copy.tensor("kv").view(-1)[:count], to=copy.tensor("packed").view(-1)[:count]: to.copy_(source)

    found = [Peer("torch_scan", "scan", scan, typed(SCAN_OUTPUTS), SCAN_OUTPUTS),
             Peer("torch_mask", "pack", mask, typed((*SCAN_OUTPUTS, "packed")), (*SCAN_OUTPUTS, "packed"), capture=False),
             Peer("torch_scatter", "pack", scatter, typed(PACK_OUTPUTS), (*SCAN_OUTPUTS, "offset")),
             Peer("torch_gather", "pack", gather, typed(PACK_OUTPUTS), (*SCAN_OUTPUTS, "offset")),
             Peer("copy", "pack", copying, {})]
    if ballot:
        found += [Peer("two_step", "pack", two_step, ballot.outputs | typed(["packed"]), ("packed",), capture=False,
                       check=ballot.check),
                  Peer("two_step_gather", "pack", two_step_gather, ballot.outputs | typed(["offset", "packed"]),
                       ("offset",), check=ballot.check)]
    return found


def compiled_peers(torch: Any, mode: str) -> list[Peer]:
    """torch.compile, once for each shape."""
    functions: dict[Any, Any] = {}
    with contextlib.suppress(Exception):
        torch._dynamo.config.recompile_limit = 256

    def whole(draft: Any, target: Any, kv: Any, numbers: Any) -> Any:
        accepted, mismatch, following = torch_scan(draft, target)
        offset = torch_offset(torch, accepted)
        source = gather_source(torch, kv.shape[1], offset, numbers)
        return accepted, mismatch, following, offset, kv.view(-1, kv.shape[2])[source]

    def compiled(place: Place, function: Any) -> Any:
        key = place._replace(alpha=0)
        if key not in functions:
            options = {} if mode == "default" else {"mode": mode}
            functions[key] = torch.compile(function, dynamic=False, fullgraph=True, **options)
        return functions[key]

    def scan(copy: Copy) -> Callable[[], Any]:
        function, draft, target = compiled(copy.place, torch_scan), copy.tensor("draft"), copy.tensor("target")
        return lambda: function(draft, target)

    def pack(copy: Copy) -> Callable[[], Any]:
        function, inputs = compiled(copy.place, whole), [copy.tensor(name) for name in ("draft", "target", "kv")]
        draft, target, kv, numbers = *inputs, copy.numbers
        return lambda: function(draft, target, kv, numbers)

    return [Peer("compiled_scan", "scan", scan, typed(SCAN_OUTPUTS), SCAN_OUTPUTS),
            Peer("compiled_pack", "pack", pack, typed(PACK_OUTPUTS), PACK_OUTPUTS)]


def hand_peers(stream: int) -> list[Peer]:
    """Kernels written by hand, started by CuPy on `stream`."""
    import cupy
    import numpy
    theirs = cupy.cuda.ExternalStream(stream)
    theirs.use()
    kernels = {name: cupy.RawKernel(CUDA_SOURCE, name) for name in ("scan", "ballot", "empty")}
    for kernel in kernels.values():
        kernel.compile()

    def maker(name: str, threads: int, each: int) -> Callable[[Copy], Callable[[], Any]]:
        """Blocks of so many threads, of which a sequence takes `each`."""
        def make(copy: Copy) -> Callable[[], Any]:
            kernel, b = kernels[name], copy.place.b
            arguments = (*(numpy.uint64(copy.tensor(buffer).data_ptr()) for buffer in SCAN_BUFFERS),
                         numpy.int32(b), numpy.int32(copy.place.gamma))
            grid, block = (-(-b * each // threads),), (threads,)
            return lambda: kernel(grid, block, arguments)
        make.stream = theirs  # CuPy may not hold it itself
        return make

    empty = kernels["empty"]
    return [Peer("cuda_block", "scan", maker("scan", 1, 1), typed(SCAN_OUTPUTS)),
            Peer("cuda_thread", "scan", maker("scan", 256, 1), typed(SCAN_OUTPUTS)),
            Peer("cuda_ballot", "scan", maker("ballot", 128, 32), typed(SCAN_OUTPUTS)),
            Peer("empty", "scan", lambda copy: lambda: empty((1,), (1,), ()), {})]


def file_buffers(path: pathlib.Path) -> dict[str, str]:
    """Names and types of the buffers of a pipeline, by its text; empty where that cannot be told."""
    found: dict[str, str] = {}
    inside, indent, name = False, None, ""
    for line in path.read_text().splitlines():
        line = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if not line:
            continue
        if not line[0].isspace():
            inside = line == "buffers:"
            continue
        if not inside:
            continue
        depth = len(line) - len(line.lstrip())
        indent = depth if indent is None else indent
        if depth == indent:
            match = re.match(r"\s*['\"]?(\w+)['\"]?\s*:", line)
            name = match[1] if match else ""
        match = re.search(r"\bdtype['\"]?\s*:\s*['\"]?(\w+)", line)
        if name and match:
            found[name] = match[1]
    return found


def package(folder: str | None) -> Any:
    """The Python package. A script of this folder has its name."""
    sys.path[:] = [each for each in sys.path if pathlib.Path(each or ".").resolve() != BENCH]
    if folder:
        sys.path.insert(0, str(pathlib.Path(folder).resolve()))
    if not hasattr(sys.modules.get("megalith"), "compile"):
        sys.modules.pop("megalith", None)
    import megalith
    return megalith


def our_peer(megalith: Any, name: str, folder: pathlib.Path, device: str) -> tuple[Peer, Any]:
    """One of our files, compiled and loaded, and its kernel."""
    file, expected = FILES[name]
    path = folder / f"{file}.yaml"
    theirs = file_buffers(path) or {buffer: DTYPES[buffer] for buffer in expected}
    unknown = [buffer for buffer in theirs if buffer not in BUFFERS]
    if unknown:
        raise ValueError(f"{path.name} has buffers that BUFFERS does not: {', '.join(unknown)}")
    kernel = megalith.compile(str(path)).load(device=device)
    outputs = {BUFFERS[buffer]: dtype for buffer, dtype in theirs.items() if BUFFERS[buffer] not in INPUTS}

    def make(copy: Copy) -> Callable[[], Any]:
        buffers = {buffer: copy.tensor(BUFFERS[buffer], dtype) for buffer, dtype in theirs.items()}
        return lambda: kernel(**buffers)

    kind = "pack" if "packed" in outputs else "scan"
    check = getattr(kernel, "check", None)
    return Peer(name, kind, make, outputs, tail=kind == "pack", check=check, buffers=theirs), kernel


def variants(peer: Peer, kernel: Any, stream: int) -> list[Peer]:
    """The fused file started a stage at a time, and with the stream given."""
    def made(extra: dict[str, Any], by_call: bool) -> Callable[[Copy], Callable[[], Any]]:
        def make(copy: Copy) -> Callable[[], Any]:
            buffers = {buffer: copy.tensor(BUFFERS[buffer], dtype) for buffer, dtype in peer.buffers.items()}
            if by_call:
                return lambda: kernel.call(buffers, **extra)
            return lambda: kernel(**buffers, **extra)
        return make

    return [dataclasses.replace(peer, name="ours_fused_host", make=made({"control": "host"}, True)),
            dataclasses.replace(peer, name="ours_fused_stream", make=made({"stream": stream}, False))]


# ---- the device ----

class Cuda:
    """The GPU. All work is in one stream that is not the default one."""
    kind, gpu = "cuda", True

    def __init__(self, torch: Any) -> None:
        if not torch.cuda.is_available():
            fail("PyTorch sees no GPU; `--device=cpu` tries the script out, without times of a GPU")
        self.torch = torch
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        self.handle = self.stream.cuda_stream
        self.synchronize = self.stream.synchronize

    def about(self) -> dict[str, Any]:
        properties = self.torch.cuda.get_device_properties(0)
        found = {"gpu": properties.name, "multiprocessors": properties.multi_processor_count,
                 "memory_bytes": properties.total_memory, "l2_bytes": getattr(properties, "L2_cache_size", 0),
                 "cuda": self.torch.version.cuda}
        with contextlib.suppress(Exception):
            run = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem",
                                  "--format=csv,noheader"], capture_output=True, text=True, timeout=10)
            found["driver_and_clocks"] = run.stdout.strip().splitlines()[0]
        return found

    def warm_up(self) -> None:
        """The clocks go up."""
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            self.sleep(10000)
            self.synchronize()

    def sleep(self, microseconds: float) -> None:
        self.torch.cuda._sleep(int(microseconds * 2000))

    def event(self) -> Any:
        return self.torch.cuda.Event(enable_timing=True)

    def capture(self, calls: Sequence[Callable[[], Any]]) -> Any:
        """A CUDA graph of these calls. Not `torch.cuda.graph`, which gives all cached memory back each time."""
        graph = self.torch.cuda.CUDAGraph()
        self.synchronize()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for call in calls:
                call()
        except BaseException:
            with contextlib.suppress(Exception):
                graph.capture_end()
            # After a failure PyTorch's allocator may still think that a capture is underway.
            with contextlib.suppress(Exception):
                self.torch._C._cuda_endAllocateToPool(0, graph.pool())
            raise
        graph.capture_end()
        return graph

    def release(self) -> None:
        if self.torch.cuda.memory_reserved() > self.torch.cuda.memory_allocated() + (16 << 30):
            self.torch.cuda.empty_cache()


class Cpu:
    """For trying the script out: no graphs, no times of a GPU."""
    kind, gpu = "cpu", False
    handle = 0

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        torch.set_num_threads(1)

    def about(self) -> dict[str, Any]:
        return {"gpu": "no GPU: a CPU", "l2_bytes": 0}

    def warm_up(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def capture(self, calls: Sequence[Callable[[], Any]]) -> Any:
        return None

    def release(self) -> None:
        pass


class Lost(Exception):
    """The device does not answer any more."""


def between(value: float, low: int, high: int) -> int:
    return int(max(low, min(high, value)))


class Entry:
    """A peer at a place, while it is measured. Times are collected in microseconds."""

    def __init__(self, device: Any, peer: Peer, calls: list[Callable[[], Any]]) -> None:
        self.device, self.peer, self.calls = device, peer, calls
        self.times: dict[str, list[float]] = {name: [] for name in TIMES}
        self.graph, self.notes = None, []
        for call in calls:
            call()
        device.synchronize()
        self.estimate = min(self.time(calls[:1], 3)[0]) / 1e6  # seconds
        self.count = between(0.3 / self.estimate, 11, CALLS)
        self.graph_calls = between(0.04 / self.estimate, 2, GRAPH_CALLS)

    def sequence(self, count: int) -> list[Callable[[], Any]]:
        """So many calls, over all copies in turn."""
        return [self.calls[i % len(self.calls)] for i in range(count)]

    def time(self, calls: Sequence[Callable[[], Any]], times: int = 1) -> tuple[list[float], list[float]]:
        """Wall and host side of each call."""
        clock, synchronize = time.perf_counter_ns, self.device.synchronize
        walls, hosts = [], []
        for call in list(calls) * times:
            start = clock()
            call()
            returned = clock()
            synchronize()
            end = clock()
            walls.append((end - start) / 1000)
            hosts.append((returned - start) / 1000)
        return walls, hosts

    def record(self) -> None:
        """The graph."""
        if not self.peer.capture:
            self.notes.append("it synchronises: no graph")
            return
        try:
            self.graph = self.device.capture(self.sequence(self.graph_calls))
            if self.graph:
                self.graph.replay()
            self.device.synchronize()
        except Exception as error:
            self.graph = None
            self.notes.append(f"no graph: {first_line(error)}")

    def turn(self) -> None:
        """A round of all times."""
        walls, hosts = self.time(self.sequence(-(-self.count // ROUNDS)))
        self.times["wall"] += walls
        self.times["host"] += hosts
        if self.graph:
            length = self.graph_calls * self.estimate
            replay, n = self.graph.replay, self.graph_calls
            walls, _ = self.time([replay] * between(0.03 / length, 2, 15))
            self.times["graph"] += [wall / n for wall in walls]
            replays = between(0.02 / length, 1, 5)
            for _ in range(4):
                self.times["gpu"].append(self.events([replay] * replays, 500)[0] / (replays * n))
        if self.device.gpu and self.peer.capture:
            calls = self.sequence(self.graph_calls)
            sleep = len(calls) * statistics.median(hosts) * 1.5 + 300
            for _ in range(3):
                for _ in range(3):
                    elapsed, queued = self.events(calls, sleep)
                    if queued:
                        break
                    sleep = min(2 * sleep, 20000)
                if queued:
                    self.times["queue"].append(elapsed / len(calls))
                elif "not queued in time" not in self.notes:
                    self.notes.append("not queued in time")

    def events(self, calls: Sequence[Callable[[], Any]], sleep: float) -> tuple[float, bool]:
        """Microseconds on the GPU between two events around the calls, which wait behind a sleep; whether all were queued
        before it was over."""
        start, end = self.device.event(), self.device.event()
        self.device.sleep(sleep)
        start.record()
        for call in calls:
            call()
        end.record()
        queued = not start.query()
        end.synchronize()
        return start.elapsed_time(end) * 1000, queued

    def row(self) -> dict[str, Any]:
        found: dict[str, Any] = {"calls": len(self.times["wall"]), "graph_calls": self.graph_calls if self.graph else 0}
        for name in TIMES:
            values = sorted(self.times[name])
            found[f"{name}_us"] = round(statistics.median(values), 4) if values else None
            if name in ("wall", "host") and values:
                found[f"{name}_p10_p90_us"] = [round(values[len(values) // 10], 3), round(values[len(values) * 9 // 10], 3)]
            elif name in ("gpu", "queue") and values:
                found[f"{name}_min_max_us"] = [round(values[0], 4), round(values[-1], 4)]
        return found | {"note": "; ".join(self.notes)}

    def release(self) -> None:
        if self.graph:
            with contextlib.suppress(Exception):
                self.graph.reset()
        self.graph = None


def first_line(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0] or type(error).__name__
    return f"{type(error).__name__}: {text}"[:300] if not isinstance(error, AssertionError) else text[:300]


# ---- the study ----

class Study:
    def __init__(self, args: argparse.Namespace) -> None:
        import torch
        torch.set_grad_enabled(False)
        self.args, self.torch = args, torch
        self.rows: list[dict[str, Any]] = []
        self.failed: dict[str, str] = {}
        self.done: set[tuple[Place, str]] = set()
        self.finished: list[str] = []
        self.cut = ""
        self.peers: dict[str, Peer] = {}
        self.strikes: collections.Counter[str] = collections.Counter()
        self.alive, self.patience = time.monotonic(), 150.0
        self.written, self.said = 0.0, 0.0
        self.end = START + args.minutes * 60
        self.device = Cuda(torch) if args.device == "cuda" else Cpu(torch)
        self.about: dict[str, Any] = {
            **self.device.about(), "torch": torch.__version__, "python": platform.python_version(),
            "command": " ".join(sys.argv[1:]), "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())}
        self.bounds = {"calls": CALLS, "graph_calls": GRAPH_CALLS, "rounds": ROUNDS, "copies": COPIES,
                       "rotate_mb": args.rotate_mb, "memory_gb": args.memory_gb, "vocabulary": VOCABULARY,
                       "seed": args.seed, "minutes": args.minutes, "compile_mode": args.compile_mode}
        if args.real is not None:
            self.about["lengths"] = {"file": pathlib.Path(args.lengths).name, "count": len(args.real),
                                     "gamma": args.gamma[0], "mean": round(statistics.mean(args.real), 3)}
        scan = [Place("scan", b, g, a) for b in args.b for g in args.gamma for a in args.alpha]
        pack = [Place("pack", b, g, a, w) for b in args.b for g in args.gamma for a in args.alpha for w in args.width]
        fits = [place for place in pack if self.buffer_bytes(place) <= args.memory_gb * 1e9]
        self.skipped = [f"{place}: kv and packed would take {self.buffer_bytes(place) / 1e9:.1f} GB"
                        for place in pack if place not in fits]
        at = self.key_batch = 32 if 32 in args.b else args.b[-1]
        nearest = sorted(scan + fits, key=lambda place: place.b != at)  # stable
        self.scan = [place for place in nearest if place.kind == "scan"]
        self.pack = [place for place in nearest if place.kind == "pack"]
        size = max([self.copies(place) * place.b * place.gamma * place.width for place in self.pack], default=0)
        extra = max([self.copies(place) * place.width for place in self.pack], default=0)
        self.kv = torch.empty(size, dtype=torch.float16, device=self.device.kind).normal_()
        self.packed = torch.empty(size + extra, dtype=torch.float16, device=self.device.kind)
        self.device.synchronize()

    @staticmethod
    def buffer_bytes(place: Place) -> int:
        return (2 * place.b * place.gamma + 1) * place.width * 2 + place.b * (2 * place.gamma + 1) * 8

    def copies(self, place: Place) -> int:
        return COPIES if COPIES * self.buffer_bytes(place) <= self.args.rotate_mb * 1e6 else 1

    def load(self) -> None:
        """All peers. What fails is noted, and the others are measured."""
        args = self.args

        def attempt(name: str, action: Callable[[], list[Peer]]) -> None:
            try:
                for peer in action():
                    self.peers[peer.name] = peer
            except Exception as error:
                self.failed[name] = first_line(error)
                progress(f"{name}: {self.failed[name]}")
                if args.verbose:
                    traceback.print_exc()

        if not args.no_megalith:
            try:
                megalith = package(args.package)
                self.about["megalith"] = getattr(megalith, "__version__", "")
            except Exception as error:
                self.failed["megalith"] = first_line(error)
                progress(f"megalith: {self.failed['megalith']}")
            else:
                def ours(name: str) -> list[Peer]:
                    peer, kernel = our_peer(megalith, name, pathlib.Path(args.pipelines), self.device.kind)
                    return [peer] + (variants(peer, kernel, self.device.handle) if name == "ours_fused" else [])
                for name in FILES:
                    attempt(name, lambda name=name: ours(name))
                    self.alive = time.monotonic()
        if self.device.gpu:
            attempt("CuPy", lambda: hand_peers(self.device.handle))
            with contextlib.suppress(Exception):
                self.about["cupy"] = sys.modules["cupy"].__version__
        ballot = self.peers.get("ours_ballot") or self.peers.get("cuda_ballot")
        attempt("PyTorch", lambda: torch_peers(self.torch, ballot))
        if args.compile:
            attempt("torch.compile", lambda: compiled_peers(self.torch, args.compile_mode))
            with contextlib.suppress(Exception):
                import triton
                self.about["triton"] = triton.__version__
        if args.peers:
            self.peers = {name: peer for name, peer in self.peers.items() if name in args.peers}
        self.about["peers"] = list(self.peers)
        self.about["two_step_ballot"] = ballot.name if ballot else None

    def phases(self) -> Iterable[tuple[str, list[Place], list[str]]]:
        """What is measured, the most wanted first: (title, places, peers)."""
        args, at = self.args, self.key_batch
        short = 8 if 8 in args.gamma else args.gamma[0]
        long, most = args.gamma[-1], args.alpha[-1]
        scan_peers = [name for name, peer in self.peers.items() if peer.kind == "scan" and name not in COMPILED]
        pack_peers = [name for name, peer in self.peers.items() if peer.kind == "pack" and name not in COMPILED]
        everywhere = [[name for name in names if name not in ONLY_AT_KEY] for names in (scan_peers, pack_peers)]
        yield "naive and ballot everywhere", self.scan, list(SCAN_CORE)
        yield ("fused beside a copy", [place for place in self.pack if place[1:4] == (at, long, most) and
                                       place.width in args.width[-2:]], [*PACK_CORE, "copy"])
        yield f"fused and two steps at γ {short}", [place for place in self.pack if place.gamma == short], list(PACK_CORE)
        yield "all scans at one batch", [place for place in self.scan if place.b == at and
                                         place.gamma in (short, long)], scan_peers
        yield ("all packs at one batch", [place for place in self.pack if place.b == at and place.alpha == most and
                                          place.gamma in (short, long)], pack_peers)
        if args.compile:
            width = 2048 if 2048 in args.width else args.width[-1]
            shapes = [place for place in self.scan + self.pack if (place.b, place.gamma) in args.compile and
                      place.width in (0, width) and (place.kind == "scan" or place.alpha == most)]
            yield "torch.compile", shapes, list(COMPILED)
        yield "fused and two steps everywhere", self.pack, list(PACK_CORE)
        if args.bars:
            return
        yield "all scans everywhere", self.scan, everywhere[0]
        yield "copy and PyTorch's packs at the largest α", [p for p in self.pack if p.alpha == most], everywhere[1]
        yield "all packs everywhere", self.pack, everywhere[1]

    def run(self) -> None:
        reserve = 20 if self.args.profile else 5
        for title, places, names in self.phases():
            names = [name for name in names if name in self.peers]
            begin, count = time.monotonic(), len(self.rows)
            progress(f"{title}: {len(places)} places, {', '.join(names)}")
            for place in places:
                if time.monotonic() > self.end - reserve:
                    self.cut = f"out of time in `{title}`, at {place}"
                    progress(self.cut)
                    break
                wanted = [name for name in names if (place, name) not in self.done and
                          self.peers[name].kind == place.kind and self.strikes[name] < 3]
                if wanted:
                    self.patience = 300.0 if set(wanted) & set(COMPILED) else 150.0
                    self.measure(place, wanted)
                    self.maybe_write(place)
            if self.cut:
                break
            self.finished.append(title)
            progress(f"{title}: {len(self.rows) - count} measurements in {time.monotonic() - begin:.1f} s")
        if self.args.profile and self.device.gpu:
            self.profile()

    def maybe_write(self, place: Place) -> None:
        now = self.alive = time.monotonic()
        if now - self.said > 15:
            self.said = now
            progress(f"at {place}; {len(self.rows)} measurements")
        if now - self.written > 10:
            self.write()

    def measure(self, place: Place, names: list[str]) -> None:
        """These peers at a place, in turn: every other round in reverse."""
        copies = [Copy(self, place, number) for number in range(self.copies(place))]
        footprint, l2 = sum(copy.moved_bytes for copy in copies), self.about["l2_bytes"]
        state = "unknown" if not l2 else "warm" if footprint < l2 / 2 else "cold" if footprint > 2 * l2 else "partly warm"
        about = {"kind": place.kind, "b": place.b, "gamma": place.gamma, "alpha": place.alpha, "width": place.width,
                  "copies": len(copies), "l2": state, "mean_accepted": statistics.mean(
                      float(copy.wanted["accepted"].mean()) for copy in copies),
                  "packed_bytes": statistics.mean(copy.packed_bytes for copy in copies),
                  "moved_bytes": statistics.mean(copy.moved_bytes for copy in copies)}
        entries = []
        for name in names:
            entry, text = self.prepare(self.peers[name], copies)
            self.done.add((place, name))
            if entry:
                entries.append(entry)
            else:
                self.strikes[name] += 1
                self.rows.append(about | {"peer": name, "correct": False, "note": text})
                progress(f"{name} at {place}: {text}")
            self.alive = time.monotonic()
        gc.disable()
        try:
            for turn in range(ROUNDS):
                for entry in entries[:: -1 if turn % 2 else 1]:
                    try:
                        entry.turn()
                    except Exception as error:
                        self.must_answer(error)
                        entry.notes.append(f"failed while timed: {first_line(error)}")
            for entry in entries:
                text = self.after(entry)
                self.rows.append(about | {"peer": entry.peer.name, "correct": not text} | entry.row())
                if text:
                    self.rows[-1]["note"] = text
                    progress(f"{entry.peer.name} at {place}: {text}")
                entry.release()
        finally:
            gc.enable()
        self.device.release()

    def prepare(self, peer: Peer, copies: list[Copy]) -> tuple[Entry | None, str]:
        """An entry whose outputs were right, in a stream and from a graph; or none, and why."""
        try:
            calls = [peer.make(copy) for copy in copies]
            for copy, call in zip(copies, calls):
                text = self.verdict(peer, copy, call)
                if text:
                    return None, f"wrong: {text}"
            entry = Entry(self.device, peer, calls)
            entry.record()
            if entry.graph and len(peer.returns) < len(peer.outputs):
                used = copies[:entry.graph_calls]
                static = {name: dtype for name, dtype in peer.outputs.items() if name not in peer.returns}
                for copy in used:
                    copy.poison(static)
                entry.graph.replay()
                self.device.synchronize()
                for copy in used:
                    text = copy.wrong(static, {}, peer.tail)
                    if text:
                        return None, f"wrong in a graph: {text}"
            return entry, ""
        except Exception as error:
            if self.args.verbose:
                traceback.print_exc()
            self.must_answer(error)
            return None, f"failed: {first_line(error)}"

    def verdict(self, peer: Peer, copy: Copy, call: Callable[[], Any]) -> str:
        copy.poison(peer.outputs)
        returned = call()
        self.device.synchronize()
        if peer.check:
            peer.check()
        return copy.wrong(peer.outputs, dict(zip(peer.returns, returned)) if peer.returns else {}, peer.tail)

    def after(self, entry: Entry) -> str:
        """Whether a fault came up while it was timed."""
        try:
            self.device.synchronize()
            if entry.peer.check:
                entry.peer.check()
        except Exception as error:
            self.must_answer(error)
            return f"failed: {first_line(error)}"
        return ""

    def must_answer(self, error: BaseException) -> None:
        """After an illegal access nothing works any more."""
        try:
            self.device.synchronize()
            if self.device.kind == "cuda":
                self.torch.cuda.synchronize()
        except Exception:
            raise Lost(first_line(error)) from error

    def profile(self) -> None:
        """Times of the kernels alone. Last, since the profiler may slow later calls."""
        from torch.profiler import ProfilerActivity, profile
        args, at = self.args, self.key_batch
        gammas = {8 if 8 in args.gamma else args.gamma[0], args.gamma[-1]}
        places = [place for place in self.scan + self.pack if place.b == at and place.gamma in gammas and
                  place.alpha == args.alpha[-1] and place.width in (0, *args.width[-2:])]
        index = {key_of(row): row for row in self.rows if row["correct"]}
        count = 0
        progress(f"profiler: {len(places)} places")
        for place in places:
            copies = [Copy(self, place, number) for number in range(self.copies(place))]
            for name, peer in self.peers.items():
                row = index.get((*place, name))
                if not row or name in COMPILED or time.monotonic() > self.end - 4:
                    continue
                self.alive = time.monotonic()
                calls = [peer.make(copy) for copy in copies]
                number = between(0.02e6 / max(1.0, row["wall_us"]), 2, GRAPH_CALLS)
                try:
                    for call in calls:
                        call()
                    self.device.synchronize()
                    with profile(activities=[ProfilerActivity.CUDA]) as seen:
                        for i in range(number):
                            calls[i % len(calls)]()
                        self.device.synchronize()
                    spent = [event.time_range.elapsed_us() for event in seen.events()
                             if "CUDA" in str(event.device_type)]
                    row["kernel_us"] = round(sum(spent) / number, 4) if spent else None
                    row["kernels"] = round(len(spent) / number, 2)
                    count += bool(spent)
                except Exception as error:
                    self.must_answer(error)
                    progress(f"profiler, {name} at {place}: {first_line(error)}")
                    if not count:
                        return
        progress(f"profiler: {count} measurements")

    def data(self) -> dict[str, Any]:
        return {"verify_study": 1, "about": self.about | {"seconds": round(time.monotonic() - START, 1)},
                "bounds": self.bounds, "failed": self.failed, "skipped": self.skipped, "finished": self.finished,
                "cut": self.cut, "rows": self.rows}

    def write(self) -> None:
        """What is there stays if the rest is interrupted."""
        self.written = time.monotonic()
        path = pathlib.Path(self.args.json[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + f".{threading.get_ident()}.new")
        fresh.write_text(json.dumps(self.data()) + "\n")
        os.replace(fresh, path)

    def watch(self) -> None:
        """Ends the process if nothing moves: a kernel may wait forever."""
        def loop() -> None:
            while True:
                time.sleep(2)
                if time.monotonic() - self.alive > self.patience:
                    self.cut = f"nothing moved for {self.patience:.0f} s"
                    progress(f"{self.cut}; what is measured is written")
                    try:
                        self.write()
                        print(tables(self.data()), flush=True)
                    finally:
                        os._exit(3)
        threading.Thread(target=loop, daemon=True).start()


# ---- tables ----

def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["kind"], row["b"], row["gamma"], row["alpha"], row["width"], row["peer"]


class Found:
    """Measurements, by place and peer."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.about, self.data = data["about"], data
        self.rows = {key_of(row): row for row in data["rows"]}
        right = {kind: [row for row in data["rows"] if row["correct"] and row["kind"] == kind] for kind in ("scan", "pack")}
        self.values = {(kind, name): sorted({row[name] for row in rows}, key=lambda value: (isinstance(value, str), value))
                       for kind, rows in right.items() for name in ("b", "gamma", "alpha", "width")}
        # Where no graph could be made of ours, calls in a stream say what the GPU takes.
        self.gpu = "gpu" if any(row.get("gpu_us") for row in right["scan"] + right["pack"]
                                if row["peer"].startswith("ours")) else "queue"

    def of(self, kind: str, name: str) -> list[Any]:
        return self.values[kind, name]

    def us(self, time_: str, peer: str, kind: str, b: int, gamma: int, alpha: Any, width: int = 0) -> float | None:
        row = self.rows.get((kind, b, gamma, alpha, width, peer))
        return row.get(f"{time_}_us") if row and row["correct"] else None

    def ratio(self, time_: str, other: str, ours: str, *place: Any) -> float | None:
        """How many times our time the other's is."""
        above, below = self.us(time_, other, *place), self.us(time_, ours, *place)
        return above / below if above and below else None

    def key(self, kind: str) -> tuple[int, int, int, Any]:
        """The batch, the short and the long γ and the α that tables and figures look at."""
        batches, gammas, alphas = (self.of(kind, name) for name in ("b", "gamma", "alpha"))
        if not (batches and gammas and alphas):
            return 32, 8, 128, 0.9
        return (32 if 32 in batches else batches[-1], 8 if 8 in gammas else gammas[0], gammas[-1], alphas[-1])

    def head(self) -> str:
        about = self.about
        lengths = about.get("lengths")
        parts = [about["gpu"], f"PyTorch {about.get('torch', '?').split('+')[0]}"]
        if lengths:
            parts.append(f"lengths of a run ({lengths['count']}, mean {lengths['mean']:.2f} of {lengths['gamma']})")
        return ", ".join(parts)


def table(title: str, header: Sequence[str], lines: Sequence[Sequence[Any]], labels: int = 1) -> str:
    """Empty if nothing stands in it behind the labels."""
    if not any(str(cell) for line in lines for cell in line[labels:]):
        return ""
    out = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join([title, "", *out] + ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines])


def flat_table(found: Found) -> str:
    gammas, alphas = found.of("scan", "gamma"), found.of("scan", "alpha")

    def spread(peer: str, b: int, gamma: int) -> float | None:
        times = [found.us(found.gpu, peer, "scan", b, gamma, alpha) for alpha in alphas]
        return max(times) / min(times) if len(alphas) > 1 and None not in times else None

    lines = [[b, *(fixed(spread("ours_ballot", b, gamma), 3) for gamma in gammas)] for b in found.of("scan", "b")]
    text = table(f"1. Ballot over α ({', '.join(map(str, alphas))}): largest by smallest GPU time",
                 ["b \\ γ", *map(str, gammas)], lines)
    for peer in ("ours_ballot", "cuda_ballot", "ours_naive"):
        values = [(spread(peer, b, gamma), b, gamma) for b in found.of("scan", "b") for gamma in gammas]
        values = [value for value in values if value[0] is not None]
        if values and text:
            worst = max(values)
            text += f"\n{TEXTS[peer]}: at most {worst[0]:.3f} (b {worst[1]}, γ {worst[2]}), in {len(values)} shapes."
    return text


def naive_table(found: Found) -> str:
    gammas, values, lines = found.of("scan", "gamma"), [], []
    for b in found.of("scan", "b"):
        for alpha in found.of("scan", "alpha"):
            ratios = [found.ratio(found.gpu, "ours_naive", "ours_ballot", "scan", b, gamma, alpha) for gamma in gammas]
            values += [(ratio, b, gamma, alpha) for ratio, gamma in zip(ratios, gammas) if ratio]
            lines.append([b, alpha, *(fixed(ratio, 2) for ratio in ratios)])
    text = table("2. Naive by ballot, GPU time", ["b", "α \\ γ", *map(str, gammas)], lines, 2)
    for word, choice in (("Least", min), ("Most", max)):
        if values:
            text += "\n{}: {:.2f} (b {}, γ {}, α {}).".format(word, *choice(values))
    return text


def fused_table(found: Found) -> str:
    short, widths = found.key("pack")[1], found.of("pack", "width")

    def ratio(b: int, gamma: int, alpha: Any, width: int) -> float | None:
        return found.ratio("wall", "two_step", "ours_fused", "pack", b, gamma, alpha, width)

    def least(b: int, width: int) -> float | None:
        return min((value for value in (ratio(b, short, alpha, width) for alpha in found.of("pack", "alpha")) if value),
                   default=None)

    text = table(f"3. Two steps (ballot, then kv[mask]) by fused, wall time in a stream, least over α, at γ {short}",
                 ["b \\ width", *map(str, widths)],
                 [[b, *(fixed(least(b, width), 2) for width in widths)] for b in found.of("pack", "b")])
    every = [(ratio(*place), *place) for place in sorted({key[1:5] for key in found.rows if key[0] == "pack"}, key=str)]
    every = sorted((value for value in every if value[0]), key=lambda value: value[0])
    at = [value for value in every if value[2] == short]
    for word, values in ((f"At γ {short}", at), ("Everywhere", every)):
        if values:
            below = sum(value[0] < 1 for value in values)
            text += "\n{}: {} places, least {:.2f} (b {}, γ {}, α {}, width {}), median {:.2f}; below 1: {}.".format(
                word, len(values), *values[0], statistics.median(value[0] for value in values), below)
    if len(every) > 1:
        lowest = ("{:.2f} (b {}, γ {}, α {}, width {})".format(*value) for value in every[:4])
        text += f"\nThe lowest: {'; '.join(lowest)}."
    return text


def copy_table(found: Found) -> str:
    b, _, gamma, alpha = found.key("pack")
    lines = []
    for width in found.of("pack", "width")[-2:]:
        row = found.rows.get(("pack", b, gamma, alpha, width, "ours_fused"))
        for time_ in ("gpu", "queue", "graph", "kernel"):
            ours, copy = (found.us(time_, peer, "pack", b, gamma, alpha, width) for peer in ("ours_fused", "copy"))
            if row and ours and copy:
                rates = [2 * row["packed_bytes"] / us / 1e6 for us in (ours, copy)]
                lines.append([width, f"{row['packed_bytes'] / 1e6:.1f}", row["l2"], time_, f"{ours:.2f}", f"{copy:.2f}",
                              f"{ours - copy:+.2f}", f"{100 * copy / ours:.0f} %", f"{rates[0]:.2f}", f"{rates[1]:.2f}"])
    return table(
        f"4. Fused beside a copy of the packed bytes, b {b}, γ {gamma}, α {alpha}",
        ["width", "MB", "L2", "time", "fused µs", "copy µs", "difference", "copy by fused", "fused TB/s", "copy TB/s"],
        lines)


def host_table(found: Found) -> str:
    lines = []
    for peer, text in TEXTS.items():
        values = [row["host_us"] for row in found.rows.values() if row["peer"] == peer and row.get("host_us")]
        if values:
            lines.append([text, len(values), *(f"{of(values):.2f}" for of in (min, statistics.median, max))])
    return table("5. Host side of a call from Python, µs (medians of places; kv[mask] waits for the GPU in it)",
                 ["peer", "places", "least", "median", "most"], lines)


def peers_table(found: Found) -> str:
    parts = []
    for kind in ("scan", "pack"):
        b, short, long, alpha = found.key(kind)
        widths = found.of(kind, "width")
        width = 2048 if 2048 in widths else widths[-1] if widths else 0
        lines = []
        for gamma in dict.fromkeys((short, long)):
            for peer, text in TEXTS.items():
                row = found.rows.get((kind, b, gamma, alpha, width, peer))
                if row and row["correct"]:
                    lines.append([gamma, text, *(fixed(row.get(f"{name}_us"), 2) for name in TIMES)])
        if lines:
            parts.append(table(f"6. All peers, b {b}, α {alpha}" + (f", width {width}" if width else "") + ", µs",
                               ["γ", "peer", *TIMES], lines, 2))
    return "\n\n".join(parts)


def tables(data: dict[str, Any]) -> str:
    """All tables of a run, as Markdown."""
    found = Found(data)
    parts = [f"{found.head()}; {len(data['rows'])} measurements. Kernels in `gpu` start from a CUDA graph of {GRAPH_CALLS} "
             "calls."]
    for make in (peers_table, host_table, copy_table, naive_table, flat_table, fused_table):
        try:
            parts.append(make(found))
        except Exception as error:  # one table less
            parts.append(f"{make.__name__}: {first_line(error)}")
    bad = [row for row in data["rows"] if not row["correct"]]
    parts.append(f"Compared bit for bit with NumPy: {len(data['rows']) - len(bad)} right, {len(bad)} wrong or failed.")
    parts += [f"- {row['peer']} at {Place(*key_of(row)[:5])}: {row['note']}" for row in bad[:12]]
    parts += [f"- not loaded: {name}: {text}" for name, text in data["failed"].items()]
    parts += [f"- skipped: {text}" for text in data["skipped"][:12]]
    if data["cut"]:
        parts.append(f"- {data['cut']}; whole: {', '.join(data['finished'])}")
    return "\n\n".join(part for part in parts if part)


def read(paths: Sequence[str]) -> dict[str, Any]:
    """The measurements of these files; a later one's replace an earlier one's."""
    merged: dict[str, Any] = {}
    for path in paths:
        try:
            data = json.loads(pathlib.Path(path).read_text())
        except OSError as error:
            fail(f"{path}: {error.strerror} (--json)")
        except ValueError as error:
            fail(f"{path} is not JSON: {error}")
        if "verify_study" not in data:
            fail(f"{path} was not written by verify_study.py")
        if not merged:
            merged = data
            continue
        if data["about"]["gpu"] != merged["about"]["gpu"]:
            fail(f"{path} is of another GPU than {paths[0]}")
        rows = {key_of(row): row for row in [*merged["rows"], *data["rows"]]}
        merged = data | {"rows": list(rows.values()), "failed": merged["failed"] | data["failed"]}
    return merged


# ---- figures ----

# Peer: colour, marker, line.
LOOKS = {
    "ours_serial": (plot.GREY, "v", ":"), "ours_naive": (plot.SKY, "s", "--"), "ours_ballot": (plot.BLUE, "o", "-"),
    "ours_sorted": (plot.GREEN, "D", "-."), "cuda_thread": (plot.ORANGE, "s", ":"), "cuda_block": (plot.PURPLE, "P", "--"),
    "torch_scan": (plot.VERMILLION, "^", "-"), "compiled_scan": (plot.BLACK, "x", "-."),
    "ours_fused": (plot.BLUE, "o", "-"), "two_step": (plot.VERMILLION, "^", "--"), "copy": (plot.GREY, "x", ":"),
    "torch_gather": (plot.ORANGE, "s", "-."), "torch_scatter": (plot.PURPLE, "P", ":"),
    "two_step_gather": (plot.GREEN, "D", "-."),
}


def bytes_text(value: float) -> str:
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def plain_ticks(axis: Any, values: Sequence[float], which: str = "x") -> None:
    """Ticks at these values of a logarithmic axis."""
    side = axis.xaxis if which == "x" else axis.yaxis
    side.set_ticks(list(values), [f"{value:g}" for value in values])
    side.set_minor_locator(plot_ticker().NullLocator())


def plot_ticker() -> Any:
    import matplotlib.ticker
    return matplotlib.ticker


def log_numbers(axis: Any) -> None:
    """A logarithmic y axis whose ticks are plain numbers."""
    axis.set_yscale("log")
    ticker = plot_ticker()
    low, high = axis.get_ylim()
    steps = (1, 2, 3, 5, 7) if high / low < 12 else (1, 2, 5) if high / low < 50 else (1,)
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=steps, numticks=12))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_minor_formatter(ticker.NullFormatter())


def draw_latency(found: Found) -> Any:
    """Time of a scan over γ and α, on the GPU and as the caller sees it."""
    b, _, long, most = found.key("scan")
    gammas, alphas = found.of("scan", "gamma"), found.of("scan", "alpha")
    if not gammas:
        raise plot.Missing("there are no scans")
    figure, axes = plot.start(2, 2, 4.6, sharey="row", gridspec_kw={"width_ratios": [3, 2]})
    for line, (time_, label) in zip(axes, ((found.gpu, "GPU time (µs, log)"), ("wall", "time of a call (µs, log)"))):
        for peer, (colour, marker, style) in LOOKS.items():
            for axis, steps, places in ((line[0], gammas, [(b, gamma, most) for gamma in gammas]),
                                        (line[1], range(len(alphas)), [(b, long, alpha) for alpha in alphas])):
                points = [(x, found.us(time_, peer, "scan", *place)) for x, place in zip(steps, places)]
                points = [point for point in points if point[1]]
                if points:
                    axis.plot(*zip(*points), color=colour, marker=marker, linestyle=style, markersize=4, label=TEXTS[peer])
        line[0].set_ylabel(label)
        for axis in line:
            plot.grid(axis)
        log_numbers(line[0])
    for row, axis in enumerate(axes[:, 0]):
        axis.set_xscale("log")
        plain_ticks(axis, gammas)
        if row:
            axis.set_xlabel("γ: drafts of a sequence")
    for row, axis in enumerate(axes[:, 1]):
        axis.set_xticks(range(len(alphas)), [str(alpha) for alpha in alphas])
        axis.set_xlim(-0.3, len(alphas) - 0.7)
        if row:
            axis.set_xlabel("α: drafts that are right")
    axes[0][0].set_title(f"α {most}", fontsize=9, loc="left")
    axes[0][1].set_title(f"γ {long}", fontsize=9, loc="left")
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False)
    plot.head(figure, "Time of a scan of drafts, beside CUDA by hand and PyTorch",
              f"{found.head()}, batch {b}; above: in a CUDA graph, below: in a stream, synchronised")
    return figure


def draw_maps(found: Found, panels: Sequence[tuple[str, list[Any], list[Any], Callable[[Any, Any], float | None]]],
              labels: tuple[str, str], title: str, subtitle: str) -> Any:
    """Maps of speed-ups that share their colours: (title, columns, rows, value by column and row) each."""
    import matplotlib
    cells = [[[value(x, y) for x in columns] for y in rows] for _, columns, rows, value in panels]
    every = [value for each in cells for line in each for value in line if value]
    if not every:
        raise plot.Missing("there is nothing to compare")
    reach = 2 ** max(1, math.ceil(max(abs(math.log2(value)) for value in every)))
    norm = matplotlib.colors.LogNorm(1 / reach, reach)
    figure, axes = plot.start(1, len(panels), 0.9 + 0.32 * max(len(panel[2]) for panel in panels), sharey=True)
    for axis, (name, columns, rows, _), values in zip(axes[0], panels, cells):
        image = axis.pcolormesh([[value or float("nan") for value in line] for line in values], cmap="PuOr_r", norm=norm,
                                edgecolors="white", linewidth=1)
        for y, line in enumerate(values):
            for x, value in enumerate(line):
                strong = value and abs(math.log2(value)) > 0.6 * math.log2(reach)
                text = f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}" if value else "–"
                axis.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=6.5 if len(columns) > 5 else 8,
                          color=plot.GREY if not value else "white" if strong else "#010101")
        axis.set_xticks([i + 0.5 for i in range(len(columns))], [f"{value:,}" for value in columns])
        axis.set_yticks([i + 0.5 for i in range(len(rows))], [str(value) for value in rows])
        axis.set_ylim(0, len(rows))
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        axis.set_xlabel(labels[0])
        axis.set_title(name, fontsize=8.5)
    axes[0][0].set_ylabel(labels[1])
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=25, ticks=[1 / reach, 1, reach])
    bar.ax.set_yticklabels([f"1/{reach}", "1", f"{reach}"])
    bar.ax.minorticks_off()
    bar.set_label("speed-up (log)")
    plot.head(figure, title, subtitle)
    return figure


def draw_scan_map(found: Found) -> Any:
    alpha = found.key("scan")[3]
    columns, rows = found.of("scan", "gamma"), found.of("scan", "b")

    def by(time_: str, other: str) -> Callable[[int, int], float | None]:
        return lambda gamma, b: found.ratio(time_, other, "ours_ballot", "scan", b, gamma, alpha)

    panels = [("naive,\nGPU time", columns, rows, by(found.gpu, "ours_naive")),
              ("PyTorch in a CUDA graph,\nGPU time", columns, rows, by(found.gpu, "torch_scan")),
              ("PyTorch eager,\ntime of a call", columns, rows, by("wall", "torch_scan"))]
    panels = [panel for panel in panels if any(panel[3](x, y) for x in columns for y in rows)]
    return draw_maps(found, panels, ("γ: drafts of a sequence", "batch"),
                     "Speed-up of the ballot scan over naive and PyTorch",
                     f"{found.head()}, α {alpha}; above 1: the ballot is faster")


def draw_pack_map(found: Found) -> Any:
    _, short, long, alpha = found.key("pack")
    columns, rows = found.of("pack", "width"), found.of("pack", "b")

    def by(time_: str, other: str, gamma: int) -> Callable[[int, int], float | None]:
        return lambda width, b: found.ratio(time_, other, "ours_fused", "pack", b, gamma, alpha, width)

    panels = [(f"γ {short}, two steps,\ntime of a call", columns, rows, by("wall", "two_step", short)),
              (f"γ {long}, two steps,\ntime of a call", columns, rows, by("wall", "two_step", long)),
              (f"γ {long}, PyTorch in a\nCUDA graph, GPU time", columns, rows, by(found.gpu, "torch_gather", long))]
    panels = [panel for panel in panels if any(panel[3](x, y) for x in columns for y in rows)]
    return draw_maps(found, panels, ("KV width (fp16 numbers)", "batch"),
                     "Speed-up of the fused verify and pack over two steps and PyTorch",
                     f"{found.head()}, α {alpha}; two steps: ballot, then kv[mask] of PyTorch; in a graph: PyTorch's scan "
                     "and index_select of static size; above 1: fused is faster")


def draw_roofline(found: Found) -> Any:
    """Bytes moved a second over packed bytes, beside a copy of as many."""
    figure, axes = plot.start(1, 1, 3.2)
    axis = axes[0][0]
    seen = False
    for peer, time_ in (("ours_fused", found.gpu), ("copy", found.gpu), ("torch_gather", found.gpu),
                        ("torch_scatter", found.gpu), ("two_step", "wall")):
        points = [(row["packed_bytes"], 2 * row["packed_bytes"] / row[f"{time_}_us"] / 1e3) for row in found.rows.values()
                  if row["kind"] == "pack" and row["peer"] == peer and row["correct"] and row.get(f"{time_}_us")
                  and row["packed_bytes"]]
        if points:
            colour, marker, _ = LOOKS[peer]
            filled = {"facecolors": colour, "linewidths": 0} if marker != "x" else {"color": colour, "linewidths": 1}
            axis.scatter(*zip(*sorted(points)), s=13, marker=marker, alpha=0.7, zorder=3 if peer == "ours_fused" else 2,
                         label=TEXTS[peer] + (", time of a call" if time_ == "wall" else ""), **filled)
            seen = True
    if not seen:
        raise plot.Missing("there are no packs")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_major_formatter(lambda value, _: bytes_text(value))
    axis.minorticks_off()
    l2 = found.about.get("l2_bytes")
    if l2:
        axis.axvline(l2 / 2, color=plot.GREY, linewidth=0.8, linestyle=(0, (1, 2)))
        axis.annotate("kv and packed fill the L2", (l2 / 2, axis.get_ylim()[0]), xytext=(-3, 3), textcoords="offset points",
                      rotation=90, fontsize=7.5, color=plot.GREY, va="bottom", ha="right")
    plot.grid(axis, "both")
    axis.set_xlabel("packed bytes (log)")
    axis.set_ylabel("read and written (GB/s, log)")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    plot.head(figure, "Fused pack beside a copy of as many bytes, and PyTorch",
              f"{found.head()}; all batches, γ, α and widths; GPU time in a CUDA graph unless said")
    return figure


def draw_crossover(found: Found) -> Any:
    """Fused and two steps over width, for each α, at both γ."""
    b, short, long, _ = found.key("pack")
    alphas, widths = found.of("pack", "alpha"), found.of("pack", "width")
    if not widths:
        raise plot.Missing("there are no packs")
    figure, axes = plot.start(1, 2, 2.8, sharey=True)
    shades = [plot.SKY, plot.GREEN, plot.VERMILLION, plot.PURPLE]
    for axis, gamma in zip(axes[0], (short, long)):
        for alpha, colour in zip(alphas, shades):
            for peer, style, marker in (("ours_fused", "-", "o"), ("two_step", "--", "^")):
                points = [(width, found.us("wall", peer, "pack", b, gamma, alpha, width)) for width in widths]
                points = [point for point in points if point[1]]
                if points:
                    axis.plot(*zip(*points), color=colour, linestyle=style, marker=marker, markersize=4,
                              label=f"{'fused' if peer == 'ours_fused' else 'two steps'}, α {alpha}")
        axis.set_xscale("log")
        plain_ticks(axis, widths)
        axis.set_xlabel("KV width (fp16 numbers)")
        axis.set_title(f"γ {gamma}", fontsize=9, loc="left")
        plot.grid(axis)
    axes[0][0].set_ylabel("time of a call (µs, log)")
    log_numbers(axes[0][0])
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    order = sorted(handles, key=lambda label: label.startswith("two"))
    figure.legend([handles[label] for label in order], order, loc="outside lower center", ncols=2, frameon=False)
    plot.head(figure, "Fused against two steps: ballot, then kv[mask] of PyTorch",
              f"{found.head()}, batch {b}; a call in a stream, synchronised")
    return figure


FIGURES = {"verify-latency": draw_latency, "verify-scan-map": draw_scan_map, "verify-pack-map": draw_pack_map,
           "verify-roofline": draw_roofline, "verify-crossover": draw_crossover}


def draw(data: dict[str, Any], folder: str) -> int:
    """All figures that the data have enough for, each as NAME.svg and NAME-dark.svg."""
    try:
        import matplotlib
    except ImportError:
        fail("--figures needs matplotlib: `pip install matplotlib`")
    matplotlib.use("Agg")
    import matplotlib.pyplot
    matplotlib.rcParams.update(plot.STYLE)
    found, out, count = Found(data), pathlib.Path(folder), 0
    out.mkdir(parents=True, exist_ok=True)
    for name, make in FIGURES.items():
        try:
            figure = make(found)
        except plot.Missing as error:
            progress(f"no figure {name}: {error}")
            continue
        light = out / f"{name}.svg"
        figure.savefig(light, metadata={"Date": None, "Creator": None})
        (out / f"{name}-dark.svg").write_text(plot.darkened(light.read_text()))
        matplotlib.pyplot.close(figure)
        count += 1
    print(f"{count} figures in {out}")
    return 0 if count else 1


# ---- the program ----

def fractions(text: str) -> list[float]:
    """argparse type: numbers from 0 to 1 by comma."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = [-1.0]
    if not all(0 <= value <= 1 for value in values):
        raise argparse.ArgumentTypeError(f"`{text}`: numbers from 0 to 1 by comma are expected")
    return sorted(set(values))


def compile_shapes(text: str) -> list[tuple[int, int]]:
    """argparse type: `BxGAMMA` by comma, or `none`."""
    if text == "none":
        return []
    try:
        pairs = [tuple(int(part) for part in shape.split("x")) for shape in text.split(",")]
    except ValueError:
        pairs = [()]
    if not all(len(pair) == 2 for pair in pairs):
        raise argparse.ArgumentTypeError(f"`{text}`: BxGAMMA by comma, or `none`, is expected")
    return pairs


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def listed(values: Iterable[Any]) -> str:
        return ",".join(map(str, values))

    parser.add_argument("--json", default="bench-results/verify_study.json", metavar="FILE",
                        help="where a run writes; what --figures and --tables read, there also several by comma "
                        "(default bench-results/verify_study.json)")
    parser.add_argument("--figures", metavar="DIR", help="draw figures of --json there as SVG; no run, no GPU")
    parser.add_argument("--tables", action="store_true", help="print the tables of --json; no run, no GPU")
    parser.add_argument("--minutes", type=float, default=9.0, metavar="N",
                        help="stop in time, with what is there (default 9)")
    parser.add_argument("--bars", action="store_true", help="only what the tables need")
    parser.add_argument("--quick", action="store_true",
                        help="few shapes: b 1 and 32, γ 8 and 128, α .3 and .9, width 2048 and 8192, no torch.compile")
    parser.add_argument("--b", type=integers, metavar="N,...", help=f"batches (default {listed(BATCHES)})")
    parser.add_argument("--gamma", type=integers, metavar="N,...", help=f"drafts of a sequence (default {listed(GAMMAS)})")
    parser.add_argument("--alpha", type=fractions, metavar="X,...", help=f"acceptance (default {listed(ALPHAS)})")
    parser.add_argument("--width", type=integers, metavar="N,...",
                        help=f"fp16 numbers of a row of KV (default {listed(WIDTHS)})")
    parser.add_argument("--lengths", metavar="FILE",
                        help="accepted lengths of a real run, as JSON lines or text; they take the place of the binomial "
                        "law and of --alpha. γ is the file's `gamma`, else --gamma, else the largest length")
    parser.add_argument("--compile", type=compile_shapes, metavar="BxGAMMA,...",
                        help="shapes for torch.compile, or `none` (default 32x8,32x128)")
    parser.add_argument("--compile-mode", default="max-autotune-no-cudagraphs",
                        help="of torch.compile, or `default` (default max-autotune-no-cudagraphs)")
    parser.add_argument("--peers", type=lambda text: text.split(","), metavar="NAME,...",
                        help=f"only these, of {', '.join(TEXTS)}")
    parser.add_argument("--no-megalith", action="store_true", help="the peers alone")
    parser.add_argument("--no-profile", dest="profile", action="store_false", help="no kernel times by PyTorch's profiler")
    parser.add_argument("--pipelines", default=str(ROOT / "pipelines/verify"), metavar="DIR",
                        help="folder of our files (default pipelines/verify)")
    parser.add_argument("--package", metavar="DIR", help="folder that has the Python package, if it is not installed")
    parser.add_argument("--memory-gb", type=float, default=6.0, metavar="N",
                        help="shapes whose kv and packed take more are skipped (default 6)")
    parser.add_argument("--rotate-mb", type=float, default=8.0, metavar="N",
                        help=f"calls go round {COPIES} copies of the buffers where these take no more in all (default 8)")
    parser.add_argument("--seed", type=int, default=15618)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu is for trying the script out only")
    parser.add_argument("--verbose", action="store_true", help="print where failures come from")
    args = parser.parse_args()
    args.json = args.json.split(",")
    if args.figures or args.tables:
        return args
    if len(args.json) > 1:
        parser.error("a run writes one file (--json)")
    unknown = [name for name in args.peers or [] if name not in TEXTS]
    if unknown:
        parser.error(f"no peer `{', '.join(unknown)}`; there are {', '.join(TEXTS)}")
    args.real = None
    if args.lengths:
        args.real, gamma = load_lengths(args.lengths)
        args.gamma = [gamma] if gamma else args.gamma or [max(1, *args.real, 1)]
        args.alpha = [REAL]
        if len(args.gamma) > 1 or max(args.real) > args.gamma[0]:
            parser.error(f"lengths go up to {max(args.real)}: --gamma must be the one γ of that run")
    args.compile = args.compile if args.compile is not None else [] if args.quick else [(32, 8), (32, 128)]
    for name, whole, few in (("b", BATCHES, [1, 32]), ("gamma", GAMMAS, [8, 128]), ("alpha", ALPHAS, [0.3, 0.9]),
                             ("width", WIDTHS, [2048, 8192])):
        setattr(args, name, sorted(getattr(args, name) or (few if args.quick else whole)))
    return args


def main() -> int:
    args = arguments()
    if args.figures or args.tables:
        data = read(args.json)
        if args.tables:
            print(tables(data))
        return draw(data, args.figures) if args.figures else 0
    try:
        study = Study(args)
    except ImportError as error:
        fail(f"a run needs PyTorch and NumPy: {error}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: ended from outside"))
    study.watch()
    progress(f"{study.about['gpu']}, PyTorch {study.about['torch']}; {len(study.scan)} scans, {len(study.pack)} packs, "
             f"{len(study.skipped)} skipped; until {args.minutes:g} minutes")
    try:
        study.device.warm_up()
        study.load()
        study.run()
    except Lost as error:
        study.cut = f"the device was lost: {error}"
        progress(study.cut)
    except Exception as error:
        study.cut = f"stopped: {first_line(error)}"
        traceback.print_exc()
    finally:
        study.alive = time.monotonic()
        study.write()
    text = tables(study.data())
    print(text, flush=True)
    path = pathlib.Path(args.json[0])
    path.with_suffix(".md").write_text(text + "\n")
    progress(f"written to {path} and {path.with_suffix('.md')}")
    bad = any(not row["correct"] for row in study.rows) or study.failed or not study.rows
    return 1 if bad or study.cut.startswith(("the device", "stopped")) else 0


if __name__ == "__main__":
    raise SystemExit(main())
