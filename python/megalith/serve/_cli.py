"""The program `megalith-serve`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from .. import text as texts
from .._chat import add_model_options, compile_from, find_pipeline, show_progress
from .._errors import Error

_NAMES = {"reference": "the reference executor", "cpu": "the CPU executor"}


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, found {text}")
    return value


def _none_or_more(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, found {text}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, found {text}")
    return value


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
        "--served-model-name", metavar="NAME", help="that clients ask for; default: the name of the folder"
    )
    parser.add_argument("--chat-template", metavar="FILE", help="in place of the checkpoint's")

    where = parser.add_argument_group("where, and who may")
    where.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: 127.0.0.1, this machine only")
    where.add_argument("--port", type=int, default=8000, metavar="N", help="default: 8000; 0: one that is free")
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
    where.add_argument("--show-text", action="store_true", help="let the page show the texts of all requests")

    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--context",
        type=_positive,
        metavar="N",
        help="tokens of a request with its completion; default: what fits, up to 8192",
    )
    limits.add_argument("--max-prompt-tokens", type=_positive, metavar="N", help="default: as --context allows")
    limits.add_argument("--max-completion-tokens", type=_positive, metavar="N", help="default: as --context allows")
    limits.add_argument(
        "--max-waiting", type=_positive, default=1024, metavar="N", help="requests that wait for a slot; default: 1024"
    )
    limits.add_argument("--max-body", type=_positive, default=4 << 20, metavar="BYTES", help="default: 4 MiB")
    limits.add_argument(
        "--request-timeout",
        type=_seconds,
        default=0.0,
        metavar="S",
        help="a request ends after so many seconds; default: never",
    )
    limits.add_argument(
        "--grace",
        type=_seconds,
        default=30.0,
        metavar="S",
        help="so long requests may go on when the server stops; default: 30",
    )

    limits.add_argument(
        "--logit-lines",
        type=_none_or_more,
        metavar="N",
        help="rows of logits that requests with logprobs share, each as many as it may generate tokens; 0: there are no "
        "logprobs; default: what 64 MiB hold, up to 4096",
    )

    other = parser.add_argument_group("other")
    other.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the session, beside each request's own; default: 0"
    )
    other.add_argument(
        "--idle-ms",
        type=int,
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
    try:
        return _serve(parsed)
    except Error as error:
        print(error, file=sys.stderr)
    except (texts.TextError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    return 1


def _fail(what: str) -> int:
    print(f"error: {what}", file=sys.stderr)
    return 1


class _PortTaken(OSError):
    def __str__(self) -> str:
        return f"{self.args[0]}: the port is in use, by another server perhaps; take another one with --port"


@contextlib.contextmanager
def _told_of(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _PortTaken(where) from error
        raise OSError(f"{where}: {error.strerror or error}") from error


def _bind(host: str, port: int) -> socket.socket:
    """Before a model is loaded. It listens when all is there; until then clients are refused, and need not wait."""
    where = f"{host}:{port}"
    if not 0 <= port < 65536:
        raise OSError(f"{where}: a port is from 0 to 65535")
    with _told_of(where):
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise OSError(f"{where}: there is no such address: {error.strerror}") from error
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    return listener


def _defaults(folder: str, samples: bool) -> tuple[float, float, int]:
    """Temperature, top_p and top_k of requests that say nothing: the checkpoint's, else the API's."""
    if not samples:
        return 0.0, 1.0, 0
    try:
        said = json.loads((Path(folder) / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        said = {}
    if not isinstance(said, dict):
        said = {}
    if said.get("do_sample") is False:
        return 0.0, 1.0, 0

    def number(name: str, default: float, least: float, most: float) -> float:
        value = said.get(name, default)
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
        return value if good else default

    return number("temperature", 1.0, 0, 1e6), number("top_p", 1.0, 1e-9, 1), int(number("top_k", 0, 0, 2**31 - 1))


def _serve(parsed: argparse.Namespace) -> int:
    from ._app import Facts, make_app
    from ._engine import Engine
    from ._protocol import Limits

    api_key = parsed.api_key if parsed.api_key is not None else os.environ.get("MEGALITH_API_KEY") or None
    if api_key == "":
        return _fail("--api-key is empty")
    with contextlib.closing(_bind(parsed.host, parsed.port)) as listener:
        program, folder = compile_from(parsed, find_pipeline(parsed.pipeline))
        for message in program.messages:
            print(message, end="", file=sys.stderr)
        tokenizer = texts.load(folder, program, parsed.chat_template)
        if parsed.api_key is not None:
            print("warning: others on this machine can read the API key in the command line", file=sys.stderr)
        kernel = program.load(parsed.device, parsed.ordinal, progress=show_progress)
        show_progress("")
        session = kernel.session(
            queue=parsed.max_waiting + 256,  # beyond what is refused here
            max_tokens=parsed.context or 0,
            max_ends=256,
            seed=parsed.seed,
            idle_ms=parsed.idle_ms,
            logit_lines=min((64 << 20) // (4 * program.vocabulary), 4096)
            if parsed.logit_lines is None
            else parsed.logit_lines,
            tokenizer=tokenizer,
        )
        try:
            context = session.options["max_tokens"]
            temperature, top_p, top_k = _defaults(folder, program.reads_sampling)
            limits = Limits(
                model=parsed.served_model_name or Path(folder).resolve().name,
                context=context,
                prompt_tokens=min(context, parsed.max_prompt_tokens or context),
                completion_tokens=min(context, parsed.max_completion_tokens or context),
                vocabulary=program.vocabulary,
                samples=program.reads_sampling,
                temperature=temperature,
                top_p=top_p,
                top_k=top_k,
                ends=session.options["max_ends"],
                eos=len(program.eos),
                logit_lines=session.options["logit_lines"],
            )
            engine = Engine(
                session,
                tokenizer,
                limits,
                max_waiting=parsed.max_waiting,
                request_timeout=parsed.request_timeout,
                show_text=parsed.show_text,
                states=program.states,
            )
            host, port = listener.getsockname()[:2]
            is_local = ipaddress.ip_address(host.partition("%")[0]).is_loopback
            hosts = frozenset(
                {"localhost", "127.0.0.1", "::1", host, parsed.host.lower(), *map(str.lower, parsed.allow_host)}
            )
            device = kernel.device_name or _NAMES.get(kernel.device, kernel.device)
            app = make_app(engine, Facts(program.name, device, api_key, hosts if is_local else None, parsed.max_body))
            if not is_local and api_key is None:
                print(
                    "warning: whoever reaches this address may use the server; --api-key asks for a key",
                    file=sys.stderr,
                )
            with _told_of(f"{parsed.host}:{port}"):
                listener.listen(2048)
            shown = f"[{host}]" if ":" in host else host
            print(f"{program.name}, {folder}, on {device}, as model `{limits.model}`", flush=True)
            print(f"http://{shown}:{port} is the page, http://{shown}:{port}/v1 the API. Ctrl-C stops.", flush=True)
            return asyncio.run(_run(app, engine, listener, parsed))
        finally:
            session.close()


async def _run(app: Any, engine: Any, listener: socket.socket, parsed: argparse.Namespace) -> int:
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:  # they are handled here
            yield

    config = uvicorn.Config(
        app,
        log_level="info" if parsed.access_log else "warning",
        access_log=parsed.access_log,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=64 << 10,
    )
    server = Server(config)
    asked = asyncio.Event()
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    watching = asyncio.ensure_future(engine.history.watch(engine.look))
    while not asked.is_set() and not serving.done():
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asked.wait(), 0.5)
        if failure := engine.failure():
            print(f"error: the engine has failed: {failure}", file=sys.stderr, flush=True)
            await asyncio.sleep(1)  # who waits is told
            server.should_exit = True
            await serving
            return 1
    if engine.open:
        print(
            f"stopping: {len(engine.open)} calls go on for up to {parsed.grace:g} s; Ctrl-C ends them",
            file=sys.stderr,
            flush=True,
        )
    engine.drains = True
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
    return 0
