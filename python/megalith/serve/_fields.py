"""Bodies as JSON, and their members, each of which is taken once. What is not done is refused here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ._protocol import ApiError

MOST_DEPTH = 100
"""Of arrays and objects within each other"""
MOST_ID = 200
"""Characters of a name that a client gives"""


def read_json(body: bytes) -> dict[str, Any]:
    def no(constant: str) -> Any:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApiError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        value = json.loads(text, parse_constant=no)
    except (ValueError, RecursionError) as error:
        raise ApiError(f"the body is not JSON: {error}") from error
    if text.count("[") + text.count("{") > MOST_DEPTH:
        _check_depth(value)
    if "\\ud" in text or "\\uD" in text:  # JSON can write half of a pair
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError as error:
            raise ApiError("the body has half of a surrogate pair, which is no text") from error
    if not isinstance(value, dict):
        raise ApiError(f"the body must be a JSON object, found {what_is(value)}")
    return value


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for each in level:
            inner += each.values() if isinstance(each, dict) else each
        level = [each for each in inner if isinstance(each, (dict, list))]
        if not level:
            return
    raise ApiError(f"the body has arrays and objects {MOST_DEPTH} deep in each other, and that is too deep")


def what_is(value: Any) -> str:
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
        path = self.at + name
        path = path if len(path) <= MOST_ID else path[:MOST_ID] + "..."  # a client may make any name up
        return ApiError(f"`{path}` {what}", param=path, code=code)

    def take(self, name: str, default: Any = None) -> Any:
        return self.left.pop(name, default)

    def number(self, name: str, default: float, least: float, most: float, *, above: bool = False) -> float:
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, f"must be a number, found {what_is(value)}")
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
            raise self.wrong(name, f"must be an integer, found {what_is(value)}")
        if value < least or most is not None and value > most:
            raise self.wrong(name, f"must be {least} or more" if most is None else f"must be from {least} to {most}")
        return value

    def boolean(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, f"must be true or false, found {what_is(value)}")
        return value

    def text(self, name: str, most: int) -> str | None:
        value = self.take(name)
        if value is not None and not (isinstance(value, str) and 0 < len(value) <= most and value.isprintable()):
            raise self.wrong(name, f"must be a string of up to {most} characters")
        return value

    def done(self) -> None:
        for name in self.left:
            raise self.wrong(name, "is not a field that this server knows", code="unknown_parameter")


# They say who asks, or how another server should keep what it has, and change no answer here.
IGNORED = (
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "include_reasoning",  # it is not told from the text
    "spaces_between_special_tokens",  # of tokenizers that are no `tokenizer.json`
)

# What is not done, and the values that ask for nothing of it.
_NOT_DONE: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (),
    "audio": (),
    "bad_words": ([],),
    "chat_template": (),
    "documents": ([],),
    "early_stopping": (False,),
    "enable_thinking": (),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "kv_transfer_params": ({},),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "media_io_kwargs": ({},),
    "min_tokens": (0,),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "no_repeat_ngram_size": (0,),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_embeds": (),
    "reasoning": (),
    "reasoning_effort": ("none",),
    "repetition_detection": ({},),
    "repetition_penalty": (1,),
    "return_token_ids": (False,),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "thinking": (),
    "thinking_token_budget": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "vllm_xargs": ({},),
    "web_search_options": (),
}
_WHY = {
    "chat_template": "the server's is the one that counts; see --chat-template",
    **dict.fromkeys(("functions", "function_call"), "that is the older name; say it with `tools` and `tool_choice`"),
    **dict.fromkeys(("tools", "tool_choice"), "only chats have tools: use /v1/chat/completions"),
    "documents": "say them in `chat_template_kwargs`, if the template has a place for them",
    **dict.fromkeys(
        ("enable_thinking", "thinking"), "what a chat template knows by this name is said in `chat_template_kwargs`"
    ),
}


def refuse_what_is_not_done(fields: Fields) -> None:
    for name, nothing in _NOT_DONE.items():
        value = fields.take(name)
        # 0 == False, so types are looked at, too
        if value is None or any(
            value == each and isinstance(value, bool) == isinstance(each, bool) for each in nothing
        ):
            continue
        raise fields.wrong(name, f"is not supported: {_WHY.get(name, 'leave it out')}", code="unsupported_parameter")
