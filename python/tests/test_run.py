"""`python -m megalith run`: prompts that are texts of any tokenizer."""

import base64
import json
import subprocess
import sys

import pytest
from conftest import DEMO


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The demo model with a tokenizer whose token i is the byte i, and nothing that says so."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("checkpoint")
    config = json.loads((DEMO / "config.json").read_text())
    del config["byte_vocabulary"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").symlink_to(DEMO / "model.safetensors")
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]  # of these bytes a character has the same number
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    return folder


def run(folder, *arguments, text=None):
    command = [sys.executable, "-m", "megalith", "run", "sampled", "--model", folder, "--device", "reference"]
    done = subprocess.run([*command, *arguments], input=text, capture_output=True, text=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_texts(folder):
    code, (first, second, last), errors = run(
        folder, "--prompt", "In the beginning ", "--prompt", "And God said ", "--max-new-tokens", "12"
    )
    assert (code, errors) == (0, "")
    assert (first["id"], first["text"], first["finish"]) == (0, "of the world", "length")
    assert (second["id"], second["text"], bytes(second["tokens"])) == (1, "unto him, If", b"unto him, If")
    assert last["summary"]["tokens"] == 24 and last["summary"]["metrics"] == {"tokens_committed": 24}


def test_a_file_of_requests(folder, tmp_path):
    lines = [
        {"id": "a", "text": "In the beginning ", "max_new_tokens": 12, "eos": 32},
        {"id": "b", "tokens": list(b"And God said "), "max_new_tokens": 3},
    ]
    text = "\n".join(map(json.dumps, lines)) + "\n"
    code, (first, second, _), errors = run(folder, "--requests", "-", text=text)
    assert (code, first["text"], first["finish"], second["text"], errors) == (0, "of ", "stop", "unt", "")
    (tmp_path / "r.jsonl").write_text(text + "\n" + '{"id": "c", "txet": "a", "max_new_tokens": 3}')
    code, results, errors = run(folder, "--requests", tmp_path / "r.jsonl")
    assert (code, results) == (1, []) and f"{tmp_path}/r.jsonl:4:" in errors and "txet" in errors


def test_what_is_wrong_is_told(folder):
    assert run(folder, "--requests", "-", "--max-new-tokens", "3", text="")[0] == 1
    code, results, errors = run(folder, "--requests", "nothing.jsonl")
    assert (code, results) == (1, []) and "nothing.jsonl" in errors
    assert run(folder)[0] == 2
    code, results, errors = run(folder, "--requests", "-", text='\n{"id": 1, "text": "\\ud800", "max_new_tokens": 2}')
    assert (code, results) == (1, []) and errors.startswith("error: <stdin>:2: the text has half of a surrogate pair")


@pytest.mark.parametrize(
    "redirected, code, errors",
    [
        ("<&-", 0, ""),
        (">&-", 1, "error: the standard output is closed\n"),
        (">/dev/full", 1, "error: the standard input or output: No space left on device\n"),
        ("| true", 0, ""),
    ],
)
def test_standard_files(folder, redirected, code, errors):
    command = f"{sys.executable} -m megalith run sampled --model {folder} --device reference --requests {folder}/r.jsonl"
    (folder / "r.jsonl").write_text('{"id": 1, "text": "a", "max_new_tokens": 1}\n')
    done = subprocess.run(["sh", "-c", f"{command} {redirected}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, errors)


def test_formats(folder):
    line = {"id": "a", "text": "In the", "max_new_tokens": 9, "sampling": {"format": {"regex": "né+!"}, "bias": [[33, 100]]}}
    code, (answer, _), errors = run(folder, "--requests", "-", text=json.dumps(line))
    assert (code, errors) == (0, "") and answer["text"] == "né!" and answer["format"] == "complete"
    command = [sys.executable, "-m", "megalith", "token-bytes"]
    done = subprocess.run([*command, folder], capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "") and len(lines) == 256
    assert [base64.b64decode(text)[0] for text, token in lines] == [int(token) for _, token in lines] == list(range(256))
    done = subprocess.run([*command, folder / "nothing"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == "" and "tokenizer.json" in done.stderr
