"""Sessions: requests while the kernel runs."""

from __future__ import annotations

import atexit
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import _core
from ._errors import Error, out_of_range
from ._events import Event, SessionTrace
from ._requests import Encode, Prompt, Request, RequestMembers, dict_of, number_of, request_of
from ._router import Router, seconds_of
from ._streams import AsyncGeneration, Generation, News

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._kernel import Kernel


class Session:
    """Requests on their way through a kernel that runs. `Kernel.session()` opens one; it owns the kernel until it stops.

    All methods may be called on any thread, and at the same time. While one waits, other threads run and Ctrl-C works.

    places      requests in the kernel's table, from 1 to 65536
    queue       requests that wait on the host for a place in it
    max_tokens  of a request, its prompt and its budget together; 0: what the pipeline's pools and the models' positions
                allow, at most 8192
    max_ends    tokens that end a request
    ring        news that the kernel can be ahead of the host, a power of two
    seed        of random numbers, beside each request's own
    watchdog    ends a kernel in which nothing moves for so many seconds; 0: never
    logit_lines rows of logits, of a vocabulary of f32 each, that requests with `logprobs` share: each takes as many as it
                may generate tokens, with `prompt_logprobs` one more for each token of the prompt but the first, and waits
                for them. 0: no request may ask for logprobs
    idle_ms     the kernel ends when nothing was to do for so long, and the next request launches it again; below 0: never
    edit_bytes  of the device, for what settings of requests change of their rows, where a kernel runs there: penalties,
                formats and the like. A request for which there is no room now waits
    trace       keeps a trace, which `trace()` gives: so many bytes of memory for ticks, of the device where a kernel runs
                there, and of the host for requests. 0: none
    tokenizer   makes token ids of prompts that are texts: `megalith.text.load(DIR)`. A byte vocabulary needs none. Tokens
                that end a text for it end requests without `eos`, beside those of the model
    progress    called with what is being done
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        places: int = 256,
        queue: int = 4096,
        max_tokens: int = 0,
        max_ends: int = 64,
        ring: int = 1024,
        seed: int = 0,
        watchdog: float = 10.0,
        idle_ms: int = 10000,
        logit_lines: int = 0,
        edit_bytes: int = 64 << 20,
        trace: int = 0,
        tokenizer: Any = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.kernel = kernel
        self._inputs = kernel._inputs
        if tokenizer is not None and (isinstance(tokenizer, (str, bytes)) or not hasattr(tokenizer, "encode")):
            raise TypeError(f"`tokenizer` must be one of `megalith.text.load`, found {type(tokenizer).__name__}")
        self._encode: Encode | None = tokenizer.encode if tokenizer is not None else kernel._encode
        known = kernel.program.eos
        others = sorted(each for each in getattr(tokenizer, "eos", ()) if each not in known)
        others = [each for each in others if each < kernel.program.vocabulary]
        self._eos: list[int] | None = [*known, *others] if others else None
        options = {
            "places": places,
            "queue": queue,
            "max_tokens": max_tokens,
            "max_ends": max_ends,
            "ring": ring,
            "seed": seed,
            "watchdog": number_of(watchdog, "watchdog"),
            "idle_ms": idle_ms,
            "logit_lines": logit_lines,
            "edit_bytes": edit_bytes,
            "trace": trace,
            "progress": progress,
        }
        self._core = _core.open_live(kernel._core, options)
        self.options: dict[str, Any] = self._core.options()
        """As they are, with the `max_tokens` that was chosen."""
        self._router = Router(self._core)
        self._keys = itertools.count()
        self._stops: list[threading.Event] = []
        _open.add(self)

    def _dict_of(
        self, prompt: Prompt | Request, max_new_tokens: int | None, members: RequestMembers
    ) -> dict[str, Any]:
        request = request_of(prompt, max_new_tokens, members)
        for name in ("arrives", "cancelled"):
            if getattr(request, name) is not None:
                raise TypeError(f"`{name}` is for batches: a request of a session arrives when it is submitted")
        budget = request.max_new_tokens
        eos = self._eos if request.eos is None else request.eos
        request = replace(request, eos=eos, max_new_tokens=0 if budget is None else budget)
        out = dict_of(request, "", self._inputs, self._encode, self.kernel._encode)
        if budget is None:
            out["max_new_tokens"] = max(0, self.options["max_tokens"] - len(out["tokens"]))
        for name, most in (("logprobs", request.logprobs), ("prompt_logprobs", request.prompt_logprobs)):
            if most is not None and number_of(most, name) < 0:
                raise out_of_range(name, 0, 20, most)
            out[name] = -1 if most is None else most
        return out

    def submit(
        self,
        prompt: Prompt | Request,
        max_new_tokens: int | None = None,
        *,
        user: Any = None,
        timeout: float | None = 0,
        **members: Unpack[RequestMembers],
    ) -> int:
        """Hands a request over and returns its number: 0, 1, ... Its events come from `next()`, with `user` in them.

        The request is a `megalith.Request`, or its prompt with the other members by name. `max_new_tokens=None`: as many
        as the session takes. `timeout`: seconds to wait for room, None for ever. A request that can never run raises
        `megalith.Error`; so does `live-full`, when there was no room, and `live-stopped`.
        """
        request = self._dict_of(prompt, max_new_tokens, members)
        key = next(self._keys)
        router = self._router
        with router.changed:
            router.users[key] = user
        try:
            return self._core.submit(request, key, _milliseconds(timeout))
        except BaseException:
            with router.changed:
                router.users.pop(key, None)
            raise

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event of what `submit()` was given, in the order in which they came. `timeout` is in seconds, None
        for ever. None: there was none, or none comes any more (`done`). Raises `megalith.Error` when the kernel failed."""
        return self._router.next(timeout)

    def __iter__(self) -> Iterator[Event]:
        """Events until the session is done."""
        while (event := self.next()) is not None:
            yield event

    def generate(
        self,
        prompt: Prompt | Request,
        max_new_tokens: int | None = None,
        *,
        timeout: float | None = None,
        **members: Unpack[RequestMembers],
    ) -> Generation:
        """Submits a request, as `submit` takes it, and returns an iterator of its tokens, as they come. Many may run at
        once, on any threads.

        `timeout`: seconds to wait for room, None for ever.
        """
        return Generation(self, self._dict_of(prompt, max_new_tokens, members), timeout)

    def agenerate(
        self, prompt: Prompt | Request, max_new_tokens: int | None = None, **members: Unpack[RequestMembers]
    ) -> AsyncGeneration:
        """The same for asyncio: `async for token in session.agenerate(...)`. Needs a running loop. It never waits for
        room: a full session is the error `live-full`."""
        return AsyncGeneration(self, self._dict_of(prompt, max_new_tokens, members))

    def _submit_for(
        self, request: dict[str, Any], sink: Callable[[News], None], timeout: float | None
    ) -> tuple[int, int]:
        key = next(self._keys)
        router = self._router
        router.start()
        with router.changed:
            router.sinks[key] = sink
        try:
            return self._core.submit(request, key, _milliseconds(timeout)), key
        except BaseException:
            with router.changed:
                router.sinks.pop(key, None)
            raise

    def _leave(self, number: int, key: int) -> None:
        """Nobody reads a generator's request any more."""
        with self._router.changed:
            known = self._router.sinks.pop(key, None)
        if known is not None:
            try:
                self._core.cancel(number)
            except Error:  # it has ended by now
                pass

    def cancel(self, request: int) -> None:
        """Takes a request back. It ends as `cancelled`, unless it has ended by then."""
        if request is None:
            raise TypeError("`request` must be a number that `submit` has given, found None")
        self._core.cancel(request)

    def stop(self, now: bool = False) -> None:
        """Stops, and waits until the kernel has ended. Requests that are there go on to their ends; with `now` they end
        as `limit`. Events stay to be read. Raises `megalith.Error` when the kernel has failed."""
        failed: list[BaseException] = []
        ended = threading.Event()  # not Thread.join(): with Ctrl-C that may take a thread for one that has ended

        def work() -> None:
            try:
                self._core.stop(now)
            except BaseException as error:  # noqa: BLE001
                failed.append(error)
            finally:
                ended.set()

        threading.Thread(target=work, name="megalith-stop", daemon=True).start()
        self._stops.append(ended)  # one that Ctrl-C leaves here waits on
        for each in [*self._stops, *([self._router.ended] if self._router.pump else [])]:
            each.wait()
        _open.discard(self)
        if failed:
            raise failed[0]

    def close(self) -> None:
        """Stops at once. What the kernel failed of is not told any more."""
        try:
            self.stop(now=True)
        except Error:
            pass

    @property
    def done(self) -> bool:
        """Whether the session was stopped (or failed), and all events were given out."""
        router = self._router
        with router.changed:
            if router.loose:
                return False
            return router.over if router.pump is not None else self._core.done()

    def stats(self) -> dict[str, Any]:
        """The session as it stands: requests waiting and running, slots with their states, pools, counts since it
        opened. docs/python.md of the project lists the members."""
        return self._core.stats()

    def trace(self) -> SessionTrace:
        """What a session that was opened with `trace` did, when it was stopped. Raises `megalith.Error` (`live-trace`)
        where there is none, or where it did not fit."""
        return SessionTrace(*self._core.trace())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        """Waits for the requests that run; after an exception, stops at once."""
        if kind is None:
            self.stop()
        else:
            self.close()

    def __del__(self) -> None:
        if hasattr(self, "_router"):
            try:
                self._core.stop(True)
            except Exception:  # noqa: BLE001
                pass


def _milliseconds(timeout: float | None) -> float:
    return -1.0 if timeout is None else 1000.0 * seconds_of(timeout)


_open: weakref.WeakSet[Session] = weakref.WeakSet()


def _close_all() -> None:
    """No thread may wait in the library when the interpreter goes away."""
    for session in list(_open):
        session.close()


atexit.register(_close_all)
