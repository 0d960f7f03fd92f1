"""Prompts: texts, tokens, and the messages of a chat, which become the tokens that are fed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._templates import RESERVED
from ..text import TextError, Tokenizer
from ._fields import Fields, what_is
from ._protocol import ApiError, Limits
from ._tools import ToolUse

MOST_CHOICES = 128
"""`n` times prompts"""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def is_token(value: Any, limits: Limits) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limits.vocabulary


def encode(text: str, special: bool, name: str, limits: Limits, tokenizer: Tokenizer, cut: bool) -> list[int]:
    """A text that is too long for certain is not made tokens, unless the client cuts it."""
    least = -(-len(text) // limits.token_bytes) if limits.token_bytes and not cut else 0
    if least > limits.prompt_tokens:
        raise ApiError(
            f"the prompt has {len(text)} characters, which are {least} tokens or more, and this server takes "
            f"{limits.prompt_tokens}",
            param=name,
            code="context_length_exceeded",
        )
    try:
        return tokenizer.encode(text, special=special)
    except TextError as error:
        raise ApiError(f"`{name}` cannot be made tokens: {error}", param=name) from error


def read_prompts(fields: Fields, limits: Limits, tokenizer: Tokenizer, cut: bool = False) -> list[Sequence[int]]:
    """A text, tokens, or several of these."""
    prompt = fields.take("prompt")
    special = fields.boolean("add_special_tokens", True)
    if prompt is None:
        raise fields.wrong("prompt", "is missing")
    several = [prompt] if isinstance(prompt, str) or _looks_like_tokens(prompt) else prompt
    if not isinstance(several, list) or not all(isinstance(each, str) or _looks_like_tokens(each) for each in several):
        raise fields.wrong("prompt", "must be a string, an array of tokens, or an array of these")
    if not several:
        raise fields.wrong("prompt", "is empty")
    if len(several) > MOST_CHOICES:
        raise fields.wrong("prompt", f"has {len(several)} prompts; one call may have {MOST_CHOICES}")
    out: list[Sequence[int]] = []
    for each in several:
        if not isinstance(each, str):
            for token in each:
                if not is_token(token, limits):
                    raise fields.wrong(
                        "prompt", f"has the token {token}, and the vocabulary is 0 to {limits.vocabulary - 1}"
                    )
        out.append(encode(each, special, "prompt", limits, tokenizer, cut) if isinstance(each, str) else each)
    return out


def _looks_like_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)


def read_chat(
    fields: Fields, limits: Limits, tokenizer: Tokenizer, tools: ToolUse, cut: bool = False
) -> list[int]:
    if not tokenizer.has_chat_template:
        raise ApiError(
            "the checkpoint has no chat template; use /v1/completions, or start the server with --chat-template",
            param="messages",
            code="no_chat_template",
        )
    messages = fields.take("messages")
    if not isinstance(messages, list) or not messages:
        raise fields.wrong("messages", "is missing" if messages is None else "must be an array with messages")
    template = "\n".join(tokenizer._templates.sources.values()) if tokenizer._templates else ""
    read = [_read_message(message, f"messages[{number}]", template) for number, message in enumerate(messages)]
    variables = fields.take("chat_template_kwargs", {})
    if not isinstance(variables, dict):
        raise fields.wrong("chat_template_kwargs", f"must be an object, found {what_is(variables)}")
    for name in variables:
        if name in _TAKEN or not name.isidentifier():
            raise fields.wrong("chat_template_kwargs", f"may not have `{name[:200]}`")
    continues = fields.boolean("continue_final_message")
    answer = fields.boolean("add_generation_prompt", not continues)
    special = fields.boolean("add_special_tokens", False)
    if continues and answer:
        raise fields.wrong("continue_final_message", "needs `add_generation_prompt` to be false")
    if tools.enforced and not answer:
        name = "continue_final_message" if continues else "add_generation_prompt"
        raise fields.wrong(name, "beside a `tool_choice` that asks for a call is not supported: leave it out")
    if tools.tools:
        variables = {**variables, "tools": tools.tools}
    try:
        text = tokenizer.chat_text(read, answer=answer, **variables)
    except TextError as error:
        raise fields.wrong("messages", f"do not fit: {error}") from error
    except Exception as error:  # noqa: BLE001, a template may raise anything for a client's values
        raise fields.wrong("messages", f"do not fit: the chat template failed: {type(error).__name__}: {error}") from error
    if continues:
        text = _cut_after(text, read[-1], fields)
    text += tools.prefix
    return encode(text, special, "messages", limits, tokenizer, cut)


def _cut_after(text: str, message: Mapping[str, Any], fields: Fields) -> str:
    """After the last message's content, which the model continues: as `transformers` does."""
    content = message["content"] or ""
    place = text.rfind(content.strip())
    if message["role"] != "assistant" or not content.strip():
        raise fields.wrong("continue_final_message", "needs a last message of the role `assistant`, with a text")
    if place < 0:
        raise fields.wrong("continue_final_message", "does not work: the chat template changes the last message")
    whole = content.lstrip()
    return text[: place + len(whole if text.startswith(whole, place) else content.strip())]


