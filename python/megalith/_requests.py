"""Requests, and how they become the library's."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict, Union

import numpy as np
import numpy.typing as npt

from ._errors import mapping_of, out_of_range

Tokens = Union[Sequence[int], npt.NDArray[np.integer[Any]]]
"""Token ids: a list, or an array of integers of one dimension."""
Ends = Union[int, Tokens, AbstractSet[int]]
"""A token that ends a text, or several, such as `Tokenizer.eos`."""
Prompt = Union[str, bytes, Tokens]
"""Token ids, or a text where there is a tokenizer or a byte vocabulary."""
Encode = Callable[[Union[str, bytes]], Tokens]


@dataclass
class Request:
    """One request, of a batch or of a session."""

    prompt: Prompt
    max_new_tokens: int | None
    """The budget. None, in a session: as many as it takes."""
    id: str | int | None = None
    """Unique in a batch. Without it, the request's number as a text."""
    eos: Ends | None = None
    """Tokens that end the request, in place of the checkpoint's; `[]` for none."""
    stop: Sequence[str | bytes | Tokens] = ()
    """Sequences of tokens that end it, too. A text stands for its bytes where the vocabulary is bytes."""
    priority: int = 0
    temperature: float = 0.0
    """0: the best token. Other values need a pipeline that reads `sampling`, such as `sampled`."""
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    """0.001 to 1000. Logits of tokens in the text are divided by it where they are above 0, else multiplied."""
    presence_penalty: float = 0.0
    """Taken from logits of tokens in the answer; `frequency_penalty` as often as they are there."""
    frequency_penalty: float = 0.0
    min_new_tokens: int = 0
    """Before so many nothing ends the answer but its budget."""
    bias: Mapping[int, float] | Sequence[tuple[int, float]] | None = None
    """Added to logits, by token."""
    banned: Tokens | AbstractSet[int] | None = None
    """Tokens that are never drawn."""
    allowed: Tokens | AbstractSet[int] | None = None
    """No other tokens are drawn."""
    format: str | Mapping[str, Any] | None = None
    """What the answer has to be: one of `{"regex": "[a-z]+"}`, `{"choice": ["yes", "no"]}`, `{"json_schema": {...},
    "depth": 3}` and `{"json": 3}`, or its JSON text. The order of a schema's properties counts."""
    seed: int | None = None
    """Of random numbers. Without it, a hash of the id."""
    inputs: Mapping[str, Any] | None = None
    """Values of the pipeline's inputs, by name."""
    arrives: tuple[int, int] | Mapping[str, int] | None = None
    """When the kernel gets to know of it: `{"tick": N}`, `{"ms": N}` or the pair of both. Batches only."""
    cancelled: tuple[int, int] | Mapping[str, int] | None = None
    """When it is taken back."""
    deadline_ms: int = 0
    """So long after its arrival it ends; 0: never."""
    cache: int = 0
    """Of pools with an index: it finds pages of requests with the same number only. 0: the common one."""
    logprobs: int | None = None
    """The events tell of each token its logprob, and so many of the likeliest ones, up to 20. Sessions with `logit_lines`
    only."""
    prompt_logprobs: int | None = None
    """The same of the tokens of the prompt. With `max_new_tokens=0` nothing else is told."""
    _place: tuple[int, int] = field(default=(0, 0), repr=False)

    @staticmethod
    def of(value: Request | Mapping[str, Any]) -> Request:
        """A Request from one, or from a mapping with its members. `tokens` and `text` are other names of `prompt`, and
        `sampling` may hold the members about sampling, as in files of requests."""
        if isinstance(value, Request):
            return value
        if not isinstance(value, Mapping):
            raise TypeError(f"a request is a megalith.Request or a dict, found {type(value).__name__}")
        members = dict(value)
        members.update(members.pop("sampling", None) or {})
        for name in ("tokens", "text"):
            if name in members:
                if "prompt" in members:
                    raise TypeError(f"a request has one prompt, found `prompt` and `{name}`")
                members["prompt"] = members.pop(name)
        known = {each.name for each in fields(Request)}
        for name in members:
            if name not in known:
                raise TypeError(f"a request has no `{name}`")
        return Request(**members)


