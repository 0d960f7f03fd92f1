"""Chat templates. A checkpoint's template is a program of a stranger: it runs in a process of its own, with limits."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._files import TextError, one_line

SECONDS = 5
"""Of CPU time that a chat may take."""
STALLED = 60
"""Seconds without an answer, where the process gets no CPU time."""
BYTES = 1 << 30
"""Of memory of a process."""
CHARACTERS = 16 << 20
"""Of a chat's text."""
PROCESSES = 4
"""That render at once, of a checkpoint."""

# They mean something in each template, so no caller may put something else in their place.
RESERVED = frozenset(
    "messages add_generation_prompt raise_exception strftime_now range dict lipsum cycler joiner namespace".split()
)


class _Process:
    """One that renders. All environment variables but these few stay away from it."""

    _ENVIRONMENT = ("LD_LIBRARY_PATH", "PYTHONHOME", "TZ", "LANG", "LC_ALL", "LC_TIME")

    def __init__(self, templates: Mapping[str, str]) -> None:
        command = [sys.executable, "-I", "-X", "utf8", str(Path(__file__).with_name("_template_worker.py"))]
        environment = {name: os.environ[name] for name in self._ENVIRONMENT if name in os.environ}
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C on the terminal is not for it
            )
        except OSError as error:
            raise TextError(f"no process for chat templates can be started: {error.strerror or error}") from error
        self._rest = b""
        limits = {"seconds": SECONDS, "characters": CHARACTERS, "bytes": BYTES}
        path = [os.path.abspath(each) for each in sys.path]
        self._send(json.dumps({"path": path, "templates": templates, **limits}))

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # that it has ended is seen where its answer is read
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def ask(self, request: str) -> dict[str, Any]:
        """Its answer, or an error where there comes none."""
        assert self._process.stdout is not None
        self._send(request)
        file, end, parts = self._process.stdout.fileno(), time.monotonic() + STALLED, []
        poll = select.poll()
        poll.register(file, select.POLLIN)
        while True:
            left = end - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                self.close()
                return {"error": f"there was no answer within {STALLED} s", "over": True}
            part = os.read(file, 1 << 16)
            if not part:
                code = self.close(now=False)
                why = f"it takes more than {SECONDS} s" if code == -signal.SIGXCPU else "its process has ended"
                return {"error": why, "over": True}
            parts.append(part)
            if part.endswith(b"\n"):
                return dict(json.loads(b"".join(parts)))

    def close(self, now: bool = True) -> int:
        if now:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return self._process.wait()


def _close_all(processes: list[_Process]) -> None:
    while processes:
        processes.pop().close()


class Templates:
    """Those of a checkpoint, by name. Each is compiled once in a process. Any thread may render."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.sources = dict(sources)
        self._idle: list[_Process] = []
        self._room = threading.BoundedSemaphore(PROCESSES)
        self._owner = os.getpid()
        weakref.finalize(self, _close_all, self._idle)

    def choose(self, name: str | None, has_tools: bool) -> str:
        """As `transformers` does."""
        if name is None:
            name = "tool_use" if has_tools and "tool_use" in self.sources else "default"
        if name not in self.sources:
            names = ", ".join(f"`{each}`" for each in self.sources)
            raise TextError(f"there is no chat template `{one_line(name)}`; the checkpoint has {names}")
        return name

    def check(self) -> None:
        """Raises `TextError` of one that is none."""
        for name in self.sources:
            self._ask(name, None)

    def render(self, name: str, variables: Mapping[str, Any]) -> str:
        return str(self._ask(name, variables))

    def _ask(self, name: str, variables: Mapping[str, Any] | None) -> Any:
        if importlib.util.find_spec("jinja2") is None:
            raise TextError("a chat template needs the Python package `jinja2`: pip install 'megalith[text]'")
        try:
            request = json.dumps({"name": name, "variables": variables})
        except RecursionError:
            raise TextError("the chat is nested too deeply") from None
        except (TypeError, ValueError) as error:
            raise TextError(f"the chat must be JSON: {one_line(error)}") from error
        with self._room:
            if self._owner != os.getpid():  # after a fork; the pipes are the parent's
                self._idle, self._owner = [], os.getpid()
            process = self._idle.pop() if self._idle else _Process(self.sources)
            try:
                answer = process.ask(request)
            except BaseException:
                process.close()
                raise
            if not answer.get("over"):
                self._idle.append(process)
        if "error" in answer:
            raise TextError(f"the chat template failed: {answer['error']}")
        return answer["text"]
