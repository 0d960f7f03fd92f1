"""The server as an ASGI application: routes, answers, streams, and what is checked before."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._core import version
from ._answers import Answer, tell_failure
from ._engine import Engine, Run
from ._metrics import counts_of, render
from ._protocol import ApiError, Job, Limits, no_such_model
from ._reader import Reader
from ._responses import ResponseAnswer

PAGE = Path(__file__).parent / "page"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
T = TypeVar("T")
BODY_SECONDS = 30.0
"""So long a body may take to come."""

_ELSEWHERE = {
    "/v1/responses/": "answers are not kept here: send the whole conversation with each request to /v1/responses",
    "/v1/conversations": "conversations are not kept here: send the whole of one with each request",
    "/v1/messages": "Anthropic's API is not here: use /v1/chat/completions",
    "/v1/embeddings": "there are no embeddings here",
    "/v1/rerank": "there is no reranking here",
    "/api/": "Ollama's API is not here: use /v1/chat/completions",
}
"""What clients look for, and what they may do."""


@dataclass(frozen=True)
class Facts:
    """What the page shows, and what the application checks."""

    pipeline: str
    device: str
    api_key: str | None
    hosts: frozenset[str] | None
    """Names that a client may call the server by; None: any."""
    max_body: int
    root: str = ""
    """The checkpoint's folder."""
    origins: frozenset[str] = frozenset()
    """Of pages elsewhere that may call the server. `*`: all."""


def _answer(error: ApiError) -> Response:
    text = json.dumps(error.body())  # ASCII: it may quote what is no text
    return Response(text, status_code=error.status, headers=error.headers, media_type="application/json")


# ===----------------------------------------------------------------------===#
# Before the routes
# ===----------------------------------------------------------------------===#


_WITH_KEY = ("/v1/", "/stats", "/history", "/tokenize", "/detokenize")
_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class RequestIds:
    """Each answer has an `x-request-id`: the client's, if it gave one, so that both can be found in logs."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"")
        name = given if _ID.fullmatch(given) else uuid.uuid4().hex.encode()

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name)]
            await send(message)

        await self.app(scope, receive, named)


class Cors:
    """Lets pages of other origins call the server, where `--allow-origin` names them. Browsers send no cookies or saved
    passwords with such calls: a page must have the key itself."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self.app, self.origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not self.origins or scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        added = [] if "*" in self.origins else [(b"vary", b"Origin")]
        is_allowed = bool(origin) and ("*" in self.origins or origin.lower() in self.origins)
        if is_allowed:
            allowed = b"*" if "*" in self.origins else origin.encode("latin-1")
            added.append((b"access-control-allow-origin", allowed))

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(b"access-control-expose-headers", b"x-request-id, x-megalith-requests, x-megalith-replica, retry-after")]
                message["headers"] = [*message.get("headers", ()), *added, *(more if is_allowed else [])]
            await send(message)

        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            if not is_allowed:
                wrong = ApiError(f"the origin `{origin[:200]}` may not call this server; see --allow-origin", status=403)
                await _answer(wrong)(scope, receive, with_headers)
                return
            asked = headers.get(b"access-control-request-headers", b"authorization, content-type, x-request-id")
            added += [
                (b"access-control-allow-methods", b"GET, POST"),
                (b"access-control-allow-headers", asked),
                (b"access-control-max-age", b"600"),
            ]
            if headers.get(b"access-control-request-private-network") == b"true":
                added.append((b"access-control-allow-private-network", b"true"))
            await Response(status_code=204)(scope, receive, with_headers)
            return
        await self.app(scope, receive, with_headers)


class Guard:
    """Hosts and keys. Health and metrics are for machines that have no key, and the page has nothing in it."""

    def __init__(self, app: ASGIApp, facts: Facts) -> None:
        self.app, self.facts = app, facts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (error := self._refuses(scope)):
            await _answer(error)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _refuses(self, scope: Scope) -> ApiError | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self.facts.hosts is not None and _host_of(host) not in self.facts.hosts:
            # A page of a foreign name that leads to this machine would read what a browser here may.
            return ApiError(f"this server does not go by the name of `{host[:200]}`; see --allow-host", status=403)
        if self.facts.api_key is not None and scope["path"].startswith(_WITH_KEY):
            scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(key.strip(), self.facts.api_key.encode()):
                what = "is wrong" if key else "is missing: `Authorization: Bearer KEY`"
                return ApiError(
                    f"the API key {what}", status=401, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"}
                )
        return None


def _host_of(header: str) -> str:
    return header.rpartition("]")[0].lstrip("[") if header.startswith("[") else header.partition(":")[0].lower()


