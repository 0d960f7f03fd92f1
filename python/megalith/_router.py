"""Where the events of a session go."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _core
from ._errors import Error, out_of_range
from ._events import Event, event_of
from ._requests import number_of


def seconds_of(timeout: float) -> float:
    """What a lock may wait for is limited."""
    seconds = number_of(timeout, "timeout")
    if seconds != seconds:
        raise out_of_range("timeout", 0, threading.TIMEOUT_MAX, timeout)
    return min(max(0.0, seconds), threading.TIMEOUT_MAX)


class Router:
    """Gives each event to who waits for its request. Requests of generators have a sink; the others are for `next()`.

    As long as there was no generator, `next()` reads the session itself. The first one starts a thread that reads for
    all of them.
    """

    def __init__(self, core: _core.Live) -> None:
        self.core = core
        self.changed = threading.Condition()
        self.sinks: dict[int, Callable[[Event | Error | None], None]] = {}
        self.users: dict[int, Any] = {}
        self.loose: deque[Event] = deque()
        self.pump: threading.Thread | None = None
        self.over = False  # the pump has ended
        self.ended = threading.Event()  # the same, and nothing of it is in the library any more
        self.failed: Error | None = None

    def dispatch(self, raw: tuple[Any, ...]) -> None:
        key, is_last = raw[1], raw[4] is not None
        with self.changed:
            sink = self.sinks.pop(key, None) if is_last else self.sinks.get(key)
            if sink is None:
                if key not in self.users:
                    return  # nobody wants it any more
                self.loose.append(event_of(raw, self.users.pop(key) if is_last else self.users[key]))
                self.changed.notify_all()
                return
        sink(event_of(raw, None))

    def start(self) -> None:
        with self.changed:
            if self.pump is None:
                self.pump = threading.Thread(target=self.run, name="megalith-session", daemon=True)
                self.pump.start()
                self.changed.notify_all()

    def run(self) -> None:
        failed: Error | None = None
        try:
            while True:
                events = self.core.next(-1.0, 256)
                for raw in events:
                    self.dispatch(raw)
                if not events and self.core.done():
                    break
        except Error as error:
            failed = error
        finally:
            with self.changed:
                self.over, self.failed = True, failed
                sinks = list(self.sinks.values())
                self.sinks.clear()
                self.changed.notify_all()
            for sink in sinks:
                sink(failed)
            self.ended.set()

    def next(self, timeout: float | None) -> Event | None:
        end = None if timeout is None else time.monotonic() + seconds_of(timeout)
        while True:
            with self.changed:
                if self.pump is not None:
                    while not self.loose and not self.over:
                        left = None if end is None else end - time.monotonic()
                        if left is not None and left <= 0:
                            return None
                        self.changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
                    if self.loose:
                        return self.loose.popleft()
                    if self.failed:
                        raise self.failed
                    return None
                if self.loose:
                    return self.loose.popleft()
            # No generator yet. One may come meanwhile: after a while it is looked at again.
            left = 100.0 if end is None else min(100.0, max(0.0, 1000 * (end - time.monotonic())))
            events = self.core.next(left, 1)
            for raw in events:
                self.dispatch(raw)
            if not events and (self.core.done() or end is not None and time.monotonic() >= end):
                with self.changed:
                    return self.loose.popleft() if self.loose else None
