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
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ._decoding import UNKNOWN, Decoder, byte_level_bytes, fallback_byte
from ._files import TextError, check_file, one_line, read_object, read_text
from ._generation import eos_of
from ._templates import RESERVED, Templates
from ._tokenizer_files import read_templates, read_tokens

if TYPE_CHECKING:
    from ._program import Program

__all__ = ["ByteTokenizer", "ChatMessage", "HuggingFaceTokenizer", "Pieces", "TextError", "Tokenizer", "load"]

ChatMessage = Mapping[str, Any]
"""`{"role": "user", "content": "..."}`"""

_TOKENIZER_BYTES = 256 << 20
"""Of a tokenizer.json; those of large vocabularies have some 30 MiB."""
_CONTEXT = 64
"""Tokens with text, of a prompt's end, on which the text of those after it may depend."""


def _need(module: str, package: str, what: str) -> Any:
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as error:
        raise TextError(f"{what} needs the Python package `{package}`: pip install 'megalith[text]'") from error


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise TextError(f"the text has half of a surrogate pair at character {error.start}") from error


class Pieces:
    """Makes text of tokens as they come. No piece ends within a character: what may become one is held back."""

    def push(self, tokens: Iterable[int] | int) -> str:
        """The text that is certain now."""
        raise NotImplementedError

    def flush(self) -> str:
        """What is left when no token comes any more."""
        raise NotImplementedError


class _AfterPieces(Pieces):
    """Text after a prompt that ends within a character: what was text of the prompt is not text after it."""

    def __init__(self, pieces: Pieces, shown: str) -> None:
        self._pieces, self._shown = pieces, shown

    def push(self, tokens: Iterable[int] | int) -> str:
        return self._cut(self._pieces.push(tokens))

    def flush(self) -> str:
        return self._cut(self._pieces.flush())

    def _cut(self, text: str) -> str:
        same = 0
        while same < min(len(text), len(self._shown)) and text[same] == self._shown[same]:
            same += 1
        self._shown = self._shown[same:] if same == len(text) else ""
        return text[same:]


