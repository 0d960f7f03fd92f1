"""What the documentation shows is run, and gives what it says."""

import importlib.util

import pytest
from conftest import ROOT

SPEC = importlib.util.spec_from_file_location("run_docs", ROOT / "scripts/run_docs.py")
run_docs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run_docs)


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_examples_of(page):
    blocks = [block for block in run_docs.blocks_of(page) if block.language == "python"]
    assert blocks
    for block, (printed, failure) in zip(blocks, run_docs.run_python(blocks, ROOT)):
        assert failure is None, failure
        assert block.output is None or run_docs.is_shown(block.output.splitlines(), printed), printed


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
    import select
    import subprocess
    import sys

    from serving import wait_until_asleep

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
            assert select.select([ours], [], [], 60)[0], f"waited for {pattern}, and saw {seen}"
            seen += os.read(ours, 4096).decode(errors="replace")
        found, seen = seen, ""
        return found

    def type_in(text):
        wait_until_asleep(chat.pid)  # a prompt is shown before the terminal is read
        os.write(ours, text.encode())

    try:
        wait_for("> $")
        type_in("And God said\n")
        wait_for("said\r\n.+unto him")
        type_in("\x03")
        assert len(wait_for("\n> $")) < 1900  # of 2000 tokens
        type_in("a line\x03")
        wait_for("Ctrl-C once more, or Ctrl-D, ends the chat.\r\n> $")
        type_in("\x04")
        assert chat.wait(60) == 0
        assert os.read(ours, 100) == b"\r\n"
    finally:
        chat.kill()
        os.close(ours)
