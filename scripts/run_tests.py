#!/usr/bin/env python3
"""Run the unit tests, the lit tests, those of the Python module, the fuzz targets and the source checks:
run_tests.py BUILD_DIR [--long] [--write-table].

Prints what failed, a table of what each part cost, and at the very end one line `N passed, N failed`. --write-table
puts that table into CONTRIBUTING.md, and the order of the lit tests, longest first, into test/.lit_test_times.txt.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import fuzz

root = pathlib.Path(__file__).resolve().parent.parent
parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--long", action="store_true", help="more schedules, shapes, mutants and random models; unit tests plain, too")
parser.add_argument("--write-table", action="store_true", help="put the table of costs into CONTRIBUTING.md")
args = parser.parse_args()
build, is_long = args.build.resolve(), args.long
sanitized = build.parent / (build.name + "-fuzz")
kernels = os.environ.get("MEGALITH_TEST_KERNELS") or f"{build}/test-kernels"
passed = failed = 0

# What a run pays for, and with what. Of lit: a name and which tests.
BUYS = {
    "build": "The compiler, optimized, and once more with sanitizers. (What is missing is installed.)",
    "unit tests": "Each part alone, with sanitizers and assertions; without them what they leave out.",
    "lit: mutants": "The CPU executor finds what is broken: each sixteenth fault of a list, and that the text of the others is there.",
    "lit: schedules": "Kernels are free of races and deadlocks, and give the same bits under other schedules.",
    "lit: CPU": "Emitted kernels give the trace, tokens and logits of the reference executor.",
    "lit: pipelines": "Shipped pipelines compile for every GPU, and give the tokens that they should.",
    "lit: random": "Pipelines, models, loads and requests that nobody wrote.",
    "lit: tool": "What a user types: commands, files, messages, what an edit compiles, the pages' examples.",
    "lit: text": "Passes, plans and emitted text, line by line.",
    "python": "The wheel, the module, the server, the pages' Python.",
    "fuzzing": "Files that nobody wrote, into every reader, with sanitizers.",
    "sources": "Layers, diagnostics, format.",
}
LIT = {"mutants": r"Cpu/(pipeline-)?mutants", "schedules": r"Cpu/(explore|live|two-models|report)", "CPU": r"Cpu|Families|Goldens",
       "pipelines": r"Pipelines", "random": r"Random", "tool": r"Driver|Errors|Library", "text": r""}
costs = {name: [0, 0.0, 0.0] for name in BUYS}  # tests, seconds of the processor, seconds


def programs_time(who=resource.RUSAGE_CHILDREN):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


class Meter:
    """The time since: of the clock, and that of the processor in programs that have ended."""

    def __init__(self):
        self.began, self.before = time.time(), programs_time()

    def read(self):
        return time.time() - self.began, programs_time() - self.before


def count(name, ok, bad, took, output="", part=None):
    """`took`: seconds of the clock, and of the processor."""
    global passed, failed
    passed += ok
    failed += bad
    if part:
        for i, more in enumerate((ok + bad, took[1], took[0])):
            costs[part][i] += more
    print(f"{name:<24} {ok:>5} passed {bad:>4} failed {took[0]:>7.1f} s {took[1]:>7.1f} s of CPU", flush=True)
    if bad:
        print(output, flush=True)


# Programs that take longer than a core's share of all: they run in parts.
PARTS = {"ApiTests": 4, "DriverTests": 3}
# Those of which sanitizers leave something out.
PLAIN = {"OsTests", "SupportTests", "CpuTests"}


def measured(command, log, **options):
    """Runs it. Its exit status, and how long it took: by the clock, and the processor."""
    began = time.time()
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, (time.time() - began, usage.ru_utime + usage.ru_stime)


def unit_tests(scratch, programs, env, note=""):
    def parts_of(program):
        return PARTS.get(program.name, 1)

    # The largest first: they take longest, and no core waits for one at the end.
    programs = sorted(programs, key=lambda program: (-parts_of(program), -program.stat().st_size if program.is_file() else 0))
    parts = [(program, part, parts_of(program)) for program in programs for part in range(parts_of(program))]

    def run(program, part, of):
        report, log = scratch / f"{program.name}{part}.json", scratch / f"{program.name}{part}.log"
        if not program.is_file():
            return program, 0, 1, (0, 0), f"{program} is missing"
        with open(log, "wb") as out:
            code, took = measured([program, "--gtest_brief=1", f"--gtest_output=json:{report}"], out, cwd=scratch,
                                  env=os.environ | {"GTEST_TOTAL_SHARDS": str(of), "GTEST_SHARD_INDEX": str(part),
                                                    "MEGALITH_CACHE_DIR": kernels} | env)
        output = log.read_text(errors="replace")
        try:
            result = json.loads(report.read_text())
        except (OSError, ValueError):  # it crashed before it could write
            return program, 0, 1, took, output
        report.unlink()
        bad = result["failures"] or int(code != 0)
        return program, max(0, result["tests"] - bad - result["disabled"]), bad, took, output

    left, sums = {program: of for program, _, of in parts}, {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, *each) for each in parts]):
            program, good, bad, took, output = done.result()
            before = sums.get(program, (0, 0, (0, 0), ""))
            sums[program] = (before[0] + good, before[1] + bad, (max(before[2][0], took[0]), before[2][1] + took[1]),
                             before[3] + (output if bad else ""))
            left[program] -= 1
            if not left[program]:
                count(program.name + note, *sums[program])
                costs["unit tests"][0] += sums[program][0] + sums[program][1]


def all_unit_tests(scratch):
    """Once, with sanitizers; what these leave out without, and in the long set all."""
    meter = Meter()
    checked = sorted(sanitized.glob("test/Unit/*Tests"))
    if not checked:
        count("unit tests", 0, 1, meter.read(), f"no test programs in {sanitized}/test/Unit; run scripts/build.sh --fuzz")
        return
    unit_tests(scratch, [build / "test/Unit" / name for name in sorted(program.name for program in checked if is_long or program.name in PLAIN)], {})
    unit_tests(scratch, checked, {"ASAN_OPTIONS": "detect_stack_use_after_return=0",
                                  "LSAN_OPTIONS": f"suppressions={root}/test/Unit/leaks.supp:print_suppressions=0"}, ", sanitized")
    costs["unit tests"][2], costs["unit tests"][1] = meter.read()


def path_of(test):
    return test["name"].split(" :: ")[1]


def cost(test):
    """The most expensive first."""
    return -test.get("metrics", {}).get("cpu", 0)


def lit_tests(scratch):
    meter = Meter()
    lit = next((path for path in map(pathlib.Path, ("/usr/lib/llvm-19/build/utils/lit/lit.py",
                                                    "/usr/lib/llvm-19/share/lit/lit.py"))
                if path.is_file()), None)
    if lit is None:
        count("lit", 0, 1, meter.read(), "lit.py of llvm-19-tools was not found")
        return
    report = scratch / "lit.json"
    run = subprocess.run([sys.executable, lit, "-v", "--param", f"build={build}",
                          "--param", "filecheck=/usr/lib/llvm-19/bin", "--param", f"long={int(is_long)}", "-o", report, root / "test"],
                         capture_output=True, text=True, errors="replace")
    try:
        tests = json.loads(report.read_text())["tests"]
    except (OSError, ValueError):
        count("lit", 0, 1, meter.read(), run.stdout + run.stderr)
        return
    good = sum(test["code"] in ("PASS", "XFAIL") for test in tests)
    skipped = [test["name"] for test in tests if test["code"] == "UNSUPPORTED"]
    bad = len(tests) - good - len(skipped)
    wrong = "\n".join(f"{test['code']}: {test['name']}\n{test['output']}" for test in tests
                      if test["code"] not in ("PASS", "XFAIL", "UNSUPPORTED"))
    # No test at all is a failure of its own.
    count("lit", good, bad or int(good == 0), meter.read(), wrong)
    for name in skipped:
        print(f"  skipped: {name}")
    tests.sort(key=cost)
    for test in tests[:10]:
        print(f"  {-cost(test):6.1f} s of CPU  {path_of(test)}", flush=True)
    for test in tests:
        part = next(part for part, which in LIT.items() if re.match(which, path_of(test)))
        for i, more in enumerate((1, -cost(test), test["elapsed"] / os.cpu_count())):
            costs[f"lit: {part}"][i] += more
    if args.write_table:  # lit reads it where it has not run before
        lines = [f"{-cost(test):.0f} {path_of(test)}\n" for test in tests if -cost(test) >= 2]
        (root / "test/.lit_test_times.txt").write_text("".join(lines))


def python_tests(scratch):
    """Makes the wheel with the library of BUILD_DIR, and tests what it installs."""
    meter = Meter()
    python, site, report = root / ".venv/bin/python", scratch / "site", scratch / "python.xml"
    if subprocess.run([python, "-c", "import nanobind, scikit_build_core, numpy, pytest, starlette, uvicorn, openai"], capture_output=True).returncode \
            if python.is_file() else True:
        count("python", 0, 1, meter.read(), "packages for the Python module are missing in .venv; run scripts/install_deps.sh")
        return
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheel = subprocess.run([*pip, "wheel", root, "--no-build-isolation", "--no-deps", "--wheel-dir", scratch,
                            f"--config-settings=build-dir={build}/python", f"--config-settings=cmake.define.MEGALITH_BUILD={build}"],
                           capture_output=True, text=True, errors="replace")
    if wheel.returncode == 0:
        wheel = subprocess.run([*pip, "install", "--no-deps", "--target", site, *scratch.glob("megalith-*.whl")],
                               capture_output=True, text=True, errors="replace")
    count("python wheel", int(wheel.returncode == 0), int(wheel.returncode != 0), meter.read(), wheel.stdout + wheel.stderr, "python")
    if wheel.returncode:
        return
    meter = Meter()
    run = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", root / "python/tests"],
                         capture_output=True, text=True, errors="replace", cwd=scratch,
                         env=os.environ | {"PYTHONPATH": str(site), "MEGALITH_CACHE_DIR": kernels})
    try:
        suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite").attrib
    except (OSError, xml.etree.ElementTree.ParseError):  # it crashed before it could write
        count("python", 0, 1, meter.read(), run.stdout + run.stderr)
        return
    tests, skipped = int(suite["tests"]), int(suite["skipped"])
    bad = int(suite["failures"]) + int(suite["errors"]) or int(run.returncode != 0)
    count("python", max(0, tests - skipped - bad), bad, meter.read(), run.stdout + run.stderr, "python")
    if skipped:
        print(f"  skipped: {skipped}")


def fuzz_targets(scratch):
    """A number of runs of each, beside each other; what BUILD_DIR-fuzz holds is up to date."""
    meter = Meter()
    binary = sanitized / "test/Fuzz/megalith-fuzz"
    if not binary.is_file():
        count("fuzzing", 0, 1, meter.read(), f"{binary} is missing; run scripts/build.sh --fuzz")
        return
    targets = fuzz.find_targets(binary)
    # The same seed and the same number each time: a change is not blamed for what chance finds.
    outcomes = list(fuzz.run_all(binary, list(targets), None, os.cpu_count(), scratch / "fuzz", seed=1))
    bad = {outcome.target for outcome in outcomes if outcome.finding}
    count("fuzzing", len(targets) - len(bad), len(bad), meter.read(),
          "\n".join(fuzz.how_to_repeat(outcome, binary) for outcome in outcomes if outcome.finding), "fuzzing")
    print("  " + ", ".join(f"{o.target} {o.runs}" for o in sorted(outcomes, key=lambda o: o.target)) + " runs", flush=True)


def source_checks():
    checks = [[sys.executable, "check_layering.py"], [sys.executable, "check_diagnostics.py"], ["sh", "format.sh", "--check"]]
    if is_long:
        checks.append([sys.executable, "check_tidy.py", sanitized])
    for program, script, *arguments in checks:
        meter = Meter()
        run = subprocess.run([program, root / "scripts" / script, *arguments], capture_output=True, text=True)
        ok = run.returncode == 0
        count(script, int(ok), int(not ok), meter.read(), run.stdout + run.stderr, "sources")


def cost_table():
    lines = ["| part | tests | minutes of CPU | what they buy |", "| --- | ---: | ---: | --- |"]
    lines += [f"| {name} | {tests or ''} | {cpu / 60:.1f} | {BUYS[name]} |" for name, (tests, cpu, _) in costs.items() if cpu >= 1]
    lines.append(f"| all | {passed + failed} | {sum(cpu for _, cpu, _ in costs.values()) / 60:.1f} | |")
    return "\n".join(lines) + "\n"


# A job in the background, or under nohup, ignores signals, and its children would, too. Tests send them.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# Those that install_deps.sh may have put into .venv are found by who is told of them.
for variable, options in ("MEGALITH_NVRTC", []), ("MEGALITH_NVJITLINK", ["--linker"]):
    found = subprocess.run([sys.executable, root / "scripts/find_nvrtc.py", "--path", *options], capture_output=True, text=True)
    if found.returncode == 0:
        os.environ[variable] = found.stdout.strip()

# As in test/lit.cfg.py.
os.environ["MEGALITH_HOST_QUICK"] = "" if is_long else "1"
os.environ["CCACHE_NOHASHDIR"] = "1"
os.environ["PATH"] = os.pathsep.join([*filter(os.path.isdir, ["/usr/lib/ccache"]), os.environ["PATH"]])

started = Meter()
costs["build"][1] = started.before  # check.sh becomes this program, and what it waited for is counted as ours
with tempfile.TemporaryDirectory() as directory:
    all_unit_tests(pathlib.Path(directory))
    lit_tests(pathlib.Path(directory))
    python_tests(pathlib.Path(directory))
    fuzz_targets(pathlib.Path(directory))
source_checks()
table = cost_table()
print(table)
if args.write_table:
    page = root / "CONTRIBUTING.md"
    begin, end = "<!-- costs -->\n", "<!-- end of costs -->"
    before, rest = page.read_text().split(begin)
    page.write_text(before + begin + table + end + rest.split(end)[1])
print(f"{started.read()[0]:.0f} s")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
