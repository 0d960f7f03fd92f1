"""Text that comes in pieces is the whole text, for each kind of decoder, as the package `tokenizers` makes it."""

import json
import random

import pytest
from megalith import text

tokenizers = pytest.importorskip("tokenizers")
decoders, models = tokenizers.decoders, tokenizers.models

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>"]
CORPUS = ["Hello world, the cat sat on the mat. It's fine, isn't it? Grüße, 日本語 😀 !"] * 4


def numbered(*tokens):
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def byte_level(vocabulary=340):
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    made.train_from_iterator(CORPUS, trainer)
    made.add_tokens(["<tool>", " ▁two words"])  # text, and no characters of that alphabet
    return made, decoders.ByteLevel()


def llama():
    words = ["▁", "▁▁", "▁the", "▁cat", "s", "▁Hel", "lo", "!", "é", "😀", "日", "\ufffd", " ", "a b"]
    made = tokenizers.Tokenizer(models.BPE(numbered(*SPECIAL, *BYTES, *words), [], byte_fallback=True))
    made.add_tokens(["<tool>"])
    return made, decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )


def gemma():
    made, _ = llama()
    return made, decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])


def runs_held():
    """Steps after the bytes look at whole tokens; ends are stripped, and a pattern goes over tokens."""
    made, _ = llama()
    return made, decoders.Sequence(
        [
            decoders.ByteFallback(),
            decoders.Metaspace("▁", "always"),
            decoders.Fuse(),
            decoders.Replace("llo ", "LLO_"),
            decoders.Strip(" ", 2, 0),
        ]
    )


def metaspace(scheme):
    words = ["▁", "▁▁a", "▁the", "s", "▁a▁b", "lo", "!", "é", "😀", " ", "x▁"]
    vocabulary = [(token, -1.0) for token in (*SPECIAL, *words)]
    return tokenizers.Tokenizer(models.Unigram(vocabulary, 0)), decoders.Metaspace("▁", scheme)


def word_piece():
    words = ["hello", "##lo", "##", "#", "world", ".", ",", "'", "##s", "n't", "do", "not", "é", "##😀", "a ."]
    made = tokenizers.Tokenizer(models.WordPiece(numbered(*SPECIAL, *words), unk_token="<unk>"))
    return made, decoders.WordPiece("##", True)


def suffixes():
    words = ["hel", "lo</w>", "</w>", "a</w>b</w>", "world</w>", "é", "<", "!</w>", " "]
    return tokenizers.Tokenizer(models.BPE(numbered(*SPECIAL, *words), [])), decoders.BPEDecoder("</w>")


def repeats():
    words = ["a", "b", "|", "<pad>", "'", "n't", "|a|", "é"]
    made = tokenizers.Tokenizer(models.WordLevel(numbered(*SPECIAL, *words), "<unk>"))
    return made, decoders.CTC("<pad>", "|", True)


def no_decoder():
    words = ["hello", "world", " ", "é", "!", "a b"]
    return tokenizers.Tokenizer(models.WordLevel(numbered(*SPECIAL, *words), "<unk>")), None


KINDS = {
    "byte level": byte_level,
    "byte fallback, first space stripped": llama,
    "byte fallback": gemma,
    "byte fallback, runs held": runs_held,
    "metaspace, always": lambda: metaspace("always"),
    "metaspace, first": lambda: metaspace("first"),
    "metaspace, never": lambda: metaspace("never"),
    "word pieces": word_piece,
    "suffixes": suffixes,
    "repeats dropped": repeats,
    "no decoder": no_decoder,
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    """That of the package, and ours."""
    made, decoder = KINDS[request.param]()
    if decoder is not None:
        made.decoder = decoder
    made.add_special_tokens(SPECIAL)
    return made, load(made, tmp_path_factory.mktemp("model"))


def load(made, folder, **config):
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"eos_token_id": 2}')
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return text.load(folder)


