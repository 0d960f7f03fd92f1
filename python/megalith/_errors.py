"""What goes wrong, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Note:
    """A second place, or advice, that belongs to a `Message`."""

    message: str
    file: str = ""
    line: int = 0
    """From 1; 0: no place."""
    column: int = 0


@dataclass(frozen=True)
class Message:
    """One error or warning."""

    kind: str
    """A name that stays the same between versions: `unknown-key`."""
    message: str
    """One sentence, without the place."""
    file: str = ""
    line: int = 0
    """From 1; 0: no place. `column` and `length` count bytes."""
    column: int = 0
    length: int = 0
    notes: list[Note] = field(default_factory=list)
    warning: bool = False
    text: str = ""
    """All of it for a terminal, with the line of the file and a caret."""

    def __str__(self) -> str:
        return self.text or f"{'warning' if self.warning else 'error'}: {self.message}"


class Error(Exception):
    """Something that the library refuses, or that failed. `str()` is what the program `megalith` prints."""

    messages: list[Message]
    """The errors, and the warnings that came before, in the order in which they were found."""

    def __init__(self, messages: list[Message], text: str = "") -> None:
        self.messages = list(messages)
        self.text = (text or "\n".join(str(message) for message in messages)).strip("\n")
        super().__init__(self.text)

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[type, tuple[list[Message], str]]:
        return type(self), (self.messages, self.text)

    @property
    def first(self) -> Message:
        """The first error."""
        errors = (message for message in self.messages if not message.warning)
        return next(errors, self.messages[0] if self.messages else Message("", self.text))

    @property
    def kind(self) -> str:
        """Of the first error."""
        return self.first.kind


def mapping_of(value: Any, what: str) -> Mapping[Any, Any]:
    """None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"`{what}` must be a dict, found {type(value).__name__}")
    return value


def out_of_range(name: str, least: float, most: float, found: object) -> Error:
    """A number that is no value of the argument `name`."""
    sentence = f"`{name}` must be from {least} to {most}, found {found}"
    return Error([Message("out-of-range", sentence, text=f"error: {sentence} [out-of-range]\n")])
