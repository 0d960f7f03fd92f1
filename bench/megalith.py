"""Runs `megalith bench`. What its options and its JSON are called stands here alone."""
import json
import os
import pathlib
import shutil
import subprocess

from common import ROOT, fail
from weights import hash32

# Our names: those of the JSON objects that `megalith bench --json` prints.
KEYS = {
    "ms": "ms_per_token",
    "kernel_ms": "kernel_ms",  # from the begin of the kernel to its end
    "context": "context",
    "batch": "batch",
    "floor_ms": "floor_ms",
    "bandwidth_gb_s": "bandwidth_gb_s",
    "percent_of_floor": "percent_of_floor",
    "tokens": "tokens",  # token ids that the first sequence generated
}
# Measurements within one call; the calls themselves are repeated, between those of the peers.
REPEATS = 3
PREFILL_TOKENS = 9  # generated where the prefill is timed
TIMEOUT_S = 300


class MegalithError(Exception):
    pass


def decode_options(config, context, batch, tokens):
    return [f"--config={config}", f"--context={context}", f"--batch={batch}",
            f"--tokens={tokens}", f"--repeats={REPEATS}", "--json"]


def prefill_options(config, length):
    return decode_options(config, length, 1, PREFILL_TOKENS) + ["--prefill"]


def prefill_ms(found):
    """From the begin of the kernel to the first token: less the steps after it."""
    return found["kernel_ms"] - (PREFILL_TOKENS - 1) * found["ms"]


def prompt(length, vocab, sequence=0):
    """The prompt that `megalith bench --prefill` feeds."""
    return [hash32(index ^ hash32(sequence + 1)) % vocab for index in range(length)]


def find(text):
    """The program: `text`, or the one of the build folder, or the one of the PATH."""
    places = [text] if text else [str(ROOT / "build/tools/megalith"), "megalith"]
    for place in places:
        found = shutil.which(place)
        if found:
            return str(pathlib.Path(found).resolve())
    if text:
        fail(f"no program `{text}` (--megalith)")
    fail(f"no program `megalith` in {ROOT / 'build/tools'} or the PATH; build it "
         "(README.md), name it with --megalith, or leave it out with --no-megalith")


def pipeline_at(path):
    """`path`, which takes the model file of whatever config it is given."""
    path = pathlib.Path(path)
    if not path.is_file():
        fail(f"no pipeline {path} (--pipeline)")
    return path.resolve()


def parse(text):
    """The JSON objects of an output, one per line, with our names."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                said = json.loads(line)
            except ValueError:
                raise MegalithError(f"not JSON: {line[:200]}") from None
            found.append({ours: said[theirs] for ours, theirs in KEYS.items() if theirs in said})
    return found


def bench(program, pipeline, options, **wanted):
    """The object of one call that has the values of `wanted`."""
    command = [program, "bench", str(pipeline), *options]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S,
                             env=os.environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MegalithError(str(error)) from None
    if run.returncode != 0:
        said = (run.stderr or run.stdout).strip()[-800:]
        raise MegalithError(f"exit status {run.returncode} of `{' '.join(command)}`: {said}")
    for found in parse(run.stdout):
        if all(found.get(key, value) == value for key, value in wanted.items()):
            return found
    raise MegalithError(f"no result for {wanted} in the output of `{' '.join(command)}`; "
                        "bench/megalith.py has the names that are looked for")
