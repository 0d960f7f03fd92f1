"""From jobs to text: choices of a session, as they come."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .._core import fault_text
from .._errors import Error
from .._events import Event, Logprob
from .._program import State
from .._session import Session
from .._streams import AsyncGeneration
from ..text import TextError, Tokenizer
from ._history import History
from ._metrics import Metrics, counts_of
from ._protocol import ApiError, Job, Limits
from ._tool_calls import CallArguments, CallParser, Part

_log = logging.getLogger("megalith.serve")

SHOWN = 160
"""Characters of a request that the page shows, where it may."""

_PARAMS = {
    "request-edits": None,
    "request-input": "inputs",
    "request-sampling": "temperature",
    "request-stop": "stop",
    "request-token-range": "prompt",
}
_EDITS = {
    "bias": "logit_bias",
    "banned": "bad_words",
    "allowed": "allowed_token_ids",
    "min_new_tokens": "min_tokens",
}
"""What clients call settings of the engine."""
_REQUEST = re.compile(r"^request `[^`]*`:? ")
"""Its number says nothing to a client."""


def _why(error: Exception) -> str:
    """It stands within a sentence."""
    return str(error).strip().removeprefix("error: ")


def _engine_failed(error: Exception) -> ApiError:
    return ApiError(f"the engine has failed: {_why(error)}", status=500, kind="server_error", code="engine_failed")


class StopText:
    """Finds the first stop text in pieces of text. What may become one is held back."""

    def __init__(self, stops: list[str], keeps: bool = False) -> None:
        self.stops, self.keeps = stops, keeps
        self.held = ""
        self.found = False

    def push(self, text: str) -> str:
        """What is sure now."""
        if not self.stops or self.found:
            return "" if self.found else text
        text = self.held + text
        # That which is complete first; of several that end there the longest.
        ends = [(text.find(stop) + len(stop), -len(stop)) for stop in self.stops if stop in text]
        if ends:
            end, length = min(ends)
            self.found, self.held = True, ""
            return text[: end if self.keeps else end + length]
        most = max(map(len, self.stops)) - 1
        for begin in range(max(0, len(text) - most), len(text)):
            if any(stop.startswith(text[begin:]) for stop in self.stops):
                self.held = text[begin:]
                return text[:begin]
        self.held = ""
        return text

    def flush(self) -> str:
        held, self.held = self.held, ""
        return held


@dataclass(frozen=True)
class TokenLogprob:
    token: int
    begin: int
    end: int
    """Its text in that of the choice. Of a part of a character both are where the character begins."""
    of: Logprob


class LogprobQueue:
    """Keeps what is told of tokens until their text is given."""

    def __init__(self) -> None:
        self.held: list[TokenLogprob] = []
        self.made = self.given = 0
        """Characters that tokens made, and those that were given of them."""

    def push(self, token: int, text: str, of: Logprob) -> None:
        self.held.append(TokenLogprob(token, self.made, self.made + len(text), of))
        self.made += len(text)

    def give(self, text: str) -> tuple[TokenLogprob, ...]:
        """Those that end within what was given."""
        self.given += len(text)
        count = 0
        while count < len(self.held) and self.held[count].end <= self.given:
            count += 1
        out, self.held = tuple(self.held[:count]), self.held[count:]
        return out

    def rest(self) -> tuple[TokenLogprob, ...]:
        """All text was given. The last tokens may have none."""
        out, self.held = tuple(self.held), []
        return out

    def cut(self) -> tuple[TokenLogprob, ...]:
        """Nothing else is given: those that begin within it."""
        out, self.held = tuple(each for each in self.held if each.begin < self.given), []
        return out


@dataclass(frozen=True)
class Piece:
    """News of a choice. The last one has a `finish`."""

    choice: int
    parts: tuple[Part, ...]
    """Content, and calls of tools."""
    finish: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    """Of tokens whose text was given with this piece, or with those before."""

    @property
    def text(self) -> str:
        return "".join(part for part in self.parts if isinstance(part, str))


class _Parts:
    """Of an answer, of one event."""

    def __init__(self, parser: CallParser | None) -> None:
        self.parser = parser
        self.parts: list[Part] = []

    def push(self, text: str) -> None:
        if text:
            self._add(self.parser.push(text) if self.parser else [text])

    def flush(self) -> None:
        self._add(self.parser.flush() if self.parser else [])

    def _add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            last = self.parts[-1] if self.parts else None
            if isinstance(part, str) and isinstance(last, str):
                self.parts[-1] = last + part
            elif isinstance(part, CallArguments) and isinstance(last, CallArguments) and part.index == last.index:
                self.parts[-1] = CallArguments(part.index, last.text + part.text)
            else:
                self.parts.append(part)


_OF_CLIENTS = {
    "NO_TOKEN": "No token is left that all of these allow: the format, `allowed_token_ids`, `bad_words`, `logit_bias` and "
    "`min_tokens`. Change or leave out one of them",
    "FORMAT": "The pipeline appends tokens that it has not drawn by `sampling`. Leave the format out",
}
"""Faults that come from what a request asks for, and what its client may do."""
KNOWN_FORMATS = 64
"""That do not wait for others which are made."""


class Choice:
    """One request of the session."""

    def __init__(self, engine: Engine, job: Job, index: int, generation: AsyncGeneration, arrived: float) -> None:
        self.engine, self.index, self.generation, self.arrived = engine, index, generation, arrived
        self.tokens = 0
        self.found = 0
        """Positions of its prompt that were not fed: an index had them."""
        self.record = engine.history.arrive(
            generation.number, len(job.prompts[index // job.drawn]), job.budgets[index // job.drawn], arrived
        )
        self.stop = StopText(job.stop, job.keeps_stop)
        # The end of a prompt says all that text after it depends on.
        prompt = job.prompts[index // job.drawn][-1024:]
        shown = job.tools.markers if job.tools else frozenset()
        if "format" in job.settings:  # of bytes, and an answer is those of its tokens
            self.pieces = engine.tokenizer.joined_pieces()
        else:
            self.pieces = engine.tokenizer.pieces(prompt, special=job.shows_special or shown)
        self.parser = job.tools.parser() if job.tools else None
        self.logprobs = LogprobQueue()
        self.prompt_logprobs: list[Logprob] = []
        self.is_over = False

    async def run(self, put: Callable[[Piece | ApiError], Awaitable[None]]) -> None:
        """`put` waits until what was put before is taken: pieces are made as fast as the client reads them."""
        try:
            await self._run(put)
        except ApiError as error:
            self._end("error", str(error))
            await put(error)
        except Error as error:
            failed = _engine_failed(error)
            self._end("error", failed.message)
            await put(failed)
        except Exception:  # noqa: BLE001, nobody else would tell the client
            _log.exception("a request has failed")
            broken = ApiError("the server has failed; its log says more", status=500, kind="server_error")
            self._end("error", broken.message)
            await put(broken)

    async def _run(self, put: Callable[[Piece | ApiError], Awaitable[None]]) -> None:
        metrics, last = self.engine.metrics, 0.0
        async for event in self.generation.events():
            now = self.engine.heard(event)
            if event.prompt_logprobs:
                self.prompt_logprobs = event.prompt_logprobs
            self.found = event.found
            self.record.tell(now, event, self.engine.history.slot_states)
            if event.tokens:
                if self.tokens == 0:
                    metrics.first_token.observe(now - self.arrived)
                    if len(event.tokens) > 1:  # they came with the first one
                        metrics.next_token.observe(0.0, len(event.tokens) - 1)
                else:
                    metrics.next_token.observe((now - last) / len(event.tokens), len(event.tokens))
                last = now
            text, parts = "", _Parts(self.parser)
            told: tuple[TokenLogprob, ...] = ()
            for number, token in enumerate(event.tokens):  # one by one: what is cut does not depend on how they came
                self.tokens += 1
                made = self.pieces.push(token)
                if event.logprobs:
                    self.logprobs.push(token, made, event.logprobs[number])
                sure = self.stop.push(made)
                text += sure
                parts.push(sure)
                if self._is_cut():
                    break
            is_cut = self._is_cut()
            if event.end and not is_cut:
                rest = self.stop.push(self.pieces.flush()) + self.stop.flush()
                text += rest
                parts.push(rest)
            if text:
                self.engine.show(self.generation.number, text)
                told = self.logprobs.give(text)
            if is_cut or event.end:
                finish = "stop" if is_cut or event.end is None else self._finish(event)
                if any(each.logprob is None for each in self.prompt_logprobs[1:]):
                    raise ApiError(
                        "tokens of the prompt have no logprobs: the pipeline has fed the tokens before them as drafts, or not at all",
                        status=500,
                        kind="server_error",
                        code="no_prompt_logprobs",
                    )
                self._end(finish)
                self.generation._close()  # after a stop text the engine would go on
                told += self.logprobs.cut() if is_cut else self.logprobs.rest()
                parts.flush()
                if self.parser and self.parser.calls and finish == "stop":
                    finish = "tool_calls"
                await put(Piece(self.index, tuple(parts.parts), finish, told))
                return
            if parts.parts or told:
                await put(Piece(self.index, tuple(parts.parts), None, told))
        raise self.engine.stopping()

    def _is_cut(self) -> bool:
        """Nothing that comes counts any more."""
        return self.stop.found or self.parser is not None and self.parser.done

    def _finish(self, event: Event) -> str:
        end = event.end
        assert end is not None
        if end.finish in ("stop", "length"):
            return end.finish
        if end.finish == "state":  # the pipeline's own logic has ended it
            return "stop"
        if end.finish == "deadline":
            raise self.engine._late(self.tokens)
        if end.finish == "fault":
            what = f"{end.fault}: {fault_text(end.fault)}" + (f"; {end.fault_detail}" if end.fault_detail else "")
            if end.fault in _OF_CLIENTS:
                raise ApiError(f"the request has ended with {what}. {_OF_CLIENTS[end.fault]}", code=end.fault.lower())
            place = f" ({end.place}, in state `{end.fault_state}`)" if end.place else ""
            raise ApiError(f"the request has faulted: {what}{place}", status=500, kind="server_error", code="fault")
        raise self.engine.stopping()

    def _end(self, finish: str, why: str = "") -> None:
        if not self.is_over:
            self.is_over = True
            self.engine.history.end(self.record, finish, why, self.engine.shown.get(self.generation.number))
            self.engine.metrics.finished[finish] += 1
            self.engine.metrics.found += self.found
            self.engine.metrics.sought += self.record.prompt_tokens
            self.engine.metrics.whole.observe(time.monotonic() - self.arrived)
            self.engine.shown.pop(self.generation.number, None)

    def close(self) -> None:
        """Nobody reads it any more. What has not ended is taken back."""
        self._end("abort")
        self.generation._close()


class Run:
    """All choices of a job. Leaving it takes back what has not ended."""

    def __init__(self, choices: list[Choice], engine: Engine) -> None:
        self.choices, self.engine = choices, engine

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: Any) -> None:
        for choice in self.choices:
            choice.close()
        self.engine.open.discard(self)

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """As they come. Raises the first error."""
        news: asyncio.Queue[Piece | ApiError] = asyncio.Queue(1)
        tasks = [asyncio.create_task(choice.run(news.put)) for choice in self.choices]
        try:
            left = len(tasks)
            while left:
                piece = await news.get()
                if isinstance(piece, ApiError):
                    raise piece
                left -= piece.finish is not None
                yield piece
        finally:
            for task in tasks:
                task.cancel()

    @property
    def numbers(self) -> str:
        """Of its requests in the session, for who looks at slots."""
        return ",".join(str(choice.generation.number) for choice in self.choices)

    @property
    def completion_tokens(self) -> int:
        return sum(choice.tokens for choice in self.choices)


class Engine:
    """The session, and what is under way."""

    def __init__(
        self,
        session: Session,
        tokenizer: Tokenizer,
        limits: Limits,
        *,
        max_waiting: int,
        request_timeout: float,
        show_text: bool,
        states: Sequence[State] = (),
        prepare_format: Callable[[Any], object] | None = None,
    ) -> None:
        """`prepare_format` makes the format of a request, on another thread."""
        self.session, self.tokenizer, self.limits = session, tokenizer, limits
        self.max_waiting, self.request_timeout = max_waiting, request_timeout
        self.metrics = Metrics()
        self.history = History(self.metrics, states)
        self.open: set[Run] = set()
        self.shown: dict[int, str] = {}
        self.shows = show_text
        self._draining = asyncio.Event()
        self._opened = math.inf
        self._prepare = prepare_format
        self._one_by_one = ThreadPoolExecutor(1, thread_name_prefix="megalith-format")
        self._unprepared = 0
        self._prepared: dict[str, None] = {}

    @property
    def drains(self) -> bool:
        """The server stops: what runs may go on for a while, nothing begins."""
        return self._draining.is_set()

    def drain(self) -> None:
        self._draining.set()

    async def prepare(self, job: Job, arrived: float) -> None:
        """Makes the job's format, while others are answered. One is made after the other. Who waits for that hears when
        its time is over, or the server stops."""
        format = job.settings.get("format")
        if format is None or self._prepare is None:
            return
        if self._unprepared > self.max_waiting:
            raise self._full(self._unprepared)
        self._unprepared += 1
        name = repr(format)
        # Mostly it is known, and there is nothing to make.
        threads = None if name in self._prepared else self._one_by_one
        making = asyncio.get_running_loop().run_in_executor(threads, self._prepare, format)
        draining = asyncio.ensure_future(self._draining.wait())
        either: set[asyncio.Future[Any]] = {making, draining}
        try:
            await asyncio.wait(either, timeout=self._left(arrived), return_when=asyncio.FIRST_COMPLETED)
            if not making.done():
                if self.drains:
                    raise self.stopping()
                self.metrics.finished["error"] += len(job.seeds)
                raise self._late(0)
            making.result()
            self._prepared[name] = None
            if len(self._prepared) > KNOWN_FORMATS:
                del self._prepared[next(iter(self._prepared))]
        except Error as error:
            raise self._refused(error, 0, job) from error
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ApiError(f"the format is none: {error}"[:500], param=job.format_name) from error
        finally:
            making.cancel()  # one that has begun goes on, and is kept for others
            draining.cancel()
            self._unprepared -= 1

    def _left(self, arrived: float) -> float | None:
        """Seconds that a call may still take; None: any."""
        return max(0.0, arrived + self.request_timeout - time.monotonic()) if self.request_timeout else None

    def _late(self, tokens: int) -> ApiError:
        return ApiError(
            f"the request was not done within {self.request_timeout:g} s; {tokens} tokens were generated",
            status=504,
            kind="server_error",
            code="deadline",
        )

    def heard(self, event: Event) -> float:
        """When the host heard of it, as `time.monotonic()` has it: a client that reads slowly changes no figure."""
        self._opened = min(self._opened, time.monotonic() - event.at / 1000)
        return self._opened + event.at / 1000

    def show(self, number: int, text: str) -> None:
        if self.shows:
            self.shown[number] = (self.shown.get(number, "") + text)[-SHOWN:]

    def look(self) -> tuple[dict[str, Any], int, int]:
        """The session as it stands, and how many requests run and wait."""
        stats = self.session.stats()
        return stats, *counts_of(stats)

    def stopping(self) -> ApiError:
        return ApiError(
            "the server is stopping", status=503, kind="server_error", code="stopping", headers={"Retry-After": "10"}
        )

    def failure(self) -> str | None:
        """Why the session has ended by itself."""
        router = self.session._router
        if self.drains or not self.session.done and not router.over:
            return None
        return _why(router.failed) if router.failed else "the session has ended"

    def start(self, job: Job, arrived: float) -> Run:
        """Submits all requests of a job, or none."""
        if self.drains:
            raise self.stopping()
        stats = self.session.stats()
        running, waiting = counts_of(stats)
        count = len(job.seeds)
        free = len(stats["slots"]) - running if stats["slots"] else 0
        if waiting + count > self.max_waiting + free:
            raise self._full(waiting)
        choices: list[Choice] = []
        run = Run(choices, self)
        left = self._left(arrived)
        try:
            for index, seed in enumerate(job.seeds):
                # The first choice of a prompt asks for all.
                of_prompt = job.logprobs_of_prompt if index % job.drawn == 0 else None
                generation = self.session.agenerate(
                    job.prompts[index // job.drawn],
                    job.budgets[index // job.drawn],
                    seed=seed,
                    deadline_ms=0 if left is None else max(1, round(1000 * left)),
                    logprobs=job.logprobs if job.drawn == job.n else job.logprobs or 0,
                    prompt_logprobs=of_prompt,
                    **job.settings,
                )
                choices.append(Choice(self, job, index, generation, arrived))
        except (Error, TypeError, ValueError, OverflowError, TextError) as error:
            run.__exit__()
            raise self._refused(error, waiting, job) from error
        self.open.add(run)
        return run

    def _full(self, waiting: int) -> ApiError:
        self.metrics.refused += 1
        return ApiError(
            f"{waiting} requests wait already, and {self.max_waiting} may; try again later",
            status=429,
            kind="rate_limit_error",
            code="too_many_requests",
            headers={"Retry-After": "1"},
        )

    def _refused(self, error: Exception, waiting: int, job: Job) -> ApiError:
        if not isinstance(error, Error):  # a value of an input
            return ApiError(str(error), param="inputs")
        kind, said = error.kind, _REQUEST.sub("the request ", error.first.message)
        if kind == "live-full":
            return self._full(waiting)
        if kind == "live-stopped":
            return self.stopping()
        if kind == "live-lines":  # drafts take some, too
            return ApiError(
                f"{said} (--logit-lines of this server)", param="max_tokens", code="too_many_logprobs"
            )
        if kind in ("request-too-large", "request-too-long", "live-too-long"):
            return ApiError(said, param="max_tokens", code="context_length_exceeded")
        if kind == "request-edits":
            for name, here in {**_EDITS, "format": job.format_name}.items():
                said = said.replace(f"`{name}`", f"`{here}`")
        if kind == "request-format":
            return ApiError(job.tools.told(said) if job.tools else said, param=job.format_name, code=kind)
        if kind == "out-of-range":
            return ApiError(said, param="inputs")
        if kind.startswith(("request-", "live-")):
            return ApiError(said, param=_PARAMS.get(kind), code=kind)
        return _engine_failed(error)
