"""Sessions: requests while the kernel runs."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core
from ._errors import Error, Message, out_of_range
from ._requests import Encode, Ends, Prompt, Request, Tokens, dict_of, number_of

if TYPE_CHECKING:
    from ._kernel import Kernel


@dataclass(frozen=True)
class End:
    """How a request of a session ended. Times are milliseconds since the session opened; negative: it never came."""

    finish: str
    """`stop` (an EOS), `length` (the budget), `state` (the pipeline ended it), `cancelled`, `deadline`, `fault`, or
    `limit` (the session was stopped at once)."""
    state: str
    """In which it ended."""
    fault: str
    """The code, with `fault`; `megalith.fault_text()` explains it."""
    fault_state: str
    place: str
    """FILE:LINE of the pipeline."""
    prompt_tokens: int
    generated: int
    passes: int
    rows: int
    submitted: float
    admitted: float
    first_token: float
    ended: float
    fault_detail: str = ""
    """Numbers of the fault in words: `position 7 holds token 5, and was fed 9`. Some have none."""


@dataclass(frozen=True)
class Logprob:
    """How likely a token was: natural logarithms of what the softmax of its row of logits gives, before temperature and
    all else by which tokens are drawn."""

    logprob: float | None
    """None: no row of the model predicted it; the pipeline had it otherwise."""
    likeliest: list[tuple[int, float]]
    """Tokens and their logprobs, the first first; as many as were asked for."""
    rank: int = 0
    """1 for the likeliest token, and so on; 0 where there is no logprob."""


@dataclass(frozen=True)
class SessionTrace:
    """What a session did, as two files of JSON lines. `megalith run PIPELINE --requests R.jsonl --replay T.jsonl`, with
    the session's `seed`, goes through all of it again and checks it."""

    trace: str
    requests: str
    """That arrived, in their order, as the kernel saw them."""


@dataclass(frozen=True)
class Event:
    """What is new of one request. The last one has an `end`."""

    request: int
    """Its number."""
    user: Any
    """What `submit()` was given for it."""
    tokens: list[int]
    """New ones; may be empty."""
    state: str
    """That it is in now."""
    end: End | None
    at: float
    """Milliseconds since the session opened."""
    logprobs: list[Logprob] = field(default_factory=list)
    """Of each of `tokens`, if the request asked for them."""
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    """Of each token of the prompt, if the request asked for them; once, with the first token or before. The first has
    none."""


def _event_of(raw: tuple[Any, ...], user: Any) -> Event:
    number, _, tokens, state, end, at, logprobs, of_prompt = raw
    told, before = [Logprob(*each) for each in logprobs], [Logprob(*each) for each in of_prompt]
    return Event(number, user, tokens, state, None if end is None else End(**end), at, told, before)


def _fault_of(number: int, end: End) -> Error:
    """What a stream of tokens raises in place of its last one."""
    file, _, line = end.place.rpartition(":")
    sentence = f"request {number} faulted: {end.fault}: {_core.fault_text(end.fault)}"
    if end.fault_detail:
        sentence += f"; {end.fault_detail}"
    where = f"{end.place}: " if file else ""
    message = Message(
        kind="request-faulted",
        message=sentence,
        file=file,
        line=int(line) if file and line.isdigit() else 0,
        text=f"{where}error: {sentence} (in state `{end.fault_state}`) [request-faulted]\n",
    )
    return Error([message])


class _Router:
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
                self.loose.append(_event_of(raw, self.users.pop(key) if is_last else self.users[key]))
                self.changed.notify_all()
                return
        sink(_event_of(raw, None))

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
        end = None if timeout is None else time.monotonic() + _seconds(timeout)
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


