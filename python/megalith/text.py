"""Text: tokenizers, chat templates, and tokens that become text while they come.

    tokenizer = megalith.text.load("models/demo", program)
    prompt = tokenizer.chat([{"role": "user", "content": "Hello"}])
    for piece in tokenizer.stream(session.generate(prompt, max_new_tokens=64)):
        print(piece, end="", flush=True)

A checkpoint's folder may have a `tokenizer.json`, which Hugging Face's package `tokenizers` reads, and a chat template,
which needs `jinja2`: `pip install megalith[text]`. A byte vocabulary needs neither.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ._files import TextError, read_object

if TYPE_CHECKING:
    from ._program import Program

ChatMessage = Mapping[str, Any]
"""`{"role": "user", "content": "..."}`"""

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def _need(module: str, package: str, what: str) -> Any:
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as error:
        raise TextError(f"{what} needs the Python package `{package}`: pip install 'megalith[text]'") from error


class Pieces:
    """Makes text of tokens as they come. No piece ends within a character: what may become one is held back."""

    def push(self, tokens: Iterable[int] | int) -> str:
        """The text that is certain now."""
        raise NotImplementedError

    def flush(self) -> str:
        """What is left when no token comes any more."""
        raise NotImplementedError


class Tokenizer:
    """Makes tokens of text, and text of tokens."""

    eos: frozenset[int] = frozenset()
    """Tokens that end a text. They have no text."""
    _template: str | None = None
    _config: Mapping[str, Any] = {}

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str | bytes, *, special: bool = True) -> list[int]:
        """Token ids of a text. `special`: with what the tokenizer puts around a text, such as a token that begins it."""
        raise NotImplementedError

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of all tokens. Special ones have none."""
        pieces = self.pieces()
        return pieces.push(tokens) + pieces.flush()

    def bytes_of(self, token: int) -> bytes | None:
        """Those that a token stands for within a text. None: it stands for none, as a special token."""
        raise NotImplementedError

    def name_of(self, token: int) -> str:
        """What a token without bytes is called."""
        return f"<{token}>"

    def pieces(self) -> Pieces:
        """For tokens that come one by one."""
        raise NotImplementedError

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """Pieces of text while the tokens come. Each is whole characters; none is empty."""
        pieces = self.pieces()
        for token in tokens:
            if piece := pieces.push(token):
                yield piece
        if piece := pieces.flush():
            yield piece

    def chat_text(self, messages: Sequence[ChatMessage], *, answer: bool = True, **variables: Any) -> str:
        """The chat template's text. `answer`: the next turn is the model's. `variables` go to the template."""
        if self._template is None:
            raise TextError("the checkpoint has no chat template")
        known: dict[str, Any] = {"tools": None, "documents": None}
        for name, value in self._config.items():
            if name.endswith("_token"):  # a text, or an object with the text
                value = value.get("content") if isinstance(value, dict) else value
                if isinstance(value, str):
                    known[name] = value
        known.update(variables)
        return _render(self._template, {**known, "messages": list(messages), "add_generation_prompt": answer})

    def exact(self, text: str) -> list[int] | None:
        """The tokens that make this text, if no others do. None: others may."""
        return None

    def chat(self, messages: Sequence[ChatMessage], *, answer: bool = True, **variables: Any) -> list[int]:
        """Its tokens."""
        return self.encode(self.chat_text(messages, answer=answer, **variables), special=False)


class _BytePieces(Pieces):
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, tokens: Iterable[int] | int) -> str:
        several = [tokens] if isinstance(tokens, (int, np.integer)) else tokens
        return self._decoder.decode(bytes(token for token in map(int, several) if token < 256))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteTokenizer(Tokenizer):
    """Of a vocabulary whose tokens below 256 are bytes. The others have no text."""

    def __init__(self, eos: Iterable[int] = ()) -> None:
        self.eos = frozenset(eos)

    def encode(self, text: str | bytes, *, special: bool = True) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)

    def bytes_of(self, token: int) -> bytes | None:
        return bytes([token]) if 0 <= token < 256 else None

    def pieces(self) -> Pieces:
        return _BytePieces()

    def exact(self, text: str) -> list[int] | None:
        return self.encode(text)


class _WindowPieces(Pieces):
    """A token's text depends on those before it (spaces, characters of several tokens). So the last tokens are decoded
    together, and what was given already is cut off."""

    def __init__(self, decode: Callable[[list[int]], str], hidden: frozenset[int]) -> None:
        self._decode = decode
        self._hidden = hidden
        self._window: list[int] = []
        self._complete = 0  # tokens of the window, behind which its text was complete the last time
        self._given = 0  # characters of its text

    def push(self, tokens: Iterable[int] | int) -> str:
        out = ""
        for token in map(int, [tokens] if isinstance(tokens, (int, np.integer)) else tokens):
            if token in self._hidden:
                continue
            self._window.append(token)
            text = self._decode(self._window)
            # Further bytes may turn its end into characters. One has four bytes: what has waited for longer is none,
            # but for the last three.
            most = len(text) if len(self._window) - self._complete <= 4 else 3
            end = len(text)
            while end and len(text) - end < most and text[end - 1] == _UNKNOWN:
                end -= 1
            out += self._until(text[:end])
            if end == len(text) and len(text) > 0:  # the next token needs those since the last such place
                self._window = self._window[self._complete :]
                self._complete = len(self._window)
                self._given = len(self._decode(self._window))
        return out

    def flush(self) -> str:
        return self._until(self._decode(self._window)) if self._window else ""

    def _until(self, text: str) -> str:
        out = text[self._given :]
        self._given = max(self._given, len(text))
        return out


