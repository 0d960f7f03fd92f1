"""What clients ask: bodies become a `Job`, or an `ApiError` at the field."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..text import TextError, Tokenizer
from ._fields import IGNORED, MOST_ID, Fields, refuse_what_is_not_done, what_is
from ._formats import put_format, read_format
from ._prompts import MOST_CHOICES, encode, is_token, read_chat, read_prompts
from ._protocol import ApiError, Job, Limits, no_such_model
from ._tools import ToolUse, read_tools

MOST_STOPS = 16
MOST_EDITS = 1024
MOST_STOP_LENGTH = 256
MOST_LOGPROBS = 20
MOST_LOGPROBS_OF_COMPLETIONS = 5


def read_job(body: Mapping[str, Any], is_chat: bool, limits: Limits, tokenizer: Tokenizer) -> Job:
    fields = Fields(body)
    _check_model(fields, limits)
    for name in IGNORED:
        fields.take(name)
    n = fields.integer("n", 1, 1, MOST_CHOICES)
    assert n is not None
    drawn = fields.integer("best_of", n, 1, MOST_CHOICES)
    assert drawn is not None
    edits = _read_edits(fields, limits, tokenizer) if limits.edits else {}
    tools = read_tools(fields, limits, tokenizer) if is_chat else ToolUse()
    format, format_name = read_format(fields)
    if format and tools.names and not tools.enforced:
        if "json_schema" not in format:
            raise ApiError(
                f"`{format_name}` beside `tools` that may be called is not supported: say it as a JSON schema, leave one of "
                f"them out, or say `tool_choice` `none`",
                param=format_name,
                code="unsupported_parameter",
            )
        tools = replace(tools, beside=format["json_schema"])
    refuse_what_is_not_done(fields)
    logprobs = _read_logprobs(fields, is_chat, limits)
    is_stream = fields.boolean("stream")
    echo, prompt_logprobs = _read_of_prompt(fields, is_chat, is_stream, logprobs is not None, limits)
    _check_best_of(fields, n, drawn, is_stream, limits)
    wants_usage, usage_each = _read_stream_options(fields, is_stream)
    name = fields.text("request_id", MOST_ID)
    keeps_stop = fields.boolean("include_stop_str_in_output")
    shows_special = not fields.boolean("skip_special_tokens", True)
    if shows_special and tools.names:
        raise fields.wrong("skip_special_tokens", "must be true beside `tools`", code="unsupported_parameter")
    names_tokens = fields.boolean("return_tokens_as_token_ids")
    most_prompt = fields.integer("truncate_prompt_tokens", None, -1)
    if most_prompt == 0:
        raise fields.wrong("truncate_prompt_tokens", "must be 1 or more, or -1: as many as the server takes")
    if most_prompt == -1:
        most_prompt = min(limits.prompt_tokens, limits.context - 1)
    settings = _read_sampling(fields, limits) | edits
    if tools.enforced:
        format_name = "tool_choice"
    put_format(settings, tools.format or format, format_name, limits)
    seed = fields.integer("seed", None, -(2**63), 2**63 - 1)
    stop = _read_stop(fields)
    if stop and settings.get("min_new_tokens"):
        raise fields.wrong("stop", "with `min_tokens` is not supported: give `stop_token_ids`", code="unsupported_parameter")
    stop_tokens = fields.take("stop_token_ids", [])
    if not isinstance(stop_tokens, list) or not all(is_token(each, limits) for each in stop_tokens):
        raise fields.wrong("stop_token_ids", f"must be an array of tokens, from 0 to {limits.vocabulary - 1}")
    settings["priority"] = fields.integer("priority", 0, -(2**31), 2**31 - 1)
    settings["cache"] = _cache_of(fields.text("cache_salt", MOST_ID))
    settings["inputs"] = _read_inputs(fields, tokenizer)
    if ignores_eos := fields.boolean("ignore_eos"):
        settings["eos"] = []
    settings["stop"] = _stops_of_the_engine(stop, stop_tokens, tokenizer, limits, ignores_eos)
    least = 0 if echo or prompt_logprobs is not None else 1  # the prompt may be all that is wanted
    budget_name, budget = "max_tokens", fields.integer("max_tokens", None, least)
    if is_chat and (newer := fields.integer("max_completion_tokens", None, least)) is not None:
        if budget is not None and budget != newer:
            raise fields.wrong(
                "max_tokens", "and `max_completion_tokens` say different things; `max_tokens` is the old name"
            )
        budget_name, budget = "max_completion_tokens", newer
    if is_chat:
        prompts, prompt_name = [read_chat(fields, limits, tokenizer, tools, cut=most_prompt is not None)], "messages"
    else:
        prompts, prompt_name = read_prompts(fields, limits, tokenizer, cut=most_prompt is not None), "prompt"
        budget = 16 if budget is None else budget  # as the API has it
    fields.done()
    if most_prompt is not None:
        prompts = [prompt[-most_prompt:] for prompt in prompts]
    if len(prompts) * drawn > MOST_CHOICES:
        raise fields.wrong(
            "n" if drawn == n else "best_of",
            f"times {len(prompts)} prompts is more than the {MOST_CHOICES} choices that one call may ask for",
        )
    budgets = [_budget_of(prompt, prompt_name, budget, budget_name, limits) for prompt in prompts]
    if logprobs is not None or drawn > n:
        for most in budgets:
            _check_lines(most, budget_name, limits, "logprobs" if logprobs is not None else "`best_of` above `n`")
    if prompt_logprobs is not None or (echo and logprobs is not None):
        for prompt, most in zip(prompts, budgets):
            _check_prompt_lines(len(prompt), most, prompt_name, limits)
    job = Job(is_chat, prompts, n, budgets, settings, seed, stop, is_stream, wants_usage, logprobs)
    job.drawn, job.echo, job.prompt_logprobs = drawn, echo, prompt_logprobs
    job.keeps_stop, job.shows_special, job.usage_each = keeps_stop, shows_special, usage_each
    job.names_tokens, job.id, job.tools, job.format_name = names_tokens, name, tools, format_name or None
    job.seeds = [_seed_of(job, choice % drawn) for choice in range(len(prompts) * drawn)]
    return job


def _cache_of(salt: str | None) -> int:
    """The number of a salt: 0 without one. Others are of 63 bits, so that two salts do not have the same."""
    if salt is None:
        return 0
    return int.from_bytes(hashlib.sha256(salt.encode()).digest()[:8], "little") >> 1 | 1


def _check_best_of(fields: Fields, n: int, drawn: int, is_stream: bool, limits: Limits) -> None:
    if drawn < n:
        raise fields.wrong("best_of", f"must be `n` or more; that is {n}")
    if drawn > n and is_stream:
        raise fields.wrong("best_of", "must be `n` in a stream: which choices are the best is known at the end")
    if drawn > n and limits.logit_lines == 0:
        raise fields.wrong(
            "best_of",
            "above `n` is not supported: this server keeps no logits; see --logit-lines",
            code="unsupported_parameter",
        )


def _check_model(fields: Fields, limits: Limits) -> None:
    model = fields.take("model")
    if not isinstance(model, str):
        raise fields.wrong("model", f"is missing; it is `{limits.model}` here" if model is None else "must be a string")
    if model != limits.model:
        raise no_such_model(model, limits)


def _read_stream_options(fields: Fields, is_stream: bool) -> tuple[bool, bool]:
    """Whether `usage` is wanted at the end, and with each chunk."""
    options = fields.take("stream_options")
    if options is None:
        return False, False
    if not isinstance(options, dict):
        raise fields.wrong("stream_options", f"must be an object, found {what_is(options)}")
    if not is_stream:
        raise fields.wrong("stream_options", "needs `stream` to be true")
    inner = Fields(options, "stream_options.")
    wants_usage = inner.boolean("include_usage")
    if inner.boolean("include_obfuscation"):
        raise inner.wrong("include_obfuscation", "is not supported: leave it out", code="unsupported_parameter")
    usage_each = inner.boolean("continuous_usage_stats")
    inner.done()
    return wants_usage, wants_usage and usage_each


def _read_sampling(fields: Fields, limits: Limits) -> dict[str, Any]:
    given = [name for name in ("temperature", "top_p", "top_k", "min_p") if name in fields.left]
    temperature = fields.number("temperature", limits.temperature, 0, 1e6)
    top_p = fields.number("top_p", limits.top_p, 0, 1, above=True)
    top_k = fields.integer("top_k", limits.top_k, -1, 2**31 - 1)
    min_p = fields.number("min_p", limits.min_p, 0, 1)
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


def _read_edits(fields: Fields, limits: Limits, tokenizer: Tokenizer) -> dict[str, Any]:
    """Settings that follow a row's text, those that change something."""
    least = fields.integer("min_tokens", 0, 0, 2**31 - 1)
    edits: dict[str, Any] = {
        "presence_penalty": fields.number("presence_penalty", 0, -2, 2),
        "frequency_penalty": fields.number("frequency_penalty", 0, -2, 2),
        "repetition_penalty": fields.number("repetition_penalty", limits.repetition_penalty, 0.001, 1000),
        "min_new_tokens": least,
    }
    edits = {name: value for name, value in edits.items() if value != (1 if name == "repetition_penalty" else 0)}
    bias = fields.take("logit_bias", {})
    if not isinstance(bias, dict) or len(bias) > MOST_EDITS:
        raise fields.wrong("logit_bias", f"must be an object of up to {MOST_EDITS} tokens and numbers")
    inner = Fields(bias, "logit_bias.")
    for name in bias:
        if not (name.isascii() and name.isdigit() and is_token(int(name), limits)):
            raise inner.wrong(name, f"is no token, from 0 to {limits.vocabulary - 1}")
        edits.setdefault("bias", {})[int(name)] = inner.number(name, 0, -100, 100)
    allowed = fields.take("allowed_token_ids")
    if allowed is not None:
        if not isinstance(allowed, list) or not 0 < len(allowed) <= MOST_EDITS or not all(is_token(each, limits) for each in allowed):
            raise fields.wrong(
                "allowed_token_ids", f"must be an array of 1 to {MOST_EDITS} tokens, from 0 to {limits.vocabulary - 1}"
            )
        edits["allowed"] = allowed
    banned = _read_bad_words(fields, tokenizer, limits)
    if banned:
        edits["banned"] = banned
    return edits


