"""Answers that have a format."""

import json
import random
import re

import megalith
import numpy as np
import pytest
from conftest import DEMO, PROMPTS
from megalith import text as texts

POINT = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "is": {"type": "boolean"}, "a": {"enum": ["x", None]}},
    "required": ["name", "is", "a"],
    "additionalProperties": False,
}


def is_point(text):
    value = json.loads(text)
    assert list(value) == ["name", "is", "a"], value
    assert len(value["name"]) <= 5 and value["is"] in (True, False) and value["a"] in ("x", None)
    return True


def test_a_batch(kernel):
    requests = [
        megalith.Request(prompt, 60, temperature=1.0, seed=i, format={"json_schema": POINT}) for i, prompt in enumerate(PROMPTS)
    ] + [megalith.Request(PROMPTS[0], 3, format='{"regex": "[a-z]+!"}')]
    results = kernel.run(requests)
    for result in results[:-1]:
        assert result.format == "complete" and result.finish == "stop" and is_point(bytes(result.tokens.tolist()))
    assert (results[-1].format, results[-1].finish) == ("partial", "length")
    assert re.fullmatch(b"[a-z]{3}", bytes(results[-1].tokens.tolist()))
    assert kernel.run([megalith.Request(PROMPTS[0], 3)])[0].format == ""


def test_what_is_no_format(program, kernel):
    for format, message in (
        ({"regex": "(a"}, "not closed"),
        ({"json_schema": {"type": "number", "multipleOf": 3}}, "`multipleOf` is not supported"),
        ("{", "is no JSON"),
        ({"choice": ["a"], "regex": "a"}, "both"),
    ):
        for ask in (lambda: kernel.run([megalith.Request("a", 3, format=format)]), lambda: program.prepare_format(format)):
            with pytest.raises(megalith.Error, match=message) as caught:
                ask()
            assert caught.value.kind == "request-format"
    for format in (5, {"regex": {1, 2}}, {"json_schema": float("nan")}):
        with pytest.raises(TypeError, match="format"):
            kernel.run([megalith.Request("a", 3, format=format)])
    with pytest.raises(megalith.Error, match="bytes of 1000 tokens"):
        program.set_token_bytes([b"a"] * 1000)
    made = program.prepare_format({"json_schema": {"type": "object", "properties": {"b": {"type": "integer"}}}})
    assert made.states > 5 and made.masks > 2 and made.bytes > 0 and len(made.notes) > 0


def test_what_a_pipeline_honours(program):
    static = {"bias", "banned", "allowed", "min_new_tokens"}
    by_text = {"repetition_penalty", "presence_penalty", "frequency_penalty", "format"}
    for name, edits in (("autoregressive", set()), ("canvas_refinement", static), ("speculative_lookup", static | by_text)):
        assert megalith.compile(megalith.pipeline(name), DEMO).edits == edits
    assert program.edits == static | by_text


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_session(device):
    """Tokens of several bytes: half of the vocabulary is said to spell something else."""
    program = megalith.compile(megalith.pipeline("adaptive_speculative"), DEMO)
    rng = random.Random(3)
    spelled = [bytes([token]) for token in range(256)]
    parts = ["true", '{"', '":', '"name"', '":true', "ab", "é", '", "']
    for token in range(128, 256):
        spelled[token] = rng.choice([*(part.encode() for part in parts), b"\xc3", b"\xa9", b""])
    program.set_token_bytes(spelled)
    kernel = program.load(device)
    settings = {"temperature": 1.2, "eos": [0], "format": {"json_schema": POINT}}
    plain = kernel.run([megalith.Request(prompt, 60, seed=i, **settings) for i, prompt in enumerate(PROMPTS)])
    with kernel.session() as session:
        for i, prompt in enumerate(PROMPTS):
            events = list(session.generate(prompt, 60, seed=i, **settings).events())
            tokens = [token for event in events for token in event.tokens]
            end = events[-1].end
            assert (tokens, end.format) == (plain[i].tokens.tolist(), plain[i].format)
            assert end.format == "partial" or is_point(b"".join(spelled[token] for token in tokens).decode())
        with pytest.raises(megalith.Error) as caught:
            session.submit(PROMPTS[0], 5, format={"regex": "("})
        assert caught.value.kind == "request-format"
    assert any(result.format == "complete" for result in plain)


def test_what_tokens_spell():
    tokenizer = texts.ByteTokenizer([3])
    assert tokenizer.all_bytes(258) == [bytes([token]) for token in range(256)] + [None, None]
    pieces = tokenizer.joined_pieces()
    assert [pieces.push(0xC3), pieces.push([0xA9, 65]), pieces.push(300), pieces.flush()] == ["", "éA", "", ""]


@pytest.mark.parametrize("kind", ["llama", "metaspace", "words"])
def test_what_tokens_of_a_tokenizer_spell(kind, tmp_path):
    """In the middle of a text each token adds what it spells, in every order; or it is refused."""
    tokenizers = pytest.importorskip("tokenizers")
    decoders = tokenizers.decoders
    names = ["<s>", "</s>", "▁", "▁a", "b", "▁b", "c▁d", "<0xC3>", "<0xA9>", "<0x0A>", "é", "##x"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({name: i for i, name in enumerate(names)}, []))
    made.add_special_tokens(["<s>", "</s>"])
    made.decoder = {
        "llama": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
        "metaspace": decoders.Metaspace(),
        "words": decoders.WordPiece(),
    }[kind]
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = texts.load(tmp_path)
    if kind == "words":
        with pytest.raises(texts.TextError, match="decoder does more"):
            tokenizer.all_bytes(len(names))
        return
    spelled = tokenizer.all_bytes(len(names) + 2)
    assert spelled[0] is None and spelled[-1] is None and spelled[3] == b" a"
    rng = np.random.default_rng(1)
    for _ in range(300):
        tokens = rng.integers(2, len(names), 9).tolist()
        text = b"".join(spelled[token] for token in tokens).decode(errors="replace")
        assert tokenizer.joined_pieces().push(tokens) == text or "\ufffd" in text
        assert tokenizer.decode(tokens, prompt=[4]) == text or "\ufffd" in text
