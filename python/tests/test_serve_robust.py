"""`megalith-serve` under clients that mean no good, and under a machine that has little. No test depends on time: what must
go on is seen to go on."""

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from types import SimpleNamespace

import megalith
import numpy as np
import pytest
import uvicorn
from conftest import DEMO, PROMPTS
from megalith._events import Event
from megalith._templates import Templates
from megalith.serve import _connections
from megalith.serve._app import Answer, Facts, make_app
from megalith.serve._cli import _bind, _NoPlace, main, make_parser
from megalith.serve._connections import Connection, Gate
from megalith.serve._engine import Engine
from megalith.serve._fields import read_json
from megalith.serve._log import MOST_LINES, Log
from megalith.serve._opened import _token_bytes
from megalith.serve._protocol import ApiError, Limits
from megalith.serve._reader import AT_ONCE, Reader, Recipe
from megalith.serve._requests import read_job
from serving import TEMPLATE, Served, wait_for, wait_in_loop_for

# ===----------------------------------------------------------------------===#
# Long bodies
# ===----------------------------------------------------------------------===#

LIMITS = Limits("m", 100, 90, 50, 260, True, 1.0, 1.0, 0, 64, 1, token_bytes=1)
RECIPE = Recipe(str(DEMO), None, (257,), True, 260)


def test_the_loop_goes_on_while_long_bodies_are_read():
    bodies = [
        json.dumps({"model": "m", "prompt": "a", "max_tokens": 5, "user": [[["x"]]] * 60000}).encode(),
        json.dumps({"model": "m", "prompt": ["a" * 80] * 100, "metadata": "x" * 5000}).encode(),
        json.dumps({"model": "m", "prompt": "a" * 500000}).encode(),
    ]

    async def run():
        ticks = 0
        with contextlib.closing(Reader(LIMITS, megalith.text.ByteTokenizer(), RECIPE)) as reader:
            waits = asyncio.ensure_future(
                asyncio.gather(*(reader.read("completion", body) for body in bodies), return_exceptions=True)
            )
            while not waits.done():
                ticks += 1
                await asyncio.sleep(0)
            return ticks, await waits

    ticks, (first, second, third) = asyncio.run(run())
    assert ticks > 1000
    assert [list(prompt) for prompt in first.prompts] == [[97]] and first.budgets == [5]
    assert len(second.prompts) == 100 and second.prompts[0].dtype == np.int32
    assert isinstance(third, ApiError) and third.code == "context_length_exceeded"


def test_a_text_that_is_too_long_is_not_made_tokens():
    class Never(megalith.text.ByteTokenizer):
        def encode(self, text, *, special=True):
            assert len(text) <= 90
            return super().encode(text, special=special)

    tokenizer = Never()
    tokenizer._templates = Templates({"default": "{{ messages[0].content }}"})
    for body in {"prompt": "a" * 91}, {"prompt": ["a", "a" * 91]}, {"messages": [{"role": "user", "content": "a" * 91}]}:
        with pytest.raises(ApiError, match="91 characters, which are 91 tokens or more, and this server takes 90"):
            read_job({"model": "m", **body}, "messages" in body, LIMITS, tokenizer)


def test_how_long_a_token_is(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")

    def made(**parts):
        one = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "é": 1, "aé": 2}, [("a", "é")]))
        for name, part in parts.items():
            setattr(one, name, part)
        one.add_special_tokens(["<end>"])
        one.save(str(tmp_path / "tokenizer.json"))
        return _token_bytes(megalith.text.HuggingFaceTokenizer(tmp_path))

    normalizers = tokenizers.normalizers
    assert _token_bytes(megalith.text.ByteTokenizer()) == 1 and made() == 5
    assert made(normalizer=normalizers.NFC()) == 15
    assert made(normalizer=normalizers.Strip()) == 0 == made(pre_tokenizer=tokenizers.pre_tokenizers.Whitespace())
    assert made(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])) == 0


