#!/usr/bin/env python3
"""What the ingress of megalith.serve.ray costs: the time of the first token and of all, through it and of one server
direct, on the same machine in turns. overhead.py [CALLS] [--device reference|cuda] [--model DIR]"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time

import httpx
import ray
from ray import serve

from megalith.serve.ray import build

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("calls", nargs="?", type=int, default=200)
parser.add_argument("--device", default="reference")
parser.add_argument("--model", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/demo"))
options = parser.parse_args()

ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.run(build("sampled", options.model, replicas=1, device=options.device, cpus=0.5))
command = [sys.executable, "-m", "megalith.serve", "sampled", "--model", options.model, "--device", options.device, "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as direct:
    direct.stdout.readline()
    port = re.search(r":(\d+)", direct.stdout.readline())[1]
    places = {"direct": f"http://127.0.0.1:{port}", "ingress": "http://127.0.0.1:8000"}
    first, whole = {name: [] for name in places}, {name: [] for name in places}
    with httpx.Client(timeout=60) as client:
        for number in range(options.calls + 10):
            for name, place in places.items():
                ask = {"model": "demo", "prompt": f"In the beginning {number} ", "max_tokens": 16, "stream": True, "seed": number}
                begin = time.perf_counter()
                with client.stream("POST", place + "/v1/completions", json=ask) as answer:
                    lines = (line for line in answer.iter_lines() if line)
                    next(lines)
                    early = time.perf_counter()
                    for _ in lines:
                        pass
                if number >= 10:
                    first[name].append((early - begin) * 1e3)
                    whole[name].append((time.perf_counter() - begin) * 1e3)
    direct.terminate()
serve.shutdown()
for name in places:
    at = [statistics.quantiles(times[name], n=100) for times in (first, whole)]
    print(f"{name:8} first token p50 {at[0][49]:6.1f} ms, p99 {at[0][98]:6.1f} ms; 16 tokens p50 {at[1][49]:6.1f} ms, p99 {at[1][98]:6.1f} ms")