def _read_bad_words(fields: Fields, tokenizer: Tokenizer, limits: Limits) -> list[int]:
    """Tokens that are a bad word, at the start of a text or behind a space. Words of several tokens are not banned by
    one of these."""
    words = fields.take("bad_words", [])
    if not isinstance(words, list) or len(words) > MOST_EDITS // 2 or not all(isinstance(each, str) and each for each in words):
        raise fields.wrong("bad_words", f"must be an array of up to {MOST_EDITS // 2} strings")
    banned: dict[int, None] = {}
    for word in words:
        spelled = [tokenizer.encode(text, special=False) for text in (word, " " + word)]
        single = [each[0] for each in spelled if len(each) == 1 and each[0] < limits.vocabulary]
        if not single:
            raise fields.wrong(
                "bad_words", f"has {word[:40]!r}, which is several tokens; only words of one are supported", code="unsupported_parameter"
            )
        banned.update(dict.fromkeys(single))
    return list(banned)


def _read_inputs(fields: Fields, tokenizer: Tokenizer) -> dict[str, Any]:
    """As `Session.agenerate` takes them, at once."""
    inputs = fields.take("inputs", {})
    if not isinstance(inputs, dict):
        raise fields.wrong("inputs", f"must be an object, found {what_is(inputs)}")
    out = {}
    for name, value in inputs.items():
        try:
            if isinstance(value, str):
                value = tokenizer.encode(value)
            if isinstance(value, list) and value:
                array = np.asarray(value)
                value = array if array.dtype.kind in "biuf" else value
        except (ValueError, TextError) as error:
            raise ApiError(f"`inputs.{name}` is no value of an input: {error}"[:500], param="inputs") from error
        out[name] = value
    return out


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