class Generation(Iterator[int]):
    """The tokens of one request as they come. It is an iterator; `events()` has more.

    A request that ends with a fault raises `megalith.Error` behind its tokens; `events()` tells it in the last event.
    Who drops the iterator before its end, or calls `close()`, cancels the request.
    """

    number: int
    """Of the request."""
    prompt: Tokens
    """Its tokens. Text of those that come is text behind them."""
    end: End | None
    """How it ended, behind the last token."""
    prompt_logprobs: list[Logprob]
    """Of each token of the prompt, with `prompt_logprobs`; they are there with the first token."""

    def __init__(self, session: Session, request: dict[str, Any], timeout: float | None) -> None:
        self.end = None
        self.prompt_logprobs = []
        self.prompt = request["tokens"]
        self._session = session
        self._over = False
        self._tokens: deque[int] = deque()
        self._news: queue.SimpleQueue[Event | Error | None] = queue.SimpleQueue()
        self.number, self._key = session._submit_for(request, self._news.put, timeout)

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> int:
        while not self._tokens:
            event = self._next_event()
            if event is None:
                if self.end and self.end.finish == "fault":
                    raise _fault_of(self.number, self.end)
                raise StopIteration
            self._tokens.extend(event.tokens)
        return self._tokens.popleft()

    def events(self) -> Iterator[Event]:
        """The same as events: tokens as they were appended, with state and time. The last one has an `end`."""
        while (event := self._next_event()) is not None:
            yield event

    def _next_event(self) -> Event | None:
        if self._over:
            return None
        news = self._news.get()
        if news is None or isinstance(news, Error):
            self._over = True
            if news is not None:
                raise news
            return None
        if news.prompt_logprobs:
            self.prompt_logprobs = news.prompt_logprobs
        if news.end is not None:
            self._over, self.end = True, news.end
        return news

    def cancel(self) -> None:
        """Takes the request back. What has come until then is still given."""
        if not self._over:
            self._session.cancel(self.number)

    def close(self) -> None:
        """Ends the iteration, and takes the request back if it has not ended."""
        if not self._over:
            self._over = True
            self._tokens.clear()
            self._session._leave(self.number, self._key)

    def __del__(self) -> None:
        if hasattr(self, "_key"):
            self.close()


