"""What the parts of the server say to each other: errors, limits, and what a call asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._generation import GenerationDefaults

if TYPE_CHECKING:
    from ._tools import ToolUse


class ApiError(Exception):
    """An answer that is an error, in the form of the API."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param, self.code = message, status, kind, param, code
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return _error_of, (self.message, self.status, self.kind, self.param, self.code, self.headers)

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


def _error_of(message: str, status: int, kind: str, param: str | None, code: str | None, headers: Any) -> ApiError:
    return ApiError(message, status=status, kind=kind, param=param, code=code, headers=headers)


@dataclass(frozen=True)
class Limits:
    """What the server takes, and what it has."""

    model: str
    context: int
    """Tokens of a request, its prompt and its completion together."""
    prompt_tokens: int
    completion_tokens: int
    vocabulary: int
    samples: bool
    """The pipeline reads settings of sampling."""
    temperature: float
    """What a request that says nothing gets; so with the others."""
    top_p: float
    top_k: int
    ends: int
    """Words that the tokens and sequences that end a request take together."""
    eos: int
    """How many tokens end a text."""
    logit_lines: int = 0
    """Rows of logits that requests with logprobs share."""
    no_prompt_logprobs: str = ""
    """Why the pipeline has no logprobs of prompts; empty: it has."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    edits: bool = False
    """Requests may have settings that follow their text: penalties and the like."""
    formats: bool = False
    """Answers may have to be of a format."""
    why_no_formats: str = ""
    tool_parser: str = ""
    """The form of calls of tools; empty: that of the chat template."""
    usual: GenerationDefaults = GenerationDefaults()
    """How many tokens a chat gets that says nothing."""
    token_bytes: int = 0
    """The most that a token stands for: so a text is refused before it is made tokens. 0: that is not known."""


@dataclass
class Job:
    """One call of a client. It makes `len(prompts) * drawn` choices."""

    is_chat: bool
    prompts: list[Sequence[int]]
    n: int
    """Choices that are told of each prompt."""
    budgets: list[int]
    """By prompt."""
    settings: dict[str, Any]
    """For `Session.agenerate`, but for the seed."""
    seed: int | None
    stop: list[str]
    is_stream: bool
    wants_usage: bool
    logprobs: int | None = None
    """Likeliest tokens that are told of each, beside its own logprob; None: no logprobs."""
    echo: bool = False
    """The text begins with that of the prompt."""
    prompt_logprobs: int | None = None
    """As `logprobs`, of the tokens of the prompt."""
    drawn: int = 1
    """Choices that are made of each prompt. Of more than `n` the likeliest are told."""
    keeps_stop: bool = False
    """The text has the stop text at its end."""
    shows_special: bool = False
    """The text has special tokens."""
    usage_each: bool = False
    """Each chunk of a stream has `usage`."""
    names_tokens: bool = False
    """Logprobs call tokens `token_id:N`."""
    id: str | None = None
    """That the client gave."""
    seeds: list[int | None] = field(default_factory=list)
    """By choice."""
    tools: ToolUse | None = None
    """That the answer may call."""
    format_name: str | None = None
    """The member of the body that asks for a format."""
    response: dict[str, Any] | None = None
    """What an answer of the Responses API says again of the request; None: it is of another one."""

    @property
    def logprobs_of_prompt(self) -> int | None:
        """What the session is asked for."""
        echoed = self.logprobs if self.echo else None
        return echoed if self.prompt_logprobs is None else max(self.prompt_logprobs, echoed or 0)


def no_such_model(model: str, limits: Limits) -> ApiError:
    return ApiError(
        f"the model `{model[:200]}` does not exist; this server has `{limits.model}`",
        status=404,
        param="model",
        code="model_not_found",
    )