def _read_of_prompt(
    fields: Fields, is_chat: bool, is_stream: bool, has_logprobs: bool, limits: Limits
) -> tuple[bool, int | None]:
    """`echo`, and `prompt_logprobs` of vLLM."""
    echo, most = fields.boolean("echo"), fields.integer("prompt_logprobs", None, 0, MOST_LOGPROBS)
    if echo and is_chat:
        raise fields.wrong("echo", "is not supported in a chat: leave it out", code="unsupported_parameter")
    if most is not None and limits.logit_lines == 0:
        raise fields.wrong(
            "prompt_logprobs",
            "is not supported: this server keeps no logits; see --logit-lines",
            code="unsupported_parameter",
        )
    for name, is_wanted in (("echo", echo), ("prompt_logprobs", most is not None)):
        if is_wanted and is_stream:
            raise fields.wrong(name, "is not supported in a stream", code="unsupported_parameter")
        if is_wanted and limits.no_prompt_logprobs and (name != "echo" or has_logprobs):
            raise fields.wrong(
                name,
                f"asks for logprobs of the prompt, and the pipeline has none: {limits.no_prompt_logprobs}. Leave it out, "
                f"or serve a pipeline that feeds prompts by a call without `kv=draft`",
                code="unsupported_parameter",
            )
    return echo, most