class RequestMembers(TypedDict, total=False):
    """Members of `Request` that may stand by name beside its prompt and budget."""

    id: str | int | None
    eos: Ends | None
    stop: Sequence[str | bytes | Tokens]
    priority: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    min_new_tokens: int
    bias: Mapping[int, float] | Sequence[tuple[int, float]] | None
    banned: Tokens | AbstractSet[int] | None
    allowed: Tokens | AbstractSet[int] | None
    format: str | Mapping[str, Any] | None
    seed: int | None
    inputs: Mapping[str, Any] | None
    deadline_ms: int
    cache: int
    logprobs: int | None
    prompt_logprobs: int | None


def request_of(prompt: Prompt | Request, max_new_tokens: int | None, members: RequestMembers) -> Request:
    """Of the arguments of `Session.submit` and the like."""
    if not isinstance(prompt, Request):
        return Request(prompt, max_new_tokens, **members)
    if max_new_tokens is not None or members:
        raise TypeError("a megalith.Request has its members, and takes no other ones")
    return prompt


def tokens_of(value: Tokens, what: str = "tokens") -> npt.NDArray[np.int32]:
    """An array of int32. Floats, and integers beyond that, are refused."""
    array = np.asarray(value)
    if array.size == 0:
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu" and not isinstance(value, np.ndarray):  # numpy has no integers of that size
        for each in value if isinstance(value, Sequence) else ():
            if isinstance(each, int) and not -(2**63) <= each < 2**63:
                raise out_of_range(what, -(2**31), 2**31 - 1, each)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"`{what}` must be a list of integers, or an array of them with one dimension")
    if array.size and (array.min() < -(2**31) or array.max() >= 2**31):
        wrong = array[(array < -(2**31)) | (array >= 2**31)][0]
        raise out_of_range(what, -(2**31), 2**31 - 1, int(wrong))
    return np.ascontiguousarray(array, dtype=np.int32)


def prompt_of(value: Prompt, encode: Encode | None) -> npt.NDArray[np.int32]:
    if isinstance(value, (str, bytes)):
        if encode is None:
            raise TypeError(
                "the prompt is a text, but the model has no byte vocabulary; give token ids, which "
                "megalith.text.load(DIR).encode() makes of a text"
            )
        value = encode(value)
    return tokens_of(value, "prompt")


def _input_of(name: str, value: Any, declared: Mapping[str, Mapping[str, Any]], encode: Encode | None) -> Any:
    if declared.get(name, {}).get("rows") is not None:
        if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
            raise TypeError(f"input `{name}` must be a list of rows")
        if any(not isinstance(row, (str, bytes, Sequence, np.ndarray)) for row in value):
            raise TypeError(f"input `{name}` must be a list of rows, each a list")
        return [_list_of(name, row, declared, encode) for row in value]
    return _list_of(name, value, declared, encode)


def _list_of(name: str, value: Any, declared: Mapping[str, Mapping[str, Any]], encode: Encode | None) -> Any:
    if isinstance(value, (str, bytes)):
        return prompt_of(value, encode)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":  # a list with integers that numpy has no type for
        return tokens_of(value, name)
    if declared.get(name, {}).get("type") == "bool" and array.dtype.kind == "b" or array.size == 0:
        array = array.astype(np.int32)
    if declared.get(name, {}).get("type") == "f32" and array.dtype.kind in "iu":
        array = array.astype(np.float32)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise TypeError(f"input `{name}` must be a number, a bool, or a list of these")
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, dtype=np.float32)
    return tokens_of(array, name)


def _when_of(value: Any, what: str) -> tuple[int, int] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        if set(value) not in ({"tick"}, {"ms"}):
            raise TypeError(f"`{what}` must be {{'tick': N}} or {{'ms': N}}")
        value = value.get("tick", 0), value.get("ms", 0)
    if not isinstance(value, Sequence) or len(value) != 2:
        raise TypeError(f"`{what}` must be {{'tick': N}} or {{'ms': N}}, found {value!r}")
    return _integer(value[0], what), _integer(value[1], what)


def _integer(value: Any, what: str) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"`{what}` must be an integer, found {value!r}")
    return int(value)


def number_of(value: Any, what: str) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError(f"`{what}` must be a number, found {value!r}")
    try:
        return float(value)
    except OverflowError as error:
        most = float(np.finfo(np.float64).max)
        raise out_of_range(what, -most, most, value) from error
    except (TypeError, ValueError) as error:
        raise TypeError(f"`{what}` must be a number, found {value!r}") from error


