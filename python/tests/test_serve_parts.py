"""Parts of `megalith-serve`, without a server."""


import megalith.serve
import pytest
from megalith._templates import Templates
from megalith.serve._engine import StopText
from megalith.serve._fields import read_json
from megalith.serve._protocol import ApiError, Limits
from megalith.serve._requests import read_job


@pytest.mark.parametrize(
    "stops, text, given",
    [
        (["abc"], "xxabcyy", "xx"),
        (["abc"], "ababcx", "ab"),
        (["abc"], "xxab", "xxab"),
        (["aab"], "aaaab", "aa"),
        (["abcd", "bc"], "xabcd", "xa"),
        (["bc", "abc"], "xabcd", "x"),
        (["é!"], "é?é!", "é?"),
        ([], "abc", "abc"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_stop_texts(stops, text, given, size):
    stop, out = StopText(stops), ""
    for begin in range(0, len(text), size):
        if stop.found:
            break
        piece = stop.push(text[begin : begin + size])
        out += piece
        assert given.startswith(out)  # nothing was given too early
    assert out + stop.flush() == given and stop.found == (given != text)


def test_what_is_held_back_is_no_more_than_needed():
    stop = StopText(["</end>"])
    assert [stop.push(piece) for piece in ["a<", "b", "</", "en", "x"]] == ["a", "<b", "", "", "</enx"]


def limits_of(**members):
    known = dict(model="m", context=100, prompt_tokens=90, completion_tokens=50, vocabulary=260, samples=True)
    return Limits(**{**known, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "ends": 64, "eos": 1, **members})


def test_what_is_not_said():
    tokenizer = megalith.text.ByteTokenizer([257])
    job = read_job({"model": "m", "prompt": "abc"}, False, limits_of(), tokenizer)
    assert job.prompts == [[97, 98, 99]] and job.budgets == [16] and len(job.seeds) == 1 and job.seeds[0] is not None
    assert job.settings == {
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0,
        "stop": [],
        "priority": 0,
        "cache": 0,
        "inputs": {},
    }
    tokenizer._templates = Templates({"default": "{{ messages[0].content }}{{ thinks }}"})
    body = {"model": "m", "messages": [{"role": "user", "content": "abc"}], "chat_template_kwargs": {"thinks": "!"}}
    job = read_job(body, True, limits_of(), tokenizer)
    assert bytes(job.prompts[0]) == b"abc!" and job.budgets == [50]
    assert read_job(body, True, limits_of(completion_tokens=100), tokenizer).budgets == [96]


def test_logprobs_without_lines():
    with pytest.raises(ApiError, match="see --logit-lines"):
        read_job({"model": "m", "prompt": "a", "logprobs": 1}, False, limits_of(), megalith.text.ByteTokenizer())


def test_seeds_of_choices():
    tokenizer = megalith.text.ByteTokenizer()

    def seeds(**body):
        return read_job({"model": "m", "prompt": ["a", "b"], **body}, False, limits_of(), tokenizer).seeds

    first = seeds(seed=7, n=3)
    assert first == seeds(seed=7, n=3) and first[0] == first[3] == 7 and len(set(first)) == 3
    assert all(0 <= seed < 2**32 for body in (-1, 2**63 - 1, -(2**63)) for seed in seeds(seed=body, n=3))
    assert seeds(seed=7, temperature=0) == [None, None]


def test_stop_texts_go_to_the_engine_where_they_are_exact():
    class Known(megalith.text.ByteTokenizer):
        def exact(self, text):
            return {"<|end|>": [258], "<|beyond|>": [260]}.get(text)

    def stop(tokenizer, **body):
        return read_job({"model": "m", "prompt": "a", **body}, False, limits_of(), tokenizer).settings["stop"]

    assert stop(Known(), stop=["<|end|>", "<|beyond|>", "x"], stop_token_ids=[5, 5]) == [[5], [258]]
    assert stop(megalith.text.ByteTokenizer(), stop=["ab", "x" * 100]) == [[97, 98]]  # the other one has no room
    with pytest.raises(ApiError, match="has 40 tokens, and this server takes 31"):
        stop(Known(), stop_token_ids=list(range(40)))


def test_json():
    for body in b"\xff", b"1", b'{"a": Infinity}', b'"\\ud800"':
        with pytest.raises(ApiError):
            read_json(body)
    assert read_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "\N{GRINNING FACE}"}


def test_a_special_token_is_exact(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, []))
    made.add_special_tokens(["<|end|>"])
    made.add_tokens(["plain"])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = megalith.text.HuggingFaceTokenizer(tmp_path)
    assert tokenizer.exact("<|end|>") == [2]
    assert tokenizer.exact("plain") is tokenizer.exact("a") is tokenizer.exact("c") is None
