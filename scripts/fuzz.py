#!/usr/bin/env python3
"""Run fuzz targets side by side and print a table: fuzz.py [TARGET...] [--seconds N] [--jobs N].

scripts/fuzz.sh builds megalith-fuzz and then runs this. An input that breaks something is kept;
its path is printed with the command that runs it again, and the exit code is 1.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time

root = pathlib.Path(__file__).resolve().parent.parent
corpus = root / "test/Fuzz/corpus"
# Files of other tests that are good first inputs.
SHARED = {
    "pipeline": ["pipelines", "docs/examples", "test/Driver/Inputs", "test/Cpu/Inputs", "test/Mutants/Inputs"],
    "model": ["pipelines/models", "test/Emit/Inputs/models"],
    "ir": ["test/IR", "test/Transforms"],
    "requests": ["test/Cpu/Inputs"],
}


# Runs of a test, some ten seconds of each target; it is then the same on every machine.
RUNS = {"automaton": 1500, "cache": 4000, "config": 9000, "expression": 3500, "ir": 12000, "manifest": 60000, "model": 4500, "pipeline": 3000,
        "requests": 30000, "safetensors": 35000, "schema": 30000, "trace": 45000}

# Bytes. Little, so that what calls itself once a bracket is found with short inputs.
STACK = 2 << 20


# The line of a log that says what is wrong.
SAYS = re.compile(r"(?m)^FINDING: .*|^.*ERROR: (AddressSanitizer|LeakSanitizer): .*|^.*runtime error: .*|"
                  r"^.*Assertion .*failed.*|^ *what\(\): .*|^.*libFuzzer: (timeout|out-of-memory).*|^SUMMARY: .*")
# A frame of our own: libFuzzer's and the library's say little.
FRAME = re.compile(r"^ *#\d+ 0x\w+ in (.*) (?!/usr/)\S*?/((?:lib|runtime|include/megalith|test/Fuzz)/\S+)$")


class Outcome:
    """What one process did."""

    def __init__(self, target):
        self.target, self.seconds, self.runs, self.units, self.covered, self.memory = target, 0.0, 0, 0, 0, 0
        self.slowest = 0
        self.finding = ""  # the line that says what is wrong
        self.input = None  # the input that shows it
        self.log = ""

    def read_log(self):
        def last(pattern):
            found = re.findall(pattern, self.log)
            return int(found[-1]) if found else 0

        self.runs = last(r"(?m)^#(\d+)\s") or last(r"stat::number_of_executed_units:\s*(\d+)")
        self.covered = last(r" cov: (\d+) ")
        self.units = last(r" corp: (\d+)")
        self.memory = last(r"stat::peak_rss_mb:\s*(\d+)") or last(r" rss: (\d+)Mb")
        self.slowest = last(r"stat::slowest_unit_time_sec:\s*(\d+)")


def find_targets(binary):
    """Name and greatest input of every target."""
    listed = subprocess.run([binary, "--list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0]: int(line.split()[1]) for line in listed.splitlines()}


def environment(scratch):
    env = {name: value for name, value in os.environ.items() if not name.startswith("MEGALITH_")}
    env["TMPDIR"] = str(scratch)
    env["ASAN_OPTIONS"] = "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=0"
    env["UBSAN_OPTIONS"] = "print_stacktrace=1"
    symbolizer = shutil.which("llvm-symbolizer-19") or shutil.which("llvm-symbolizer")
    if symbolizer:
        env["ASAN_SYMBOLIZER_PATH"] = symbolizer
    return env


def run_target(binary, target, most_bytes, seconds, work, findings, seed, report):
    """One process; seconds 0: only the inputs that are there; None: as many as RUNS says."""
    outcome = Outcome(target)
    found = work / "corpus" / target
    findings.mkdir(parents=True, exist_ok=True)
    found.mkdir(parents=True, exist_ok=True)
    first = [corpus / target] + [root / path for path in SHARED.get(target, [])]
    command = [binary, f"--target={target}", f"-max_len={most_bytes}", "-timeout=120", "-rss_limit_mb=3072",
               "-print_final_stats=1", f"-seed={seed}", f"-artifact_prefix={findings}/{target}-",
               *([f"-runs={RUNS.get(target, 3000)}"] if seconds is None else ["-runs=0"] if seconds == 0 else [f"-max_total_time={seconds}"]),
               found, *[path for path in first if path.is_dir()]]
    log = work / f"{target}-{seed}.log"
    started = time.time()
    with tempfile.TemporaryDirectory(prefix="megalith-fuzz-") as scratch, open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment(scratch),
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK)))
        next_word = started + 60
        while True:
            try:
                code = process.wait(timeout=5)
                break
            except subprocess.TimeoutExpired:
                if time.time() >= next_word:
                    next_word += 60
                    lines = log.read_text(errors="replace").splitlines()
                    status = next((line for line in reversed(lines) if re.match(r"#\d+\s", line)), "starting")
                    report(f"{target}: {' '.join(status.split())}")
    outcome.seconds = time.time() - started
    outcome.log = log.read_text(errors="replace")
    outcome.read_log()
    if code:
        said = SAYS.search(outcome.log)
        outcome.finding = said[0].strip() if said else f"it ended with exit code {code}"
        kept = re.search(r"Test unit written to (\S+)", outcome.log)
        outcome.input = kept[1] if kept else None
    return outcome


def run_all(binary, targets, seconds, jobs, work, seed, report=lambda text: None):
    """Every target, `jobs` processes at a time. New inputs and logs go to `work`, what breaks something
    stays in the folder `findings` beside the program. Yields outcomes as they come."""
    sizes = find_targets(binary)
    each = max(1, jobs // len(targets))  # processes of one target, which share what they find
    findings = binary.parent / "findings"
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run_target, binary, target, sizes[target], seconds, work, findings, seed + i, report)
                   for target in targets for i in range(each)]
        for done in concurrent.futures.as_completed(waiting):
            yield done.result()


def how_to_repeat(outcome, binary):
    """The lines for one finding."""
    lines = outcome.log.splitlines()
    at = next((i for i, line in enumerate(lines) if outcome.finding in line), 0)
    text = []
    for line in lines[at + 1:at + 12]:  # what a finding shows
        if not line.strip() or line.startswith("==") or "    #" in line:
            break
        text.append("    " + line[:300])
    frames = [match for match in map(FRAME.match, lines) if match and "megalith::fuzz::finding" not in match[1]]
    text += [f"    in {match[2]}, {match[1][:120]}" for match in frames[:10]]
    again = (f"  repeat: {os.path.relpath(binary)} --target={outcome.target} {os.path.relpath(outcome.input)}"
             if outcome.input else "  no input was kept; all that it said:\n" + outcome.log[-3000:])
    return "\n".join([f"{outcome.target}: {outcome.finding}", *text, again])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all of them by default")
    parser.add_argument("--seconds", type=int, default=60, help="of each process; 0: only the inputs in the repository and "
                        "those that earlier runs found (default 60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time (default: one per core)")
    parser.add_argument("--binary", type=pathlib.Path, default=root / "build-fuzz/test/Fuzz/megalith-fuzz")
    args = parser.parse_args()
    binary = args.binary.resolve()
    known = find_targets(binary)
    for target in args.targets:
        if target not in known:
            sys.exit(f"error: no target `{target}`; there are {', '.join(known)}")
    targets = args.targets or list(known)
    lock = threading.Lock()

    def report(text):
        with lock:
            print(text, flush=True)

    outcomes = []
    seed = int(time.time()) % 1000000  # another one each time
    for outcome in run_all(binary, targets, args.seconds, max(1, args.jobs), binary.parent / "work", seed, report):
        outcomes.append(outcome)
        report(f"{outcome.target}: {outcome.finding or 'done'}")
    outcomes.sort(key=lambda o: targets.index(o.target))
    print(f"\n{'target':<12} {'seconds':>8} {'runs':>10} {'per s':>8} {'inputs':>7} {'covered':>8} {'slowest':>8} {'MiB':>6}  result")
    for o in outcomes:
        print(f"{o.target:<12} {o.seconds:>8.0f} {o.runs:>10} {o.runs / max(o.seconds, 0.1):>8.0f} {o.units:>7} "
              f"{o.covered:>8} {o.slowest:>6} s {o.memory:>6}  {'a finding' if o.finding else 'nothing found'}")
    findings = [o for o in outcomes if o.finding]
    for outcome in findings:
        print("\n" + how_to_repeat(outcome, binary))
    print(f"\n{len(targets)} targets, {len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
