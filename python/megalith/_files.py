"""Files of a checkpoint's folder, read with errors of one line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any


class TextError(Exception):
    """There is no tokenizer or template, it cannot be read, or its package is missing."""


def one_line(value: object) -> str:
    """A message of somebody else's."""
    text = " ".join(str(value).split())
    return text if len(text) <= 500 else text[:500] + " ..."


BYTES = 64 << 20
"""Of a file."""


def check_file(path: Path, most: int = BYTES) -> None:
    """Nothing in a checkpoint's folder is waited for, as a pipe, or read without end, as a device."""
    try:
        status = path.stat()
    except OSError as error:
        raise TextError(f"`{path}` cannot be read: {error.strerror or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise TextError(f"`{path}` cannot be read: it is no regular file")
    if status.st_size > most:
        raise TextError(f"`{path}` cannot be read: it has {status.st_size} bytes, and at most {most} are read")


def read_text(path: Path, is_named: bool = False) -> str:
    """`is_named`: by the user, who may name a pipe."""
    if not is_named:
        check_file(path)
    try:
        with path.open("rb") as file:
            content = file.read(BYTES + 1)
        if len(content) > BYTES:
            raise TextError(f"`{path}` cannot be read: it has more than {BYTES} bytes")
        return content.decode()
    except OSError as error:
        raise TextError(f"`{path}` cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TextError(f"`{path}` is no UTF-8: {one_line(error)}") from error


def parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise TextError(f"`{path}` cannot be read: it is nested too deeply") from None
    except ValueError as error:
        raise TextError(f"`{path}` cannot be read: {one_line(error)}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Empty where there is no such file."""
    if not path.exists():
        return {}
    value = parse_json(read_text(path), path)
    if not isinstance(value, dict):
        raise TextError(f"`{path}` must be a JSON object")
    return value