class Tokenizer:
    """Makes tokens of text, and text of tokens.

    Text of tokens is what they add to the text in front of them: a word's space is a part of it, unless nothing stands
    in front. So wherever tokens become text, `prompt` may say which tokens they stand after."""

    eos: frozenset[int] = frozenset()
    """Tokens that end a text: those of the model, and the tokenizer's own. They have no text."""
    _templates: Templates | None = None
    _named: Mapping[str, Any] = {}

    @property
    def has_chat_template(self) -> bool:
        return self._templates is not None

    @property
    def _template(self) -> str | None:
        return None if self._templates is None else self._templates.sources.get("default")

    @_template.setter
    def _template(self, source: str) -> None:
        self._templates = Templates({"default": source})

    @property
    def chat_templates(self) -> list[str]:
        """Their names. One of a checkpoint that has one only is `default`."""
        return [] if self._templates is None else list(self._templates.sources)

    def check_chat_template(self) -> None:
        """Raises `TextError` of a template that is none, before a chat needs it."""
        if self._templates is not None:
            self._templates.check()

    def encode(self, text: str | bytes, *, special: bool = True) -> list[int]:
        """Token ids of a text. `special`: with what the tokenizer puts around a text, such as a token that begins it."""
        raise NotImplementedError

    def decode(self, tokens: Iterable[int], prompt: Iterable[int] | None = None, *, special: bool = False) -> str:
        """The text of all tokens. Special ones have none, unless `special`."""
        pieces = self.pieces(prompt, special=special)
        return pieces.push(tokens) + pieces.flush()

    def bytes_of(self, token: int) -> bytes | None:
        """Those that a token stands for within a text. None: it stands for none, as a special token."""
        raise NotImplementedError

    def all_bytes(self, vocabulary: int) -> list[bytes | None]:
        """`bytes_of` each token, for `Program.set_token_bytes`. `TextError` where the text of tokens is not what they spell
        one after the other."""
        return [self.bytes_of(token) for token in range(vocabulary)]

    def joined_pieces(self) -> Pieces:
        """What tokens spell, wherever they stand: the text of an answer that has a format."""
        return _JoinedPieces(self.bytes_of)

    def name_of(self, token: int) -> str:
        """What a token without bytes is called."""
        return f"<{token}>"

    def pieces(self, prompt: Iterable[int] | None = None, *, special: bool | Collection[str] = False) -> Pieces:
        """For tokens that come one by one, after those of a prompt. `special`: special ones have text, too, or those with
        these names."""
        pieces = self._pieces(special)
        tail = self._tail([] if prompt is None else list(prompt), special)
        if not tail:
            return pieces
        pieces.push(tail)
        other = self._pieces(special)
        other.push(tail)
        shown = other.flush()
        return _AfterPieces(pieces, shown) if shown else pieces

    def _pieces(self, special: bool | Collection[str]) -> Pieces:
        raise NotImplementedError

    def _tail(self, prompt: list[int], special: bool | Collection[str]) -> list[int]:
        """Tokens of its end that give the text after it all that it depends on."""
        return prompt[-_CONTEXT:]

    def stream(
        self, tokens: Iterable[int], prompt: Iterable[int] | None = None, *, special: bool = False
    ) -> Iterator[str]:
        """Pieces of text while the tokens come. Each is whole characters; none is empty. Without a `prompt`, tokens of
        `Session.generate` stand after that of their request."""
        pieces = self.pieces(getattr(tokens, "prompt", None) if prompt is None else prompt, special=special)
        for token in tokens:
            if piece := pieces.push(token):
                yield piece
        if piece := pieces.flush():
            yield piece

    def chat_text(
        self,
        messages: Sequence[ChatMessage],
        *,
        answer: bool = True,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str:
        """The chat template's text. `answer`: the next turn is the model's. `chat_template`: the name of one, where there
        are several; without it `tool_use` if there are `tools`, else `default`. `variables` go to the template."""
        if self._templates is None:
            raise TextError("the checkpoint has no chat template")
        if taken := RESERVED & variables.keys():
            raise TextError(f"`{min(taken)}` means something else in a chat template; it cannot be a variable")
        name = self._templates.choose(chat_template, variables.get("tools") is not None)
        known = {"tools": None, "documents": None, **self._named, **variables}
        return self._templates.render(name, {**known, "messages": list(messages), "add_generation_prompt": answer})

    def exact(self, text: str) -> list[int] | None:
        """The tokens that make this text, if no others do. None: others may."""
        return None

    def chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        answer: bool = True,
        chat_template: str | None = None,
        **variables: Any,
    ) -> list[int]:
        """Its tokens."""
        text = self.chat_text(messages, answer=answer, chat_template=chat_template, **variables)
        return self.encode(text, special=False)


class _JoinedPieces(Pieces):
    def __init__(self, bytes_of: Callable[[int], bytes | None]) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._bytes_of = bytes_of

    def push(self, tokens: Iterable[int] | int) -> str:
        several = [tokens] if isinstance(tokens, (int, np.integer)) else tokens
        return self._decoder.decode(b"".join(self._bytes_of(int(token)) or b"" for token in several))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteTokenizer(Tokenizer):
    """Of a vocabulary whose tokens below 256 are bytes. The others have no text."""

    def __init__(self, eos: Iterable[int] = ()) -> None:
        self.eos = frozenset(eos)

    def encode(self, text: str | bytes, *, special: bool = True) -> list[int]:
        return list(_utf8(text) if isinstance(text, str) else text)

    def bytes_of(self, token: int) -> bytes | None:
        return bytes([token]) if 0 <= token < 256 else None

    def _pieces(self, special: bool | Collection[str]) -> Pieces:
        return self.joined_pieces()

    def exact(self, text: str) -> list[int] | None:
        return self.encode(text)


