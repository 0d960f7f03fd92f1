"""Tokenizers, chat templates, and text that comes in pieces."""

import json
import random
import sys

import megalith
import numpy as np
import pytest
from conftest import DEMO
from megalith import text

HARD = "hello wörld 😀😀 the cat é\u0301 日本語 \u200d👩‍👩‍👧 end"


@pytest.fixture(scope="module")
def byte_level():
    """A tokenizer whose tokens are pieces of UTF-8."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    )
    made.train_from_iterator(["hello world, the cat sat on the mat"] * 10, trainer)
    return made


@pytest.fixture
def folder(byte_level, tmp_path):
    byte_level.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"eos_token_id": 1}')
    return tmp_path


def pieces_of(tokenizer, tokens):
    pieces = tokenizer.pieces()
    return [pieces.push(token) for token in tokens] + [pieces.flush()]


def test_bytes(program):
    tokenizer = text.load(DEMO)
    assert isinstance(tokenizer, text.ByteTokenizer) and tokenizer.eos == {257} and not tokenizer.has_chat_template
    assert text.load(DEMO, program).eos == {257}
    tokens = tokenizer.encode(HARD)
    assert bytes(tokens).decode() == HARD and tokenizer.decode([*tokens, 257, 259]) == HARD
    assert tokenizer.decode(np.array(tokens, np.int32)) == HARD
    pieces = pieces_of(tokenizer, tokens)
    assert "".join(pieces) == HARD and "\ufffd" not in "".join(pieces)
    assert list(tokenizer.stream(tokens[:-4])) == list(HARD[:-4])
    assert tokenizer.decode([0xE2, 0x82]) == "\ufffd"
    with pytest.raises(text.TextError, match="no chat template"):
        tokenizer.chat([])


def test_characters_of_several_tokens_come_whole(folder):
    tokenizer = text.load(folder)
    tokens = tokenizer.encode(HARD)
    assert len(tokens) > len(HARD)
    pieces = pieces_of(tokenizer, tokens)
    assert "".join(pieces) == HARD
    assert not any("\ufffd" in piece for piece in pieces)
    assert pieces_of(tokenizer, [*tokens, 1])[-2:] == ["", ""]  # an end has no text
    assert "".join(tokenizer.stream(np.array(tokens, np.int32))) == HARD


def test_pieces_are_the_whole_text_whatever_the_tokens(folder):
    tokenizer = text.load(folder)
    chance = random.Random(1)
    for _ in range(100):
        tokens = [chance.randrange(2, 300) for _ in range(30)]
        assert "".join(pieces_of(tokenizer, tokens)) == tokenizer.decode(tokens)


TEMPLATE = """\
{{ bos_token }}{% for message in messages %}
{%- if message.role == "system" %}[{{ message.content | trim }}]{% continue %}{% endif %}
{%- if message.role == "assistant" %}{% generation %}<{{ message.content }}>{% endgeneration %}
{%- else %}{{ {"q": message.content} | tojson }}{% endif %}
{%- endfor %}{% if tools %}TOOLS{% endif %}{% if add_generation_prompt %}:{% endif %}"""


@pytest.mark.parametrize("where", ["file", "config", "list"])
def test_chat_templates(folder, where):
    pytest.importorskip("jinja2")
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    if where == "file":
        (folder / "chat_template.jinja").write_text(TEMPLATE)
    elif where == "config":
        config["chat_template"] = TEMPLATE
    else:
        config["chat_template"] = [{"name": "rag", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = text.load(folder)
    assert tokenizer.has_chat_template
    messages = [
        {"role": "system", "content": " be kind "},
        {"role": "user", "content": "é"},
        {"role": "assistant", "content": "yes"},
    ]
    assert tokenizer.chat_text(messages) == '<s>[be kind]{"q": "é"}<yes>:'
    assert tokenizer.chat_text(messages, answer=False, tools=[1]) == '<s>[be kind]{"q": "é"}<yes>TOOLS'
    assert tokenizer.chat(messages)[0] == 0  # <s>, once
    assert tokenizer.chat(messages) == tokenizer.encode(tokenizer.chat_text(messages), special=False)


@pytest.mark.parametrize(
    "template, what",
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "template failed"),
        ("{{ messages.__class__.__mro__ }}", "template failed"),
    ],
)
def test_templates_that_fail(folder, template, what):
    pytest.importorskip("jinja2")
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(text.TextError, match=what):
        text.load(folder).chat_text([])


def test_no_tokenizer(tmp_path):
    with pytest.raises(text.TextError, match="no `tokenizer.json`"):
        text.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    pytest.importorskip("tokenizers")
    with pytest.raises(text.TextError, match="cannot be read"):
        text.load(tmp_path)


def test_missing_packages_are_told(folder, monkeypatch):
    (folder / "chat_template.jinja").write_text("x")
    tokenizer = text.load(folder)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(text.TextError, match=r"jinja2.*pip install 'megalith\[text\]'"):
        tokenizer.chat([])
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(text.TextError, match=r"tokenizers.*pip install 'megalith\[text\]'"):
        text.load(folder)


def test_a_text_without_a_tokenizer_is_refused(kernel, monkeypatch):
    monkeypatch.setattr(kernel, "_encode", None)
    with pytest.raises(TypeError, match="megalith.text.load"):
        kernel.run([megalith.Request("text", 1)])
