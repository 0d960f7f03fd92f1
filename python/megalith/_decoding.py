"""From tokens to text, one by one: the decoders of the package `tokenizers` as steps that keep a state.

Its `decode` sees all tokens at once. A step here sees them as they come, and gives what no later token changes. So what
comes in pieces is the whole text, and a token costs the same wherever it stands.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Step:
    """Takes tokens, or after a step that `fuses`, parts of a single one; gives such."""

    fuses = False
    """What it gives is one token, in parts."""

    def push(self, token: str) -> Iterable[str]:
        raise NotImplementedError

    def end(self) -> Iterable[str]:
        """What is left when no token comes any more."""
        return ()


MakeStep = Callable[[], Step]


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return UNKNOWN * (error.end - error.start), error.end


codecs.register_error("megalith-each-byte", _each_byte)


def _byte_level() -> dict[str, int]:
    """As GPT-2 has it: a printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level()


def byte_level_bytes(token: str) -> bytes:
    """A token that is not made of such characters, as one that was added, is its own text."""
    try:
        return bytes([_BYTE_LEVEL[character] for character in token])
    except KeyError:
        return token.encode("utf-8", "surrogatepass")


_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def fallback_byte(token: str) -> int | None:
    """Of a token such as `<0x0A>`."""
    found = _BYTE.fullmatch(token)
    return int(found[1], 16) if found else None


class _ByteLevel(Step):
    """Bytes that are no character become U+FFFD as in `from_utf8_lossy`, and in Python's `replace`."""

    fuses = True

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: str) -> Iterable[str]:
        return (self._decoder.decode(byte_level_bytes(token)),)

    def end(self) -> Iterable[str]:
        return (self._decoder.decode(b"", final=True),)


class _ByteFallback(Step):
    """A run of tokens such as `<0x0A>` is a text. Bytes of it that are no character are a U+FFFD each. (Beside such a byte
    `tokenizers` makes a U+FFFD of each byte of the run. The whole characters may have been given already, and are right.)"""

    def __init__(self, holds_runs: bool) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("megalith-each-byte")
        self._holds = holds_runs  # a step after this one looks at whole tokens
        self._run: str | None = None

    def push(self, token: str) -> Iterable[str]:
        byte = fallback_byte(token)
        if byte is None:
            return (*self.end(), token)
        text = self._decoder.decode(bytes((byte,)))
        if not self._holds:
            self._run = ""
            return (text,) if text else ()
        self._run = (self._run or "") + text
        return ()

    def end(self) -> Iterable[str]:
        if self._run is None:
            return ()
        text = self._run + self._decoder.decode(b"", final=True)
        self._run = None
        self._decoder.reset()
        return (text,)


class _Fuse(Step):
    fuses = True

    def push(self, token: str) -> Iterable[str]:
        return (token,)


class _Placed(Step):
    """A decoder that looks at a token alone, and at whether it is the first one."""

    def __init__(self, first: Callable[[str], str], others: Callable[[str], str], drops_empty: bool = False) -> None:
        self._of, self._others, self._drops = first, others, drops_empty

    def push(self, token: str) -> Iterable[str]:
        text = self._of(token)
        self._of = self._others
        return (text,) if text or not self._drops else ()


class _Different(Step):
    """Tokens that equal the one before are dropped."""

    def __init__(self) -> None:
        self._last: str | None = None

    def push(self, token: str) -> Iterable[str]:
        if token == self._last:
            return ()
        self._last = token
        return (token,)


class _Last(Step):
    """A decoder that looks at a token alone, and at whether it is the last one."""

    def __init__(self, last: Callable[[str], str], others: Callable[[str], str], whole: bool) -> None:
        self._of_last, self._of_others, self._whole = last, others, whole
        self._rest: tuple[str, str] | None = None

    def push(self, token: str) -> Iterable[str]:
        out = [] if self._rest is None else [self._rest[1]]
        last, other = self._of_last(token), self._of_others(token)
        same = 0
        if not self._whole:
            while same < min(len(last), len(other)) and last[same] == other[same]:
                same += 1
            out.append(last[:same])
        self._rest = last[same:], other[same:]
        return out

    def end(self) -> Iterable[str]:
        return () if self._rest is None else (self._rest[0],)