class _DecoderPieces(Pieces):
    def __init__(self, decoder: Decoder, text_of: Callable[[int], str | None]) -> None:
        self._chain = decoder.start()
        self._text_of = text_of

    def push(self, tokens: Iterable[int] | int) -> str:
        out: list[str] = []
        for token in [tokens] if isinstance(tokens, (int, np.integer)) else tokens:
            name = self._text_of(int(token))
            if name is not None:
                out += self._chain.push(name)
        return "".join(out)

    def flush(self) -> str:
        return "".join(self._chain.end())


class HuggingFaceTokenizer(Tokenizer):
    """Of a folder with a `tokenizer.json`. The other files of `transformers` beside it say more of its tokens."""

    def __init__(self, folder: str | os.PathLike[str], eos: Iterable[int] = ()) -> None:
        folder = Path(folder)
        path = folder / "tokenizer.json"
        package = _need("tokenizers", "tokenizers", f"`{path}`")
        config = read_object(folder / "tokenizer_config.json")
        check_file(path, _TOKENIZER_BYTES)
        try:
            self._tokenizer = package.Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001, the package has no class of its own
            raise TextError(f"`{path}` cannot be read: {one_line(error)}") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        tokens = read_tokens(folder, config, read_object(folder / "config.json"), self._tokenizer, package)
        self._tokenizer.add_tokens(tokens.added)
        self._named = tokens.named
        if tokens.adds is not None:
            self._put_around(package, *tokens.adds)
        if tokens.adds_space is not None:
            self._set_prefix_space(tokens.adds_space)
        if config.get("split_special_tokens") is True:
            self._tokenizer.encode_special_tokens = True
        self.vocabulary: int = self._tokenizer.get_vocab_size()
        """So many tokens it knows, added ones among them."""
        self.eos = frozenset(eos)
        if (own := self._tokenizer.token_to_id(tokens.named.get("eos_token", ""))) is not None:
            self.eos |= {own}
        # `transformers` 5 does not do it to BPE: a space in front of a `.` is text there.
        cleans_up = config.get("clean_up_tokenization_spaces") is True and (
            type(self._tokenizer.model).__name__ != "BPE"
            or config.get("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output") is True
        )
        self._decoder = Decoder(self._tokenizer, cleans_up)
        # By their text, as the package does. One that was special once stays so.
        self._hidden = {
            token.content
            for number, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special or not self._tokenizer.decode([number]) and self._tokenizer.decode([number], False)
        }
        self._bytes: dict[int, bytes | None] = {}
        self._texts: dict[int, str | None] = {}
        self._shown: dict[int, str | None] = {}

    def _put_around(self, package: Any, bos: bool, eos: bool) -> None:
        parts, known = ["$A:0"], []
        if bos:
            parts.insert(0, f"{self._named['bos_token']}:0")
            known.append("bos_token")
        if eos:
            parts.append(f"{self._named['eos_token']}:0")
            known.append("eos_token")
        numbers = {self._named[name]: self._tokenizer.token_to_id(self._named[name]) for name in known}
        pair = [*parts, *(part.replace(":0", ":1").replace("$A", "$B") for part in parts)]
        self._tokenizer.post_processor = package.processors.TemplateProcessing(
            single=parts, pair=pair, special_tokens=list(numbers.items())
        )

    def _set_prefix_space(self, adds: bool) -> None:
        known = self._tokenizer.pre_tokenizer
        if type(known).__name__ == "ByteLevel" and known.add_prefix_space != adds:
            known.add_prefix_space = adds
            self._tokenizer.pre_tokenizer = known

    def encode(self, text: str | bytes, *, special: bool = True) -> list[int]:
        if isinstance(text, bytes):
            try:
                text = text.decode()
            except UnicodeDecodeError as error:
                raise TextError(f"the text is no UTF-8 at byte {error.start}") from error
        else:
            _utf8(text)
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def all_bytes(self, vocabulary: int) -> list[bytes | None]:
        if not self._decoder.joins:
            raise TextError("the tokenizer's decoder does more than to put what tokens spell one after the other")
        return super().all_bytes(vocabulary)

    def bytes_of(self, token: int) -> bytes | None:
        if token not in self._bytes:
            self._bytes[token] = self._bytes_of(token)
        return self._bytes[token]

    def _bytes_of(self, token: int) -> bytes | None:
        name = self._text_of(token)
        if name is None:
            return None
        if self._decoder.falls_back and (byte := fallback_byte(name)) is not None:
            return bytes([byte])
        text = self._decoder.text_after(name)
        if UNKNOWN in text and self._decoder.is_byte_level:
            return byte_level_bytes(name)  # a part of a character
        return text.encode("utf-8", "replace")

    def name_of(self, token: int) -> str:
        return self._name_of(token) or super().name_of(token)

    def _name_of(self, token: int) -> str | None:
        if token not in self._shown:
            known = 0 <= token < 1 << 32
            self._shown[token] = self._tokenizer.id_to_token(token) if known else None
        return self._shown[token]

    def _text_of(self, token: int) -> str | None:
        """Its name, if it has text."""
        if token not in self._texts:
            name = self._name_of(token)
            self._texts[token] = None if token in self.eos or name in self._hidden else name
        return self._texts[token]

    def _texts_of(self, special: bool | Collection[str]) -> Callable[[int], str | None]:
        if isinstance(special, bool) or not special:
            return self._name_of if special else self._text_of
        return lambda token: name if (name := self._name_of(token)) in special else self._text_of(token)

    def _pieces(self, special: bool | Collection[str]) -> Pieces:
        return _DecoderPieces(self._decoder, self._texts_of(special))

    def _tail(self, prompt: list[int], special: bool | Collection[str]) -> list[int]:
        text_of = self._texts_of(special)
        left = _CONTEXT
        for place in range(len(prompt) - 1, -1, -1):
            left -= text_of(int(prompt[place])) is not None
            if not left:
                return prompt[place:]
        return prompt

    def exact(self, text: str) -> list[int] | None:
        """A special token has no text, so nothing else can stand for it."""
        number = self._tokenizer.token_to_id(text) if text in self._hidden else None
        return None if number is None else [number]


