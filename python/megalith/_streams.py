"""Generations: the tokens of one request of a session, as they come."""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Union

from ._errors import Error
from ._events import End, Event, Logprob, fault_of
from ._requests import Tokens

if TYPE_CHECKING:
    from ._session import Session

News = Union[Event, Error, None]
"""None: none comes any more."""


class _Stream:
    """A request and its tokens. How to wait for its news is left to others."""

    number: int
    """Of the request."""
    prompt: Tokens
    """Its tokens. Text of those that come is text after them."""
    end: End | None
    """How it ended, after the last token."""
    prompt_logprobs: list[Logprob]
    """Of each token of the prompt, with `prompt_logprobs`; they are there with the first token."""

    def __init__(
        self, session: Session, request: dict[str, Any], put: Callable[[News], None], timeout: float | None
    ) -> None:
        self.end = None
        self.prompt_logprobs = []
        self.prompt = request["tokens"]
        self._session = session
        self._over = False
        self._tokens: deque[int] = deque()
        self.number, self._key = session._submit_for(request, put, timeout)

    def _heard(self, news: News) -> Event | None:
        """The event, after looking at it. None: no other one comes."""
        if isinstance(news, Event):
            if news.prompt_logprobs:
                self.prompt_logprobs = news.prompt_logprobs
            if news.end is not None:
                self._over, self.end = True, news.end
            return news
        self._over = True
        if news is not None:
            raise news
        return None

    def _append(self, event: Event | None, stop: type[Exception]) -> None:
        """Its tokens; at the end raises the fault, or `stop`."""
        if event is not None:
            self._tokens.extend(event.tokens)
        elif self.end and self.end.finish == "fault":
            raise fault_of(self.number, self.end)
        else:
            raise stop

    def cancel(self) -> None:
        """Takes the request back. What has come until then is still given."""
        if not self._over:
            self._session.cancel(self.number)

    def _close(self) -> None:
        if not self._over:
            self._over = True
            self._tokens.clear()
            self._session._leave(self.number, self._key)

    def __del__(self) -> None:
        if hasattr(self, "_key"):
            self._close()


class Generation(_Stream, Iterator[int]):
    """The tokens of one request as they come. It is an iterator; `events()` has more.

    A request that ends with a fault raises `megalith.Error` after its tokens; `events()` tells it in the last event.
    Who drops the iterator before its end, or calls `close()`, cancels the request.
    """

    def __init__(self, session: Session, request: dict[str, Any], timeout: float | None) -> None:
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        super().__init__(session, request, self._news.put, timeout)

    def __next__(self) -> int:
        while not self._tokens:
            self._append(self._next_event(), StopIteration)
        return self._tokens.popleft()

    def events(self) -> Iterator[Event]:
        """The same as events: tokens as they were appended, with state and time. The last one has an `end`."""
        while (event := self._next_event()) is not None:
            yield event

    def _next_event(self) -> Event | None:
        return None if self._over else self._heard(self._news.get())

    def close(self) -> None:
        """Ends the iteration, and takes the request back if it has not ended."""
        self._close()


class AsyncGeneration(_Stream, AsyncIterator[int]):
    """`Generation` for asyncio: `async for token in session.agenerate(...)`."""

    def __init__(self, session: Session, request: dict[str, Any]) -> None:
        self._news: asyncio.Queue[News] = asyncio.Queue()
        loop, news = asyncio.get_running_loop(), self._news

        def put(what: News) -> None:  # without `self`: who drops it cancels the request
            try:
                loop.call_soon_threadsafe(news.put_nowait, what)
            except RuntimeError:  # the loop was closed, nobody waits
                pass

        super().__init__(session, request, put, 0)

    async def __anext__(self) -> int:
        while not self._tokens:
            self._append(await self._next_event(), StopAsyncIteration)
        return self._tokens.popleft()

    async def events(self) -> AsyncIterator[Event]:
        """The same as events: tokens as they were appended, with state and time. The last one has an `end`."""
        while (event := await self._next_event()) is not None:
            yield event

    async def _next_event(self) -> Event | None:
        return None if self._over else self._heard(await self._news.get())

    async def aclose(self) -> None:
        """Ends the iteration, and takes the request back if it has not ended."""
        self._close()
