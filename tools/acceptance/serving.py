#!/usr/bin/env python3
"""An open loop against megalith-serve: are the answers those of a batch, is each request accounted for, how long do tokens take?

    serving.py --model models/demo [--device cuda] [--pipeline adaptive_speculative] [--requests 1000] [--rates 20,100,inf]

Needs the Python package with its extra `serve`. Arrivals are random with each rate, prompts and budgets as well; a part of the
clients goes away. A line of JSON for each rate; the exit status is 1 if an answer was another one, or a request was lost.
"""
import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time

import numpy

import megalith


def percentiles(values):
    if not values:
        return None
    return {f"p{p}": round(1000 * float(numpy.percentile(values, p)), 3) for p in (50, 95, 99)}


class Client:
    """HTTP with nothing but asyncio: each call has a connection of its own."""

    def __init__(self, port):
        self.port = port

    async def open(self, method, path, body=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        return int(head.split()[1]), reader, writer

    async def get(self, path):
        _, reader, writer = await self.open("GET", path)
        body = await reader.read()
        writer.close()
        return json.loads(body)

    async def stream(self, model, prompt, budget, leave_after):
        """(status, text, times of pieces, tokens); leaves behind so many pieces."""
        body = {"model": model, "prompt": prompt, "max_tokens": budget, "temperature": 0, "stream": True, "ignore_eos": True,
                "stream_options": {"include_usage": True}}
        status, reader, writer = await self.open("POST", "/v1/completions", json.dumps(body).encode())
        text, times, tokens = "", [], None
        while status == 200 and (line := await reader.readline()):
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                status = 500
                break
            if event["choices"]:
                if piece := event["choices"][0]["text"]:
                    text += piece
                    times.append(time.monotonic())
            else:
                tokens = event["usage"]["completion_tokens"]
            if leave_after is not None and len(times) >= leave_after:
                break
        writer.close()
        return status, text, times, tokens


async def measure(arguments, client, requests, expected, rate, chance):
    model = (await client.get("/v1/models"))["data"][0]["id"]
    before = await client.get("/stats")
    first, between, wrong, statuses, left, tokens = [], [], 0, {}, 0, 0

    async def one(number):
        nonlocal wrong, left, tokens
        prompt, budget = requests[number]
        leave_after = chance.randrange(4) if chance.random() < arguments.leave else None
        asked = time.monotonic()
        status, text, times, count = await client.stream(model, prompt, budget, leave_after)
        statuses[status] = statuses.get(status, 0) + 1
        if leave_after is not None:
            left += 1
            return
        if status != 200:
            return
        wrong += text != expected[number] or count != budget
        tokens += budget
        first.append(times[0] - asked)
        between.extend(numpy.diff(times))

    began, tasks = time.monotonic(), []
    for number in range(len(requests)):
        tasks.append(asyncio.create_task(one(number)))
        await asyncio.sleep(0 if rate == float("inf") else chance.expovariate(rate))
    await asyncio.gather(*tasks)
    seconds = time.monotonic() - began
    for _ in range(200):
        after = await client.get("/stats")
        if after["running"] + after["waiting"] == 0:
            break
        await asyncio.sleep(0.05)
    ended = {name: count - before["ended"].get(name, 0) for name, count in after["ended"].items()}
    # Who goes away before the first byte may never have been submitted.
    lost = after["running"] + after["waiting"] + sum(pool["used"] for pool in after["pools"])
    lost += max(0, statuses.get(200, 0) - left - ended.get("length", 0))
    print(json.dumps({"rate": rate if rate != float("inf") else "inf", "requests": len(requests), "wrong": wrong, "lost": lost,
                      "left": left, "statuses": statuses, "ended": ended, "seconds": round(seconds, 2),
                      "tokens_per_second": round(tokens / seconds, 1), "ttft_ms": percentiles(first),
                      "between_pieces_ms": percentiles(between)}), flush=True)
    return wrong == 0 and lost == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--pipeline", default="adaptive_speculative")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rates", default="20,100,inf")
    parser.add_argument("--prompts", default="16,200", help="shortest and longest, in tokens")
    parser.add_argument("--budgets", default="8,128", help="shortest and longest")
    parser.add_argument("--leave", type=float, default=0.1, help="the part of the clients that goes away")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    program = megalith.compile(megalith.pipeline(arguments.pipeline), arguments.model,
                               params=dict(each.split("=") for each in arguments.set))
    tokenizer = megalith.text.load(arguments.model, program)
    text = tokenizer.encode("And God said unto them, Of the tribe of Juda were sealed twelve thousand. The LORD is my strength. " * 20)
    shape = [tuple(map(int, each.split(","))) for each in (arguments.prompts, arguments.budgets)]
    requests = []
    for _ in range(arguments.requests):
        length, begin = chance.randint(*shape[0]), chance.randrange(400)
        requests.append(((text * (1 + (begin + length) // len(text)))[begin:begin + length], chance.randint(*shape[1])))
    # In batches: a batch has all its requests on the device.
    kernel = program.load(arguments.device)
    expected = []
    for begin in range(0, len(requests), 500):
        results = kernel.run([megalith.Request(prompt, budget, eos=[]) for prompt, budget in requests[begin:begin + 500]])
        for result in results:
            pieces = tokenizer.pieces()
            expected.append(pieces.push(result.tokens) + pieces.flush())
    device = kernel.device
    del kernel

    command = [sys.executable, "-m", "megalith.serve", arguments.pipeline, "--model", arguments.model, "--device", device,
               "--port", "0", "--max-waiting", str(2 * len(requests)), *(word for each in arguments.set for word in ("--set", each))]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    print(server.stdout.readline().strip(), file=sys.stderr)
    client = Client(int(re.search(r":(\d+)", server.stdout.readline())[1]))
    good = True

    def memory():
        with open(f"/proc/{server.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) // 1024

    for rate in map(float, arguments.rates.split(",")):
        good &= asyncio.run(measure(arguments, client, requests, expected, rate, chance))
        print(f"host memory of the server: {memory()} MiB", file=sys.stderr)
    server.send_signal(signal.SIGTERM)
    code = server.wait(timeout=60)
    if code:
        print(f"the server ended with code {code}", file=sys.stderr)
    return 0 if good and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