class AsyncGeneration(AsyncIterator[int]):
    """`Generation` for asyncio: `async for token in session.agenerate(...)`."""

    number: int
    prompt: Tokens
    end: End | None
    prompt_logprobs: list[Logprob]

    def __init__(self, session: Session, request: dict[str, Any]) -> None:
        self.end = None
        self.prompt_logprobs = []
        self.prompt = request["tokens"]
        self._session = session
        self._over = False
        self._tokens: deque[int] = deque()
        self._news: asyncio.Queue[Event | Error | None] = asyncio.Queue()
        loop, news = asyncio.get_running_loop(), self._news

        def put(what: Event | Error | None) -> None:  # without `self`: who drops it cancels the request
            try:
                loop.call_soon_threadsafe(news.put_nowait, what)
            except RuntimeError:  # the loop was closed, nobody waits
                pass

        self.number, self._key = session._submit_for(request, put, 0)

    def __aiter__(self) -> AsyncGeneration:
        return self

    async def __anext__(self) -> int:
        while not self._tokens:
            event = await self._next_event()
            if event is None:
                if self.end and self.end.finish == "fault":
                    raise _fault_of(self.number, self.end)
                raise StopAsyncIteration
            self._tokens.extend(event.tokens)
        return self._tokens.popleft()

    async def events(self) -> AsyncIterator[Event]:
        """The same as events: tokens as they were appended, with state and time. The last one has an `end`."""
        while (event := await self._next_event()) is not None:
            yield event

    async def _next_event(self) -> Event | None:
        if self._over:
            return None
        news = await self._news.get()
        if news is None or isinstance(news, Error):
            self._over = True
            if news is not None:
                raise news
            return None
        if news.prompt_logprobs:
            self.prompt_logprobs = news.prompt_logprobs
        if news.end is not None:
            self._over, self.end = True, news.end
        return news

    def cancel(self) -> None:
        """Takes the request back. What has come until then is still given."""
        if not self._over:
            self._session.cancel(self.number)

    async def aclose(self) -> None:
        """Ends the iteration, and takes the request back if it has not ended."""
        self._close()

    def _close(self) -> None:
        if not self._over:
            self._over = True
            self._tokens.clear()
            self._session._leave(self.number, self._key)

    def __del__(self) -> None:
        if hasattr(self, "_key"):
            self._close()


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
            "trace": trace,
            "progress": progress,
        }
        self._core = _core.open_live(kernel._core, options)
        self.options: dict[str, Any] = self._core.options()
        """As they are, with the `max_tokens` that was chosen."""
        self._router = _Router(self._core)
        self._keys = itertools.count()
        self._stops: list[threading.Event] = []
        _open.add(self)

    def _dict_of(
        self,
        prompt: Prompt,
        max_new_tokens: int | None,
        id: str | int | None,
        eos: Ends | None,
        stop: Sequence[str | bytes | Tokens],
        priority: int,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        seed: int | None,
        inputs: Mapping[str, Any] | None,
        deadline_ms: int,
        logprobs: int | None,
        prompt_logprobs: int | None,
    ) -> dict[str, Any]:
        request = Request(
            prompt=prompt,
            max_new_tokens=0 if max_new_tokens is None else max_new_tokens,
            id=id,
            eos=self._eos if eos is None else eos,
            stop=stop,
            priority=priority,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            inputs=inputs or {},
            deadline_ms=deadline_ms,
        )
        out = dict_of(request, "", self._inputs, self._encode, self.kernel._encode)
        if max_new_tokens is None:
            out["max_new_tokens"] = max(0, self.options["max_tokens"] - len(out["tokens"]))
        for name, most in (("logprobs", logprobs), ("prompt_logprobs", prompt_logprobs)):
            if most is not None and number_of(most, name) < 0:
                raise out_of_range(name, 0, 20, most)
            out[name] = -1 if most is None else most
        return out

    def submit(
        self,
        prompt: Prompt,
        max_new_tokens: int | None = None,
        *,
        id: str | int | None = None,
        eos: Ends | None = None,
        stop: Sequence[str | bytes | Tokens] = (),
        priority: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
        inputs: Mapping[str, Any] | None = None,
        deadline_ms: int = 0,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        user: Any = None,
        timeout: float | None = 0,
    ) -> int:
        """Hands a request over and returns its number: 0, 1, ... Its events come from `next()`, with `user` in them.

        The members of the request are those of `megalith.Request`. `max_new_tokens=None`: as many as the session takes.
        `timeout`: seconds to wait for room, None for ever. A request that can never run raises `megalith.Error`; so
        does `live-full`, when there was no room, and `live-stopped`. `logprobs`: the events tell of each token its
        logprob, and so many of the likeliest ones, up to 20; the session needs `logit_lines`. `prompt_logprobs`: the
        same of the tokens of the prompt. With `max_new_tokens=0` nothing else is told.
        """
        request = self._dict_of(
            prompt,
            max_new_tokens,
            id,
            eos,
            stop,
            priority,
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
            inputs,
            deadline_ms,
            logprobs,
            prompt_logprobs,
        )
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
        prompt: Prompt,
        max_new_tokens: int | None = None,
        *,
        id: str | int | None = None,
        eos: Ends | None = None,
        stop: Sequence[str | bytes | Tokens] = (),
        priority: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
        inputs: Mapping[str, Any] | None = None,
        deadline_ms: int = 0,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
        timeout: float | None = None,
    ) -> Generation:
        """Submits a request and returns an iterator of its tokens, as they come. Many may run at once, on any threads.

        `timeout`: seconds to wait for room, None for ever.
        """
        request = self._dict_of(
            prompt,
            max_new_tokens,
            id,
            eos,
            stop,
            priority,
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
            inputs,
            deadline_ms,
            logprobs,
            prompt_logprobs,
        )
        return Generation(self, request, timeout)

    def agenerate(
        self,
        prompt: Prompt,
        max_new_tokens: int | None = None,
        *,
        id: str | int | None = None,
        eos: Ends | None = None,
        stop: Sequence[str | bytes | Tokens] = (),
        priority: int = 0,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
        inputs: Mapping[str, Any] | None = None,
        deadline_ms: int = 0,
        logprobs: int | None = None,
        prompt_logprobs: int | None = None,
    ) -> AsyncGeneration:
        """The same for asyncio: `async for token in session.agenerate(...)`. Needs a running loop. It never waits for
        room: a full session is the error `live-full`."""
        request = self._dict_of(
            prompt,
            max_new_tokens,
            id,
            eos,
            stop,
            priority,
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
            inputs,
            deadline_ms,
            logprobs,
            prompt_logprobs,
        )
        return AsyncGeneration(self, request)

    def _submit_for(
        self, request: dict[str, Any], sink: Callable[[Event | Error | None], None], timeout: float | None
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
        """Waits for the requests that run; behind an exception, stops at once."""
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
    return -1.0 if timeout is None else 1000.0 * _seconds(timeout)


def _seconds(timeout: float) -> float:
    """What a lock may wait for is limited."""
    seconds = number_of(timeout, "timeout")
    if seconds != seconds:
        raise out_of_range("timeout", 0, threading.TIMEOUT_MAX, timeout)
    return min(max(0.0, seconds), threading.TIMEOUT_MAX)


_open: weakref.WeakSet[Session] = weakref.WeakSet()


def _close_all() -> None:
    """No thread may wait in the library when the interpreter goes away."""
    for session in list(_open):
        session.close()


atexit.register(_close_all)
