"""Servers for tests, and what tests wait for: something that happens. No other file but browser.py sleeps."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from conftest import DEMO

TEMPLATE = """{% for m in messages %}{% if m.role == "tool" %}{{ raise_exception("no tools") }}{% endif %}{{ m.content }}{% endfor %}"""


LONG = "And God said "  # 1500 tokens take seconds


def wait_for(what):
    end = time.monotonic() + 120
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


async def wait_in_loop_for(what):
    while not what():
        await asyncio.sleep(0.01)


def wait_until_asleep(process, thread=None):
    """Until the main thread of a process, or another one, has come to what it waits for. Both are numbers."""

    def state():
        with open(f"/proc/{process}/task/{thread or process}/stat") as stat:
            return stat.read().rpartition(") ")[2][0]

    wait_for(lambda: state() == "S")


class Served:
    """A process that serves the demo model on the reference executor."""

    def __init__(self, pipeline, *options, env=None, model=DEMO):
        self.errors = tempfile.TemporaryFile("w+")
        command = [
            sys.executable,
            "-m",
            "megalith.serve",
            pipeline,
            "--model",
            str(model),
            "--device",
            "reference",
            "--port",
            "0",
        ]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.head = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found, self.error_text()
        self.port = int(found[1])
        self.url = found[0]

    def error_text(self):
        self.errors.seek(0)
        return self.errors.read()

    def call(self, method, path, body=None, **headers):
        """Status, headers, and the body: JSON, if it is such."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            if body is not None and not isinstance(body, (str, bytes)):
                body = json.dumps(body)
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            content = answer.read()
            if answer.headers.get_content_type() == "application/json":
                content = json.loads(content)
            return answer.status, answer.headers, content

    def post(self, path, **body):
        return self.call("POST", path, {"model": "demo", **body})

    def refuses(self, path, **body):
        """Status, and the members of the error."""
        status, _, answer = self.post(path, **body)
        assert list(answer) == ["error"] and sorted(answer["error"]) == ["code", "message", "param", "type"], answer
        return status, answer["error"]["param"], answer["error"]["code"], answer["error"]["message"]

    def stats(self, **headers):
        return self.call("GET", "/stats", **headers)[2]

    def metrics(self):
        """Values by name with labels, without those that all have."""
        text = self.call("GET", "/metrics")[2].decode()
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {
            name.replace('engine="0",model_name="demo"', "").replace("{,", "{").replace("{}", ""): float(value)
            for name, _, value in lines
        }

    def end(self, number):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        code = self.process.wait(timeout=30)
        self.process.stdout.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.wait()
        self.errors.close()
