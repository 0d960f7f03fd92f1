"""The tokenizer that a folder means, as `transformers` 4.46, 4.57 and 5.24 read it. Where they differ, as 4.57 does."""

import json
import os

import pytest
from megalith import text

tokenizers = pytest.importorskip("tokenizers")
ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
BASE = ["<s>", "</s>", "<unk>", "<|endoftext|>"]  # 256 to 259
P = "PreTrainedTokenizerFast"
SHOWN = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token }}"


def token(content, special=True, **flags):
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"content": content, **plain, "special": special, **flags}


@pytest.fixture
def make(tmp_path):
    """A folder: tokenizer_config.json, then other files by name."""

    def of(config=None, added=BASE, words=(), post=None, plain=(), kind="gpt2", **files):
        vocabulary = {word: number for number, word in enumerate([*ALPHABET, *words])}
        made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        made.add_special_tokens(list(added))
        made.add_tokens(list(plain))
        if post == "bytes":
            made.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
        elif post == "bos":
            bos = [("<s>", made.token_to_id("<s>"))]
            made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=bos)
        made.save(str(tmp_path / "tokenizer.json"))
        files = {"config": {"model_type": kind, "eos_token_id": 256}, "tokenizer_config": config, **files}
        for name, value in files.items():
            if value is not None:
                (tmp_path / f"{name}.json").write_text(json.dumps(value))
        return tmp_path

    return of


@pytest.fixture
def load(make):
    return lambda *arguments, **options: text.load(make(*arguments, **options))


def names(tokenizer, value):
    return [tokenizer.name_of(each) for each in tokenizer.encode(value, special=False)]


def test_added_tokens_decoder(load):
    listed = {
        "256": token("<|endoftext|>"),
        "257": token("<tool>"),
        "258": token("<|assistant|>", rstrip=True),
        "259": token("<plain>", special=False, lstrip=True),
        "260": token("word", special=False, single_word=True),
    }
    tokenizer = load({"tokenizer_class": P, "added_tokens_decoder": listed}, added=["<|endoftext|>"])
    assert tokenizer.encode("a<tool>b") == [64, 257, 65]
    assert names(tokenizer, "a <|assistant|>  b <plain>") == ["a", "Ġ", "<|assistant|>", "b", "<plain>"]
    assert 260 in tokenizer.encode("a word b") and 260 not in tokenizer.encode("awords")
    assert tokenizer.decode([64, 257, 258, 259, 65]) == "a<plain>b"
    assert tokenizer.decode([64, 257, 258, 259, 65], special=True) == "a<tool><|assistant|><plain>b"
    assert tokenizer.exact("<tool>") == [257] and tokenizer.exact("<plain>") is None


def test_its_flags_go_before_those_of_tokenizer_json(load):
    listed = {"256": token("<s>", lstrip=True), "260": token("<tool>", special=False)}
    tokenizer = load({"tokenizer_class": P, "added_tokens_decoder": listed}, plain=["<tool>"])
    assert names(tokenizer, "a <s>b") == ["a", "<s>", "b"]
    assert tokenizer.decode(tokenizer.encode("a<tool>")) == "a<tool>"


def test_tokens_without_a_place_get_the_next_ones(load):
    listed = {"300": token("<later>"), "270": token("<tool>")}
    config = {"tokenizer_class": P, "added_tokens_decoder": listed, "pad_token": "<pad>", "bos_token": "<new>"}
    tokenizer = load({**config, "additional_special_tokens": ["<more>"]})
    assert tokenizer.encode("<tool><later><new><pad><more>") == [260, 261, 262, 263, 264]


def test_added_tokens_json(load):
    config = {"tokenizer_class": P, "additional_special_tokens": ["<|im_end|>"]}
    tokenizer = load(config, added_tokens={"<tool>": 260, "<|im_end|>": 261, "<s>": 256})
    assert tokenizer.encode("a<tool><|im_end|>") == [64, 260, 261]
    assert tokenizer.decode([64, 260, 261, 256]) == "a<tool>"


