"""Calls of tools within the text of an answer.

A model writes its calls as text, each family in a form of its own. `CallParser` takes the text as it comes and gives its
parts: content, and calls. What looks like a call and is none stays content, so nothing is lost. How the text is cut into
pieces changes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Union

MOST_DEPTH = 100
"""Of arrays and objects in a call."""


@dataclass(frozen=True)
class Form:
    """How a family of models writes calls."""

    marker: str
    """Text in front of a call."""
    opening: str
    """Behind the marker, in front of the first call."""
    between: str
    """Between calls of one marker; empty: there is one call."""
    closing: str
    arguments: str
    """What the member of a call is named that has the arguments."""
    bare: bool = False
    """An answer may begin with a call, without the marker."""

    @property
    def prefix(self) -> str:
        """Behind the prompt, where the answer must be a call."""
        return "" if self.bare else self.marker + ("\n" if not self.opening else " " + self.opening)


FORMS = {
    "hermes": Form("<tool_call>", "", "", "</tool_call>", "arguments"),
    "llama3_json": Form("<|python_tag|>", "", ";", "", "parameters", bare=True),
    "mistral": Form("[TOOL_CALLS]", "[", ",", "]", "arguments"),
}


def form_of_template(template: str) -> str | None:
    """Which form a chat template tells the model of. None: another one."""
    if "<tool_call>" in template:
        return None if "<function=" in template or "<arg_key>" in template else "hermes"
    if "[TOOL_CALLS]" in template:
        return None if "[ARGS]" in template or "[CALL_ID]" in template else "mistral"
    is_llama = "<|start_header_id|>" in template and re.search(r"""["']parameters["']\s*:""", template)
    return "llama3_json" if is_llama or "<|python_tag|>" in template else None


_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_CODE = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


def knows_tools(template: str) -> bool:
    """Whether a chat template reads `tools`, which its texts and comments may speak of without that."""
    code = _CODE.findall(_STRING.sub("''", _COMMENT.sub("", template)))
    return any(re.search(r"\btools\b", each) for each in code)


@dataclass(frozen=True)
class CallBegin:
    """A call begins. `index` counts those of an answer."""

    index: int
    name: str


@dataclass(frozen=True)
class CallArguments:
    """A part of the text of its arguments."""

    index: int
    text: str


Part = Union[str, CallBegin, CallArguments]
"""Of an answer. A string is content."""

_OUTSIDE = frozenset("{}[]:,\"0123456789+-.eEtrufalsn \t\r\n")
"""Characters of JSON outside of its strings."""


class _ObjectScan:
    """Finds the end of a JSON object. What certainly is none is known at its first wrong character."""

    def __init__(self) -> None:
        self.depth = 0
        self.in_string = self.is_escaped = self.failed = self.done = False

    def push(self, character: str) -> None:
        if self.in_string:
            if self.is_escaped:
                self.is_escaped = False
            elif character == "\\":
                self.is_escaped = True
            elif character == '"':
                self.in_string = False
            elif character < " ":
                self.failed = True
        elif character not in _OUTSIDE:
            self.failed = True
        elif character == '"':
            self.in_string = True
        elif character in "{[":
            self.depth += 1
            self.failed = self.depth > MOST_DEPTH
        elif character in "}]":
            self.depth -= 1
            self.done = self.depth == 0


_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_BLANKS = " \t\r\n"
_HEAD = re.compile(r'\{[ \t\r\n]*"name"[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*,[ \t\r\n]*"(?:arguments|parameters)"[ \t\r\n]*:[ \t\r\n]*\{')
"""Of a call, up to where its arguments begin."""


def _heads_of(name: str, arguments: str) -> list[str]:
    """How a call of this tool begins where a format has it: a blank or none stands behind `:` and `,`."""
    blanks = ("", " ")
    return [
        f'{{"name":{a}{json.dumps(name, ensure_ascii=False)},{b}"{arguments}":{c}{{' for a in blanks for b in blanks for c in blanks
    ]


def read_members(text: str) -> dict[str, tuple[Any, str]] | None:
    """Members of a JSON object, each with its value and its text. None: it is no object, or says one twice."""
    out: dict[str, tuple[Any, str]] = {}

    def skip(place: int) -> int:
        found = _BLANK.match(text, place)
        return found.end() if found else place

    try:
        json.loads(text)
        place = skip(skip(0) + 1)
        while text[place] != "}":
            name, place = _DECODER.raw_decode(text, place)
            place = skip(skip(place) + 1)  # the colon
            begin = place
            value, place = _DECODER.raw_decode(text, place)
            if name in out:
                return None
            out[name] = value, text[begin:place]
            place = skip(place)
            if text[place] == ",":
                place = skip(place + 1)
    except (ValueError, RecursionError, IndexError):
        return None
    return out


def read_call(text: str, names: Collection[str]) -> tuple[str, str] | None:
    """The name and the text of the arguments. None: it is no call of one of these tools."""
    members = read_members(text)
    if members is None or not members.keys() <= {"name", "arguments", "parameters", "id", "type"}:
        return None
    said = [members[each] for each in ("arguments", "parameters") if each in members]
    name = members.get("name", (None, ""))[0]
    if not isinstance(name, str) or name not in names or len(said) > 1:
        return None
    value, arguments = said[0] if said else ({}, "{}")
    return (name, arguments) if isinstance(value, dict) else None


class CallParser:
    """The parts of an answer in one form. `names` are the tools that may be called. `enforced`: the answer is one call,
    and nothing else is possible; so its arguments are given while they come. `either`: it is one call without anything
    around it, or content."""

    def __init__(
        self, form: Form, names: Collection[str], parallel: bool = True, enforced: bool = False, either: bool = False
    ) -> None:
        self.form, self.names, self.enforced = form, frozenset(names), enforced
        self.parallel = parallel and not enforced and not either
        """There may be several calls."""
        self._heads = [head for name in names for head in _heads_of(name, form.arguments)] if either else []
        self.calls = 0
        self.done = False
        """Only one call was wanted, and it is there."""
        self._held = ""
        """Begins with the marker where a call is read, and with what separates it from the one before."""
        self._place = 0
        """Up to there it was looked at."""
        self._first = 0
        """Characters of it that are given as content if there is no call."""
        self._state = self._either if either else self._bare if form.bare or enforced else self._text
        self._scan = _ObjectScan()
        self._begin = 0
        """Of the object, or of the arguments that were not given yet."""
        self._end = 0
        """Of the arguments; 0: that did not come yet."""
        self._streams = False
        self._is_behind = False
        """The last part was a call."""
        self._out: list[Part] = []

    def push(self, text: str) -> list[Part]:
        """What is certain now."""
        self._held += text
        return self._take(is_end=False)

    def flush(self) -> list[Part]:
        return self._take(is_end=True)

    def _take(self, is_end: bool) -> list[Part]:
        while not self.done and self._state(is_end):
            pass
        out: list[Part] = []
        for part in self._out:  # contents that stand beside each other are one
            if isinstance(part, str) and out and isinstance(out[-1], str):
                out[-1] += part
            else:
                out.append(part)
        self._out = []
        return out

    # Each state gives whether there may be more to do.

    def _text(self, is_end: bool) -> bool:
        held, marker = self._held, self.form.marker
        place = held.find(marker)
        sure = len(held) if place < 0 else place
        if place < 0 and not is_end:
            sure = _sure_of(held, marker)
        blank = sure - len(held[:sure].rstrip(_BLANKS))
        if place >= 0 or not is_end or self._is_behind and blank == sure:  # white space at a call says nothing
            sure -= blank
        self._give(sure)
        if place < 0:
            return False
        self._place = self._first = place - sure + len(marker)  # the white space is text if there is no call
        self._state = self._opening if self.form.opening else self._call
        return True

    def _either(self, is_end: bool) -> bool:
        """A format has it that the answer begins as a call, or is none: then it is JSON, in which no marker is in front
        of a call."""
        if any(self._held.startswith(head) for head in self._heads):
            self._state = self._call
        elif is_end or not any(head.startswith(self._held) for head in self._heads):
            self._state = self._text
        else:
            return False
        return True

    def _bare(self, is_end: bool) -> bool:
        """An answer may begin with a call."""
        place = self._blank(0)
        if place == len(self._held) and not is_end:
            return False
        self._state = self._text
        if self._held.startswith("{", place):
            self._place, self._first, self._state = place, place + 1, self._call
        return True

    def _opening(self, is_end: bool) -> bool:
        self._place = self._blank(self._place)
        if self._place == len(self._held):
            return self._fail() if is_end else False
        if not self._held.startswith(self.form.opening, self._place):
            return self._fail()
        self._place += len(self.form.opening)
        self._state = self._call
        return True

    def _call(self, is_end: bool) -> bool:
        self._place = self._blank(self._place)
        if self._place == len(self._held):
            return self._fail() if is_end else False
        if self._held[self._place] != "{":
            return self._fail()
        self._begin, self._end, self._scan, self._state = self._place, 0, _ObjectScan(), self._object
        return True

    def _object(self, is_end: bool) -> bool:
        scan, held = self._scan, self._held
        while self._place < len(held) and not scan.done:
            depth = scan.depth
            scan.push(held[self._place])
            if scan.failed:
                return self._fail()
            self._place += 1
            if depth == 2 and scan.depth == 1 and not self._end:
                self._end = self._place
        if self.enforced and not self._streams and not scan.done:
            self._begin_stream()
        if self._streams:
            self._stream(self._end or self._place)
        if not scan.done:
            if is_end and self._streams:
                self._held = ""
            return self._fail() if is_end and not self._streams else False
        if not self._streams:
            call = read_call(held[self._begin : self._place], self.names)
            if call is None:
                return self._fail()
            self._out += [CallBegin(self.calls, call[0]), CallArguments(self.calls, call[1])]
        self.calls += 1
        self._held, self._place, self._first, self._is_behind = held[self._place :], 0, 0, True
        self.done = not self.parallel
        self._state = self._behind
        return True

    def _behind(self, is_end: bool) -> bool:
        """What may stand behind a call."""
        place = self._blank(0)
        self._state = self._text
        for text, state in ((self.form.between, self._call), (self.form.closing, self._text)):
            if text and self._held.startswith(text, place):
                if state == self._text:
                    self._held = self._held[place + len(text) :]
                else:
                    self._place = self._first = place + len(text)
                self._state = state
                return True
            if text and text.startswith(self._held[place:]) and not is_end:
                self._state = self._behind
                return False
        return True

    def _begin_stream(self) -> None:
        found = _HEAD.match(self._held, self._begin)
        if found is None or found.end() > self._place:
            return
        name = json.loads(found[1])
        if name in self.names:
            self._streams, self._begin = True, found.end() - 1
            self._out.append(CallBegin(self.calls, name))

    def _stream(self, end: int) -> None:
        if end > self._begin:
            self._out.append(CallArguments(self.calls, self._held[self._begin : end]))
            self._begin = end

    def _fail(self) -> bool:
        """There is no call: what it began with is text, and what is behind that is looked at anew."""
        self._state = self._text
        self._give(self._first)
        return True

    def _give(self, count: int) -> None:
        if count:
            self._out.append(self._held[:count])
            self._held, self._is_behind = self._held[count:], False

    def _blank(self, place: int) -> int:
        while place < len(self._held) and self._held[place] in _BLANKS:
            place += 1
        return place


def _sure_of(text: str, marker: str) -> int:
    """How much of a text certainly is no part of a marker that begins in it."""
    for begin in range(max(0, len(text) - len(marker) + 1), len(text)):
        if marker.startswith(text[begin:]):
            return begin
    return len(text)
