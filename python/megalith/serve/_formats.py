"""What an answer has to be: the members that ask for a format, in the one form that the engine takes.

`read_format` and `format_of_calls` make it, and `put_format` hands it on. An engine without formats refuses it there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ._fields import Fields, read_json, what_is
from ._protocol import ApiError, Limits

DEPTH = 3
"""So deep may arrays and objects stand in a value of which a schema says nothing. Each level doubles the engine's work."""
MOST_CHOICES = 1000
"""Of `choice`."""

_ANY_OBJECT: dict[str, Any] = {"json_schema": {"type": "object"}, "depth": DEPTH}
_WRITE = "write it as a regex or a JSON schema, in `structured_outputs`"
_REFUSED = {
    "guided_grammar": _WRITE,
    "guided_whitespace_pattern": "leave it out: there is a blank or none behind `,` and `:`, and no other white space",
    "guided_decoding_backend": "leave it out: there is one only",
    "structural_tag": "calls of tools are said with `tools`, other formats with `structured_outputs`",
}


def put_format(settings: dict[str, Any], format: Mapping[str, Any] | None, name: str, limits: Limits) -> None:
    """Into the settings of a request. `name` is the member that asks for it."""
    if format is None:
        return
    if not limits.formats:
        raise ApiError(
            f"`{name}` is not supported: it needs answers of a given format, and "
            f"{limits.why_no_formats or 'this version has none'}. Leave it out, and say in the messages what the answer has to be",
            param=name,
            code="unsupported_parameter",
        )
    settings["format"] = dict(format)


def read_format(fields: Fields) -> tuple[dict[str, Any] | None, str]:
    """The format that a body asks for, and the member that does."""
    found: list[tuple[dict[str, Any], str]] = []
    for name, what in _REFUSED.items():
        if fields.take(name) is not None:
            raise fields.wrong(name, f"is not supported: {what}", code="unsupported_parameter")
    if (value := fields.take("response_format")) is not None:
        at = "response_format"
        if not isinstance(value, dict):
            raise fields.wrong(at, f"must be an object, found {what_is(value)}")
        if format := read_response_format(Fields(value, f"{at}.")):
            found.append((format, at))
    if (value := fields.take("structured_outputs")) is not None:
        if not isinstance(value, dict):
            raise fields.wrong("structured_outputs", f"must be an object, found {what_is(value)}")
        found += _read_structured(Fields(value, "structured_outputs."))
    for kind in ("json", "regex", "choice"):
        name = f"guided_{kind}"
        if (value := fields.take(name)) is not None:
            found.append((_format_of(kind, value, name), name))
    if len(found) > 1:
        raise ApiError(
            f"`{found[1][1]}` beside `{found[0][1]}` is not supported: an answer has one format", param=found[1][1]
        )
    return found[0] if found else (None, "")


def read_response_format(fields: Fields, is_flat: bool = False) -> dict[str, Any] | None:
    """Of `response_format`. `is_flat`: as `text.format` of the Responses API, where the schema's members stand in it."""
    kind = fields.take("type")
    if kind == "text":
        fields.done()
        return None
    if kind == "json_object":
        fields.done()
        return dict(_ANY_OBJECT)
    if kind != "json_schema":
        what = "is missing" if kind is None else "must be `text`, `json_object` or `json_schema`"
        if kind in ("structural_tag", "grammar"):
            what = f"`{kind}` is not supported: {_REFUSED['structural_tag'] if kind == 'structural_tag' else _WRITE}"
        raise fields.wrong("type", what, code="unsupported_parameter" if isinstance(kind, str) else None)
    inner = fields
    if not is_flat:
        said = fields.take("json_schema")
        if not isinstance(said, dict):
            raise fields.wrong("json_schema", f"must be an object, found {what_is(said)}")
        fields.done()
        inner = Fields(said, f"{fields.at}json_schema.")
    for name in ("name", "description"):  # these say nothing of the answer
        if not isinstance(inner.take(name, ""), str):
            raise inner.wrong(name, "must be a string")
    inner.boolean("strict")  # the answer has the schema anyway
    schema = inner.take("schema")
    if not isinstance(schema, dict):
        raise inner.wrong("schema", "is missing" if schema is None else f"must be an object, found {what_is(schema)}")
    inner.done()
    return _schema_format(schema)


def _read_structured(fields: Fields) -> list[tuple[dict[str, Any], str]]:
    """vLLM's `structured_outputs`."""
    out = []
    for kind in ("json", "regex", "choice"):
        if (value := fields.take(kind)) is not None:
            out.append((_format_of(kind, value, fields.at + kind), fields.at + kind))
    if fields.boolean("json_object"):
        out.append((dict(_ANY_OBJECT), f"{fields.at}json_object"))
    for name, what in (("grammar", _WRITE), ("structural_tag", _REFUSED["structural_tag"])):
        if fields.take(name) is not None:
            raise fields.wrong(name, f"is not supported: {what}", code="unsupported_parameter")
    if fields.take("whitespace_pattern") is not None:
        what = _REFUSED["guided_whitespace_pattern"]
        raise fields.wrong("whitespace_pattern", f"is not supported: {what}", code="unsupported_parameter")
    if fields.boolean("disable_additional_properties"):
        raise fields.wrong(
            "disable_additional_properties",
            "is not supported: say `additionalProperties` in the schema",
            code="unsupported_parameter",
        )
    for name in ("disable_any_whitespace", "disable_fallback"):
        fields.boolean(name)  # there is neither here
    fields.done()
    if not out:
        raise ApiError(
            "`structured_outputs` must have one of `json`, `regex`, `choice` and `json_object`", param="structured_outputs"
        )
    return out