def test_named_tokens_are_special(load):
    config = {"tokenizer_class": P, "eos_token": "<|im_end|>", "additional_special_tokens": ["<tool>", token("<x>")]}
    tokenizer = load(config, plain=["<|im_end|>", "<tool>"], words=["<x>"])
    ids = tokenizer.encode("a<|im_end|><tool><x>")
    assert len(ids) == 4 and tokenizer.decode(ids) == "a"
    assert tokenizer.eos == {256, ids[1]}


@pytest.mark.parametrize(
    "extra, shown", [({"image_token": "<x>"}, "<x>"), (["<x>"], ""), ([token("<x>", special=False)], "")]
)
def test_extra_special_tokens(load, extra, shown):
    pytest.importorskip("jinja2")
    tokenizer = load({"tokenizer_class": P, "extra_special_tokens": extra, "chat_template": "{{ image_token }}"})
    assert tokenizer.encode("<x>") == [260] and tokenizer.decode([260]) == ""
    assert tokenizer.chat_text([]) == shown


@pytest.mark.parametrize(
    "config, special_map, shown",
    [
        ({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}, None, "<s>|</s>||"),
        ({}, {"bos_token": "<s>", "eos_token": {"content": "</s>"}}, "<s>|</s>||"),
        ({"eos_token": "<unk>"}, {"bos_token": "<s>", "eos_token": "</s>"}, "<s>|</s>||"),  # the map goes first
        ({"eos_token": "</s>", "added_tokens_decoder": {"257": token("</s>")}}, {"bos_token": "<s>"}, "|</s>||"),
        ({"tokenizer_class": "LlamaTokenizer"}, None, "<s>|</s>||<unk>"),  # a class has defaults
        ({"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<unk>"}, None, "<unk>|</s>||<unk>"),
        ({"tokenizer_class": "GPT2TokenizerFast", "bos_token": None}, None, "|<|endoftext|>||<|endoftext|>"),
        ({"tokenizer_class": "Qwen2Tokenizer"}, None, "|<|endoftext|>|<|endoftext|>|<|endoftext|>"),
        ({"tokenizer_class": "GemmaTokenizer"}, None, "|||<unk>"),  # the vocabulary has no others
        ({"tokenizer_class": None}, None, "<|endoftext|>|<|endoftext|>||<|endoftext|>"),  # that of the model's type
    ],
)
def test_named_tokens_of_templates(load, config, special_map, shown):
    pytest.importorskip("jinja2")
    config = {"tokenizer_class": P, "chat_template": SHOWN, **config}
    assert load(config, special_tokens_map=special_map).chat_text([]) == shown


