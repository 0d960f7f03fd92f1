"""What a user reads: texts of the server, of a session and of the chat, with tokenizers as checkpoints have them."""

import json
import subprocess
import sys

import megalith
import openai
import pytest
from megalith import text
from planted import plant, says
from serving import Served

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")


def client_of(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30)


def completed(server, model, **ask):
    """The text of a completion, whole and in pieces, which must be one; and the choice."""
    with client_of(server) as client:
        choice = client.completions.create(model=model, **ask).choices[0]
        pieces = [chunk.choices[0].text for chunk in client.completions.create(model=model, stream=True, **ask)]
    assert "".join(pieces) == choice.text
    return choice.text, choice


def streamed(folder, prompt, **options):
    """The text of a session's stream."""
    program = megalith.compile(megalith.pipeline("autoregressive"), folder)
    tokenizer = text.load(folder, program)
    with program.load("reference").session(tokenizer=tokenizer) as session:
        return "".join(tokenizer.stream(session.generate(prompt, **options)))


def chatted(folder, line):
    command = [sys.executable, "-m", "megalith", "chat", "--model", str(folder), "--pipeline", "autoregressive"]
    done = subprocess.run([*command, "--max-new-tokens", "8"], input=line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ===----------------------------------------------------------------------===#
# Llama 2: spaces are parts of words, bytes are tokens
# ===----------------------------------------------------------------------===#

WORDS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "▁Paris", "▁is", "▁world", "▁Hel", "lo"]
LLAMA = {word: number for number, word in enumerate(WORDS)}
EMOJI = [f"<0x{byte:02X}>" for byte in "😀".encode()]
ANSWERS = {
    2: ["▁Paris", "▁is", "▁the", "▁world", "<0x21>", "</s>"],
    12: ["▁Hel", "lo", "<s>", "▁the", "<unk>", "▁world", "<0x21>"],
    22: [*EMOJI, "<0xF0>", "</s>"],
    32: [*EMOJI, "<0xF0>", "<0x9F>", "▁the", "</s>"],
}


def numbers(words):
    return [LLAMA[word] for word in words]


def prompt_of(length):
    return [1] + [LLAMA["▁the"]] * (length - 1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "llama"
    folder.mkdir()
    made = tokenizers.Tokenizer(tokenizers.models.BPE(LLAMA, [], byte_fallback=True, unk_token="<unk>"))
    decoders = tokenizers.decoders
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens(WORDS[:3])
    made.save(str(folder / "tokenizer.json"))
    plant(folder, len(WORDS), says(*((length, numbers(words)) for length, words in ANSWERS.items())), eos_token_id=2)
    return folder


@pytest.fixture(scope="module")
def llama_server(llama):
    with Served("autoregressive", model=llama) as server:
        yield server


def test_the_first_space_of_an_answer_is_text(llama, llama_server):
    ask = {"prompt": prompt_of(2), "max_tokens": 8}
    got, choice = completed(llama_server, "llama", **ask, logprobs=0)
    assert (got, choice.finish_reason) == (" Paris is the world!", "stop")
    assert choice.logprobs.text_offset == [0, 6, 9, 13, 19, 20]
    assert completed(llama_server, "llama", **ask, stop=[" Paris"])[0] == ""
    assert completed(llama_server, "llama", **ask, stop=[" the"])[0] == " Paris is"
    assert streamed(llama, prompt_of(2), max_new_tokens=8) == " Paris is the world!"


def test_a_space_after_a_special_token_is_text(llama, llama_server):
    package = tokenizers.Tokenizer.from_file(str(llama / "tokenizer.json"))
    answer = numbers(ANSWERS[12])
    whole = package.decode([*prompt_of(12), *answer])
    got, _ = completed(llama_server, "llama", prompt=prompt_of(12), max_tokens=len(answer))
    assert got == " Hello the world!" and package.decode(prompt_of(12)) + got == whole
    assert streamed(llama, prompt_of(12), max_new_tokens=len(answer)) == got
    assert text.load(llama).decode(answer) == package.decode(answer) == "Hello the world!"


@pytest.mark.parametrize(
    "length, most, shown",
    [(22, 4, "😀"), (22, 5, "😀\ufffd"), (22, 8, "😀\ufffd"), (32, 6, "😀\ufffd\ufffd"), (32, 8, "😀\ufffd\ufffd the")],
)
def test_a_cut_byte_is_one_character(llama, llama_server, length, most, shown):
    assert completed(llama_server, "llama", prompt=prompt_of(length), max_tokens=most)[0] == shown


# ===----------------------------------------------------------------------===#
# ChatML: tokens that only files beside tokenizer.json know, or know to be special
# ===----------------------------------------------------------------------===#

BYTES = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
END, START, STOP, TOOL = range(256, 260)
DATE = "{% if date_string is not defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ 'Date: ' + date_string }}"
TURNS = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}<tool>"


