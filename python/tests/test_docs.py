"""What the documentation shows is run, and gives what it says."""

import re

import pytest
from conftest import ROOT

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.M | re.S)


def blocks_of(page):
    """(code, what it prints), in order. A block without a language right behind the code is its output."""
    text = (ROOT / page).read_text()
    found = list(BLOCK.finditer(text))
    for block, after in zip(found, [*found[1:], None]):
        if block[1] == "python":
            is_output = after and not after[1] and not text[block.end() : after.start()].strip()
            yield block[2], after[2] if is_output else None


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_examples_of(page, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = {}
    blocks = list(blocks_of(page))
    assert blocks
    for code, output in blocks:
        exec(compile(code, page, "exec"), names)
        printed = capsys.readouterr().out
        if output is not None:
            assert printed == output, code


def test_chat():
    import subprocess
    import sys

    command = [sys.executable, "-m", "megalith", "chat", "--model", ROOT / "models/demo", "--device", "reference"]
    chat = subprocess.run(
        [*command, "--max-new-tokens", "12"],
        input="In the beginning \n\nAnd God said \n",
        capture_output=True,
        text=True,
    )
    assert (chat.stdout, chat.returncode) == ("of the world\nunto him, If\n", 0)
    assert "no chat template" in chat.stderr and "reference executor" in chat.stderr
    wrong = subprocess.run(
        [*command, "--pipeline", "nothing.yaml"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert wrong.returncode == 1 and wrong.stderr.startswith("error: cannot read `nothing.yaml`")


def test_chat_on_a_terminal():
    """Ctrl-C ends an answer, and at the prompt takes the line away; Ctrl-D ends the chat."""
    import os
    import pty
    import re
    import subprocess
    import sys

    ours, theirs = pty.openpty()
    chat = subprocess.Popen(
        [sys.executable, "-m", "megalith", "chat", "--model", ROOT / "models/demo", "--device", "reference"]
        + ["--max-new-tokens", "2000"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
    )
    os.close(theirs)
    seen = ""

    def wait_for(pattern):
        nonlocal seen
        while not re.search(pattern, seen, re.S):
            seen += os.read(ours, 4096).decode(errors="replace")
        found, seen = seen, ""
        return found

    def type_in(text):
        os.write(ours, text.encode())

    wait_for("> $")
    type_in("And God said\n")
    wait_for("said\r\n.+unto him")
    type_in("\x03")
    wait_for("\n> $")  # of 2000 tokens few came
    type_in("a line\x03")
    wait_for("Ctrl-C once more, or Ctrl-D, ends the chat.\r\n> $")
    type_in("\x04")
    assert chat.wait(60) == 0
    assert os.read(ours, 100) == b"\r\n"
    os.close(ours)