def draw(chance, made):
    """Special tokens, ids of none, words, and runs of bytes: whole characters, or cut ones."""
    size = made.get_vocab_size()
    first = made.token_to_id("<0x00>")
    out = []
    for _ in range(chance.randrange(12)):
        kind = chance.random()
        if kind < 0.15:
            out.append(chance.randrange(len(SPECIAL)))
        elif kind < 0.2:
            out.append(size + chance.randrange(3))
        elif kind < 0.5 and first is not None:
            one = chance.choice(["é", "日本", "😀", "a😀é", " x"]).encode()
            if chance.random() < 0.4:
                one = chance.choice([b"\xf0\x9f\x98", b"\xe2", b"\xff\x80", b"\xc3"])
            out += [made.token_to_id("s"), *(first + byte for byte in one), made.token_to_id("s")]
        else:
            token = chance.randrange(size)
            if first is None or not first <= token < first + 256:
                out.append(token)
    return out


def in_pieces(tokenizer, tokens, **options):
    pieces = tokenizer.pieces(**options)
    return [pieces.push(token) for token in tokens] + [pieces.flush()]


def test_pieces_are_the_whole_text(pair):
    made, tokenizer = pair
    chance = random.Random(1)
    different = 0
    for number in range(3000):
        tokens = draw(chance, made)
        shown = number % 2 == 1
        got = in_pieces(tokenizer, tokens, special=shown)
        whole = made.decode(tokens, skip_special_tokens=not shown)
        different += "".join(got) != whole or tokenizer.decode(tokens, special=shown) != whole
    assert different == 0


def test_text_after_a_prompt_is_what_it_adds(pair):
    """So offsets in the text are those in the text of all tokens."""
    made, tokenizer = pair
    chance = random.Random(2)
    for number in range(500):
        tokens = draw(chance, made)
        cut = chance.randrange(len(tokens) + 1)
        shown = number % 2 == 1
        whole = made.decode(tokens, skip_special_tokens=not shown)
        before = tokenizer.decode(tokens[:cut], special=shown)
        got = tokenizer.decode(tokens[cut:], tokens[:cut], special=shown)
        if whole.startswith(before):
            assert before + got == whole
        else:  # a character is not cut any more, or a space does not end the text any more
            same = next(place for place in range(len(before) + 1) if not whole.startswith(before[: place + 1]))
            assert whole.endswith(got) and len(whole) - len(got) <= same
    long = [token for _ in range(30) for token in draw(chance, made)]
    after = tokenizer.decode(long[-2:], long[:-2])
    assert tokenizer.decode(long).endswith(after)


def test_the_first_space_of_a_completion(tmp_path):
    made, made.decoder = llama()
    made.add_special_tokens(SPECIAL)
    tokenizer = load(made, tmp_path)
    the, cat, s = (made.token_to_id(each) for each in ("▁the", "▁cat", "s"))
    assert in_pieces(tokenizer, [cat, s], prompt=[1, the]) == [" cat", "s", ""]
    assert in_pieces(tokenizer, [cat, s], prompt=[1]) == ["cat", "s", ""]
    assert in_pieces(tokenizer, [the, 3, cat]) == ["the", "", " cat", ""]  # a space after a special token is text

    class Generation(list):
        prompt = [1, the]

    assert list(tokenizer.stream(Generation([cat, s]))) == [" cat", "s"]
    assert list(tokenizer.stream(Generation([cat, s]), prompt=[])) == ["cat", "s"]


def apart(made, tokens):
    """The package's text, where each character of a run of bytes, and each byte that is of none, is a run of its own."""
    first, between = made.token_to_id("<0x00>"), made.token_to_id("<tool>")
    out, run = [], b""
    for token in [*tokens, None]:
        if token is not None and first <= token < first + 256:
            run += bytes([token - first])
            continue
        while run:
            sizes = [size for size in (1, 2, 3, 4) if len(text := run[:size].decode(errors="replace")) == 1 and text != "\ufffd"]
            size = sizes[0] if sizes else 1
            out += [*(first + byte for byte in run[:size]), between]
            run = run[size:]
        out += [] if token is None else [token]
    return made.decode(out).replace("<tool>", "")