def test_a_reader_that_ends_is_made_anew():
    async def run():
        with contextlib.closing(Reader(LIMITS, megalith.text.ByteTokenizer(), RECIPE)) as reader:
            body = json.dumps({"model": "m", "prompt": "a", "user": "x" * AT_ONCE}).encode()
            assert (await reader.read("completion", body)).budgets == [16]
            reader._lanes[0][0].process.kill()
            reader._lanes[0][0].process.wait()
            return await reader.read("completion", body)

    assert asyncio.run(run()).budgets == [16]


@pytest.mark.parametrize(
    "more, what",
    [
        ({"x" * 10**5: 1}, f"`{'x' * 200}...` is not a field"),
        ({"stream": True, "stream_options": {"y" * 10**5: 1}}, f"`stream_options.{'y' * 185}...` is not a field"),
        ({"stop_token_ids": [*range(40)]}, "`stop_token_ids` has 40 tokens, and this server takes 31 beside those that end a text"),
    ],
)
def test_what_is_wrong_is_told_in_few_words(more, what):
    with pytest.raises(ApiError) as caught:
        read_job({"model": "m", "prompt": "a", **more}, False, LIMITS, megalith.text.ByteTokenizer())
    assert caught.value.message.startswith(what) and len(caught.value.param) < 250


def test_depths():
    for depth in 2, 100:
        assert read_json(b'{"a": ' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}")
    for value in b"[" * 101 + b"]" * 101, b'{"a":' * 101 + b"1" + b"}" * 101, b"[" * 10**6:
        with pytest.raises(ApiError, match="too deep|not JSON"):
            read_json(value)


# ===----------------------------------------------------------------------===#
# Connections
# ===----------------------------------------------------------------------===#


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    template = tmp_path_factory.mktemp("few") / "template.jinja"
    template.write_text(TEMPLATE)
    options = ["--max-connections", "6", "--write-timeout", "1", "--access-log", "--chat-template", str(template)]
    with Served("sampled", *options) as server:
        yield server


def connect(server, send=b""):
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(send)
    return connection


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("half", [b"", b"GET /hea", HEAD, HEAD + b"Content-Length: 1000\r\n\r\n{"])
def test_half_of_a_request_keeps_nobody_out(few, half):
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connect(few, half))
        assert few.call("GET", "/health")[0] == 200
        assert few.post("/v1/completions", prompt=PROMPTS[0], max_tokens=2)[0] == 200


def test_streams_are_not_given_up_for_others(few):
    body = json.dumps({"model": "demo", "prompt": "a", "max_tokens": 1500, "stream": True, "ignore_eos": True}).encode()
    ask = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(connect(few, ask)) for _ in range(6)]
        for stream in streams:
            assert stream.recv(1000).startswith(b"HTTP/1.1 200")
        for _ in range(20):  # each of them sees why
            status, headers, answer = few.call("POST", "/v1/completions", "x" * 20000)
            assert status == 503 and answer["error"]["code"] == "too_many_connections" and headers["x-request-id"]
        for stream in streams:
            assert stream.recv(1000)
    wait_for(lambda: few.call("GET", "/health")[0] == 200)


def test_pieces_are_made_as_the_client_reads(kernel):
    """Not beyond: of a client that does not read only the tokens wait, and no text of them."""
    made = 0

    async def events():
        nonlocal made
        for number in range(40):
            made += 1
            yield Event(0, None, [97], "s", None, float(number))

    async def run():
        tokenizer, taken = megalith.text.ByteTokenizer(), 0
        with kernel.session() as session:
            engine = Engine(session, tokenizer, LIMITS, max_waiting=9, request_timeout=0, show_text=False)
            body = {"model": "m", "prompt": "a", "n": 2, "max_tokens": 1, "temperature": 0}
            with engine.start(read_job(body, False, LIMITS, tokenizer), 0.0) as run:
                for choice in run.choices:
                    choice.generation.events = events
                with pytest.raises(ApiError, match="stopping"):  # these events have no end
                    async for _ in run.pieces():
                        taken += 1
                        for _ in range(200):
                            await asyncio.sleep(0)
                        assert made <= taken + 4
        return taken

    assert asyncio.run(run()) >= 79 and made == 80


def test_what_is_not_http(few):
    with connect(few, b"\x16\x03\x01 nonsense\r\n\r\n") as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
        wait_for(lambda: f"127.0.0.1:{connection.getsockname()[1]} - no HTTP\n" in few.error_text())
    assert answer.startswith(b"HTTP/1.1 400") and json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


