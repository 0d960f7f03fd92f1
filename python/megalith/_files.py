"""Files of a checkpoint's folder, read with errors of one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class TextError(Exception):
    """There is no tokenizer or template, it cannot be read, or its package is missing."""


def one_line(value: object) -> str:
    """A message of somebody else's."""
    text = " ".join(str(value).split())
    return text if len(text) <= 500 else text[:500] + " ..."


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
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
