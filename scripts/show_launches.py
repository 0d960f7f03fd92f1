#!/usr/bin/env python3
"""Print the counts of tools/launch_counter, readably; other lines go to stderr."""
import json
import sys

for line in open(sys.argv[1], errors="replace"):
    if not line.startswith('{"launch_counter"'):
        sys.stderr.write(line)
        continue
    run = json.loads(line)["launch_counter"]["run"]
    kernels = ", ".join(f"{name} x {count}" for name, count in run["launches"].items())
    print(f"seen from outside, once the weights are loaded: {run['launch_count']} kernel launch(es) "
          f"({kernels}), {run['synchronizations']} synchronisation(s)")