def _bias_of(value: Any) -> dict[int, float]:
    """Of a mapping, or of pairs as in files of requests."""
    bias: dict[int, float] = {}
    if value is None:
        return bias
    try:
        pairs = [(token, number) for token, number in (value.items() if isinstance(value, Mapping) else value)]
    except (TypeError, ValueError) as error:
        raise TypeError(f"`bias` must be a dict of tokens and numbers, or pairs of them, found {value!r}"[:200]) from error
    for token, number in pairs:
        if isinstance(token, (float, np.floating)) and isinstance(value, np.ndarray):  # an array has one type
            token = int(token) if float(token).is_integer() else token
        if _integer(token, "bias") in bias:
            raise ValueError(f"`bias` has token {token} twice")
        bias[int(token)] = number_of(number, "bias")
    return bias


def format_of(value: str | Mapping[str, Any] | None) -> str:
    """Its JSON text; "" is none."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return json.dumps(mapping_of(value, "format"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"`format` must be JSON: {error}") from error


def _some_tokens(value: Any, what: str) -> npt.NDArray[np.int32]:
    """None are none, and a set is as good as a list."""
    return tokens_of(sorted(value) if isinstance(value, AbstractSet) else () if value is None else value, what)


def _stop_of(value: Any, encode: Encode | None) -> list[npt.NDArray[np.int32]]:
    if isinstance(value, (str, bytes, np.ndarray)) or any(isinstance(each, (int, np.integer)) for each in value):
        raise TypeError("`stop` is a list of sequences: [[46], [10, 10]]")
    if encode is None and any(isinstance(each, (str, bytes)) for each in value):
        raise TypeError("`stop` has a text, but the model has no byte vocabulary: other tokens may make the same text")
    return [tokens_of(encode(each) if encode and isinstance(each, (str, bytes)) else each, "stop") for each in value]


def dict_of(
    request: Request,
    default_id: str,
    inputs: Iterable[Mapping[str, Any]],
    encode: Encode | None,
    encode_bytes: Encode | None,
) -> dict[str, Any]:
    """What `_core` takes. `encode` makes tokens of a prompt, `encode_bytes` those of a byte vocabulary."""
    eos = request.eos
    if isinstance(eos, (int, np.integer)):
        eos = [int(eos)]
    elif isinstance(eos, AbstractSet):
        eos = sorted(eos)
    name = default_id if request.id is None else request.id
    if isinstance(name, np.integer):
        name = int(name)
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        raise TypeError(f"`id` must be a str or an int, found {name!r}")
    declared = {each["name"]: each for each in inputs}
    return {
        "id": name,
        "tokens": prompt_of(request.prompt, encode),
        "max_new_tokens": _integer(request.max_new_tokens, "max_new_tokens"),
        "eos": None if eos is None else tokens_of(eos, "eos"),
        "stop": _stop_of(request.stop, encode_bytes),
        "priority": _integer(request.priority, "priority"),
        "temperature": number_of(request.temperature, "temperature"),
        "top_k": _integer(request.top_k, "top_k"),
        "top_p": number_of(request.top_p, "top_p"),
        "min_p": number_of(request.min_p, "min_p"),
        "repetition_penalty": number_of(request.repetition_penalty, "repetition_penalty"),
        "presence_penalty": number_of(request.presence_penalty, "presence_penalty"),
        "frequency_penalty": number_of(request.frequency_penalty, "frequency_penalty"),
        "min_new_tokens": _integer(request.min_new_tokens, "min_new_tokens"),
        "bias": _bias_of(request.bias),
        "banned": _some_tokens(request.banned, "banned"),
        "allowed": None if request.allowed is None else _some_tokens(request.allowed, "allowed"),
        "format": format_of(request.format),
        "seed": None if request.seed is None else _integer(request.seed, "seed"),
        "inputs": {key: _input_of(key, value, declared, encode) for key, value in mapping_of(request.inputs, "inputs").items()},
        "arrives": _when_of(request.arrives, "arrives"),
        "cancelled": _when_of(request.cancelled, "cancelled"),
        "deadline_ms": _integer(request.deadline_ms or 0, "deadline_ms"),
        "cache": _integer(request.cache, "cache"),
        "file": request._place[0],
        "line": request._place[1],
    }


def byte_encode(value: str | bytes) -> npt.NDArray[np.int32]:
    """Of a byte vocabulary."""
    return np.frombuffer(value.encode() if isinstance(value, str) else value, dtype=np.uint8).astype(np.int32)


def path_of(value: str | os.PathLike[str]) -> str:
    return os.fsdecode(os.fspath(value))