def _read_message(message: Any, at: str, template: str) -> dict[str, Any]:
    """As a template takes it."""
    if not isinstance(message, dict):
        raise ApiError(f"`{at}` must be an object, found {what_is(message)}", param=at)
    fields = Fields(message, f"{at}.")
    role = fields.take("role")
    if role not in ROLES:
        raise fields.wrong("role", f"must be one of {', '.join(f'`{each}`' for each in ROLES)}")
    out: dict[str, Any] = {"role": role}
    if role == "developer" and "developer" not in template:
        out["role"] = "system"  # its older name
    content = fields.take("content")
    if isinstance(content, list):
        content = "".join(_read_part(part, f"{at}.content[{number}]") for number, part in enumerate(content))
    if content is None and role == "assistant":
        # Of an answer that had none, as calls of tools. Only templates that ask for it get the null.
        content = None if _ASKS_FOR_NONE.search(template) else ""
    elif not isinstance(content, str):
        raise fields.wrong("content", f"must be a string, or an array of texts, found {what_is(content)}")
    out["content"] = content
    for key in ("name", "tool_call_id"):
        if (value := fields.take(key)) is not None:
            if not isinstance(value, str):
                raise fields.wrong(key, "must be a string")
            out[key] = value
    for key in ("refusal", "annotations", "audio"):  # of an answer that is sent back
        if fields.left.get(key) in ("", [], {}):
            fields.take(key)
    if role == "assistant":
        for key in ("reasoning_content", "reasoning"):
            if (value := fields.take(key)) is not None:
                if not isinstance(value, str):
                    raise fields.wrong(key, "must be a string")
                out[key] = value
        for key in ("reasoning_details", "parsed"):  # the latter says what `content` says, as `openai`'s `parse` has it
            fields.take(key)
        if calls := fields.take("tool_calls"):
            if not isinstance(calls, list):
                raise fields.wrong("tool_calls", f"must be an array, found {what_is(calls)}")
            out["tool_calls"] = [_read_call(call, f"{at}.tool_calls[{number}]") for number, call in enumerate(calls)]
        if call := fields.take("function_call"):
            out["function_call"] = _read_function(call, f"{at}.function_call")
    for key in ("tool_calls", "function_call"):
        if fields.take(key):
            raise fields.wrong(key, "is for messages of the role `assistant`")
    fields.done()
    return out


_TAKEN = RESERVED | {"self", "answer", "tools", "documents", "chat_template"}
"""No names of a client's variables."""
_ASKS_FOR_NONE = re.compile(r"""content['"]?\]?\s+is\s+(not\s+)?none""", re.IGNORECASE)


def _read_call(call: Any, at: str) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise ApiError(f"`{at}` must be an object, found {what_is(call)}", param=at)
    if call.get("type", "function") != "function":
        raise ApiError(f"`{at}.type` must be `function`", param=f"{at}.type")
    return {**call, "function": _read_function(call.get("function"), f"{at}.function")}


def _read_function(function: Any, at: str) -> dict[str, Any]:
    """Templates expect arguments as an object, and the API has them as its text."""
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ApiError(f"`{at}` must be an object with the string `name`", param=at)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            read = arguments
        arguments = read if isinstance(read, dict) else arguments
    if not isinstance(arguments, (str, dict)):
        raise ApiError(f"`{at}.arguments` must be a string, found {what_is(arguments)}", param=f"{at}.arguments")
    return {name: value for name, value in function.items() if name != "parsed_arguments"} | {"arguments": arguments}


def _read_part(part: Any, at: str) -> str:
    if not isinstance(part, dict):
        raise ApiError(f"`{at}` must be an object, found {what_is(part)}", param=at)
    fields = Fields(part, f"{at}.")
    kind, text = fields.take("type"), fields.take("text")
    if kind != "text":
        raise fields.wrong("type", "must be `text`: this server reads nothing else", code="unsupported_parameter")
    if not isinstance(text, str):
        raise fields.wrong("text", f"must be a string, found {what_is(text)}")
    fields.done()
    return text