def _byte_level() -> dict[str, int]:
    """As GPT-2 has it: a printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level()


class HuggingFaceTokenizer(Tokenizer):
    """Of a folder with a `tokenizer.json`."""

    def __init__(self, folder: str | os.PathLike[str], eos: Iterable[int] = ()) -> None:
        folder = Path(folder)
        tokenizers = _need("tokenizers", "tokenizers", f"`{folder / 'tokenizer.json'}`")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # noqa: BLE001, the package has no class of its own
            raise TextError(f"`{folder / 'tokenizer.json'}` cannot be read: {error}") from error
        self._bytes: dict[int, bytes | None] = {}
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.eos = frozenset(eos)

    def encode(self, text: str | bytes, *, special: bool = True) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode()
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def bytes_of(self, token: int) -> bytes | None:
        if token not in self._bytes:
            self._bytes[token] = self._bytes_of(token)
        return self._bytes[token]

    def _bytes_of(self, token: int) -> bytes | None:
        name = self._tokenizer.id_to_token(token)
        added = self._tokenizer.get_added_tokens_decoder().get(token)
        if name is None or token in self.eos or added is not None and added.special:
            return None
        if byte := re.fullmatch(r"<0x([0-9A-F]{2})>", name):
            return bytes([int(byte[1], 16)])
        # Behind another token: some decoders drop a space where a text begins.
        before = list(self._tokenizer.encode("a", add_special_tokens=False).ids)
        text = str(self._tokenizer.decode([*before, token]))[len(str(self._tokenizer.decode(before))) :]
        if _UNKNOWN in text and all(character in _BYTE_LEVEL for character in name):
            return bytes(_BYTE_LEVEL[character] for character in name)  # a part of a character
        return text.encode()

    def name_of(self, token: int) -> str:
        return self._tokenizer.id_to_token(token) or super().name_of(token)

    def pieces(self) -> Pieces:
        return _WindowPieces(lambda tokens: self._tokenizer.decode(tokens, skip_special_tokens=True), self.eos)

    def decode(self, tokens: Iterable[int]) -> str:
        shown = [token for token in map(int, tokens) if token not in self.eos]
        return str(self._tokenizer.decode(shown, skip_special_tokens=True))

    def exact(self, text: str) -> list[int] | None:
        """A special token has no text, so nothing else can stand for it."""
        number = self._tokenizer.token_to_id(text)
        known = self._tokenizer.get_added_tokens_decoder().get(number) if number is not None else None
        return [number] if known is not None and known.special else None


def _template_of(folder: Path, config: Mapping[str, Any]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # of objects with a name
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _render(template: str, variables: Mapping[str, Any]) -> str:
    """As Hugging Face's `apply_chat_template` does: in a sandbox."""
    _need("jinja2", "jinja2", "a chat template")
    import jinja2.ext
    import jinja2.sandbox

    class Generated(jinja2.ext.Extension):  # {% generation %} marks what a model writes; it changes nothing here
        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def fail(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form: str) -> str:
        import datetime

        return datetime.datetime.now().strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generated, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=fail, strftime_now=strftime_now)
    try:
        return environment.from_string(template).render(**variables)
    except jinja2.TemplateError as error:
        raise TextError(f"the chat template failed: {error}") from error


def load(
    folder: Union[str, "os.PathLike[str]"],
    program: Program | None = None,
    chat_template: Union[str, "os.PathLike[str]", None] = None,
) -> Tokenizer:
    """The tokenizer of a checkpoint's folder: that of its `tokenizer.json`, or bytes where `config.json` says
    `"byte_vocabulary": true`. `program` tells which tokens end a text; without it, generation_config.json and
    config.json do. `chat_template` is a file in place of the folder's. Raises `TextError`."""
    folder = Path(folder)
    config = read_object(folder / "config.json")
    if program is not None:
        eos = list(program.eos)
    else:
        said = read_object(folder / "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
        eos = [said] if isinstance(said, int) else [each for each in said or [] if isinstance(each, int)]
    tokenizer: Tokenizer
    if program.byte_vocabulary if program is not None else config.get("byte_vocabulary"):
        tokenizer = ByteTokenizer(eos)
    elif (folder / "tokenizer.json").is_file():
        tokenizer = HuggingFaceTokenizer(folder, eos)
    else:
        raise TextError(f"`{folder}` has no `tokenizer.json`, and its model has no byte vocabulary")
    tokenizer._config = read_object(folder / "tokenizer_config.json")
    if chat_template is None:
        tokenizer._template = _template_of(folder, tokenizer._config)
    else:
        try:
            tokenizer._template = Path(chat_template).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise TextError(f"`{chat_template}` cannot be read: {error}") from error
    return tokenizer
