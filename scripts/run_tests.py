#!/usr/bin/env python3
"""Run the unit tests (with sanitizers, too), the lit tests, those of the Python module, the fuzz targets and the source checks:
run_tests.py BUILD_DIR [--long].

Prints what failed, and at the very end one line `N passed, N failed`.
"""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import fuzz

root = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(sys.argv[1]).resolve()
is_long = sys.argv[2:] == ["--long"]
if sys.argv[2:] and not is_long:
    sys.exit(f"error: unknown argument {sys.argv[2]}; there is --long")
sanitized = build.parent / (build.name + "-fuzz")
passed = failed = 0


def count(name, ok, bad, started, output=""):
    global passed, failed
    passed += ok
    failed += bad
    print(f"{name:<24} {ok:>5} passed {bad:>4} failed {time.time() - started:>7.1f} s", flush=True)
    if bad:
        print(output, flush=True)


# Programs that take longer than a core's share of all: they run in parts.
PARTS = {"ApiTests": 4}


def unit_tests(scratch, build, env=None, note=""):
    # The largest first: they take longest, and no core waits for one at the end.
    programs = sorted(build.glob("test/Unit/*Tests"), key=lambda program: -program.stat().st_size)
    if not programs:
        count("unit tests", 0, 1, time.time(), f"no test programs in {build}/test/Unit")

    def parts_of(program):
        return PARTS.get(program.name, 1)

    parts = [(program, part, parts_of(program)) for program in programs for part in range(parts_of(program))]

    def run(program, part, of):
        began, report = time.time(), scratch / f"{program.name}{part}.json"
        done = subprocess.run([program, "--gtest_brief=1", f"--gtest_output=json:{report}"],
                              capture_output=True, text=True, errors="replace", cwd=scratch,
                              env=os.environ | {"GTEST_TOTAL_SHARDS": str(of), "GTEST_SHARD_INDEX": str(part)} | (env or {}))
        output = done.stdout + done.stderr
        try:
            result = json.loads(report.read_text())
        except (OSError, ValueError):  # it crashed before it could write
            return program, 0, 1, began, output
        bad = result["failures"] or int(done.returncode != 0)
        return program, max(0, result["tests"] - bad - result["disabled"]), bad, began, output

    left, sums = {program: of for program, _, of in parts}, {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run, *each) for each in parts]):
            program, good, bad, began, output = done.result()
            before = sums.get(program, (0, 0, began, ""))
            sums[program] = (before[0] + good, before[1] + bad, min(before[2], began), before[3] + (output if bad else ""))
            left[program] -= 1
            if not left[program]:
                count(program.name + note, *sums[program])


def lit_tests(scratch):
    started = time.time()
    lit = next((path for path in map(pathlib.Path, ("/usr/lib/llvm-19/build/utils/lit/lit.py",
                                                    "/usr/lib/llvm-19/share/lit/lit.py"))
                if path.is_file()), None)
    if lit is None:
        count("lit", 0, 1, started, "lit.py of llvm-19-tools was not found")
        return
    report = scratch / "lit.json"
    run = subprocess.run([sys.executable, lit, "-v", "--param", f"build={build}",
                          "--param", "filecheck=/usr/lib/llvm-19/bin", "--param", f"long={int(is_long)}", "-o", report, root / "test"],
                         capture_output=True, text=True, errors="replace")
    try:
        tests = json.loads(report.read_text())["tests"]
    except (OSError, ValueError):
        count("lit", 0, 1, started, run.stdout + run.stderr)
        return
    good = sum(test["code"] in ("PASS", "XFAIL") for test in tests)
    skipped = [test["name"] for test in tests if test["code"] == "UNSUPPORTED"]
    bad = len(tests) - good - len(skipped)
    wrong = "\n".join(f"{test['code']}: {test['name']}\n{test['output']}" for test in tests
                      if test["code"] not in ("PASS", "XFAIL", "UNSUPPORTED"))
    # No test at all is a failure of its own.
    count("lit", good, bad or int(good == 0), started, wrong)
    for name in skipped:
        print(f"  skipped: {name}")
    for test in sorted(tests, key=lambda test: -test.get("elapsed", 0))[:5]:
        print(f"  {test['elapsed']:6.1f} s  {test['name']}", flush=True)