def _check_prompt_lines(length: int, budget: int, prompt_name: str, limits: Limits) -> None:
    rows = length - 1 + max(1, budget)
    if rows > limits.logit_lines:
        raise ApiError(
            f"with logprobs of its prompt a request takes a row of logits for each token that it has or may generate: "
            f"{rows}, and this server has {limits.logit_lines}: send a shorter prompt, or start the server with greater "
            f"--logit-lines",
            param=prompt_name,
            code="too_many_logprobs",
        )


def _check_lines(budget: int, budget_name: str, limits: Limits, what: str) -> None:
    if budget > limits.logit_lines:
        raise ApiError(
            f"with {what} a request may generate {limits.logit_lines} tokens, and this one may {budget}: ask for fewer "
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
        most = (room + 2 * len(out)) // 2
        raise ApiError(
            f"`stop_token_ids` has {len(out)} tokens, and this server takes {most} beside those that end a text",
            param="stop_token_ids",
        )
    for text in stop:
        exact = tokenizer.exact(text)
        if exact and len(exact) + 1 <= room and max(exact) < limits.vocabulary:  # others never come
            room -= len(exact) + 1
            out.append(exact)
    return out


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
        return limits.usual.budget(count, min(room, limits.completion_tokens))
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


# ===----------------------------------------------------------------------===#
# Tokens and texts
# ===----------------------------------------------------------------------===#


def read_tokenize(body: Mapping[str, Any], limits: Limits, tokenizer: Tokenizer) -> tuple[list[int], bool]:
    """Tokens of a text or of a chat, and whether their names are wanted."""
    fields = Fields(body)
    if "model" in fields.left:
        _check_model(fields, limits)
    wants_names = fields.boolean("return_token_strs")
    tools = read_tools(fields, limits, tokenizer, only_tell=True) if "messages" in fields.left else ToolUse()
    refuse_what_is_not_done(fields)
    unlimited = replace(limits, token_bytes=0)
    if "messages" in fields.left:
        tokens: Sequence[int] = read_chat(fields, unlimited, tokenizer, tools)
    else:
        prompt = fields.take("prompt")
        if not isinstance(prompt, str):
            raise fields.wrong(
                "prompt", f"must be a string, found {what_is(prompt)}; a chat has `messages`" if prompt is not None else "is missing"
            )
        tokens = encode(prompt, fields.boolean("add_special_tokens", True), "prompt", unlimited, tokenizer, True)
    fields.done()
    return list(tokens), wants_names


def read_detokenize(body: Mapping[str, Any], limits: Limits) -> list[int]:
    fields = Fields(body)
    if "model" in fields.left:
        _check_model(fields, limits)
    tokens = fields.take("tokens")
    if not isinstance(tokens, list) or not all(is_token(each, limits) for each in tokens):
        raise fields.wrong("tokens", f"must be an array of tokens, from 0 to {limits.vocabulary - 1}")
    fields.done()
    return tokens