def write_chatml(folder, listed, **files):
    """`listed`: in `added_tokens_decoder`, all as special. tokenizer.json knows START and STOP as plain ones, and TOOL not at all."""
    folder.mkdir()
    made = tokenizers.Tokenizer(tokenizers.models.BPE({character: number for number, character in enumerate(BYTES)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    made.add_tokens(["<|im_start|>", "<|im_end|>"])
    made.save(str(folder / "tokenizer.json"))
    names = {END: "<|endoftext|>", START: "<|im_start|>", STOP: "<|im_end|>", TOOL: "<tool>"}
    decoder = {str(number): {"content": name, "special": True} for number, name in names.items()}
    config = {"tokenizer_class": "Qwen2Tokenizer", "chat_template": DATE + TURNS}
    config |= {"added_tokens_decoder": decoder, "eos_token": "<|im_end|>"} if listed else {}
    files = {"tokenizer_config": config, "generation_config": {"eos_token_id": END, "do_sample": False}, **files}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    said = [START, *(BYTES.index(character) for character in "Hi!"), STOP, BYTES.index("x"), BYTES.index("x")]
    plant(folder, 264, says((2, said), (len("Date: x") + 6, said)), eos_token_id=END)
    return folder


@pytest.fixture(scope="module", params=[True, False], ids=["listed", "other files"])
def chatml(request, tmp_path_factory):
    files = {
        "special_tokens_map": {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]},
        "added_tokens": {"<tool>": TOOL},
    }
    return write_chatml(tmp_path_factory.mktemp("models") / "chatml", request.param, **({} if request.param else files))


def test_the_tokenizer_says_what_ends_a_text_and_what_has_none(chatml):
    is_listed = "added_tokens_decoder" in (chatml / "tokenizer_config.json").read_text()
    with Served("autoregressive", model=chatml) as server:
        got, choice = completed(server, "chatml", prompt="ab", max_tokens=8)
        assert (got, choice.finish_reason) == ("Hi!", "stop")

        def chat(**variables):
            body = {"messages": [{"role": "user", "content": "ab"}], "chat_template_kwargs": variables}
            return [server.call("POST", path, body | {"model": "chatml"}) for path in ("/tokenize", "/v1/chat/completions")]

        tokens, answer = chat(date_string="x")
        bos = [] if is_listed else [END]  # in special_tokens_map.json alone
        inner = [BYTES.index(character) for character in "ab"]
        date = [BYTES.index(character) for character in "Date:Ġx"]
        assert tokens[2]["tokens"] == [*date, *bos, START, *inner, STOP, TOOL]
        if not is_listed:
            assert answer[2]["choices"][0]["message"]["content"] == "Hi!"
            assert answer[2]["usage"]["completion_tokens"] == 5
        # What a template does wrong with a client's values is the client's to know.
        for value, what in ((5, 'not "int"'), (None, "NoneType"), ([], "list"), ({}, "dict")):
            for status, _, error in chat(date_string=value):
                assert status == 400 and "TypeError" in error["error"]["message"] and what in error["error"]["message"]
    assert streamed(chatml, "ab", max_new_tokens=8) == "Hi!"


def test_a_chat_ends_where_the_tokenizer_says(tmp_path):
    folder = write_chatml(tmp_path / "chatml", True)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": "{{ messages[0].content }}"}))
    assert chatted(folder, "ab\n") == "Hi!\n"


# ===----------------------------------------------------------------------===#
# generation_config.json
# ===----------------------------------------------------------------------===#


def test_settings_of_the_checkpoint_draw_the_tokens(tmp_path):
    x, y, z = (BYTES.index(character) for character in "xyz")
    generation = {"do_sample": True, "min_p": 1.0, "eos_token_id": END}
    folder = write_chatml(tmp_path / "drawn", True, generation_config=generation)
    plant(folder, 264, {place: {(y, x)[place % 2]: 5.0, (x, y)[place % 2]: 4.9, z: 4.8} for place in range(60)}, eos_token_id=END)
    ask = {"prompt": "abc", "max_tokens": 12, "seed": 1}
    with Served("sampled", model=folder) as server:
        assert completed(server, "drawn", **ask)[0] == "yxyxyxyxyxyx"
        assert completed(server, "drawn", **ask, extra_body={"min_p": 0.0})[0] != "yxyxyxyxyxyx"