async def _read_body(request: Request, most: int) -> bytes:
    too_large = ApiError(
        f"the body has more than {most} bytes", status=413, code="body_too_large", headers={"Connection": "close"}
    )
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # browsers ask before they send that to a foreign server
        raise ApiError("the Content-Type must be application/json", status=415)
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > most:
        raise too_large
    body = bytearray()

    async def take() -> None:
        async for chunk in request.stream():
            body.extend(chunk)
            if len(body) > most:
                raise too_large

    try:
        await asyncio.wait_for(take(), BODY_SECONDS)
    except asyncio.TimeoutError as error:
        raise ApiError(
            f"the body did not come within {BODY_SECONDS:g} s", status=408, headers={"Connection": "close"}
        ) from error
    return bytes(body)


# ===----------------------------------------------------------------------===#
# While a client is there
# ===----------------------------------------------------------------------===#


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _while_there(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives, unless the client goes away: then it is cancelled."""
    gone, task = asyncio.create_task(_until_gone(receive)), asyncio.create_task(work)
    try:
        await asyncio.wait({gone, task}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for each in (gone, task):
            each.cancel()
        await asyncio.gather(gone, task, return_exceptions=True)


class Stream(Response):
    """An answer that comes in pieces. Whatever ends it leaves the run, which takes its requests back."""

    def __init__(self, run: Run, events: AsyncGenerator[bytes, None]) -> None:
        self.run, self.events = run, events
        self.status_code, self.background = 200, None
        self.init_headers(
            {
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
                "X-Megalith-Requests": run.numbers,
            }
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def work() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with aclosing(self.events) as events:
                async for event in events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        with self.run:
            try:
                await _while_there(receive, work())
            except (ClientDisconnect, OSError):
                pass


# ===----------------------------------------------------------------------===#
# Routes
# ===----------------------------------------------------------------------===#


def _model_entry(limits: Limits, facts: Facts) -> dict[str, Any]:
    """The model, as /v1/models tells of it."""
    created = int(time.time())
    return {
        "id": limits.model,
        "object": "model",
        "created": created,
        "owned_by": "megalith",
        "max_model_len": limits.context,
        "root": facts.root or limits.model,
        "parent": None,
        "permission": [
            {
                "id": f"modelperm-{uuid.uuid4().hex}",
                "object": "model_permission",
                "created": created,
                "allow_create_engine": False,
                "allow_sampling": True,
                "allow_logprobs": limits.logit_lines > 0,
                "allow_search_indices": False,
                "allow_view": True,
                "allow_fine_tuning": False,
                "organization": "*",
                "group": None,
                "is_blocking": False,
            }
        ],
    }


class _Handlers:
    """What answers a request, by its route."""

    def __init__(self, engine: Engine, facts: Facts, reader: Reader) -> None:
        self.engine, self.facts, self.reader, self.limits = engine, facts, reader, engine.limits
        self.model = _model_entry(engine.limits, facts)

    async def complete(self, request: Request, what: str) -> Response:
        arrived = time.monotonic()
        body = await _read_body(request, self.facts.max_body)
        job: Job = await self.reader.read(what, body)
        await _while_there(request.receive, self.engine.prepare(job, arrived))
        run = self.engine.start(job, arrived)
        answer: Answer | ResponseAnswer = Answer(job, self.limits.model, self.engine.tokenizer)
        if job.response is not None:
            answer = ResponseAnswer(job, self.limits.model)
        if job.is_stream:
            return Stream(run, answer.events(run))

        async def collect() -> Response:
            return JSONResponse(await answer.whole(run), headers={"X-Megalith-Requests": run.numbers})

        with run:
            return await _while_there(request.receive, collect())

    async def completions(self, request: Request) -> Response:
        return await self.complete(request, "completion")

    async def chat_completions(self, request: Request) -> Response:
        return await self.complete(request, "chat")

    async def responses(self, request: Request) -> Response:
        return await self.complete(request, "response")

    async def tokenize(self, request: Request) -> Response:
        tokens, names = await self.reader.read("tokenize", await _read_body(request, self.facts.max_body))
        return JSONResponse(
            {"count": len(tokens), "max_model_len": self.limits.context, "tokens": tokens, "token_strs": names}
        )

    async def detokenize(self, request: Request) -> Response:
        body = await _read_body(request, self.facts.max_body)
        return JSONResponse({"prompt": await self.reader.read("detokenize", body)})

    async def told_version(self, request: Request) -> Response:
        return JSONResponse({"version": version()})

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self.model]})

    async def one_model(self, request: Request) -> Response:
        if request.path_params["model"] != self.limits.model:
            raise no_such_model(request.path_params["model"], self.limits)
        return JSONResponse(self.model)

    async def health(self, request: Request) -> Response:
        if failure := self.engine.failure():
            raise ApiError(f"the engine has failed: {failure}", status=503, kind="server_error", code="engine_failed")
        if self.engine.drains:
            raise self.engine.stopping()
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        text = render(self.limits.model, self.engine.metrics, self.engine.session.stats())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def stats(self, request: Request) -> Response:
        now = self.engine.session.stats()
        running, waiting = counts_of(now)
        self.engine.history.place(now)
        for slot in now["slots"]:
            slot["text"] = self.engine.shown.get(slot["request"]) if slot["request"] is not None else None
        now |= {
            "model": self.limits.model,
            "pipeline": self.facts.pipeline,
            "device": self.facts.device,
            "version": version(),
            "time": time.monotonic(),
            "running": running,
            "waiting": waiting,
            "context": self.limits.context,
            "samples": self.limits.samples,
            "has_chat": self.engine.tokenizer.has_chat_template,
            "shows_text": self.engine.shows,
            "finished": self.engine.metrics.finished,
            "refused": self.engine.metrics.refused,
            "drains": self.engine.drains,
            "failure": self.engine.failure(),
            "history": self.engine.history.number,
            "started": self.engine.history.started,
            "states": [state.__dict__ for state in self.engine.history.states],
        }
        return JSONResponse(now, headers={"Cache-Control": "no-store"})

    async def history(self, request: Request) -> Response:
        after = request.query_params.get("after", "0")
        if not after.isdecimal():
            raise ApiError("`after` must be the number of a sample", param="after")
        content = self.engine.history.answer(int(after[:18]))
        return Response(content, headers={"Cache-Control": "no-store"}, media_type="application/json")


def _page(file: Path) -> Callable[[Request], Awaitable[Response]]:
    content, kind = file.read_bytes(), KINDS[file.suffix]

    async def answer(request: Request) -> Response:
        headers = {
            "Cache-Control": "no-cache",
            "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
            "img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        return Response(content, headers=headers, media_type=kind)

    return answer


class _Errors:
    """What answers an exception."""

    def __init__(self, routes: list[Route]) -> None:
        self.paths = {route.path for route in routes}

    def api_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        tell_failure(error)
        return _answer(error)

    def http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        here = request.scope["path"]  # not of the URL: the host in it may be no host
        slash = "; leave out the slash at its end" if here.rstrip("/") in self.paths else ""
        elsewhere = [words for path, words in _ELSEWHERE.items() if here.startswith(path)]
        what = {
            404: elsewhere[0] if elsewhere else f"there is no `{here[:200]}` here{slash}",
            405: f"{request.method} is not a method of `{here[:200]}`",
        }.get(error.status_code, error.detail)
        return _answer(ApiError(what, status=error.status_code, headers=error.headers))

    def any_error(self, request: Request, error: Exception) -> Response:
        return _answer(ApiError("the server has failed; its log says more", status=500, kind="server_error"))

    def gone(self, request: Request, error: Exception) -> Response:
        return Response(status_code=499)  # nobody reads it


def make_app(engine: Engine, facts: Facts, reader: Reader) -> ASGIApp:
    handlers = _Handlers(engine, facts, reader)
    routes = [
        Route("/v1/models", handlers.models),
        Route("/v1/models/{model:path}", handlers.one_model),
        Route("/v1/completions", handlers.completions, methods=["POST"]),
        Route("/v1/chat/completions", handlers.chat_completions, methods=["POST"]),
        Route("/v1/responses", handlers.responses, methods=["POST"]),
        Route("/tokenize", handlers.tokenize, methods=["POST"]),
        Route("/detokenize", handlers.detokenize, methods=["POST"]),
        Route("/version", handlers.told_version),
        Route("/health", handlers.health),
        Route("/metrics", handlers.metrics),
        Route("/stats", handlers.stats),
        Route("/history", handlers.history),
        *(Route("/" if file.name == "index.html" else f"/{file.name}", _page(file)) for file in PAGE.iterdir()),
    ]
    errors = _Errors(routes)
    app = Starlette(
        routes=routes,
        exception_handlers={
            ApiError: errors.api_error,
            HTTPException: errors.http_error,
            ClientDisconnect: errors.gone,
            Exception: errors.any_error,
        },
    )
    app.router.redirect_slashes = False  # a proxy may have other names for this server, and for the path
    app.add_middleware(Guard, facts=facts)
    return RequestIds(Cors(app, facts.origins))
