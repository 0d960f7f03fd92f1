"""Interrupts a run when ticks pass; the long requests cannot have ended by then."""
import json
import os
import signal
import subprocess
import sys
import threading

pipeline, model = sys.argv[1:]
signal.signal(signal.SIGINT, signal.SIG_DFL)  # who runs tests may ignore it, and it would stay ignored
short = {"id": "short", "tokens": [73, 110], "max_new_tokens": 2}
long = [{"id": i, "tokens": [73, 110], "max_new_tokens": 2000, "eos": []} for i in range(3)]
for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
    # Progress is shown on a terminal only: it says when the short one has ended.
    ours, theirs = os.openpty()
    run = subprocess.Popen(
        ["megalith", "run", pipeline, "--model", model, "--requests", "-", "--device=reference", "--format=json"]
        + ["--set", "kv_pages=2000"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    said, sent = b"", False

    def send():
        run.stdin.write("".join(json.dumps(each) + "\n" for each in [short, *long]).encode())
        run.stdin.close()

    threading.Thread(target=send).start()
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        said += part
        if not sent and b"1 of 4 requests done" in said:
            sent = True
            run.send_signal(number)
    lines = [json.loads(line) for line in run.stdout.read().splitlines()]
    assert run.wait() == status, (run.returncode, said[-500:])
    assert [line.get("id", "summary") for line in lines] == ["short", "summary"], lines
    assert lines[0]["finish"] == "length" and lines[1]["summary"]["interrupted"] is True, lines
    assert b"the results of 1 of 4 requests, which had ended, are written [interrupted]" in said, said[-500:]
