"""Starts a sweep, interrupts it when it has some rows, and starts it again.

    sweep_interrupted.py F.csv COMMAND ...
"""
import csv
import pathlib
import signal
import subprocess
import sys
import time

path, command = pathlib.Path(sys.argv[1]), sys.argv[2:]
# Who runs tests in the background ignores SIGINT, and its children do.
run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
end = time.monotonic() + 600
while run.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < 4):
    if time.monotonic() > end:
        sys.exit("no rows after ten minutes")
    time.sleep(0.002)
run.send_signal(signal.SIGINT)
run.communicate()
before = path.read_bytes()
assert run.returncode == -signal.SIGINT, f"it ended by itself: {run.returncode}"
rows = list(csv.reader(before.decode().splitlines()))
assert len(rows) >= 4 and before.endswith(b"\n") and len({len(row) for row in rows}) == 1, rows
again = subprocess.run(command, capture_output=True, text=True, check=True)
assert path.read_bytes().startswith(before), "rows that were there have changed"
assert f" rows, {len(rows) - 1} of them were there" in again.stdout, again.stdout
print("interrupted, and went on")