def python_tests(scratch):
    """Makes the wheel with the library of BUILD_DIR, and tests what it installs."""
    started = time.time()
    python, site, report = root / ".venv/bin/python", scratch / "site", scratch / "python.xml"
    if subprocess.run([python, "-c", "import nanobind, scikit_build_core, numpy, pytest, starlette, uvicorn, openai"], capture_output=True).returncode \
            if python.is_file() else True:
        count("python", 0, 1, started, "packages for the Python module are missing in .venv; run scripts/install_deps.sh")
        return
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheel = subprocess.run([*pip, "wheel", root, "--no-build-isolation", "--no-deps", "--wheel-dir", scratch,
                            f"--config-settings=build-dir={build}/python", f"--config-settings=cmake.define.MEGALITH_BUILD={build}"],
                           capture_output=True, text=True, errors="replace")
    if wheel.returncode == 0:
        wheel = subprocess.run([*pip, "install", "--no-deps", "--target", site, *scratch.glob("megalith-*.whl")],
                               capture_output=True, text=True, errors="replace")
    count("python wheel", int(wheel.returncode == 0), int(wheel.returncode != 0), started, wheel.stdout + wheel.stderr)
    if wheel.returncode:
        return
    started = time.time()
    kernels = os.environ.get("MEGALITH_TEST_KERNELS") or f"{build}/test-kernels"
    run = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", root / "python/tests"],
                         capture_output=True, text=True, errors="replace", cwd=scratch,
                         env=os.environ | {"PYTHONPATH": str(site), "MEGALITH_CACHE_DIR": kernels})
    try:
        suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite").attrib
    except (OSError, xml.etree.ElementTree.ParseError):  # it crashed before it could write
        count("python", 0, 1, started, run.stdout + run.stderr)
        return
    tests, skipped = int(suite["tests"]), int(suite["skipped"])
    bad = int(suite["failures"]) + int(suite["errors"]) or int(run.returncode != 0)
    count("python", max(0, tests - skipped - bad), bad, started, run.stdout + run.stderr)
    if skipped:
        print(f"  skipped: {skipped}")


def fuzz_targets(scratch):
    """Ten seconds of each, beside each other; what BUILD_DIR-fuzz holds is up to date."""
    started = time.time()
    binary = sanitized / "test/Fuzz/megalith-fuzz"
    if not binary.is_file():
        count("fuzzing", 0, 1, started, f"{binary} is missing; run scripts/build.sh --fuzz")
        return
    targets = fuzz.find_targets(binary)
    # The same seed each time: a change is not blamed for what chance finds.
    outcomes = list(fuzz.run_all(binary, list(targets), 10, os.cpu_count(), scratch / "fuzz", seed=1))
    bad = {outcome.target for outcome in outcomes if outcome.finding}
    count("fuzzing", len(targets) - len(bad), len(bad), started,
          "\n".join(fuzz.how_to_repeat(outcome, binary) for outcome in outcomes if outcome.finding))
    print("  " + ", ".join(f"{o.target} {o.runs}" for o in sorted(outcomes, key=lambda o: o.target)) + " runs", flush=True)


def source_checks():
    checks = [[sys.executable, "check_layering.py"], [sys.executable, "check_diagnostics.py"], ["sh", "format.sh", "--check"]]
    if is_long:
        checks.append([sys.executable, "check_tidy.py", sanitized])
    for program, script, *arguments in checks:
        started = time.time()
        run = subprocess.run([program, root / "scripts" / script, *arguments], capture_output=True, text=True)
        ok = run.returncode == 0
        count(script, int(ok), int(not ok), started, run.stdout + run.stderr)


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

started = time.time()
with tempfile.TemporaryDirectory() as directory:
    unit_tests(pathlib.Path(directory), build)
    lit_tests(pathlib.Path(directory))
    python_tests(pathlib.Path(directory))
    unit_tests(pathlib.Path(directory), sanitized, {"ASAN_OPTIONS": "detect_stack_use_after_return=0",
                                                    "LSAN_OPTIONS": f"suppressions={root}/test/Unit/leaks.supp:print_suppressions=0"},
               ", sanitized")
    fuzz_targets(pathlib.Path(directory))
source_checks()
print(f"{time.time() - started:.0f} s")
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
