"""The program `megalith-serve`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import ipaddress
import logging
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import __version__
from .. import text as texts
from .._chat import add_model_options
from .._errors import Error
from ._tool_calls import FORMS


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, found {text}") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least} to {most}, found {text[:40]}")
        return value

    return parse


def _seconds(least: float, most: float, zero: bool = False) -> Callable[[str], float]:
    """`zero`: 0 has a meaning of its own."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a number of seconds, found {text}") from None
        if not (least <= value <= most or zero and value == 0):
            what = "0, or " if zero else ""
            raise argparse.ArgumentTypeError(f"must be {what}from {least:.10g} to {most:.10g} seconds, found {text[:40]}")
        return value

    return parse


def _origin(text: str) -> str:
    if text != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", text, re.IGNORECASE):
        raise argparse.ArgumentTypeError(f"must be as https://example.org, without a path, or `*`; found {text[:200]}")
    return text.lower()


def _name(text: str) -> str:
    if not text or not text.isprintable() or len(text) > 200:
        raise argparse.ArgumentTypeError(f"must be up to 200 characters that can be printed, found {text[:40]!r}")
    return text


_TOKENS = _whole(1, 1 << 28)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="megalith-serve",
        description="Serves a model over HTTP, with the API that OpenAI's clients speak. A page at `/` shows what is under way.",
    )
    parser.add_argument("--version", action="version", version=f"megalith {__version__}")
    parser.add_argument(
        "pipeline", metavar="PIPELINE", help="a file, or the name of a pipeline of the package, such as `sampled`"
    )
    add_model_options(parser)
    parser.add_argument(
        "--served-model-name", type=_name, metavar="NAME", help="that clients ask for; default: the name of the folder"
    )
    parser.add_argument("--chat-template", metavar="FILE", help="in place of the checkpoint's")

    parser.add_argument(
        "--tool-parser",
        choices=tuple(FORMS),
        metavar="NAME",
        help=f"the form in which the model writes calls of tools: {', '.join(FORMS)}; default: that of the chat template",
    )

    where = parser.add_argument_group("where, and who may")
    where.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: 127.0.0.1, this machine only")
    where.add_argument("--port", type=_whole(0, 65535), default=8000, metavar="N", help="default: 8000; 0: one that is free")
    where.add_argument(
        "--api-key", metavar="KEY", help="that clients must send; better in the variable MEGALITH_API_KEY"
    )
    where.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="another name that clients may call a server on a local address by",
    )
    where.add_argument(
        "--allow-origin",
        metavar="ORIGIN",
        type=_origin,
        action="append",
        default=[],
        help="pages from there, such as https://example.org, may call the server; `*`: all pages; default: none",
    )
    where.add_argument("--show-text", action="store_true", help="let the page show the texts of all requests")

    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--context",
        type=_TOKENS,
        metavar="N",
        help="tokens of a request with its completion; default: what fits, up to 8192",
    )
    limits.add_argument("--max-prompt-tokens", type=_TOKENS, metavar="N", help="default: as --context allows")
    limits.add_argument("--max-completion-tokens", type=_TOKENS, metavar="N", help="default: as --context allows")
    limits.add_argument(
        "--max-waiting", type=_whole(1, 1 << 16), default=1024, metavar="N", help="requests that wait for a slot; default: 1024"
    )
    limits.add_argument(
        "--max-body", type=_whole(1, 1 << 30), default=1 << 20, metavar="BYTES", help="default: 1048576, a MiB"
    )
    limits.add_argument(
        "--max-connections",
        type=_whole(1, 1 << 20),
        metavar="N",
        help="default: as many as files may be open (`ulimit -n`), up to 4096",
    )
    limits.add_argument(
        "--request-timeout",
        type=_seconds(0.001, 2147483, zero=True),  # milliseconds of 32 bits
        default=0.0,
        metavar="S",
        help="a request ends after so many seconds; default: 0, never",
    )
    limits.add_argument(
        "--grace",
        type=_seconds(0, 1e9),
        default=30.0,
        metavar="S",
        help="so long requests may go on when the server stops; default: 30",
    )
    limits.add_argument(
        "--write-timeout",
        type=_seconds(0.001, 1e9),
        default=30.0,
        metavar="S",
        help="a client that reads nothing of its answer for so long is given up; default: 30",
    )
    limits.add_argument(
        "--logit-lines",
        type=_whole(0, 1 << 24),
        metavar="N",
        help="rows of logits that requests with logprobs share, each as many as it may generate tokens; 0: there are no "
        "logprobs; default: what 64 MiB hold, up to 4096",
    )

    other = parser.add_argument_group("other")
    other.add_argument(
        "--seed", type=_whole(0, 2**32 - 1), default=0, metavar="N", help="of the session, beside each request's own; default: 0"
    )
    other.add_argument(
        "--idle-ms",
        type=_whole(-(2**31), 2**31 - 1),
        default=10000,
        metavar="N",
        help="the kernel ends when idle for so long; below 0: never; default: 10000",
    )
    other.add_argument("--access-log", action="store_true", help="a line for each call")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = make_parser().parse_args(arguments)
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        return _fail(f"megalith-serve needs the Python package `{error.name}`: pip install 'megalith[serve]'")
    from ._opened import Refused

    try:
        return _serve(parsed)
    except Error as error:
        print(error, file=sys.stderr)
    except (texts.TextError, OSError, _NoPlace, Refused) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    return 1