def load(
    folder: Union[str, "os.PathLike[str]"],
    program: Program | None = None,
    chat_template: Union[str, "os.PathLike[str]", None] = None,
) -> Tokenizer:
    """The tokenizer of a checkpoint's folder: that of its `tokenizer.json`, or bytes where `config.json` says
    `"byte_vocabulary": true`. `program` tells which tokens end a text; without it, generation_config.json and
    config.json do. The tokenizer's own `eos_token` ends it, too. `chat_template` is a file in place of the folder's.
    Raises `TextError`."""
    folder = Path(folder)
    config = read_object(folder / "config.json")
    eos: Iterable[int]
    if program is not None:
        eos = program.eos
    else:
        eos = eos_of(read_object(folder / "generation_config.json").get("eos_token_id", config.get("eos_token_id")))
    tokenizer: Tokenizer
    if program.byte_vocabulary if program is not None else config.get("byte_vocabulary"):
        tokenizer = ByteTokenizer(eos)
    elif (folder / "tokenizer.json").exists():
        tokenizer = HuggingFaceTokenizer(folder, eos)
    else:
        raise TextError(_no_tokenizer(folder))
    if chat_template is not None:
        tokenizer._template = read_text(Path(chat_template), is_named=True)
        try:
            tokenizer.check_chat_template()
        except TextError as error:
            raise TextError(f"`{chat_template}`: {error}") from error
    elif found := read_templates(folder, read_object(folder / "tokenizer_config.json")):
        tokenizer._templates = Templates(found)
    return tokenizer


def _no_tokenizer(folder: Path) -> str:
    text = f"`{folder}` has no `tokenizer.json`, and its model has no byte vocabulary"
    for name in ("tokenizer.model", "tekken.json", "vocab.json", "vocab.txt"):
        if (folder / name).is_file():
            return f"{text}; `AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)` of `transformers` makes one of its `{name}`"
    return text