def _format_of(kind: str, value: Any, name: str) -> dict[str, Any]:
    if kind == "regex":
        if not isinstance(value, str):
            raise ApiError(f"`{name}` must be a string, found {what_is(value)}", param=name)
        return {"regex": value}
    if kind == "choice":
        if not isinstance(value, list) or not 0 < len(value) <= MOST_CHOICES or not all(isinstance(each, str) and each for each in value):
            raise ApiError(f"`{name}` must be an array of 1 to {MOST_CHOICES} strings that are not empty", param=name)
        return {"choice": value}
    if isinstance(value, str):
        try:
            value = read_json(value.encode())
        except ApiError as error:
            raise ApiError(f"`{name}`, as a body of its own: {error}", param=name) from error
    if not isinstance(value, dict):
        raise ApiError(f"`{name}` must be a JSON schema, which is an object, found {what_is(value)}", param=name)
    return _schema_format(value)


def _schema_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"json_schema": dict(schema), "depth": DEPTH}


# ===----------------------------------------------------------------------===#
# Calls of tools
# ===----------------------------------------------------------------------===#


def format_of_calls(
    functions: Sequence[Mapping[str, Any]], arguments: str, beside: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One call of one of these functions, as an object with its name and its arguments, whatever the model's own form
    has around it. `arguments` is what the form names these. `beside`: or JSON of this schema in place of a call."""
    definitions: dict[str, Any] = {}
    answers = []
    for number, function in enumerate(functions):
        said = function.get("parameters") or {"properties": {}, "additionalProperties": False}
        if not said.keys() & _TYPED:
            said = {"type": "object", **said}
        parameters = _moved(said, f"{number}", definitions)
        answers.append(
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, arguments: parameters},
                "required": ["name", arguments],
                "additionalProperties": False,
            }
        )
    if beside is not None:
        answers.append(_moved(beside, _BESIDE, definitions))
    schema: dict[str, Any] = dict(answers[0]) if len(answers) == 1 else {"anyOf": answers}
    if definitions:
        schema["$defs"] = definitions
    for said in [*(function.get("parameters") or {} for function in functions), beside or {}]:
        if _OLD.search(str(said.get("$schema"))) and _HAS_PREFIX.search(json.dumps(said)):
            schema["$schema"] = said["$schema"]  # it does not know the keyword, and the engine refuses that
    return _schema_format(schema)


def place_for_client(message: str, functions: Sequence[Mapping[str, Any]], arguments: str) -> str:
    """What is wrong with a schema of `format_of_calls`, with its place in the schema that the client has sent."""

    def told(found: re.Match[str]) -> str:
        number, rest = found["of"] or found["in"], found["rest"]
        if found["table"]:
            rest = f"/{'$defs' if found['table'] == 'defs' else 'definitions'}/{found['key']}{rest}"
        if number is None and not rest.startswith(f"/properties/{arguments}"):
            return found[0]  # of all of it
        if number == _BESIDE or number == str(len(functions)):
            return f"the schema at `#{rest}`"
        function = functions[int(number or 0)]
        return f"the schema of the function `{function['name']}` at `#{rest.removeprefix(f'/properties/{arguments}')}`"

    return _PLACE.sub(told, message)


_TYPED = {"type", "$ref", "enum", "const", "anyOf", "oneOf", "allOf"}
"""A schema without these leaves the type open."""
_OLD = re.compile("draft-0|2019-09")
_HAS_PREFIX = re.compile(r'"prefixItems"\s*:')
_BESIDE = "answer"
_PLACE = re.compile(
    r"the schema at `#(?:/anyOf/(?P<in>\d+)|/\$defs/(?P<of>\d+|answer)(?:\.(?P<table>defs|definitions)\.(?P<key>[^/`]*))?)?"
    r"(?P<rest>[^`]*)`"
)
_TABLES = ("$defs", "definitions")
_VALUES = ("const", "default", "enum", "examples")


def _moved(schema: Mapping[str, Any], name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema that stands within another one. What it refers to goes to the definitions of that one."""
    refers_to_itself = False

    def moved(value: Any, is_schema: bool) -> Any:
        nonlocal refers_to_itself
        if isinstance(value, list):
            return [moved(each, is_schema) for each in value]
        if not isinstance(value, dict):
            return value
        if not is_schema:  # names with schemas
            return {key: moved(each, True) for key, each in value.items()}
        out = {}
        for key, each in value.items():
            if key == "$ref" and isinstance(each, str):
                refers_to_itself |= each == "#"
                out[key] = f"#/$defs/{name}" if each == "#" else _ref_of(each, name)
            elif key in _VALUES:
                out[key] = each
            else:
                out[key] = moved(each, key not in ("properties", "patternProperties", *_TABLES))
        return out

    whole: dict[str, Any] = moved(schema, True)
    for table in _TABLES:
        for key, value in (whole.pop(table, None) or {}).items():
            definitions[f"{name}.{table.strip('$')}.{key}"] = value
    whole.pop("$id", None)
    whole.pop("$schema", None)
    if refers_to_itself:
        definitions[name] = whole
        return {"$ref": f"#/$defs/{name}"}
    return whole


def _ref_of(ref: str, name: str) -> str:
    for table in _TABLES:
        if ref.startswith(f"#/{table}/"):
            return f"#/$defs/{name}.{table.strip('$')}.{ref[len(table) + 3 :]}"
    return ref  # the engine says what is wrong with it
