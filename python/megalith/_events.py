"""What a session tells of its requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import _core
from ._errors import Error, Message


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
    found: int = 0
    """Positions of its prompt that the first model's pool had in its index, so that they were not fed."""
    format: str = ""
    """Of a request with a format: `complete` (the answer is one of its texts) or `partial`."""


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
    found: int = 0
    """Positions of its prompt that the first model's pool had in its index; known when it has a slot."""


def event_of(raw: tuple[Any, ...], user: Any) -> Event:
    number, _, tokens, state, end, at, logprobs, of_prompt, found = raw
    told, before = [Logprob(*each) for each in logprobs], [Logprob(*each) for each in of_prompt]
    return Event(number, user, tokens, state, None if end is None else End(**end), at, told, before, found)


def fault_of(number: int, end: End) -> Error:
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
