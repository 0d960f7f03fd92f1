"""`megalith-serve` on Ray Serve: many replicas behind one address. docs/scale-out.md of the project describes it.

An ingress takes the calls and asks a replica, which holds a GPU (or the reference executor) and one session, and answers
with the application of `megalith-serve`. Which replica that is says `_affinity`. What replicas are, how they are started,
watched and replaced is Ray Serve's.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message, Receive, Scope, Send

from .. import text as texts
from .._errors import Error
from ._affinity import Call, key_of, router_of
from ._app import BODY_SECONDS, _answer, _until_gone
from ._cli import make_parser
from ._opened import Opened, Refused, api_key_of, opened
from ._protocol import ApiError

__all__ = ["app", "build"]

_log = logging.getLogger("ray.serve")

PINNED = "x-megalith-replica"
"""Of an answer: which replica gave it. Of a call: the one that has to."""
MOST_BATCH = 64
"""Messages of an answer that go to the ingress at once."""
ASK_SECONDS = 1.5
"""So long a replica may take to tell of its health and its metrics."""
WATCH_SECONDS = 2.0
"""So often a replica looks whether those who ask it are there."""


# ===----------------------------------------------------------------------===#
# A replica
# ===----------------------------------------------------------------------===#


class Replica:
    """Holds a session, and answers with the application of `megalith-serve`."""

    def __init__(self, arguments: Sequence[str], hosts: frozenset[str] | None = None) -> None:
        self._stack = contextlib.ExitStack()
        try:
            self._here: Opened = self._stack.enter_context(opened(make_parser().parse_args(arguments), hosts))
        except (Error, texts.TextError, OSError, Refused, SystemExit) as error:
            raise RuntimeError(f"the replica cannot start: {error}") from error
        self._name = serve.get_replica_context().replica_id.unique_id
        self._watching: asyncio.Task[None] | None = None
        self._askers: dict[str, set[asyncio.Event]] = {}
        """Of each ingress: what ends when it is gone."""
        _log.info("%s, %s, on %s", self._here.pipeline, self._here.folder, self._here.device)

    def check_health(self) -> None:
        """Ray Serve asks, and puts another one in the place of one that fails."""
        if failure := self._here.engine.failure():
            raise RuntimeError(f"the engine has failed: {failure}")

    async def answer(self, call: Call) -> AsyncGenerator[list[Message], None]:
        """Messages of ASGI, in batches as they come. The first one is who answers."""
        engine = self._here.engine
        if self._watching is None:
            self._watching = asyncio.ensure_future(engine.history.watch(engine.look))
        yield [{"type": "replica", "name": self._name}]
        if call.pin is not None and call.pin != self._name:
            yield _messages_of(ApiError(f"there is no replica `{call.pin[:100]}`", status=404, param=PINNED))
            return
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": call.method,
            "scheme": "http",
            "path": call.path,
            "raw_path": call.path.encode(),
            "query_string": call.query,
            "root_path": "",
            "headers": list(call.headers),
            "client": None,
            "server": None,
        }
        gone, pending = asyncio.Event(), asyncio.Queue[Message]()
        given = False
        if call.ingress and call.ingress not in self._askers:
            self._askers[call.ingress] = set()
            asyncio.ensure_future(self._watch(call.ingress))
        self._askers.get(call.ingress, set()).add(gone)

        async def receive() -> Message:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": call.body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        answering = asyncio.ensure_future(self._here.app(scope, receive, pending.put))
        answering.add_done_callback(lambda _: pending.put_nowait({"type": "end"}))
        try:
            while True:
                batch = [await pending.get()]
                while len(batch) < MOST_BATCH and not pending.empty():
                    batch.append(pending.get_nowait())
                if ends := batch[-1]["type"] == "end":
                    batch.pop()
                if batch:
                    yield batch
                if ends:
                    answering.result()
                    return
        finally:  # also where the client has gone: its requests leave the kernel
            gone.set()
            self._askers.get(call.ingress, set()).discard(gone)
            if not answering.done():
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(asyncio.shield(answering), 5)

    async def _watch(self, ingress: str) -> None:
        """Ray does not take back what a dead process has asked for."""
        with contextlib.suppress(RayActorError, ValueError):
            actor = await asyncio.to_thread(ray.get_actor, ingress, "serve")
            while True:
                await asyncio.sleep(WATCH_SECONDS)
                await actor.__ray_ready__.remote()
        for gone in self._askers.pop(ingress, set()):
            gone.set()

    async def __del__(self) -> None:
        """Ray Serve has waited for what runs, as long as it may take."""
        if self._watching is not None:
            self._watching.cancel()
        if hasattr(self, "_here"):
            self._here.engine.drain()
            await asyncio.to_thread(self._stack.close)


def _messages_of(error: ApiError) -> list[Message]:
    body = json.dumps(error.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    return [
        {"type": "http.response.start", "status": error.status, "headers": headers},
        {"type": "http.response.body", "body": body, "more_body": False},
    ]


# ===----------------------------------------------------------------------===#
# The ingress
# ===----------------------------------------------------------------------===#


class _Lost(Exception):
    """The replica has gone, with what it had not told."""


_LOST = ApiError(
    "the replica that answered has gone; send the request again",
    status=503,
    kind="server_error",
    code="replica_lost",
    headers={"Retry-After": "1"},
)
_FAILED = ApiError("the server has failed; its log says more", status=500, kind="server_error")
_NONE = ApiError(
    "no replica is there to answer", status=503, kind="server_error", code="no_replica", headers={"Retry-After": "5"}
)


class Ingress:
    """Takes the calls of clients, and passes on what a replica answers."""

    def __init__(self, replicas: Any, most_body: int) -> None:
        self._replicas = replicas.options(stream=True)
        self._deployment = str(replicas.deployment_id)
        self._most_body = most_body
        replica = serve.get_replica_context().replica_id
        self._name, self._actor = replica.unique_id, replica.to_full_id_str()
        self.lost = self.moved = 0
        """Answers whose replica went, and calls that another replica took than the first that was asked."""

    async def __call__(self, request: Request) -> Response:
        # The proxy leaves the prefix of the application in the path.
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/"
        if request.method == "GET" and path == "/health":
            return await self._health()
        if request.method == "GET" and path == "/metrics":
            return await self._metrics()
        try:
            return _Relay(self, await self._call_of(request, path))
        except ApiError as error:
            return _answer(error)
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it

    async def _call_of(self, request: Request, path: str) -> Call:
        body = bytearray()

        async def take() -> None:
            async for chunk in request.stream():
                body.extend(chunk)
                if len(body) > self._most_body:
                    del body[self._most_body + 1 :]
                    return

        said = request.headers.get("content-length", "")
        # One that is too large is for a replica to refuse, which sees that by its header.
        if request.method == "POST" and not (said.isdigit() and int(said) > self._most_body):
            try:
                await asyncio.wait_for(take(), BODY_SECONDS)
            except asyncio.TimeoutError:
                late = f"the body did not come within {BODY_SECONDS:g} s"
                raise ApiError(late, status=408, headers={"Connection": "close"}) from None
        key = key_of(path, bytes(body)) if request.method == "POST" else b"page"
        return Call(
            request.method,
            path,
            request.scope["query_string"],
            tuple((bytes(name), bytes(value)) for name, value in request.scope["headers"]),
            bytes(body),
            key,
            pin=request.headers.get(PINNED),
            ingress=self._actor,
        )

    def names(self) -> list[str]:
        """The replicas that this process knows."""
        router = router_of(self._deployment)
        return router.names() if router else []

    async def messages(self, call: Call) -> AsyncGenerator[list[Message], None]:
        """What a replica answers. One that has no room, or stops, has begun nothing: then another one is asked."""
        while True:
            responses = self._replicas.answer.remote(call)
            name, refuses = "", False
            try:
                async for batch in responses:
                    rest = []
                    for message in batch:
                        if message["type"] == "replica":
                            name = message["name"]
                            continue
                        if message["type"] == "http.response.start":
                            others = any(each not in (*call.avoid, name) for each in self.names())
                            refuses = message["status"] in (429, 503) and call.pin is None and others
                            refuses = refuses and name not in call.avoid
                            # Ray Serve has its own `x-request-id`, which is the client's if it gave one.
                            kept = [each for each in message["headers"] if each[0].lower() != b"x-request-id"]
                            message = {**message, "headers": [*kept, (PINNED.encode(), name.encode())]}
                        rest.append(message)
                    if rest and not refuses:
                        yield rest
            except RayTaskError:  # code of the replica has failed
                raise
            except RayError as error:
                raise _Lost from error
            finally:  # of a client that has gone: the replica hears of it
                responses.cancel()
            if not refuses:
                return
            self.moved += 1
            call = replace(call, avoid=(*call.avoid, name))

    async def ask(self, path: str, name: str) -> tuple[int, str]:
        """What a replica answers to a GET; 0: nothing."""
        status, body = 0, b""

        async def take() -> None:
            nonlocal status, body
            async with contextlib.aclosing(self.messages(Call("GET", path, pin=name))) as batches:
                async for batch in batches:
                    for message in batch:
                        status = message.get("status", status)
                        body += message.get("body", b"")

        with contextlib.suppress(Exception):  # whatever it is, it has not told
            await asyncio.wait_for(take(), ASK_SECONDS)
            return status, body.decode()
        return 0, ""

    async def _each(self, path: str) -> dict[str, tuple[int, str]]:
        names = self.names()
        if not names:  # this process has not called any: the first call tells which there are
            async with contextlib.aclosing(self.messages(Call("GET", "/version"))) as batches:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(batches.__anext__(), ASK_SECONDS)
            names = self.names()
        # Ray Serve knows calls by the request that they are made for, of which each has one at a time.
        asked = [contextvars.Context().run(asyncio.ensure_future, self.ask(path, name)) for name in names]
        return dict(zip(names, await asyncio.gather(*asked)))

    async def _health(self) -> Response:
        """Well while some replica is."""
        states = {name: status == 200 for name, (status, _) in (await self._each("/health")).items()}
        return JSONResponse(
            {"status": "ok" if any(states.values()) else "no replica is well", "replicas": states},
            status_code=200 if any(states.values()) else 503,
        )

    async def _metrics(self) -> Response:
        pages = {name: text for name, (status, text) in (await self._each("/metrics")).items() if status == 200}
        own = [
            "# HELP megalith:replicas Replicas that told of themselves.",
            "# TYPE megalith:replicas gauge",
            f"megalith:replicas {len(pages)}",
            "# HELP megalith:answers_lost_total Answers whose replica went.",
            "# TYPE megalith:answers_lost_total counter",
            f'megalith:answers_lost_total{{ingress="{self._name}"}} {self.lost}',
            "# HELP megalith:calls_moved_total Calls that another replica took than the first that was asked.",
            "# TYPE megalith:calls_moved_total counter",
            f'megalith:calls_moved_total{{ingress="{self._name}"}} {self.moved}',
        ]
        return PlainTextResponse("\n".join([*merged(pages), *own]) + "\n", media_type="text/plain; version=0.0.4")


def merged(pages: Mapping[str, str]) -> list[str]:
    """Pages of metrics as one: each sample has the name of its replica."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for replica, text in pages.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                heads.setdefault(family, [])
                samples.setdefault(family, [])
            if line.startswith("#"):
                if line not in heads[family]:
                    heads[family].append(line)
            elif line:
                name, brace, rest = line.partition("{")
                if not brace:
                    name, _, value = line.partition(" ")
                    rest = "} " + value
                comma = "" if rest.startswith("}") else ","
                samples[family].append(f'{name}{{replica="{replica}"{comma}{rest}')
    return [line for family in heads for line in (*heads[family], *samples[family])]


