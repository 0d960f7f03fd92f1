"""Bodies of calls are read here: what they say, and the tokens of their texts.

Python runs one thing at a time, and a stream must not wait for a long body. So short ones are read at once, and longer
ones in processes of their own, which have the tokenizer, too. Chats wait for their template, on threads."""

from __future__ import annotations

import asyncio
import pickle
import select
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from .. import text as texts
from ._fields import read_json
from ._protocol import ApiError, Job, Limits
from ._requests import read_detokenize, read_job, read_tokenize
from ._response_requests import read_response

AT_ONCE = 4 << 10
"""Bytes of a body that is read where the streams are written."""
MIDDLE = 64 << 10
"""Longer ones have a process of their own: others do not wait for them."""
SECONDS = 10.0
"""A body is read in this time, or refused."""


@dataclass(frozen=True)
class Recipe:
    """How a process makes the tokenizer that the server has."""

    folder: str
    chat_template: str | None
    eos: tuple[int, ...]
    byte_vocabulary: bool
    vocabulary: int

    def load(self) -> texts.Tokenizer:
        program: Any = SimpleNamespace(
            eos=list(self.eos), byte_vocabulary=self.byte_vocabulary, vocabulary=self.vocabulary
        )
        return texts.load(self.folder, program, self.chat_template)


def read(what: str, body: bytes, limits: Limits, tokenizer: texts.Tokenizer) -> Any:
    try:
        value = read_json(body)
        if what == "response":
            return read_response(value, limits, tokenizer)
        if what in ("chat", "completion"):
            return read_job(value, what == "chat", limits, tokenizer)
        if what == "tokenize":
            tokens, wants_names = read_tokenize(value, limits, tokenizer)
            return tokens, [_name(token, tokenizer) for token in tokens] if wants_names else None
        assert what == "detokenize"
        return tokenizer.decode(read_detokenize(value, limits))
    except RecursionError as error:
        raise ApiError("the body is nested too deep") from error


def _name(token: int, tokenizer: texts.Tokenizer) -> str:
    known = tokenizer.bytes_of(token) if isinstance(tokenizer, texts.ByteTokenizer) else None
    return tokenizer.name_of(token) if known is None else known.decode(errors="backslashreplace")


# ===----------------------------------------------------------------------===#
# The process
# ===----------------------------------------------------------------------===#


def _write(file: BinaryIO, value: Any) -> None:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    file.write(struct.pack("<Q", len(content)))
    file.write(content)
    file.flush()


def _read(file: BinaryIO) -> Any:
    head = file.read(8)
    if len(head) < 8:
        raise EOFError
    size = struct.unpack("<Q", head)[0]
    content = file.read(size)
    if len(content) < size:
        raise EOFError
    return pickle.loads(content)


def main() -> None:
    """Answers until nobody asks any more."""
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        recipe, limits = _read(asked)
        tokenizer = recipe.load()
        while True:
            what, body = _read(asked)
            try:
                value = read(what, body, limits, tokenizer)
                if isinstance(value, Job):  # arrays are quick to take
                    value.prompts = [np.asarray(prompt, dtype=np.int32) for prompt in value.prompts]
                answer = True, value
            except ApiError as error:
                answer = False, error
            try:
                _write(answers, answer)
            except RecursionError:  # nothing is written then
                _write(answers, (False, ApiError("the body has values too deep in each other")))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass


class _Process:
    def __init__(self, head: Any) -> None:
        self.head = head
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()
        self.closed = False

    def ask(self, what: str, body: bytes) -> Any:
        with self.lock:
            if self.closed:
                raise EOFError
            if self.process is None or self.process.poll() is not None:
                # Its own group: Ctrl-C is for the server, which closes it.
                command = [sys.executable, "-c", "from megalith.serve._reader import main; main()"]
                self.process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
                )
                assert self.process.stdin
                _write(self.process.stdin, self.head)
                seconds = 60 + SECONDS  # it starts
            else:
                seconds = SECONDS
            process = self.process
        assert process.stdin and process.stdout
        _write(process.stdin, (what, body))
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        if not poll.poll(1000 * seconds):
            self.end()
            raise ApiError(f"the body took longer than {SECONDS:g} s to read; its texts, or what the chat template does with them, are too much")
        return _read(process.stdout)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for file in (self.process.stdin, self.process.stdout):
                assert file
                try:
                    file.close()
                except OSError:
                    pass
            self.process = None

    def close(self) -> None:
        self.closed = True
        if self.process is not None:
            self.process.kill()


class Reader:
    def __init__(self, limits: Limits, tokenizer: texts.Tokenizer, recipe: Recipe) -> None:
        self.limits, self.tokenizer = limits, tokenizer
        self._chats = ThreadPoolExecutor(4, thread_name_prefix="megalith-chat")
        self._lanes = [
            (_Process((recipe, limits)), ThreadPoolExecutor(1, thread_name_prefix="megalith-reader")) for _ in range(2)
        ]

    async def read(self, what: str, body: bytes) -> Any:
        loop = asyncio.get_running_loop()
        if len(body) <= AT_ONCE:
            if what in ("chat", "response", "tokenize"):
                return await loop.run_in_executor(self._chats, read, what, body, self.limits, self.tokenizer)
            return read(what, body, self.limits, self.tokenizer)
        process, threads = self._lanes[len(body) > MIDDLE]
        return await loop.run_in_executor(threads, self._ask, process, what, body)

    def _ask(self, process: _Process, what: str, body: bytes) -> Any:
        failed = ApiError("the body could not be read: its process has ended", status=500, kind="server_error")
        try:
            is_good, value = process.ask(what, body)
        except (EOFError, OSError) as error:
            process.end()
            raise failed from error
        if not is_good:
            raise value
        return value

    def close(self) -> None:
        self._chats.shutdown(wait=False, cancel_futures=True)
        for process, threads in self._lanes:
            process.close()
            threads.shutdown(wait=False, cancel_futures=True)
