"""Bodies of `/v1/responses` become those of chats: the same conversation, in the other API's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..text import Tokenizer
from ._fields import Fields, what_is
from ._formats import read_response_format
from ._protocol import ApiError, Job, Limits
from ._requests import read_job

_PASSED = (
    "model stream temperature top_p user metadata safety_identifier prompt_cache_key prompt_cache_retention service_tier "
    "parallel_tool_calls seed top_k min_p stop stop_token_ids presence_penalty frequency_penalty repetition_penalty "
    "logit_bias min_tokens ignore_eos priority cache_salt chat_template_kwargs allowed_token_ids bad_words "
    "structured_outputs inputs request_id include_stop_str_in_output truncate_prompt_tokens"
).split()
"""Members that mean the same in a chat."""

_KEPT = "this server keeps no answers: send the whole conversation in `input`"
_NOT_DONE: dict[str, tuple[tuple[Any, ...], str]] = {
    "background": ((False,), "leave it out"),
    "context_management": (([],), "leave it out"),
    "conversation": ((), _KEPT),
    "max_tool_calls": ((), "leave it out; `parallel_tool_calls` false asks for one call at most"),
    "moderation": ((), "leave it out"),
    "previous_response_id": ((), _KEPT),
    "prompt": ((), "there are no stored prompts: send `instructions` and `input`"),
    "store": ((False,), _KEPT),
    "top_logprobs": ((0,), "use /v1/chat/completions, which has logprobs"),
    "truncation": (("disabled",), "leave it out, and send a shorter `input`; `truncate_prompt_tokens` cuts it"),
}
"""What is not done, with the values that ask for nothing, and what to do."""

_NAMES = {"max_completion_tokens": "max_output_tokens", "messages": "input", "response_format": "text.format"}
"""Members of the chat, and where the client has said it."""


def read_response(body: Mapping[str, Any], limits: Limits, tokenizer: Tokenizer) -> Job:
    fields = Fields(body)
    for name, (nothing, what) in _NOT_DONE.items():
        value = fields.take(name)
        if value is not None and not any(value == each and type(value) is type(each) for each in nothing):
            raise fields.wrong(name, f"is not supported: {what}", code="unsupported_parameter")
    include = fields.take("include", [])
    # There is no reasoning, so none of it is encrypted.
    if not isinstance(include, list) or not all(each == "reasoning.encrypted_content" for each in include):
        raise fields.wrong("include", "is not supported: leave it out", code="unsupported_parameter")
    _read_reasoning(fields)
    _read_stream_options(fields)
    text = _read_text(fields)
    instructions = fields.take("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise fields.wrong("instructions", f"must be a string, found {what_is(instructions)}")
    chat: dict[str, Any] = {name: fields.take(name) for name in _PASSED}
    most = fields.integer("max_output_tokens", None, 1)
    tools, choice = fields.take("tools", []), fields.take("tool_choice", "auto")
    messages = _read_input(fields)
    fields.done()
    if instructions is not None:
        messages.insert(0, {"role": "system", "content": instructions})
    chat |= {"messages": messages, "max_completion_tokens": most, "response_format": text}
    chat |= {"tools": _tools_of(tools), "tool_choice": choice}
    try:
        job = read_job(chat, True, limits, tokenizer)
    except ApiError as error:
        raise _named_as_here(error) from error
    job.format_name = _NAMES.get(job.format_name or "", job.format_name)
    job.response = {
        "instructions": instructions,
        "max_output_tokens": most,
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": True if body.get("parallel_tool_calls") is None else body["parallel_tool_calls"],
        "temperature": job.settings["temperature"],
        "top_p": job.settings["top_p"],
        "tools": tools,
        "tool_choice": choice,
        "text": {"format": (body.get("text") or {}).get("format") or {"type": "text"}},
        "user": body.get("user"),
        "safety_identifier": body.get("safety_identifier"),
        "prompt_cache_key": body.get("prompt_cache_key"),
    }
    return job


def _named_as_here(error: ApiError) -> ApiError:
    message, param = error.message, error.param
    for chat, here in _NAMES.items():
        message = message.replace(f"`{chat}", f"`{here}")
        if param is not None and (param == chat or param.startswith((f"{chat}.", f"{chat}["))):
            param = here + param[len(chat) :]
    # Functions stand in the tools themselves.
    if param is not None and param.startswith("tools["):
        message, param = message.replace("].function", "]"), param.replace("].function", "]")
    return ApiError(
        message, status=error.status, kind=error.kind, param=param, code=error.code, headers=error.headers
    )


def _read_reasoning(fields: Fields) -> None:
    said = fields.take("reasoning", {})
    if not isinstance(said, dict):
        raise fields.wrong("reasoning", f"must be an object, found {what_is(said)}")
    for name, value in said.items():
        if value is not None and not (name == "effort" and value == "none"):
            raise fields.wrong(
                f"reasoning.{name}",
                "is not supported: leave it out. What a chat template knows of it is said in `chat_template_kwargs`",
                code="unsupported_parameter",
            )


def _read_stream_options(fields: Fields) -> None:
    said = fields.take("stream_options", {})
    if not isinstance(said, dict):
        raise fields.wrong("stream_options", f"must be an object, found {what_is(said)}")
    inner = Fields(said, "stream_options.")
    if inner.boolean("include_obfuscation"):
        raise inner.wrong("include_obfuscation", "is not supported: leave it out", code="unsupported_parameter")
    inner.done()


def _read_text(fields: Fields) -> dict[str, Any] | None:
    """As `response_format`."""
    said = fields.take("text", {})
    if not isinstance(said, dict):
        raise fields.wrong("text", f"must be an object, found {what_is(said)}")
    inner = Fields(said, "text.")
    if inner.take("verbosity", "medium") != "medium":
        raise inner.wrong("verbosity", "is not supported: leave it out", code="unsupported_parameter")
    format = inner.take("format")
    inner.done()
    if format is None:
        return None
    if not isinstance(format, dict):
        raise fields.wrong("text.format", f"must be an object, found {what_is(format)}")
    read_response_format(Fields(format, "text.format."), is_flat=True)
    if format.get("type") != "json_schema":
        return format
    return {"type": "json_schema", "json_schema": {name: value for name, value in format.items() if name != "type"}}


def _tools_of(tools: Any) -> Any:
    """Functions stand in the tools themselves here."""
    if not isinstance(tools, list):
        return tools
    out = []
    for number, tool in enumerate(tools):
        if isinstance(tool, dict) and tool.get("type") == "function":
            if "function" in tool:
                at = f"tools[{number}].function"
                raise ApiError(f"`{at}` is of chats: its members stand in the tool itself here", param=at)
            tool = {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}
        out.append(tool)
    return out



# ===----------------------------------------------------------------------===#
# Items of the conversation
# ===----------------------------------------------------------------------===#


def _read_input(fields: Fields) -> list[dict[str, Any]]:
    said = fields.take("input")
    if isinstance(said, str):
        return [{"role": "user", "content": said}]
    if not isinstance(said, list) or not said:
        raise fields.wrong("input", "is missing" if said is None else "must be a string, or an array with items")
    messages: list[dict[str, Any]] = []
    for number, item in enumerate(said):
        at = f"input[{number}]"
        if not isinstance(item, dict):
            raise ApiError(f"`{at}` must be an object, found {what_is(item)}", param=at)
        _read_item(Fields(item, f"{at}."), messages)
    return messages


def _read_item(fields: Fields, messages: list[dict[str, Any]]) -> None:
    kind = fields.take("type", "message")
    # Of an answer that is sent back, as it came or as `openai`'s `parse` has it.
    for name in ("id", "status", "phase", "created_by", "namespace", "caller", "parsed_arguments"):
        fields.take(name)
    if kind == "message":
        role = fields.take("role")
        if role not in ("user", "assistant", "system", "developer"):
            raise fields.wrong("role", "must be one of `user`, `assistant`, `system`, `developer`")
        messages.append({"role": role, "content": _read_content(fields, "content")})
    elif kind == "function_call":
        for name in ("call_id", "name", "arguments"):
            if not isinstance(fields.left.get(name), str):
                raise fields.wrong(name, "must be a string")
        call = {"id": fields.take("call_id"), "type": "function"}
        call["function"] = {"name": fields.take("name"), "arguments": fields.take("arguments")}
        # Calls belong to the answer in front of them.
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        if not isinstance(call_id := fields.take("call_id"), str):
            raise fields.wrong("call_id", "must be a string")
        messages.append({"role": "tool", "tool_call_id": call_id, "content": _read_content(fields, "output")})
    elif kind == "reasoning" and not fields.left.get("summary") and not fields.left.get("content"):
        for name in ("summary", "content", "encrypted_content"):
            fields.take(name)
    else:
        what = "must be `message`, `function_call` or `function_call_output`: this server knows no others"
        if kind == "item_reference":
            what = f"`item_reference` is not supported: {_KEPT}"
        raise fields.wrong("type", what, code="unsupported_parameter")
    fields.done()


def _read_content(fields: Fields, name: str) -> str:
    content = fields.take(name)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise fields.wrong(name, f"must be a string, or an array of texts, found {what_is(content)}")
    texts = []
    for number, part in enumerate(content):
        at = f"{fields.at}{name}[{number}]"
        if not isinstance(part, dict):
            raise ApiError(f"`{at}` must be an object, found {what_is(part)}", param=at)
        inner = Fields(part, f"{at}.")
        if inner.take("type") not in ("input_text", "output_text", "text"):
            raise inner.wrong(
                "type", "must be `input_text` or `output_text`: this server reads nothing else", code="unsupported_parameter"
            )
        text = inner.take("text")
        if not isinstance(text, str):
            raise inner.wrong("text", f"must be a string, found {what_is(text)}")
        for known in ("annotations", "logprobs", "parsed"):
            inner.take(known)
        inner.done()
        texts.append(text)
    return "".join(texts)
