#!/usr/bin/env python3
"""Check that every diagnostic is reported somewhere and pinned by a test.

A kind of Diagnostics.def must appear as `[kebab-id]` in a file below test/, and be
reported in the code: as `Diag::Id`, or, where a library that does not know the list
makes the error, by its kebab id. Such ids must be in the list.
"""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
text = (root / "include/megalith/Support/Diagnostics.def").read_text()
kinds = dict(re.findall(r'^DIAG\((\w+),\s*"([a-z0-9-]+)"', text, re.M))


def read(*folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in {".cpp", ".h", ".test", ".ir", ".yaml", ".txt", ".c"}:
                yield path.read_text(errors="replace")


tests = "\n".join(read("test"))
code = "\n".join(read("lib", "tools"))
plain = "\n".join(read("lib/Checkpoint", "lib/Requests", "runtime"))
problems = []
for name, kebab in kinds.items():
    if f"[{kebab}]" not in tests:
        problems.append(f"no test contains `[{kebab}]`")
    if not re.search(rf"\bDiag::{name}\b", code) and f'"{kebab}"' not in plain:
        problems.append(f"nothing reports `{kebab}`")
# Errors made without the list: `{"kind", message}`, `fail("kind", ...)`.
for kind in sorted(set(re.findall(r'(?:Error\{|return \{|fail\(\s*)"([a-z]+(?:-[a-z]+)*)",', plain))):
    if kind not in kinds.values():
        problems.append(f"`{kind}` is not in Diagnostics.def")
print("\n".join(problems) if problems else f"{len(kinds)} diagnostics, each reported and tested")
sys.exit(1 if problems else 0)
