"""Tools of a chat: what a client says of them, and which of them the answer may call, or has to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..text import Tokenizer
from ._fields import Fields, what_is
from ._formats import format_of_calls, place_for_client
from ._protocol import ApiError, Limits
from ._tool_calls import FORMS, CallParser, form_of_template, knows_tools

MOST_TOOLS = 128
MOST_NAME = 200


@dataclass(frozen=True)
class ToolUse:
    """How an answer may call tools."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    """That the template tells the model of; none with `tool_choice` `none`."""
    form: str = ""
    """In which calls are written."""
    names: tuple[str, ...] = ()
    """Of those that may be called."""
    parallel: bool = True
    enforced: bool = False
    """The answer has to be a call."""
    beside: Mapping[str, Any] | None = None
    """The answer has to be a call, or JSON of this schema."""

    @property
    def prefix(self) -> str:
        """Behind the prompt."""
        return FORMS[self.form].prefix if self.enforced else ""

    @property
    def format(self) -> dict[str, Any] | None:
        """That the answer has to have."""
        if not self.enforced and self.beside is None:
            return None
        return format_of_calls(self._functions, FORMS[self.form].arguments, self.beside)

    @property
    def _functions(self) -> list[dict[str, Any]]:
        return [tool["function"] for tool in self.tools if tool["function"]["name"] in self.names]

    def told(self, message: str) -> str:
        """What the engine says of `format`, in the client's words."""
        return place_for_client(message, self._functions, FORMS[self.form].arguments) if self.form else message

    @property
    def markers(self) -> frozenset[str]:
        """Special tokens that have text here, since they begin a call."""
        return frozenset({FORMS[self.form].marker} if self.form else ())

    def parser(self) -> CallParser | None:
        if not self.names:
            return None
        return CallParser(FORMS[self.form], self.names, self.parallel, self.enforced, self.beside is not None)


def template_of(tokenizer: Tokenizer) -> str:
    """The chat template for tools."""
    sources: Mapping[str, str] = tokenizer._templates.sources if tokenizer._templates else {}
    return sources.get("tool_use") or sources.get("default") or ""


def read_tools(fields: Fields, limits: Limits, tokenizer: Tokenizer, only_tell: bool = False) -> ToolUse:
    """`tools`, `tool_choice` and `parallel_tool_calls`. `only_tell`: nothing will be called."""
    said = fields.take("tools", [])
    if not isinstance(said, list) or len(said) > MOST_TOOLS:
        raise fields.wrong("tools", f"must be an array of up to {MOST_TOOLS} tools")
    tools = [_read_tool(tool, f"tools[{number}]") for number, tool in enumerate(said)]
    names = [tool["function"]["name"] for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise fields.wrong("tools", f"has two functions with the name `{name}`")
    mode, allowed = _read_choice(fields, names)
    parallel = fields.boolean("parallel_tool_calls", True)
    if not tools or mode == "none" or not tokenizer.has_chat_template:
        return ToolUse()
    template = template_of(tokenizer)
    if not knows_tools(template):
        raise fields.wrong(
            "tools",
            "is not supported: the chat template does not tell the model of tools. Leave it out, or start the server with "
            "a --chat-template that does",
            code="unsupported_parameter",
        )
    if only_tell:
        return ToolUse(tools)
    form = limits.tool_parser or form_of_template(template)
    if form is None:
        raise fields.wrong(
            "tools",
            "is not supported: the chat template does not say in a known form how calls are written. Leave it out, or start "
            f"the server with --tool-parser, if the model writes one of {', '.join(FORMS)}",
            code="unsupported_parameter",
        )
    return ToolUse(tools, form, allowed, parallel, mode == "required")


def _read_tool(tool: Any, at: str) -> dict[str, Any]:
    """As templates take it."""
    if not isinstance(tool, dict):
        raise ApiError(f"`{at}` must be an object, found {what_is(tool)}", param=at)
    fields = Fields(tool, f"{at}.")
    if (kind := fields.take("type")) != "function":
        what = "is missing" if kind is None else "must be `function`: this server has no tools of its own"
        raise fields.wrong("type", what, code=None if kind is None else "unsupported_parameter")
    function = fields.take("function")
    if not isinstance(function, dict):
        raise fields.wrong("function", f"must be an object, found {what_is(function)}")
    fields.done()
    inner = Fields(function, f"{at}.function.")
    name = inner.text("name", MOST_NAME)
    if name is None:
        raise inner.wrong("name", "is missing")
    if not isinstance(description := inner.take("description", ""), str):
        raise inner.wrong("description", f"must be a string, found {what_is(description)}")
    if not isinstance(parameters := inner.take("parameters", {}), dict):
        raise inner.wrong("parameters", f"must be a JSON schema, which is an object, found {what_is(parameters)}")
    inner.boolean("strict")
    inner.done()
    # In the client's order, which a template shows.
    known = {key: value for key, value in function.items() if value is not None and key != "strict"}
    return {"type": "function", "function": known}


def _read_choice(fields: Fields, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """`none`, `auto` or `required`, and the functions that may be called."""
    choice = fields.take("tool_choice", "auto")
    if isinstance(choice, dict):
        return _read_choice_of(fields, choice, names)
    if choice not in ("none", "auto", "required"):
        raise fields.wrong("tool_choice", "must be `none`, `auto`, `required`, or an object that names a function")
    if choice == "required" and not names:
        raise fields.wrong("tool_choice", "is `required`, and there are no `tools`")
    return choice, tuple(names)


def _read_choice_of(fields: Fields, choice: Mapping[str, Any], names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """One function, or `allowed_tools`, whose members stand in it in the Responses API."""
    inner = Fields(choice, "tool_choice.")
    kind = inner.take("type", "function")
    if kind == "function":
        said, mode = [{**inner.left, "type": kind}], "required"
    elif kind == "allowed_tools":
        if (within := inner.take("allowed_tools", inner.left)) is not inner.left:
            inner.done()
            if not isinstance(within, dict):
                raise inner.wrong("allowed_tools", f"must be an object, found {what_is(within)}")
            inner = Fields(within, "tool_choice.allowed_tools.")
        mode, said = inner.take("mode", "auto"), inner.take("tools")
        if mode not in ("auto", "required"):
            raise inner.wrong("mode", "must be `auto` or `required`")
        if not isinstance(said, list) or not said:
            raise inner.wrong("tools", "must be an array with at least one tool")
        inner.done()
    else:
        raise inner.wrong("type", "must be `function` or `allowed_tools`", code="unsupported_parameter")
    return mode, tuple(dict.fromkeys(_name_in_choice(fields, each, names) for each in said))


def _name_in_choice(fields: Fields, said: Any, names: Sequence[str]) -> str:
    wrong = fields.wrong("tool_choice", 'must name a function: {"type": "function", "function": {"name": "..."}}')
    if not isinstance(said, dict) or said.get("type", "function") != "function":
        raise wrong
    inner = Fields(said, "tool_choice.")
    inner.take("type")
    named = inner.take("function")
    name = inner.take("name") if named is None else named.get("name") if isinstance(named, dict) else None
    if not isinstance(name, str):
        raise wrong
    inner.done()
    if name not in names:
        raise fields.wrong("tool_choice", f"names `{name[:MOST_NAME]}`, which is not among `tools`")
    return name
