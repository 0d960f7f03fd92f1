"""A log that nobody reads stops nothing: lines are written on a thread, and dropped when too many wait."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque

MOST_LINES = 1000


class Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._news = threading.Condition()
        self._is_writing = False
        # Not through `sys.stderr`: its lock would be held while nobody reads.
        self._file = os.dup(sys.stderr.fileno()) if sys.stderr is not None else -1
        threading.Thread(target=self._work, name="megalith-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.say(self.format(record))
        except Exception:  # noqa: BLE001, a line that cannot be made is no reason to stop
            pass

    def say(self, line: str) -> None:
        with self._news:
            if len(self._lines) >= MOST_LINES:
                self._dropped += 1
                return
            if self._dropped:
                self._lines.append(f"{self._dropped} lines of the log are missing: nobody read it")
                self._dropped = 0
            self._lines.append(line)
            self._news.notify()

    def _work(self) -> None:
        while True:
            with self._news:
                self._is_writing = False
                self._news.notify_all()
                while not self._lines:
                    self._news.wait()
                self._is_writing = True
                text = (self._lines.popleft() + "\n").encode(errors="backslashreplace")
            try:
                while text and self._file >= 0:
                    text = text[os.write(self._file, text) :]
            except OSError:  # nobody can read it
                pass

    def drain(self, seconds: float = 1.0) -> None:
        """Waits for what is not written yet, if somebody reads."""
        end = time.monotonic() + seconds
        with self._news:
            while self._lines or self._is_writing:
                left = end - time.monotonic()
                if left <= 0:
                    return
                self._news.wait(left)
