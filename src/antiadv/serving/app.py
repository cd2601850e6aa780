"""The HTTP application: paths, bodies, keys and errors. It runs under uvicorn, under Ray Serve and in tests.

    GET   v2  v2/health/live  v2/health/ready  v2/models/NAME[/versions/V][/ready]
    POST  v2/models/NAME[/versions/V]/infer
    GET   metrics                 POST  admin/reload        with the key `admin`, where there are keys

Each error is {"error": "one sentence"}.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any  # what a JSON answer holds

from antiadv import __version__
from antiadv.core.errors import MissingExtra
from antiadv.serving import protocol
from antiadv.serving.limits import Refused
from antiadv.serving.request_handler import ADMIN, RequestHandler, Served

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtra("starlette", "serve") from error

Answers = Callable[[Request], Awaitable[Response]]
GONE = 499  # in logs and metrics: the client left before its request was complete


def make_app(handler: RequestHandler) -> Starlette:
    """The application that passes valid requests to this handler."""
    paths = Paths(handler)
    model = "/v2/models/{model}"
    version = model + "/versions/{version}"
    routes = [
        Route(model + "/infer", paths.infer, methods=["POST"]),
        Route(version + "/infer", paths.infer, methods=["POST"]),
        Route("/v2/health/live", paths.live),
        Route("/v2/health/ready", paths.ready),
        Route("/v2", paths.server),
        Route(model, paths.model),
        Route(version, paths.model),
        Route(model + "/ready", paths.model_ready),
        Route(version + "/ready", paths.model_ready),
        Route("/metrics", paths.metrics),
        Route("/admin/reload", paths.reload, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: paths.no_path, Exception: paths.broken})


class Paths:
    """One method for each path."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    async def live(self, _: Request) -> Response:
        return Response()

    async def ready(self, _: Request) -> Response:
        return Response(status_code=200 if self._handler.ready else 503)

    async def server(self, request: Request) -> Response:
        return self._guarded(request, _server)

    async def model(self, request: Request) -> Response:
        def say() -> dict[str, Any]:
            served = self._named(request)
            facts = protocol.metadata(served.name, served.version, served.kind, served.shape, served.classes)
            return facts if served.class_names is None else {**facts, "class_names": list(served.class_names)}

        return self._guarded(request, say)

    async def model_ready(self, request: Request) -> Response:
        try:
            self._named(request)
        except Refused as refused:
            return self._error(refused)
        return await self.ready(request)

    async def metrics(self, request: Request) -> Response:
        try:
            self._check_admin(request)
        except Refused as refused:
            return self._error(refused)
        return Response(self._handler.metrics.text(), media_type="text/plain; version=0.0.4")

    async def reload(self, request: Request) -> Response:
        try:
            if not self._handler.keys:
                raise Refused(404, "reloading over HTTP needs a key called admin; SIGHUP needs none.")
            self._check_admin(request)
            fresh = await self._handler.reload()
        except Refused as refused:
            return self._error(refused)
        return JSONResponse({"model_name": fresh.name, "model_version": fresh.version})

    async def infer(self, request: Request) -> Response:
        start = time.monotonic()
        facts: dict[str, Any] = {"client": _address(request)}
        try:
            response = await self._infer(request, facts)
        except Refused as refused:
            response = self._error(refused)
            facts["error"] = refused.sentence
        except ClientDisconnect:
            response = Response(status_code=GONE)  # the client has left
        seconds = time.monotonic() - start
        self._handler.metrics.finished(response.status_code, seconds)
        self._handler.log("request", status=response.status_code, milliseconds=round(1e3 * seconds, 1), **facts)
        if self._handler.closing:
            response.headers["Connection"] = "close"
        return response

    async def _infer(self, request: Request, facts: dict[str, Any]) -> Response:
        handler = self._handler
        client = handler.keys.client(_key(request))
        facts["client"] = who = client or facts["client"]
        self._named(request)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise Refused(400, "compressed requests are not supported; send the body as it is.")
        handler.room.check_length(request.headers.get("Content-Length"))
        with handler.room.body() as body:
            try:
                async with asyncio.timeout(handler.limits.read):
                    async for part in request.stream():
                        body.add(part)
            except TimeoutError:
                raise Refused(408, f"the body did not arrive within {handler.limits.read:g} seconds.") from None
            served = self._named(request)  # now: a reload may have swapped it; nothing is awaited before it is queued
            length = request.headers.get(protocol.HEADER_LENGTH)
            asked = protocol.read(body.joined(), length, served.shape, handler.limits.rows)
            facts |= {"rows": len(asked.images)} | ({} if asked.id is None else {"id": asked.id})
            answer = await handler.infer(served, client, who, asked)
        content, headers = protocol.write(asked, answer, served.name, served.version)
        return Response(content, headers=headers)

    def _named(self, request: Request) -> Served:
        """The classifier of the path."""
        served, asked = self._handler.served, request.path_params
        if asked["model"] != served.name or asked.get("version", served.version) != served.version:
            raise Refused(404, f"this server has the model {served.name}, version {served.version}.")
        return served

    def _check_admin(self, request: Request) -> None:
        if self._handler.keys and self._handler.keys.client(_key(request)) != ADMIN:
            raise Refused(403, "this needs the key called admin.")

    def _guarded(self, request: Request, say: Callable[[], dict[str, Any]]) -> Response:
        try:
            self._handler.keys.client(_key(request))
            return JSONResponse(say())
        except Refused as refused:
            return self._error(refused)

    def _error(self, refused: Refused) -> Response:
        return JSONResponse({"error": refused.sentence}, refused.status, refused.headers)

    async def no_path(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": f"{error.detail}; see v2 for what is here."}, error.status_code, error.headers)

    async def broken(self, _: Request, error: Exception) -> Response:
        self._handler.log("bug", error=f"{type(error).__name__}: {error}"[:300])
        return JSONResponse({"error": "the server failed; its log has the reason."}, 500)


def _server() -> dict[str, Any]:
    return {"name": "antiadv", "version": __version__, "extensions": ["binary_tensor_data"]}


def _key(request: Request) -> str | None:
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else request.headers.get("X-API-Key")


def _address(request: Request) -> str:
    return request.client.host if request.client else "unknown"