class _StripEach(Step):
    """Of each token."""

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content, self._start, self._stop = content, start, stop

    def push(self, token: str) -> Iterable[str]:
        begin, end = 0, len(token)
        while begin < min(self._start, len(token)) and token[begin] == self._content:
            begin += 1
        while end > max(begin, len(token) - self._stop) and token[end - 1] == self._content:
            end -= 1
        return (token[begin:end],)


class _StripEnds(Step):
    """Of a text that comes in parts."""

    fuses = True

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content, self._left, self._stop = content, start, stop
        self._held = ""

    def push(self, token: str) -> Iterable[str]:
        begin = 0
        while self._left and begin < len(token):
            if token[begin] != self._content:
                self._left = 0
                break
            begin += 1
            self._left -= 1
        text = self._held + token[begin:]
        end = len(text)
        while end > max(0, len(text) - self._stop) and text[end - 1] == self._content:
            end -= 1
        self._held = text[end:]
        return (text[:end],)


class _ReplaceParts(Step):
    """Of a text that comes in parts."""

    fuses = True

    def __init__(self, pattern: str, content: str) -> None:
        self._pattern, self._content = pattern, content
        self._held = ""

    def push(self, token: str) -> Iterable[str]:
        *parts, rest = (self._held + token).split(self._pattern)
        keep = min(len(rest), len(self._pattern) - 1)
        while keep and not self._pattern.startswith(rest[len(rest) - keep :]):
            keep -= 1
        self._held = rest[len(rest) - keep :]
        return (*(part + self._content for part in parts), rest[: len(rest) - keep])

    def end(self) -> Iterable[str]:
        return (self._held,)


class _Whole(Step):
    """Any other decoder: nothing is sure before the end."""

    fuses = True

    def __init__(self, decode: Callable[[list[str]], str], is_one: bool) -> None:
        self._decode, self._is_one = decode, is_one
        self._tokens: list[str] = []

    def push(self, token: str) -> Iterable[str]:
        self._tokens.append(token)
        return ()

    def end(self) -> Iterable[str]:
        return (self._decode(["".join(self._tokens)] if self._is_one else self._tokens),)


class CleanUp(Step):
    """As `clean_up_tokenization` of `transformers`. Each of its patterns is of few characters, so after another one a
    part ends."""

    fuses = True

    _PATTERNS = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
    _CHARACTERS = "".join({character: "" for pattern in _PATTERNS for character in pattern})

    def __init__(self) -> None:
        self._parts: list[str] = []

    def push(self, token: str) -> Iterable[str]:
        end = len(token.rstrip(self._CHARACTERS))
        self._parts.append(token[:end])
        out = self._clean() if end else ""
        self._parts.append(token[end:])
        return (out,)

    def _clean(self) -> str:
        text, self._parts = "".join(self._parts), []
        for pattern in self._PATTERNS:
            text = text.replace(pattern, pattern.strip(" "))
        return text

    def end(self) -> Iterable[str]:
        return (self._clean(),)


def _cached(function: Callable[[str], str]) -> Callable[[str], str]:
    known: dict[str, str] = {}

    def of(token: str) -> str:
        text = known.get(token)
        if text is None:
            text = known[token] = function(token)
        return text

    return of


