"""What `generation_config.json` asks for counts, or is told."""

import json

import pytest
from megalith import _generation, text
from megalith._generation import GenerationDefaults, read_generation_config


@pytest.fixture
def read(tmp_path):
    def of(said, samples=True, name="generation_config.json", edits=()):
        (tmp_path / name).write_text(said if isinstance(said, str) else json.dumps(said))
        return read_generation_config(tmp_path, samples, edits)

    return of


def test_no_file_says_nothing(tmp_path):
    assert read_generation_config(tmp_path) == GenerationDefaults()


def test_what_counts(read):
    got = read(
        {
            "do_sample": True,
            "temperature": 0.6,
            "top_p": 0.9,
            "top_k": 20,
            "min_p": 0.05,
            "max_new_tokens": 64,
            "eos_token_id": [2, 7],
        }
    )
    assert (got.temperature, got.top_p, got.top_k, got.min_p, got.max_new_tokens) == (0.6, 0.9, 20, 0.05, 64)
    assert got.eos == {2, 7} and got.untold == []


def test_the_best_token(read):
    got = read({"do_sample": False, "temperature": 0.6, "min_p": 1.0})
    assert (got.temperature, got.top_p, got.top_k, got.min_p, got.untold) == (0.0, 1.0, 0, 0.0, [])
    got = read({"do_sample": True, "temperature": 0.6, "min_p": 0.1}, samples=False)
    assert got.temperature == 0 and got.min_p == 0
    assert got.untold == [
        "`temperature`, `min_p` of `generation_config.json` do not count: the pipeline takes the best token"
    ]
    assert read({"eos_token_id": 2}, samples=False).untold == []


def test_what_counts_where_the_pipeline_honours_it(read):
    for do_sample in True, False:  # it holds for the best token, too
        said = {"repetition_penalty": 1.05, "do_sample": do_sample}
        got = read(said, edits={"repetition_penalty"})
        assert (got.repetition_penalty, got.untold) == (1.05, [])
        assert read(said, edits={"bias"}).repetition_penalty == 1
    got = read({"repetition_penalty": 0}, edits={"repetition_penalty"})
    assert got.repetition_penalty == 1 and "must be a number from 0.001 to 1000, found 0" in got.untold[0]


def test_budgets(read):
    assert read({}).budget(10, 90) == 90
    assert read({"max_new_tokens": 5, "max_length": 20}).budget(10, 90) == 5
    assert read({"max_new_tokens": 500}).budget(10, 90) == 90
    assert read({"max_length": 20}).budget(4, 90) == 16
    assert read({"max_length": 20}).budget(20, 90) == 90


@pytest.mark.parametrize(
    "said, what",
    [
        (
            {"repetition_penalty": 1.05},
            "`repetition_penalty` of `generation_config.json` is 1.05, and that is not done",
        ),
        ({"no_repeat_ngram_size": 3}, "`no_repeat_ngram_size`"),
        ({"num_beams": 4}, "`num_beams`"),
        ({"suppress_tokens": [1]}, "`suppress_tokens`"),
        ({"stop_strings": ["a"]}, "`stop_strings`"),
        ({"forced_eos_token_id": 0}, "`forced_eos_token_id`"),
        ({"remove_invalid_values": True}, "`remove_invalid_values`"),
        ({"watermarking_config": {"bias": 1}}, "`watermarking_config`"),
        ({"typical_p": True}, "`typical_p`"),
        ({"min_p": 2}, "must be a number from 0 to 1, found 2"),
        ({"temperature": "hot"}, 'must be a number from 0 to 1000000, found "hot"'),
        ({"top_k": 1.5}, "must be a whole number, 0 or more, found 1.5"),
        ({"do_sample": 1}, "must be true or false"),
        ({"temprature": 1}, "`temprature` of `generation_config.json` is not known"),
    ],
)
def test_what_is_not_done_is_told(read, said, what):
    assert len(read(said).untold) == 1 and what in read(said).untold[0]


def test_values_that_ask_for_nothing_are_not_told(read):
    assert (
        read(
            {
                "repetition_penalty": 1.0,
                "no_repeat_ngram_size": 0,
                "num_beams": 1,
                "typical_p": 1,
                "suppress_tokens": None,
                "bad_words_ids": [],
                "early_stopping": True,
                "pad_token_id": 0,
                "bos_token_id": 1,
                "top_k": None,
                "_from_model_config": True,
                "transformers_version": "4.57.3",
            }
        )
        == GenerationDefaults()
    )


def test_without_the_file_the_keys_of_config_json(read):
    got = read({"temperature": 0.5, "repetition_penalty": 2, "hidden_size": 64, "eos_token_id": 3}, name="config.json")
    assert (got.temperature, got.eos) == (0.5, {3})
    assert got.untold == ["`repetition_penalty` of `config.json` is 2, and that is not done"]


@pytest.mark.parametrize("said", ["{", "[]", "[" * 100000, '{"a": ' * 100000, "\xff"])
def test_files_that_cannot_be_read(read, tmp_path, said):
    (tmp_path / "generation_config.json").write_bytes(said.encode("latin-1"))
    with pytest.raises(text.TextError) as caught:
        read_generation_config(tmp_path)
    assert "generation_config.json" in str(caught.value) and "\n" not in str(caught.value)


def test_a_key_has_one_place():
    assert not _generation._COUNTED & _generation._NO_MATTER
    assert not _generation._NOT_DONE.keys() & (_generation._COUNTED | _generation._NO_MATTER)