@pytest.mark.parametrize(
    "config, post, ids",
    [
        ({"tokenizer_class": "LlamaTokenizer"}, None, [256, 64]),
        ({"tokenizer_class": "LlamaTokenizer"}, "bytes", [256, 64]),
        ({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False}, "bos", [64]),
        ({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True}, "bytes", [256, 64]),
        ({"tokenizer_class": "LlamaTokenizerFast", "add_eos_token": True}, "bos", [256, 64, 257]),
        ({"tokenizer_class": "LlamaTokenizer", "backend": "tokenizers"}, "bytes", [64]),  # 5 has saved it
        ({"tokenizer_class": "GPTNeoXTokenizerFast"}, "bos", [64]),
        ({"tokenizer_class": "GPTNeoXTokenizerFast", "add_bos_token": True}, "bytes", [259, 64]),
        ({"tokenizer_class": "GPT2TokenizerFast", "add_bos_token": True}, "bytes", [64]),  # it does not look at it
        ({"tokenizer_class": P, "bos_token": "<s>", "add_bos_token": True}, "bytes", [64]),
        ({"tokenizer_class": P, "bos_token": "<s>", "add_bos_token": False}, "bos", [256, 64]),
        ({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": True}, "bytes", [220, 64]),
        ({"tokenizer_class": P, "add_prefix_space": True}, "bytes", [220, 64]),
        ({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": True}, "bytes", [220, 64]),
    ],
)
def test_what_stands_around_a_text(load, config, post, ids):
    tokenizer = load(config, post=post)
    assert tokenizer.encode("a") == ids
    if 220 not in ids:
        assert tokenizer.encode("a", special=False) == [64]


@pytest.mark.parametrize(
    "config, ids",
    [
        ({"tokenizer_class": P}, [64]),
        ({"tokenizer_class": "GPT2TokenizerFast"}, [64]),
        ({"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False}, [64]),
        ({"tokenizer_class": P, "add_prefix_space": None}, [220, 64]),
        ({"tokenizer_class": "LlamaTokenizerFast"}, [220, 64]),
    ],
)
def test_a_first_space_of_tokenizer_json(make, config, ids):
    """The config goes before it, also where it says nothing."""
    folder = make(config)
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"add_prefix_space": false', '"add_prefix_space": true'))
    assert text.load(folder).encode("a", special=False) == ids


def test_flags_with_which_a_token_is_named(load):
    """They count where `added_tokens_decoder` does not have the token."""
    strips = token("</s>", lstrip=True)
    listed = {"256": token("<s>")}
    config = {"tokenizer_class": P, "eos_token": strips}
    assert names(load({**config, "added_tokens_decoder": listed}), "a </s>b") == ["a", "</s>", "b"]
    listed["257"] = token("</s>")
    assert names(load({**config, "added_tokens_decoder": listed}), "a </s>b") == ["a", "Ġ", "</s>", "b"]
    # Without it those of tokenizer.json go first.
    assert names(load(config), "a </s>b") == ["a", "Ġ", "</s>", "b"]
    config["pad_token"] = token("<pad>", rstrip=True)
    assert names(load(config, added_tokens={"<pad>": 260}), "a<pad> b") == ["a", "<pad>", "b"]


def test_a_default_of_a_class_that_another_file_has(load):
    tokenizer = load({"tokenizer_class": "GemmaTokenizer"}, added_tokens={"<pad>": 260})
    assert tokenizer.encode("<pad>")[-1] == 260 and tokenizer.decode([64, 260]) == "a"


def test_no_class_is_named(load):
    assert load(kind="llama").encode("a") == [64]
    assert load({"add_bos_token": True}, kind="llama", post="bytes").encode("a") == [256, 64]


def test_special_tokens_of_texts_may_be_no_tokens(load):
    tokenizer = load({"tokenizer_class": P, "split_special_tokens": True, "bos_token": "<s>"})
    assert tokenizer.encode("<s>") == [27, 82, 29]


@pytest.mark.parametrize(
    "config, files, eos",
    [
        ({"eos_token": "</s>"}, {}, {256, 257}),
        ({"eos_token": "</s>"}, {"generation_config": {"eos_token_id": [258, 259]}}, {257, 258, 259}),
        ({}, {}, {256}),
        ({}, {"special_tokens_map": {"eos_token": "</s>"}}, {256, 257}),
    ],
)
def test_the_tokenizers_own_end(load, config, files, eos):
    assert load({"tokenizer_class": P, **config}, **files).eos == eos


TEMPLATES = [{"name": "default", "template": "list"}, {"name": "rag", "template": "rag"}]


@pytest.mark.parametrize(
    "config, files, shown",
    [
        ("config", {}, {"default": "config"}),
        (TEMPLATES, {}, {"default": "list", "rag": "rag"}),
        ({"default": "object"}, {}, {"default": "object"}),
        ("config", {"chat_template.jinja": "file"}, {"default": "file"}),
        (
            "config",
            {"chat_template.jinja": "file", "additional_chat_templates/tool_use.jinja": "tools"},
            {"default": "file", "tool_use": "tools"},
        ),
        (None, {"chat_template.json": '{"chat_template": "processor"}'}, {"default": "processor"}),
        (None, {"chat_template.json": json.dumps({"chat_template": TEMPLATES})}, {"default": "list", "rag": "rag"}),
        ("config", {"chat_template.json": '{"chat_template": "processor"}'}, {"default": "config"}),
        (None, {}, {}),
    ],
)
def test_where_templates_are(make, config, files, shown):
    folder = make({"tokenizer_class": P, "chat_template": config})
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    tokenizer = text.load(folder)
    assert tokenizer.has_chat_template == bool(shown)
    assert (tokenizer._templates.sources if shown else {}) == shown


@pytest.mark.parametrize(
    "name, content, what",
    [
        ("tokenizer_config.json", b'{"a": ' * 100000, "nested too deeply"),
        ("tokenizer_config.json", b"[" * 100000, "nested too deeply"),
        ("tokenizer_config.json", b"[]", "must be a JSON object"),
        ("tokenizer_config.json", b"{", "cannot be read: Expecting property name"),
        ("tokenizer_config.json", b"\xff", "is no UTF-8"),
        ("tokenizer_config.json", b'{"eos_token": 5}', "`eos_token` must be a text"),
        ("tokenizer_config.json", b'{"bos_token": {"lstrip": true}}', "`bos_token` must be a text, or an object with"),
        ("tokenizer_config.json", b'{"bos_token": {"content": "x", "lstrip": 1}}', "must be true or false"),
        ("tokenizer_config.json", b'{"additional_special_tokens": 5}', "`additional_special_tokens` must be a list"),
        ("tokenizer_config.json", b'{"additional_special_tokens": [[]]}', "`additional_special_tokens` must be a text"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": []}', "`added_tokens_decoder` must be an object"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"x": {"content": "a"}}}', "no token's number"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"1": 5}}', "must be a text, or an object"),
        ("tokenizer_config.json", b'{"chat_template": 5}', "`chat_template` must be a text, or a list"),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "a"}]}', "`chat_template` must be a text, or a list"),
        ("special_tokens_map.json", b'{"additional_special_tokens": {"a": []}}', "must be a text, or an object"),
        ("special_tokens_map.json", b"{]", "cannot be read"),
        ("added_tokens.json", b'{"<x>": "260"}', "must be a whole number"),
        ("added_tokens.json", b"5", "must be a JSON object"),
        ("chat_template.json", b'{"chat_template": 5}', "`chat_template` must be a text, or a list"),
        ("chat_template.jinja", b"\xff", "is no UTF-8"),
        ("generation_config.json", b"[" * 100000, "nested too deeply"),
        ("tokenizer.json", b"[" * 100000, "cannot be read"),
        ("tokenizer.json", b"\xff", "cannot be read"),
        ("tokenizer.json", b"{}", "cannot be read"),
    ],
)
def test_wrong_files_are_told_in_a_line(make, name, content, what):
    folder = make()
    (folder / name).write_bytes(content)
    with pytest.raises(text.TextError) as caught:
        text.load(folder)
    told = str(caught.value)
    assert name in told and what in told and "\n" not in told and len(told) < 700


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "config.json",
        "generation_config.json",
        "chat_template.jinja",
        "chat_template.json",
    ],
)
def test_files_that_are_none(make, name):
    """They are neither waited for nor read without end."""
    path = make() / name
    for what in ("it is no regular file", "it is no regular file", "bytes, and at most"):
        path.unlink(missing_ok=True)
        if "bytes" in what:
            with path.open("wb") as file:
                file.truncate(1 << 40)  # of nothing
        elif path.with_suffix(".pipe").exists():
            path.symlink_to("/dev/zero")
        else:
            os.mkfifo(path.with_suffix(".pipe"))
            path.symlink_to(path.with_suffix(".pipe"))
        with pytest.raises(text.TextError, match=f"{name}` cannot be read: .*{what}"):
            text.load(path.parent)


def test_a_template_may_be_a_pipe(make):
    pytest.importorskip("jinja2")
    read, write = os.pipe()
    os.write(write, b"{{ messages[0].content }}")
    os.close(write)
    assert text.load(make(), chat_template=f"/dev/fd/{read}").chat_text([{"role": "user", "content": "a"}]) == "a"
    os.close(read)


def test_texts_that_are_none(load):
    tokenizer = load()
    for each in (tokenizer, text.ByteTokenizer()):
        with pytest.raises(text.TextError, match="half of a surrogate pair at character 1"):
            each.encode("a\ud800")
    with pytest.raises(text.TextError, match="no UTF-8 at byte 1"):
        tokenizer.encode(b"a\xff")
    assert tokenizer.decode([-1, 10**12, 64]) == "a" and tokenizer.name_of(10**12) == f"<{10**12}>"


def test_other_formats_are_named(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(text.TextError, match="makes one of its `tokenizer.model`"):
        text.load(tmp_path)