LARGE = b"Content-Length: 3000000\r\n\r\n" + b"x" * 3000000
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 30 + b"0\r\n\r\n"


@pytest.mark.parametrize(
    "request_of, status",
    [
        (HEAD + LARGE, 413),
        (HEAD + CHUNKED, 413),
        (HEAD + b"Connection: close\r\n" + LARGE, 413),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + LARGE, 405),
        (b"POST / HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n" + CHUNKED, 403),
        (b"no\0HTTP\r\n\r\n" + b"x" * 3000000, 400),
    ],
)
def test_an_answer_is_seen_by_who_still_sends(few, request_of, status):
    """A connection that is closed with bytes unread is reset, and what was answered is lost."""
    with connect(few, request_of) as connection:
        connection.shutdown(socket.SHUT_WR)
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status) and json.loads(body)["error"]["message"]
    assert b"x-request-id" in head


def test_who_gets_an_answer_and_stays_is_closed(monkeypatch):
    monkeypatch.setattr(_connections, "LINGER_SECONDS", 0.05)

    async def work(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"no\0HTTP\r\n\r\n")
        got = await reader.read()
        assert len(gate.lingering) == 1 and not gate.receiving
        await wait_in_loop_for(lambda: not gate.lingering)
        writer.close()
        return got

    gate = Gate(10, 30)
    assert asyncio.run(_serves(work, gate)).startswith(b"HTTP/1.1 400 Bad Request")


def test_few_linger(monkeypatch):
    """The one that has lingered longest ends."""
    monkeypatch.setattr(_connections, "LINGERING", 3)

    async def work(port):
        streams = []
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"no\0HTTP\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
            streams.append(writer)
            assert len(gate.lingering) == min(3, len(streams))
        for writer in streams:
            writer.close()

    gate = Gate(10, 30)
    asyncio.run(_serves(work, gate))


def test_strangers_do_not_fill_the_log():
    """One that wants another protocol gets this one."""
    with Served("sampled") as server:
        upgrade = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        for send, status in (upgrade, b"200"), (b"\x16\x03\x01\r\n\r\n", b"400"):
            with connect(server, send) as connection:
                assert connection.recv(1000).split()[1] == status
        assert server.end(signal.SIGTERM) == 0 and server.error_text() == ""


def test_clients_that_leave_and_many_at_once():
    body = json.dumps({"model": "demo", "prompt": "a", "max_tokens": 1500, "stream": True, "ignore_eos": True}).encode()
    stream = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    whole = stream.replace(b'"stream": true, ', b'               ')
    with Served("sampled", "--set", "slots=4") as server:
        for number in range(60):
            with connect(server) as connection:
                if number % 6 == 5:  # at once, and with a reset
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sent = (b"", HEAD[: 3 + number], stream[: len(stream) - 1 - number % 7], whole, stream, stream)[number % 6]
                connection.sendall(sent)
                if number % 6 == 4:
                    assert connection.recv(1 + 5 * number)
        wait_for(lambda: (stats := server.stats())["running"] + stats["waiting"] == 0)

        one = stream.replace(b"1500", b"1   ")
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(connect(server, one)) for _ in range(300)]
            for connection in connections:
                got = b""
                while b"[DONE]" not in got:
                    got += (more := connection.recv(1 << 16))
                    assert more, got
                assert got.startswith(b"HTTP/1.1 200") and b'"error"' not in got
        # All connections are closed again.
        wait_for(lambda: len(os.listdir(f"/proc/{server.process.pid}/fd")) < 20)
        assert server.error_text() == ""


def test_a_host_that_is_none():
    """Where any name will do, any bytes may come as one."""

    async def ask(path):
        sent = []

        async def send(message):
            sent.append(message)

        app = make_app(SimpleNamespace(limits=LIMITS), Facts("p", "d", None, None, 100), None)
        scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"[")], "query_string": b"", "scheme": "http"}
        await app(scope, None, send)
        return sent[0]["status"], json.loads(sent[1]["body"])["error"]["message"]

    assert asyncio.run(ask("/nothing")) == (404, "there is no `/nothing` here")
    # Not sent elsewhere: after a proxy the path has another name.
    assert asyncio.run(ask("/v1/models/../stats/"))[0] == 404
    assert asyncio.run(ask("/stats/")) == (404, "there is no `/stats/` here; leave out the slash at its end")
    assert asyncio.run(ask("/v1/completions")) == (405, "GET is not a method of `/v1/completions`")


