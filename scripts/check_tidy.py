#!/usr/bin/env python3
"""Run clang-tidy with .clang-tidy over what a build folder compiles: check_tidy.py BUILD_DIR.

The folder is one that clang has built, such as build-fuzz. Prints each finding once.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(sys.argv[1])
commands = json.loads((build / "compile_commands.json").read_text())
ours = [entry["file"] for entry in commands if str(root) in entry["file"]]


def check(path):
    run = subprocess.run(["clang-tidy-19", "-p", build, "--quiet", path], capture_output=True, text=True)
    found = re.findall(r"^.*: (?:error|warning): .*$", run.stdout, re.M)
    return found or ([run.stderr] if run.returncode else [])


with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    findings = sorted({line for lines in pool.map(check, ours) for line in lines})
print("\n".join(findings) or f"{len(ours)} files, nothing found")
sys.exit(1 if findings else 0)