class _Relay(Response):
    """What a replica answers, as it comes."""

    def __init__(self, ingress: Ingress, call: Call) -> None:
        self.ingress, self.call = ingress, call
        self.status_code, self.background = 200, None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_until_gone(receive))
        work = asyncio.ensure_future(self._pass_on(send))
        try:
            await asyncio.wait({gone, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (gone, work):
                task.cancel()
            await asyncio.gather(gone, work, return_exceptions=True)

    async def _pass_on(self, send: Send) -> None:
        begun, is_stream, ended = False, False, False
        try:
            async with contextlib.aclosing(self.ingress.messages(self.call)) as batches:
                async for batch in batches:
                    for message in batch:
                        if message["type"] == "http.response.start":
                            begun = True
                            kind = dict(message["headers"]).get(b"content-type", b"")
                            is_stream = kind.startswith(b"text/event-stream")
                        ended = message["type"] == "http.response.body" and not message.get("more_body", False)
                        await send(message)
        except _Lost:
            self.ingress.lost += not ended
            await self._fail(send, _LOST, begun, is_stream, ended)
        except (BackPressureError, DeploymentUnavailableError):
            await self._fail(send, _NONE, begun, is_stream, ended)
        except OSError:
            raise  # the client has gone
        except Exception:
            _log.exception("an answer has failed")
            await self._fail(send, _FAILED, begun, is_stream, ended)

    @staticmethod
    async def _fail(send: Send, error: ApiError, begun: bool, is_stream: bool, ended: bool) -> None:
        if ended:
            return
        if not begun:
            for message in _messages_of(error):
                await send(message)
            return
        # What had come stays. A stream says that this was not all; of another answer the end is missing.
        body = f"data: {json.dumps(error.body())}\n\n".encode() if is_stream else b""
        if not is_stream:
            raise _Lost
        await send({"type": "http.response.body", "body": body, "more_body": False})


# ===----------------------------------------------------------------------===#
# The application
# ===----------------------------------------------------------------------===#


_NOT_HERE = {"host", "port", "allow_host", "api_key", "max_connections", "write_timeout", "access_log", "grace", "version"}
"""Options of `megalith-serve` that are Ray Serve's here."""


def _arguments(options: Mapping[str, Any]) -> list[str]:
    """As the command line has them."""
    known = {
        action.dest: action
        for action in make_parser()._actions
        if action.option_strings and action.dest not in (*_NOT_HERE, "help", "model", "device")
    }
    out: list[str] = []
    for name, value in options.items():
        action = known.get(name.replace("-", "_"))
        if action is None:
            raise ValueError(f"`{name}` is no option of megalith.serve.ray; there are {', '.join(sorted(known))}")
        flag = action.option_strings[-1]
        if action.nargs == 0:  # a switch
            if str(value).lower() not in ("true", "false"):
                raise ValueError(f"`{name}` must be true or false, found {value!r}")
            out += [flag] if str(value).lower() == "true" else []
            continue
        if isinstance(value, Mapping):
            value = [f"{key}={of}" for key, of in value.items()]
        for each in value if isinstance(value, (list, tuple)) else [value]:
            out.append(f"{flag}={_resolved(str(each)) if name.endswith('template') else each}")
    return out


def _resolved(place: str) -> str:
    """What Ray Serve starts elsewhere has another folder to stand in."""
    name, equals, folder = place.rpartition("=")
    return f"{name}{equals}{Path(folder).resolve()}" if Path(folder).exists() else place


def _has_gpus() -> bool:
    """Of the cluster; before there is one, of this machine."""
    if ray.is_initialized():
        return bool(ray.cluster_resources().get("GPU"))
    return Path("/dev/nvidia0").exists()


def build(
    pipeline: str,
    model: str | Sequence[str],
    *,
    replicas: int = 2,
    device: str = "auto",
    ingresses: int = 1,
    cpus: float = 0.5,
    grace: float = 30,
    spread: float = 1.25,
    surge: int = 0,
    autoscaling: Mapping[str, Any] | None = None,
    allow_host: Sequence[str] = (),
    api_key: str | None = None,
    **options: Any,
) -> serve.Application:
    """The application, for `serve.run`.

    `pipeline`, `model`, `device` and `options` are those of `megalith-serve`, with `_` in their names. Each of the
    `replicas` has a GPU, where `device` is `cuda`, or `auto` and the cluster has some, and else `cpus` cores. `ingresses`
    take the calls. `grace`: so many seconds requests may go on when a replica stops. `spread`: a replica has at most so many
    times its share of prefixes. `surge`: so many per cent of the replicas are started beside the old ones in an update,
    before these stop. `allow_host`: clients may call the server by these names and local ones; without it by any. `api_key`:
    default is the variable MEGALITH_API_KEY. `autoscaling`: the `autoscaling_config` of Ray Serve, in place of `replicas`.
    """
    if device == "auto":
        device = "cuda" if _has_gpus() else "reference"
    gpus = 1 if device == "cuda" else 0
    arguments = [_resolved(pipeline), f"--device={device}", *_arguments(options)]
    arguments += [f"--model={_resolved(each)}" for each in ([model] if isinstance(model, str) else model)]
    try:
        parsed = make_parser().parse_args(arguments)
        parsed.api_key = api_key
        key = api_key_of(parsed)
    except SystemExit as error:
        raise ValueError("an option of megalith-serve is wrong; see above") from error
    except Refused as error:
        raise ValueError(str(error)) from error
    hosts = frozenset({"localhost", "127.0.0.1", "::1", *map(str.lower, allow_host)}) if allow_host else None
    # Processes have the environment of their machine, not of who builds this.
    environment = {"runtime_env": {"env_vars": {"MEGALITH_API_KEY": key}}} if key else {}
    scaled = {"autoscaling_config": dict(autoscaling)} if autoscaling else {"num_replicas": int(replicas)}
    replica = serve.deployment(
        Replica,
        name="Replica",
        max_ongoing_requests=parsed.max_waiting + 4096,  # its queue has its own limit
        ray_actor_options={"num_cpus": float(cpus), "num_gpus": gpus, **environment},
        max_surge_percent=int(surge),
        health_check_period_s=1,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=float(grace),
        graceful_shutdown_wait_loop_s=0.5,
        request_router_config=RequestRouterConfig(
            request_router_class="megalith.serve._ray_router.PrefixRouter", request_router_kwargs={"spread": float(spread)}
        ),
        **scaled,
    )
    ingress = serve.deployment(
        Ingress,
        name="Ingress",
        num_replicas=int(ingresses),
        max_ongoing_requests=16384,
        ray_actor_options={"num_cpus": 0.1},
        graceful_shutdown_timeout_s=float(grace) + 10,
        graceful_shutdown_wait_loop_s=0.5,
    )
    return ingress.bind(replica.bind(arguments, hosts), parsed.max_body)


def app(args: dict[str, Any]) -> serve.Application:
    """`serve run megalith.serve.ray:app pipeline=sampled model=DIR replicas=4`, and `args` of a config file."""
    given = dict(args)
    missing = [name for name in ("pipeline", "model") if not given.get(name)]
    if missing:
        raise ValueError(f"`{missing[0]}` is missing: serve run megalith.serve.ray:app pipeline=sampled model=DIR")
    return build(given.pop("pipeline"), given.pop("model"), **given)
