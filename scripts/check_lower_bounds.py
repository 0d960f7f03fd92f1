#!/usr/bin/env python3
"""Runs the tests of the server with the oldest packages that pyproject.toml allows:
check_lower_bounds.py SITE [FOLDER].

SITE has the module `megalith` (`pip install --no-deps --target SITE megalith-*.whl`). The packages come from PyPI into
FOLDER, which is kept; so this is no part of the tests that run for each change.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
site = pathlib.Path(sys.argv[1]).resolve()
folder = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else tempfile.mkdtemp()).resolve()
project = (root / "pyproject.toml").read_text()
lists = re.findall(r"^(?:dependencies|text|serve|test) = \[(.*)\]$", project, re.MULTILINE)
bounds = sorted(set(re.findall(r'"([a-z0-9-]+>=[0-9.]+)"', ", ".join(lists))))
print("\n".join(bounds), flush=True)
python = folder / "bin/python"
if not python.is_file():
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
# httpx of that time, which openai says nothing of.
packages = [bound.replace(">=", "==") for bound in bounds if not bound.startswith("numpy")] + ["numpy<2", "httpx<0.28"]
subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
tests = [root / f"python/tests/test_{name}.py" for name in ("serve", "serve_robust", "serve_clients", "text")]
done = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], cwd=folder,
                      env=os.environ | {"PYTHONPATH": str(site)})
sys.exit(done.returncode)