def test_the_log_has_who_really_called(few):
    few.call("GET", "/version?a=%0aForged", X_Forwarded_For="6.6.6.6\x1b[31m")
    wait_for(lambda: "/version?a=" in few.error_text())
    assert "6.6.6.6" not in few.error_text() and '127.0.0.1:' in few.error_text() and "\nForged" not in few.error_text()


async def _serves(work, gate, app=None):
    """Runs `work(port)` beside a server whose application says `ok`."""

    async def says_ok(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    class Gated(Connection):
        pass

    Gated.gate = gate
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        config = uvicorn.Config(app or says_ok, http=Gated, log_config=None, log_level="critical", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        task = asyncio.ensure_future(server._serve([listener]))
        await wait_in_loop_for(lambda: server.started)
        try:
            return await work(port)
        finally:
            server.should_exit = True
            await task


@pytest.mark.parametrize(
    "half, answer",
    [(b"", b""), (b"GET / HT", b"HTTP/1.1 408"), (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab", b"")],
)
def test_half_of_a_request_ends(monkeypatch, half, answer):
    monkeypatch.setattr(_connections, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(_connections, "BODY_SECONDS", -4.95)

    async def work(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(half)
        got = b""
        with contextlib.suppress(ConnectionError):
            got = await reader.read()
        writer.close()
        return got

    gate = Gate(10, 30)
    assert asyncio.run(_serves(work, gate)).startswith(answer) and not gate.receiving


def test_an_answer_that_is_not_read_ends():
    async def says_much(scope, receive, send):
        """Ends with the connection alone."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(receive())
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await asyncio.sleep(0)
            if gone.done() and gone.result()["type"] == "http.disconnect":
                ended.set()
                return
            if gone.done():
                gone = asyncio.ensure_future(receive())

    async def work(port):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.wait_for(ended.wait(), 30)

    ended = asyncio.Event()
    asyncio.run(_serves(work, Gate(10, 0.1), says_much))


# ===----------------------------------------------------------------------===#
# The log, the machine, the command line
# ===----------------------------------------------------------------------===#


def test_a_log_that_nobody_reads_stops_nothing(tmp_path):
    command = [sys.executable, "-m", "megalith.serve", "sampled", "--model", str(DEMO), "--device", "reference"]
    reading, writing = os.pipe()
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen([*command, "--port", "0", "--access-log"], stdout=subprocess.PIPE, stderr=writing, text=True)
        stack.callback(process.wait)
        stack.callback(process.kill)
        os.close(writing)
        stack.callback(os.close, reading)
        stack.callback(process.stdout.close)
        process.stdout.readline()
        port = int(process.stdout.readline().split()[0].rpartition(":")[2])
        path = b"/version?" + b"x" * 8000  # 2000 lines are 16 MB, and a pipe has room for 64 KiB
        ask = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            answers = connection.makefile("rb")
            for _ in range(MOST_LINES + 100):
                connection.sendall(ask)
                assert answers.readline().startswith(b"HTTP/1.1 200")
                while line := answers.readline().strip():
                    if line.lower().startswith(b"content-length"):
                        size = int(line.split()[1])
                answers.read(size)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def test_lines_that_are_dropped_are_counted(monkeypatch):
    reading, writing = os.pipe()

    class Error:
        def fileno(self):
            return writing

    monkeypatch.setattr(sys, "stderr", Error())
    log = Log()
    os.close(writing)
    long = "x" * 70000  # more than a pipe has room for
    for number in range(MOST_LINES + 10):
        log.say(f"{number} {long if number == 0 else ''}")
    with os.fdopen(reading) as file:
        assert file.readline().startswith("0 x") and file.readline() == "1 \n"
        for _ in range(MOST_LINES // 2):
            file.readline()
        log.say("last")
        lines = []
        while not lines or lines[-1] != "last\n":
            lines.append(file.readline())
    assert lines[-2].endswith("lines of the log are missing: nobody read it\n")


def test_few_descriptors():
    command = [sys.executable, "-m", "megalith.serve", "sampled", "--model", str(DEMO), "--device", "reference", "--port", "0"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert (done.returncode, done.stderr) == (1, "error: too few files may be open at once for connections; see `ulimit -n`\n")


@pytest.mark.parametrize(
    "option, value, what",
    [
        ("--seed", "-1", "must be from 0 to 4294967295, found -1"),
        ("--seed", "4294967296", "must be from 0 to 4294967295"),
        ("--seed", "x", "must be a whole number"),
        ("--request-timeout", "2147484", "must be 0, or from 0.001 to 2147483 seconds"),
        ("--request-timeout", "0.0001", "must be 0, or from 0.001"),
        ("--request-timeout", "nan", "must be 0, or from 0.001"),
        ("--grace", "-1", "must be from 0"),
        ("--port", "65536", "must be from 0 to 65535"),
        ("--max-body", "0", "must be from 1"),
        ("--context", str(10**30), "must be from 1 to 268435456"),
        ("--idle-ms", str(2**63), "must be from -2147483648"),
        ("--logit-lines", "-1", "must be from 0 to 16777216"),
        ("--served-model-name", "", "must be up to 200 characters that can be printed, found ''"),
        ("--served-model-name", "a\nb", "must be up to 200 characters that can be printed, found 'a\\nb'"),
        ("--allow-origin", "page.example", "must be as https://example.org"),
        ("--allow-origin", "https://page.example/", "must be as https://example.org"),
    ],
)
def test_numbers_out_of_range_are_told_at_the_start(capsys, option, value, what):
    with pytest.raises(SystemExit) as caught:
        make_parser().parse_args(["sampled", "--model", "m", f"{option}={value}"])
    assert caught.value.code == 2 and f"argument {option}: {what}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "host, port, what",
    [
        ("no.such.host.invalid", 0, "--host: `no.such.host.invalid` is no address"),
        ("", 0, "--host: `` is no address"),
        ("a" * 300, 0, "--host: `a"),
        ("256.1.1.1", 0, "--host: `256.1.1.1` is no address"),
        ("192.0.2.1", 1, "192.0.2.1:1: this is no address of this machine; --host 127.0.0.1 "),
    ],
)
def test_where_nobody_can_be_served(host, port, what):
    with pytest.raises(_NoPlace) as caught:
        _bind(host, port)
    assert str(caught.value).startswith(what)


@pytest.mark.parametrize("key", ["é", "a b", "a\n"])
def test_keys_that_no_client_can_send(capsys, key):
    assert main(["sampled", "--model", "m", "--api-key", key]) == 1
    assert capsys.readouterr().err == "error: the API key may have visible ASCII characters only, and no spaces\n"


def test_failures_of_the_server_are_in_its_log(caplog):
    job = SimpleNamespace(is_chat=False, id=None, wants_usage=False, usage_each=False)

    async def fails():
        raise ApiError("the request has faulted", status=500)
        yield

    async def run():
        stream = Answer(job, "m", None).events(SimpleNamespace(pieces=fails))
        return [event async for event in stream]

    assert b"the request has faulted" in asyncio.run(run())[0]
    assert [record.getMessage() for record in caplog.records] == ["the request has faulted"]


def run(*arguments):
    command = [sys.executable, "-m", "megalith.serve", "sampled", "--model", str(DEMO), "--port", "0", "--device", "reference"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_more_context_than_the_model_has():
    code, out, error = run("--context", 2049)
    assert (code, out, error) == (1, "", "error: --context is 2049, and the model was made for 2048 positions\n")


@pytest.mark.parametrize("template", ["{% if %}", "{{ messages[0].x.y }}", "{{ raise_exception('never') }}"])
def test_a_template_that_does_not_work_is_told_at_the_start(tmp_path, template):
    file = tmp_path / "t.jinja"
    file.write_text(template)
    code, out, error = run("--chat-template", file)
    assert (code, out) == (1, "") and error.startswith("error: ") and f"{file}" in error and error.count("\n") == 1
