"""Which replica a request should go to: one that holds the prefix of its prompt.

A key says what prefix a request begins with. Each key has its own order of the replicas, by a hash of both (rendezvous
hashing), so that all who ask mostly find the same one without talking to each other, and few keys move when replicas come or
go. A key that nobody has seen goes to the first replica of its order that has no more than its share of the keys
("Consistent Hashing with Bounded Loads", Mirrokni, Thorup and Zadimoghaddam, 2016); from then on it stays there.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CHARACTERS = 256
"""Of a prompt that is a text, so many say what it begins with; of messages all up to the first of the user."""
TOKENS = 64

_ROUTERS: dict[str, Any] = {}
"""Ray Serve's routers of this process, by the deployment that they send to."""


def enter(deployment: str, router: Any) -> None:
    """A router of this process says who it is. A function: a router is sent by its text, with copies of what it names."""
    _ROUTERS[deployment] = router


def router_of(deployment: str) -> Any:
    """None: it has not been asked yet."""
    return _ROUTERS.get(deployment)


@dataclass(frozen=True)
class Call:
    """A call of the API, as it goes to a replica."""

    method: str
    path: str
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    key: bytes | None = None
    """What its prompt begins with."""
    avoid: tuple[str, ...] = ()
    """Replicas that would not have it."""
    pin: str | None = None
    """The replica that has to answer."""
    ingress: str = ""
    """The actor that asks. When it dies, nobody reads the answer."""


def key_of(path: str, body: bytes) -> bytes | None:
    """What a call of the API begins with; None: it says nothing, or is wrong, which is for a replica to tell."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(asked, dict):
        return None
    name = asked.get("prompt_cache_key")
    begin = ["name", name] if isinstance(name, str) and name else _begin(path, asked)
    if begin is None:
        return None
    try:
        text = json.dumps([asked.get("cache_salt"), begin], ensure_ascii=True)
    except RecursionError:
        return None
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _begin(path: str, asked: Mapping[str, Any]) -> Any:
    if path.endswith("/chat/completions"):
        return _messages(asked.get("messages"))
    if path.endswith("/responses"):
        given = asked.get("input")
        given = _messages([{"role": "user", "content": given}] if isinstance(given, str) else given)
        return None if given is None else [asked.get("instructions"), given]
    prompt = asked.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]  # of several the first
    if isinstance(prompt, str):
        return prompt[:CHARACTERS]
    return prompt[:TOKENS] if isinstance(prompt, list) else None


def _messages(messages: Any) -> Any:
    """Those of a talk that stay while it goes on: up to the first of the user. Talks with one system prompt differ there."""
    if not isinstance(messages, list):
        return None
    begin: list[Any] = []
    for message in messages:
        if not isinstance(message, dict):
            return None
        begin.append([message.get("role"), _text(message.get("content"))])
        if message.get("role") == "user":
            break
    return begin


def _text(content: Any) -> Any:
    """Parts that are texts are one text."""
    if isinstance(content, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        return "".join(part["text"] for part in content)
    return content


class Table:
    """Where keys went, as far as this process has seen it."""

    def __init__(self, spread: float = 1.25, most: int = 65536) -> None:
        if not spread >= 1:
            raise ValueError(f"`spread` must be 1 or above, found {spread}")
        self.spread, self.most = spread, most
        self._held: OrderedDict[bytes, str] = OrderedDict()
        """By key, the one that was seen longest ago first."""
        self._counts: Counter[str] = Counter()

    def order(self, key: bytes | None, replicas: Sequence[str], loads: Mapping[str, int]) -> list[str]:
        """All replicas, the best first. `loads`: how many requests each has, as far as that is known."""
        if key is None:
            return sorted(replicas, key=lambda name: (loads.get(name, 0), name))
        ranked = sorted(replicas, key=lambda name: hashlib.blake2b(key + name.encode(), digest_size=8).digest())
        held = self._held.get(key)
        if held in ranked:
            first = held
        else:
            share = self._share(replicas)
            first = next((name for name in ranked if self._counts[name] < share), ranked[0] if ranked else "")
        out = [first, *(name for name in ranked if name != first)] if ranked else []
        # One that has far more to do than the others has to wait, whatever it holds.
        total = sum(loads.get(name, 0) for name in out)

        def is_behind(name: str) -> bool:
            own = loads.get(name, 0)
            return len(out) > 1 and own > 2 * (total - own) / (len(out) - 1) + 8

        return sorted(out, key=is_behind)

    def _share(self, replicas: Sequence[str]) -> int:
        here = sum(self._counts[name] for name in replicas)
        return math.ceil(self.spread * (here + 1) / max(1, len(replicas)))

    def took(self, key: bytes | None, replica: str) -> None:
        """The request went there."""
        if key is None:
            return
        if (before := self._held.pop(key, None)) is not None:
            self._forget(before)
        self._held[key] = replica
        self._counts[replica] += 1
        while len(self._held) > self.most:
            self._forget(self._held.popitem(last=False)[1])

    def keep(self, replicas: Sequence[str]) -> None:
        """Others are gone, and what they held."""
        here = set(replicas)
        if gone := [key for key, name in self._held.items() if name not in here]:
            for key in gone:
                self._forget(self._held.pop(key))

    def _forget(self, replica: str) -> None:
        self._counts[replica] -= 1
        if self._counts[replica] <= 0:
            del self._counts[replica]