def _fail(what: str) -> int:
    print(f"error: {what}", file=sys.stderr)
    return 1


_WHY_NOT = {
    errno.EADDRINUSE: "the port is in use, by another server perhaps; take another one with --port",
    errno.EACCES: "this user may not have the port; take one from 1024 on with --port",
    errno.EADDRNOTAVAIL: "this is no address of this machine; --host 127.0.0.1 is for this machine alone, 0.0.0.0 for others, too",
}


class _NoPlace(Exception):
    """Nobody can be served at the address."""


@contextlib.contextmanager
def _told_of(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _NoPlace(f"{where}: {_WHY_NOT.get(error.errno or 0) or error.strerror or error}") from error


def _bind(host: str, port: int) -> socket.socket:
    """Before a model is loaded. It listens when all is there; until then clients are refused, and need not wait."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or "?", port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError, ValueError) as error:
        raise _NoPlace(
            f"--host: `{host[:200]}` is no address, and no name of one; 127.0.0.1 is for this machine alone, 0.0.0.0 for others, too"
        ) from error
    with _told_of(f"{host}:{port}"):
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    return listener


def _serve(parsed: argparse.Namespace) -> int:
    from ._connections import room_for_connections
    from ._opened import api_key_of, opened

    api_key = api_key_of(parsed)
    with contextlib.closing(_bind(parsed.host, parsed.port)) as listener:
        host, port = listener.getsockname()[:2]
        is_local = ipaddress.ip_address(host.partition("%")[0]).is_loopback
        hosts = frozenset({"localhost", "127.0.0.1", "::1", host, parsed.host.lower(), *map(str.lower, parsed.allow_host)})
        with opened(parsed, hosts if is_local else None) as here:
            room = room_for_connections()
            if room < 8:
                return _fail("too few files may be open at once for connections; see `ulimit -n`")
            connections = min(room, parsed.max_connections or room)
            if not is_local and api_key is None:
                print(
                    "warning: whoever reaches this address may use the server; --api-key asks for a key",
                    file=sys.stderr,
                )
            with _told_of(f"{parsed.host}:{port}"):
                listener.listen(2048)
            shown = f"[{host}]" if ":" in host else host
            print(f"{here.pipeline}, {here.folder}, on {here.device}, as model `{here.model}`", flush=True)
            print(f"http://{shown}:{port} is the page, http://{shown}:{port}/v1 the API. Ctrl-C stops.", flush=True)
            return asyncio.run(_run(here.app, here.engine, listener, connections, parsed))


async def _run(
    app: Any, engine: Any, listener: socket.socket, connections: int, parsed: argparse.Namespace
) -> int:
    import uvicorn

    from ._connections import BATCH, Connection, Gate
    from ._log import Log

    gate, log = Gate(connections, parsed.write_timeout), Log()

    class Gated(Connection):
        pass

    Gated.gate = gate

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:  # they are handled here
            yield

    log.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[log], level=logging.WARNING, force=True)
    config = uvicorn.Config(
        app,
        http=Gated,
        backlog=BATCH,
        log_config=None,
        log_level="info" if parsed.access_log else "warning",
        access_log=parsed.access_log,
        proxy_headers=False,  # anybody can send them
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=64 << 10,
    )
    # Whoever sends what is not HTTP does not fill the log; --access-log tells of them.
    logging.getLogger("uvicorn.error").addFilter(lambda record: not record.getMessage().startswith("Invalid HTTP request"))
    server = Server(config)
    asked = asyncio.Event()
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        asked.set()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_Complaints(log))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    listener.listen(2048)  # those that wait in the system; the program takes them by batches
    watching = asyncio.ensure_future(engine.history.watch(engine.look))
    while not asked.is_set() and not serving.done():
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asked.wait(), 0.5)
        if failure := engine.failure():
            log.say(f"error: the engine has failed: {failure}")
            await asyncio.sleep(1)  # who waits is told
            server.should_exit = True
            await serving
            log.drain()
            return 1
    if engine.open:
        log.say(f"stopping: {len(engine.open)} calls go on for up to {parsed.grace:g} s; Ctrl-C ends them")
    engine.drain()
    gate.hurries = True
    for connection in server.server_state.connections:
        connection.hurry()
    end = time.monotonic() + parsed.grace
    while engine.open and time.monotonic() < end and signals < 2:
        await asyncio.sleep(0.05)
    await asyncio.to_thread(engine.session.close)
    # What was cut off gets its error through the event loop, before connections are closed.
    end = time.monotonic() + 1
    while engine.open and time.monotonic() < end:
        await asyncio.sleep(0.01)
    server.should_exit = True
    await serving
    log.drain()
    return 0


class _Complaints:
    """Of the event loop. What it says at each try to take a connection is said once a minute."""

    def __init__(self, log: Any) -> None:
        self.log, self.next = log, 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and "socket" in context:
            if time.monotonic() >= self.next:
                self.next = time.monotonic() + 60
                self.log.say(f"warning: a connection was not taken: {error.strerror or error}")
        elif not isinstance(error, ConnectionError):
            loop.default_exception_handler(context)