def _flat(description: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if description.get("type") != "Sequence":
        return [description]
    return [each for part in description["decoders"] for each in _flat(part)]


class Decoder:
    """Of a tokenizer of the package `tokenizers`: makes the steps for a text."""

    def __init__(self, tokenizer: Any, cleans_up: bool = False) -> None:
        self._package = type(tokenizer)
        self._makers: list[MakeStep] = []
        self.falls_back = self.is_byte_level = False
        """To tokens such as `<0x0A>`; to characters that stand for bytes."""
        self.joins = False
        """The text of tokens, but for the first one of all, is what each of them spells. (What cleans up is apart.)"""
        decoder = tokenizer.decoder
        if decoder is None:
            self._makers.append(lambda: _Placed(lambda token: token, lambda token: " " + token))
        else:
            try:
                parts = _flat(json.loads(decoder.__getstate__()))
            except Exception:  # noqa: BLE001, one that was written in Python has no description
                self._makers.append(lambda: _Whole(decoder.decode, False))
            else:
                self.joins = all(self._joins(parts, number) for number in range(len(parts)))
                fused = False
                for number, part in enumerate(parts):
                    before_text = all(each["type"] == "Fuse" for each in parts[number + 1 : number + 2])
                    make = self._maker_of(part, fused, before_text)
                    fused = make().fuses or fused
                    self._makers.append(make)
        if cleans_up:
            self._makers.append(CleanUp)

    @staticmethod
    def _joins(parts: list[Mapping[str, Any]], number: int) -> bool:
        part, fused = parts[number], any(each["type"] == "Fuse" for each in parts[:number])
        if part["type"] == "Strip":
            return part["stop"] == 0 and fused  # the beginning of the whole text
        return part["type"] in ("Fuse", "ByteLevel", "ByteFallback", "Replace", "Metaspace") and not (
            fused and part["type"] in ("Replace", "ByteFallback")
        )

    def _maker_of(self, part: Mapping[str, Any], fused: bool, before_text: bool) -> MakeStep:
        """`fused`: it sees one token in parts. `before_text`: nothing after it looks at whole tokens."""
        kind = part["type"]
        if kind == "Fuse":
            return _Fuse
        if kind == "Strip":
            make = _StripEnds if fused else _StripEach
            return lambda: make(part["content"], part["start"], part["stop"])
        if fused:
            pattern = part.get("pattern", {}).get("String") if kind == "Replace" else None
            if pattern:
                return lambda: _ReplaceParts(pattern, part["content"])
            decoder = self._decoder_of(part)
            return lambda: _Whole(decoder.decode, True)
        if kind == "ByteLevel":
            self.is_byte_level = True
            return _ByteLevel
        if kind == "ByteFallback":
            self.falls_back = True
            return lambda: _ByteFallback(not before_text)
        decoder = self._decoder_of(part)
        alone = _cached(lambda token: str(decoder.decode([token])))
        if kind in ("Replace", "Metaspace", "WordPiece"):
            context = len(str(decoder.decode(["a"])))
            after = _cached(lambda token: str(decoder.decode(["a", token]))[context:])
            return lambda: _Placed(alone, after)
        if kind == "BPEDecoder":
            ahead = len(str(decoder.decode(["a"])))
            before = _cached(lambda token: (text := str(decoder.decode([token, "a"])))[: len(text) - ahead])
            return lambda: _Last(alone, before, not before_text)
        if kind == "CTC":
            return lambda: _Chain([_Different(), _Placed(alone, alone, drops_empty=True)])
        return lambda: _Whole(decoder.decode, False)

    def _decoder_of(self, description: Mapping[str, Any]) -> Any:
        """The package's own."""
        nothing = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
        model = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
        whole: dict[str, Any] = {
            "version": "1.0",
            **nothing,
            "added_tokens": [],
            "model": model,
            "decoder": description,
        }
        return self._package.from_str(json.dumps(whole)).decoder

    def start(self) -> _Chain:
        return _Chain([make() for make in self._makers])

    def text_after(self, token: str) -> str:
        """Its text after another one."""
        chains = [self.start(), self.start()]
        texts = ["".join(chain.push("a")) for chain in chains]
        texts[1] += "".join(chains[1].push(token))
        whole = [text + "".join(chain.end()) for text, chain in zip(texts, chains)]
        return whole[1][len(whole[0]) :]


class _Chain(Step):
    """One step after the other."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps

    def push(self, token: str) -> Iterable[str]:
        tokens: Iterable[str] = (token,)
        for step in self._steps:
            tokens = [part for each in tokens for part in step.push(each)]
        return tokens

    def end(self) -> Iterable[str]:
        tokens: list[str] = []
        for step in self._steps:
            tokens = [part for each in tokens for part in step.push(each)]
            tokens += step.end()
        return tokens
