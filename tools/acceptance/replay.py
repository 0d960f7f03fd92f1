#!/usr/bin/env python3
"""Live sessions under random load, gone through again from their traces: is each replay the session, tick by tick?

    replay.py MEGALITH [--device cuda] [--replay-device reference] [--pipelines priority_serving,sampled] [--requests 200] [--rounds 3]

Needs the Python package. MEGALITH is the program. Requests come from two threads; some are taken back, some have deadlines, every
other session is stopped at once with requests under way. Each replay is `megalith run --replay`, and must find nothing; with a
changed trace it must find something. A line of JSON for each session; the exit status is 1 if a replay was another one.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

import megalith

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRAFTING = {"target": "demo", "small": "demo-draft"}
MODELS = {  # of pipelines that need others than the demo model
    "draft_model_speculative": DRAFTING,
    "stochastic_speculative": DRAFTING,
    "speculative_speculative": DRAFTING,
    "token_tree_draft_model": DRAFTING,
    "medusa": {"": "demo-heads"},
    "multi_token": {"": "demo-heads"},
}


def live(session, requests, seed, at_once):
    """Submits, takes back and stops."""

    def work(part):
        draw = random.Random(f"{seed} {part}")
        for _ in range(requests // 2):
            number = session.submit(
                [draw.randrange(256) for _ in range(draw.randint(1, 40))],
                draw.choice([0, 1, 4, 12, 30]),
                priority=draw.randrange(3),
                temperature=draw.choice([0.0, 0.8]),
                stop=[[draw.randrange(256)]] if draw.random() < 0.2 else [],
                eos=[],
                deadline_ms=draw.randint(1, 400) if draw.random() < 0.3 else 0,
                timeout=None,
            )
            if draw.random() < 0.2:
                session.cancel(max(0, number - draw.randrange(4)))
            if draw.random() < 0.3:
                time.sleep(draw.random() * 0.02)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(2)]
    for thread in threads:
        thread.start()
    reader = threading.Thread(target=lambda: [None for _ in session])
    reader.start()
    for thread in threads:
        thread.join()
    if at_once:
        time.sleep(0.1)
    session.stop(now=at_once)
    reader.join()


def falsified(text):
    """The trace with another clock in the first tick in which a deadline was over; None: there is none."""
    lines = text.splitlines()
    for i in range(2, len(lines) - 1):
        if '"DEADLINE"' in lines[i]:
            tick = json.loads(lines[i])
            tick["now_ms"] = json.loads(lines[i - 1])["now_ms"]
            lines[i] = json.dumps(tick)
            return "\n".join(lines) + "\n"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("megalith", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--replay-device", default="reference")
    parser.add_argument("--pipelines", default="priority_serving,sampled,adaptive_speculative")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--trace", type=int, default=256 << 20, help="bytes")
    args = parser.parse_args()
    wrong = 0
    for name in args.pipelines.split(","):
        models = {key: str(ROOT / "models" / each) for key, each in MODELS.get(name, {"": "demo"}).items()}
        where = {"model": models[""]} if "" in models else {"models": models}
        kernel = megalith.compile(megalith.pipeline(name), **where).load(args.device)
        for round_ in range(args.rounds):
            session = kernel.session(places=16, ring=16, seed=round_, idle_ms=5, trace=args.trace)
            live(session, args.requests, f"{name} {round_}", at_once=round_ % 2 == 1)
            stats, made = session.stats(), session.trace()

            def replay(trace):
                with tempfile.TemporaryDirectory() as folder:
                    files = pathlib.Path(folder, "R.jsonl"), pathlib.Path(folder, "T.jsonl")
                    files[0].write_text(made.requests)
                    files[1].write_text(trace)
                    call = [args.megalith, "run", megalith.pipeline(name), f"--requests={files[0]}", f"--replay={files[1]}",
                            f"--device={args.replay_device}", f"--seed={round_}"]
                    call += [f"--model={key}={each}" if key else f"--model={each}" for key, each in models.items()]
                    done = subprocess.run(call, capture_output=True, text=True, timeout=1800)
                    return done.returncode, done.stderr.strip()

            status, found = replay(made.trace)
            changed = falsified(made.trace)
            lied = replay(changed) if changed else None
            # Where requests fault, the run says so; a replay that differs says that, too.
            good = "replay-differs" not in found and (status == 0 or "request-faulted" in found)
            good = good and (lied is None or "replay-differs" in lied[1])
            wrong += not good
            print(json.dumps({"pipeline": name, "round": round_, "good": good, "ticks": made.trace.count("\n") - 2,
                              "requests": made.requests.count("\n"), "ended": stats["ended"], "launches": stats["launches"],
                              "bytes": len(made.trace), "falsified": lied is not None, "found": found[-600:]}), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