@pytest.mark.parametrize("kind", ["byte fallback, first space stripped", "byte fallback"])
def test_cut_bytes(kind, tmp_path):
    """Characters of a run that are whole stay, whatever stands beside them. The package gives up all of the run."""
    made, made.decoder = KINDS[kind]()
    made.add_special_tokens(SPECIAL)
    tokenizer = load(made, tmp_path)

    def tokens(text):
        return [made.token_to_id("<0x00>") + byte for byte in text]

    emoji = "😀".encode()
    assert in_pieces(tokenizer, tokens(emoji + b"\xf0")) == ["", "", "", "😀", "", "\ufffd"]
    assert tokenizer.decode(tokens(b"a\xff" + emoji + b"\xe2\x82" + b"b")) == "a\ufffd😀\ufffd\ufffdb"
    assert tokenizer.decode(tokens(emoji[2:]), tokens(emoji[:2])) == "😀"
    assert tokenizer.decode([made.token_to_id("s")], tokens(emoji[:2])) == "s"
    chance = random.Random(5)
    parts = [b"a", b" ", "é".encode(), "日".encode(), emoji, emoji[:3], emoji[:1], b"\xc3", b"\xff", b"\x80", b"\xed\xa0\x80"]
    words = [made.token_to_id(word) for word in ("▁the", "s", "▁", "!")]
    different = mixed = 0
    for _ in range(1000):
        drawn = [chance.choice(words)]
        while chance.random() < 0.85:
            drawn += tokens(chance.choice(parts)) if chance.random() < 0.7 else [chance.choice(words)]
        different += "".join(in_pieces(tokenizer, drawn)) != apart(made, drawn)
        mixed += apart(made, drawn) != made.decode(drawn)
    assert different == 0 and mixed > 300


def test_pieces_are_linear(tmp_path):
    """Work is counted, in calls of a step, and not in time."""
    made, made.decoder = llama()
    made.add_special_tokens(SPECIAL)
    tokenizer = load(made, tmp_path)
    first = made.token_to_id("<0x00>")
    pieces = tokenizer.pieces()
    lengths = {len(pieces.push(first + 0x80 + number % 64)) for number in range(8000)}
    assert lengths <= {1} and pieces.flush() == ""


CLEAN = ["hello", ".", "do", "n't", "'", "it", "'s", "é", ",", "!", "?"]


def clean_up(value):
    for pattern in (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're"):
        value = value.replace(pattern, pattern.strip(" "))
    return value


def test_clean_up_as_transformers_5_does_it(tmp_path):
    chance = random.Random(3)
    made = tokenizers.Tokenizer(models.WordLevel(numbered(*SPECIAL, *CLEAN), "<unk>"))
    made.add_special_tokens(SPECIAL)
    tokenizer = load(made, tmp_path, clean_up_tokenization_spaces=True)
    for _ in range(1000):
        tokens = [chance.randrange(4, made.get_vocab_size()) for _ in range(chance.randrange(15))]
        assert "".join(in_pieces(tokenizer, tokens)) == clean_up(made.decode(tokens))
    # A space in front of a point is text of BPE.
    words = [token if chance.random() < 0.5 else " " + token for token in CLEAN]
    made = tokenizers.Tokenizer(models.BPE(numbered(*SPECIAL, *words), []))
    made.decoder = decoders.Fuse()
    (tmp_path / "tokenizer.json").unlink()
    tokenizer = load(made, tmp_path, clean_up_tokenization_spaces=True)
    assert tokenizer.decode(range(4, 15)) == "".join(words)


@pytest.mark.parametrize(
    "kind", ["byte level", "byte fallback, first space stripped", "metaspace, always", "word pieces"]
)
def test_bytes_of_tokens(kind, tmp_path):
    made, made.decoder = KINDS[kind]()
    made.add_special_tokens(SPECIAL)
    tokenizer = load(made, tmp_path)
    assert tokenizer.bytes_of(1) is None and tokenizer.bytes_of(made.get_vocab_size()) is None
    for token in range(len(SPECIAL), made.get_vocab_size()):
        assert isinstance(tokenizer.bytes_of(token), bytes)
    if kind == "word pieces":
        assert tokenizer.bytes_of(made.token_to_id("world")) == b" world"
        assert tokenizer.bytes_of(made.token_to_id("##s")) == b"s"
    elif kind == "byte level":
        chance = random.Random(4)
        tokens = [chance.randrange(len(SPECIAL), made.get_vocab_size()) for _ in range(300)]
        assert b"".join(map(tokenizer.bytes_of, tokens)).decode(errors="replace") == made.decode(tokens)
    elif kind.startswith("byte fallback"):
        assert tokenizer.bytes_of(made.token_to_id("<0xE2>")) == b"\xe2"
        assert tokenizer.bytes_of(made.token_to_id("▁cat")) == b" cat"
