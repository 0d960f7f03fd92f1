"""What clients ask: bodies become a `Job`, or an `ApiError` at the field."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..text import TextError, Tokenizer

MOST_CHOICES = 128
"""`n` times prompts"""
MOST_STOPS = 16
MOST_STOP_LENGTH = 256
MOST_LOGPROBS = 20
MOST_LOGPROBS_OF_COMPLETIONS = 5


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

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


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


@dataclass
class Job:
    """One call of a client. It makes `len(prompts) * n` choices."""

    is_chat: bool
    prompts: list[list[int]]
    n: int
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
    seeds: list[int | None] = field(default_factory=list)
    """By choice."""


def read_json(body: bytes) -> dict[str, Any]:
    def no(constant: str) -> Any:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        value = json.loads(body, parse_constant=no)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    if b"\\ud" in body.lower():  # JSON can write half of a pair
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError as error:
            raise ApiError("the body has half of a surrogate pair, which is no text") from error
    if not isinstance(value, dict):
        raise ApiError(f"the body must be a JSON object, found {_what(value)}")
    return value


def _what(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return f"the number {value!r}"[:80]
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"


class Fields:
    """Members of a body. Each is taken once; what is left is refused. null is as good as nothing."""

    def __init__(self, body: Mapping[str, Any], at: str = "") -> None:
        self.left = {name: value for name, value in body.items() if value is not None}
        self.at = at

    def wrong(self, name: str, what: str, code: str | None = None) -> ApiError:
        return ApiError(f"`{self.at}{name}` {what}", param=self.at + name, code=code)

    def take(self, name: str, default: Any = None) -> Any:
        return self.left.pop(name, default)

    def number(self, name: str, default: float, least: float, most: float, *, above: bool = False) -> float:
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, f"must be a number, found {_what(value)}")
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not (least < value if above else least <= value) or not value <= most:
            raise self.wrong(
                name, f"must be {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'} {most:g}"
            )
        return value

    def integer(self, name: str, default: int | None, least: int, most: int | None = None) -> int | None:
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, f"must be an integer, found {_what(value)}")
        if value < least or most is not None and value > most:
            raise self.wrong(name, f"must be {least} or more" if most is None else f"must be from {least} to {most}")
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, f"must be true or false, found {_what(value)}")
        return value

    def done(self) -> None:
        for name in self.left:
            raise self.wrong(name, "is not a field that this server knows", code="unknown_parameter")


# They say who asks, and change no answer.
_IGNORED = ("user", "metadata", "safety_identifier", "prompt_cache_key")

# What is not done, and the values that ask for nothing of it.
_NOT_DONE: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_logprobs": (),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "use_beam_search": (False,),
    "verbosity": (),
    "web_search_options": (),
}
_WHY = {"prompt_logprobs": "only new tokens have logprobs"}


def _refuse_what_is_not_done(fields: Fields) -> None:
    for name, nothing in _NOT_DONE.items():
        value = fields.take(name)
        # 0 == False, so types are looked at, too
        if value is None or any(
            value == each and isinstance(value, bool) == isinstance(each, bool) for each in nothing
        ):
            continue
        raise fields.wrong(name, f"is not supported: {_WHY.get(name, 'leave it out')}", code="unsupported_parameter")


def read_job(body: Mapping[str, Any], is_chat: bool, limits: Limits, tokenizer: Tokenizer) -> Job:
    fields = Fields(body)
    _check_model(fields, limits)
    for name in _IGNORED:
        fields.take(name)
    n = fields.integer("n", 1, 1, MOST_CHOICES)
    assert n is not None
    best_of = fields.integer("best_of", n, 1)
    if best_of != n:
        raise fields.wrong("best_of", "is not supported, but for the value of `n`", code="unsupported_parameter")
    _refuse_what_is_not_done(fields)
    logprobs = _read_logprobs(fields, is_chat, limits)
    is_stream = fields.boolean("stream")
    wants_usage = _read_stream_options(fields, is_stream)
    settings = _read_sampling(fields, limits)
    seed = fields.integer("seed", None, -(2**63), 2**63 - 1)
    stop = _read_stop(fields)
    stop_tokens = fields.take("stop_token_ids", [])
    if not isinstance(stop_tokens, list) or not all(_is_token(each, limits) for each in stop_tokens):
        raise fields.wrong("stop_token_ids", f"must be an array of tokens, from 0 to {limits.vocabulary - 1}")
    settings["priority"] = fields.integer("priority", 0, -(2**31), 2**31 - 1)
    settings["inputs"] = fields.take("inputs", {})
    if not isinstance(settings["inputs"], dict):
        raise fields.wrong("inputs", f"must be an object, found {_what(settings['inputs'])}")
    if ignores_eos := fields.boolean("ignore_eos"):
        settings["eos"] = []
    settings["stop"] = _stops_of_the_engine(stop, stop_tokens, tokenizer, limits, ignores_eos)
    budget_name, budget = "max_tokens", fields.integer("max_tokens", None, 1)
    if is_chat and (newer := fields.integer("max_completion_tokens", None, 1)) is not None:
        if budget is not None and budget != newer:
            raise fields.wrong(
                "max_tokens", "and `max_completion_tokens` say different things; `max_tokens` is the old name"
            )
        budget_name, budget = "max_completion_tokens", newer
    if is_chat:
        prompts, prompt_name = [_read_chat(fields, tokenizer)], "messages"
    else:
        prompts, prompt_name = _read_prompts(fields, limits, tokenizer), "prompt"
        budget = 16 if budget is None else budget  # as the API has it
    fields.done()
    if len(prompts) * n > MOST_CHOICES:
        raise fields.wrong(
            "n", f"times {len(prompts)} prompts is more than the {MOST_CHOICES} choices that one call may ask for"
        )
    budgets = [_budget_of(prompt, prompt_name, budget, budget_name, limits) for prompt in prompts]
    if logprobs is not None:
        for most in budgets:
            _check_lines(most, budget_name, limits)
    job = Job(is_chat, prompts, n, budgets, settings, seed, stop, is_stream, wants_usage, logprobs)
    job.seeds = [_seed_of(job, choice % n) for choice in range(len(prompts) * n)]
    return job


def _check_model(fields: Fields, limits: Limits) -> None:
    model = fields.take("model")
    if not isinstance(model, str):
        raise fields.wrong("model", f"is missing; it is `{limits.model}` here" if model is None else "must be a string")
    if model != limits.model:
        raise no_such_model(model, limits)


def no_such_model(model: str, limits: Limits) -> ApiError:
    return ApiError(
        f"the model `{model[:200]}` does not exist; this server has `{limits.model}`",
        status=404,
        param="model",
        code="model_not_found",
    )


def _read_stream_options(fields: Fields, is_stream: bool) -> bool:
    options = fields.take("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise fields.wrong("stream_options", f"must be an object, found {_what(options)}")
    if not is_stream:
        raise fields.wrong("stream_options", "needs `stream` to be true")
    inner = Fields(options, "stream_options.")
    wants_usage = inner.boolean("include_usage")
    if inner.boolean("include_obfuscation"):
        raise inner.wrong("include_obfuscation", "is not supported: leave it out", code="unsupported_parameter")
    inner.done()
    return wants_usage


def _read_sampling(fields: Fields, limits: Limits) -> dict[str, Any]:
    given = [name for name in ("temperature", "top_p", "top_k", "min_p") if name in fields.left]
    temperature = fields.number("temperature", limits.temperature, 0, 1e6)
    top_p = fields.number("top_p", limits.top_p, 0, 1, above=True)
    top_k = fields.integer("top_k", limits.top_k, -1, 2**31 - 1)
    min_p = fields.number("min_p", 0, 0, 1)
    assert top_k is not None
    settings = {"temperature": temperature, "top_p": top_p, "top_k": max(0, top_k), "min_p": min_p}
    if not limits.samples:
        nothing = {"temperature": 0, "top_p": 1, "top_k": 0, "min_p": 0}
        for name in given:
            if settings[name] != nothing[name]:
                raise fields.wrong(
                    name,
                    f"is {settings[name]:g}, but the pipeline is greedy: it draws nothing by the settings of requests. "
                    f"Leave it out, or serve a pipeline that reads `sampling`",
                    code="unsupported_parameter",
                )
        return nothing
    return settings


def _read_logprobs(fields: Fields, is_chat: bool, limits: Limits) -> int | None:
    if is_chat:
        is_wanted, top = fields.boolean("logprobs"), fields.integer("top_logprobs", 0, 0, MOST_LOGPROBS)
        if top and not is_wanted:
            raise fields.wrong("top_logprobs", "needs `logprobs` to be true")
        logprobs = top if is_wanted else None
    else:
        if fields.left.get("logprobs") is False:
            fields.take("logprobs")
        logprobs = fields.integer("logprobs", None, 0, MOST_LOGPROBS_OF_COMPLETIONS)
    if logprobs is not None and limits.logit_lines == 0:
        raise fields.wrong(
            "logprobs", "is not supported: this server keeps no logits; see --logit-lines", code="unsupported_parameter"
        )
    return logprobs


def _check_lines(budget: int, budget_name: str, limits: Limits) -> None:
    if budget > limits.logit_lines:
        raise ApiError(
            f"with logprobs a request may generate {limits.logit_lines} tokens, and this one may {budget}: ask for fewer "
            f"with `{budget_name}`, or start the server with greater --logit-lines",
            param=budget_name,
            code="too_many_logprobs",
        )


def _read_stop(fields: Fields) -> list[str]:
    stop = fields.take("stop", [])
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) for each in stop):
        raise fields.wrong("stop", "must be a string, or an array of strings")
    if len(stop) > MOST_STOPS or any(len(each) > MOST_STOP_LENGTH for each in stop):
        raise fields.wrong("stop", f"may have up to {MOST_STOPS} strings of up to {MOST_STOP_LENGTH} characters")
    if "" in stop:
        raise fields.wrong("stop", "has an empty string")
    return list(dict.fromkeys(stop))


def _stops_of_the_engine(
    stop: Sequence[str], tokens: Sequence[int], tokenizer: Tokenizer, limits: Limits, ignores_eos: bool
) -> list[list[int]]:
    """Sequences with which the engine itself ends the request. Texts are looked for in what it gives, so they may be
    missing here; tokens may not."""
    out = [[token] for token in dict.fromkeys(tokens)]
    room = limits.ends - (0 if ignores_eos else limits.eos) - 2 * len(out)
    if room < 0:
        raise ApiError("`stop_token_ids` has too many tokens", param="stop_token_ids")
    for text in stop:
        exact = tokenizer.exact(text)
        if exact and len(exact) + 1 <= room:
            room -= len(exact) + 1
            out.append(exact)
    return out


def _is_token(value: Any, limits: Limits) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limits.vocabulary


def _read_prompts(fields: Fields, limits: Limits, tokenizer: Tokenizer) -> list[list[int]]:
    """A text, tokens, or several of these."""
    prompt = fields.take("prompt")
    if prompt is None:
        raise fields.wrong("prompt", "is missing")
    several = [prompt] if isinstance(prompt, str) or _looks_like_tokens(prompt) else prompt
    if not isinstance(several, list) or not all(isinstance(each, str) or _looks_like_tokens(each) for each in several):
        raise fields.wrong("prompt", "must be a string, an array of tokens, or an array of these")
    if not several:
        raise fields.wrong("prompt", "is empty")
    if len(several) > MOST_CHOICES:
        raise fields.wrong("prompt", f"has {len(several)} prompts; one call may have {MOST_CHOICES}")
    out = []
    for each in several:
        if not isinstance(each, str):
            for token in each:
                if not _is_token(token, limits):
                    raise fields.wrong(
                        "prompt", f"has the token {token}, and the vocabulary is 0 to {limits.vocabulary - 1}"
                    )
        out.append(tokenizer.encode(each) if isinstance(each, str) else each)
    return out


def _looks_like_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


def _read_chat(fields: Fields, tokenizer: Tokenizer) -> list[int]:
    if not tokenizer.has_chat_template:
        raise ApiError(
            "the checkpoint has no chat template; use /v1/completions, or start the server with --chat-template",
            param="messages",
            code="no_chat_template",
        )
    messages = fields.take("messages")
    if not isinstance(messages, list) or not messages:
        raise fields.wrong("messages", "is missing" if messages is None else "must be an array with messages")
    read = [_read_message(message, f"messages[{number}]") for number, message in enumerate(messages)]
    variables = fields.take("chat_template_kwargs", {})
    if not isinstance(variables, dict):
        raise fields.wrong("chat_template_kwargs", f"must be an object, found {_what(variables)}")
    for name in ("messages", "answer", "add_generation_prompt", "tools", "documents"):
        if name in variables:
            raise fields.wrong("chat_template_kwargs", f"may not have `{name}`")
    answer = fields.boolean("add_generation_prompt", True)
    try:
        return tokenizer.chat(read, answer=answer, **variables)
    except TextError as error:
        raise fields.wrong("messages", f"do not fit: {error}") from error


def _read_message(message: Any, at: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise ApiError(f"`{at}` must be an object, found {_what(message)}", param=at)
    fields = Fields(message, f"{at}.")
    role = fields.take("role")
    if not isinstance(role, str):
        raise fields.wrong("role", "must be a string, such as `user`")
    content = fields.take("content")
    if isinstance(content, list):
        content = "".join(_read_part(part, f"{at}.content[{number}]") for number, part in enumerate(content))
    if not isinstance(content, str):
        raise fields.wrong("content", f"must be a string, or an array of texts, found {_what(content)}")
    out = {"role": role, "content": content}
    name = fields.take("name")
    if name is not None:
        if not isinstance(name, str):
            raise fields.wrong("name", "must be a string")
        out["name"] = name
    for key in ("refusal", "annotations", "audio"):  # of an answer that is sent back
        if fields.left.get(key) in ("", [], {}):
            fields.take(key)
    for key in ("tool_calls", "function_call", "tool_call_id"):
        if fields.take(key):
            raise fields.wrong(key, "is not supported: this server has no tools", code="unsupported_parameter")
    fields.done()
    return out


def _read_part(part: Any, at: str) -> str:
    if not isinstance(part, dict):
        raise ApiError(f"`{at}` must be an object, found {_what(part)}", param=at)
    fields = Fields(part, f"{at}.")
    kind, text = fields.take("type"), fields.take("text")
    if kind != "text":
        raise fields.wrong("type", "must be `text`: this server reads nothing else", code="unsupported_parameter")
    if not isinstance(text, str):
        raise fields.wrong("text", f"must be a string, found {_what(text)}")
    fields.done()
    return text


def _budget_of(prompt: Sequence[int], prompt_name: str, budget: int | None, budget_name: str, limits: Limits) -> int:
    def too_long(what: str, param: str) -> ApiError:
        return ApiError(what, param=param, code="context_length_exceeded")

    count = len(prompt)
    if count == 0:
        raise ApiError("the prompt has no token", param=prompt_name)
    if count > limits.prompt_tokens:
        raise too_long(f"the prompt has {count} tokens, and this server takes {limits.prompt_tokens}", prompt_name)
    room = limits.context - count
    if room < 1:
        raise too_long(f"the prompt has {count} tokens; with a completion there may be {limits.context}", prompt_name)
    if budget is None:
        return min(room, limits.completion_tokens)
    if budget > limits.completion_tokens:
        raise too_long(f"`{budget_name}` is {budget}, and this server gives {limits.completion_tokens}", budget_name)
    if budget > room:
        raise too_long(
            f"the prompt has {count} tokens and `{budget_name}` is {budget}; together there may be {limits.context}",
            budget_name,
        )
    return budget


def _seed_of(job: Job, choice: int) -> int | None:
    """The first choice of a prompt has the client's seed, if the engine has it: 32 bits."""
    if job.settings["temperature"] == 0:
        return None
    if job.seed is None:
        return secrets.randbits(32)
    return (job.seed + choice * 0x9E3779B9) % 2**32
