"""The HTTP application of the playground. It answers the browser of this machine only.

    GET   /                                     the page
    GET   /api/choices   /api/samples/N         what can be picked; the picture of a sample
    POST  /api/sessions                         → {"session": NAME}
    POST  /api/sessions/NAME/image              the bytes of a picture
    POST  /api/sessions/NAME/start              JSON (`choices.py`); then step, continue, stop
    GET   /api/sessions/NAME/story?after=0,0    what happened; only points that the page does not have
    GET   /api/sessions/NAME/share              one HTML file

A page of another site can make a browser send requests to 127.0.0.1, under a name of its own (DNS rebinding). So a
request is refused if its Host is not this machine, or if its Origin is another page. Each error is {"error": "…"}.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any  # what a JSON answer holds

from antiadv.core.errors import AntiadvError, MissingExtra
from antiadv.data.pictures import png
from antiadv.serving.limits import Refused
from antiadv.serving.playground.pictures import LARGEST_UPLOAD
from antiadv.serving.playground.session import Session, Sessions
from antiadv.serving.playground.share import share

try:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import HTMLResponse, JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise MissingExtra("starlette", "serve") from error

HOSTS = ("127.0.0.1", "localhost")
LARGEST_TEXT = 2**16  # bytes of a JSON body
PAGE = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")


def _hashes(tag: str) -> str:
    """The hashes of the page's own style or script, which are the only ones that a browser may use."""
    texts = re.findall(rf"<{tag}>(.*?)</{tag}>", PAGE, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts)


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; "
    f"form-action 'none'; frame-ancestors 'none'; style-src {_hashes('style')}; script-src {_hashes('script')}",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def make_app(sessions: Sessions) -> Starlette:
    """The application of these sessions. They are closed with it."""
    paths = Paths(sessions)
    session = "/api/sessions/{session}"

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        yield
        sessions.close()

    routes = [
        Route("/", paths.page),
        Route("/api/choices", paths.choices),
        Route("/api/samples/{sample}", paths.sample),
        Route("/api/sessions", paths.open, methods=["POST"]),
        Route(session + "/image", paths.image, methods=["POST"]),
        Route(session + "/start", paths.start, methods=["POST"]),
        Route(session + "/step", paths.act(Session.step), methods=["POST"]),
        Route(session + "/continue", paths.act(Session.go_on), methods=["POST"]),
        Route(session + "/stop", paths.act(Session.stop), methods=["POST"]),
        Route(session + "/story", paths.story),
        Route(session + "/share", paths.share),
    ]
    handlers: dict[Any, Any] = {Refused: _refused, AntiadvError: _bad, HTTPException: _no_path}
    return Starlette(routes=routes, middleware=[Middleware(Local)], exception_handlers=handlers, lifespan=life)


class Paths:
    """One method for each path."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def page(self, _: Request) -> Response:
        return HTMLResponse(PAGE)

    async def choices(self, _: Request) -> Response:
        return JSONResponse(self._sessions.choices.json())

    async def sample(self, request: Request) -> Response:
        images = self._sessions.choices.images
        asked = request.path_params["sample"]
        number = int(asked) if re.fullmatch(r"[0-9]{1,9}", asked) else len(images)
        if number >= len(images):
            raise Refused(404, f"a sample is a number from 0 to {len(images) - 1}; pick one of these.")
        called = images.called(int(images.labels([number])[0]))
        return Response(png(images.images([number])[0]), media_type="image/png", headers={"X-Class": called})

    async def open(self, _: Request) -> Response:
        return JSONResponse({"session": self._sessions.open().name})

    async def image(self, request: Request) -> Response:
        session = self._session(request)
        content = await _body(request, LARGEST_UPLOAD)
        return JSONResponse({"image": await run_in_threadpool(session.upload, content)})

    async def start(self, request: Request) -> Response:
        session = self._session(request)
        session.start(self._sessions.choices.read(await _body(request, LARGEST_TEXT)))
        return JSONResponse({})

    def act(self, act: Callable[[Session], None]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            act(self._session(request))
            return JSONResponse({})

        return answer

    async def story(self, request: Request) -> Response:
        words = request.query_params.get("after", "").split(",")[:2]
        after = [int(word) for word in words if re.fullmatch(r"[0-9]{1,6}", word)]
        return JSONResponse(self._session(request).story.json(after))

    async def share(self, request: Request) -> Response:
        story = self._session(request).story
        if story.clean is None:
            raise Refused(409, "there is nothing to share yet; start an attack first.")
        headers = {"Content-Disposition": 'attachment; filename="antiadv-playground.html"'}
        return HTMLResponse(await run_in_threadpool(share, story.json()), headers=headers)

    def _session(self, request: Request) -> Session:
        return self._sessions.find(request.path_params["session"])


async def _body(request: Request, most: int) -> bytes:
    """The body of a request, of at most so many bytes."""
    content = bytearray()
    try:
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise Refused(413, f"this is larger than {most // 1024:,} KiB; give a smaller file.")
    except ClientDisconnect:
        raise Refused(400, "the body did not arrive.") from None
    return bytes(content)


class Local:
    """Refuses requests for another host or from another page, and adds the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
            await send(message)

        request = Request(scope)
        if _is_local(request.headers.getlist("host"), request.headers.getlist("origin")):
            await self._app(scope, receive, answer)
            return
        sentence = "the playground answers pages of this machine only; open it at 127.0.0.1."
        await JSONResponse({"error": sentence}, 403)(scope, receive, answer)


def _is_local(hosts: list[str], origins: list[str]) -> bool:
    """
    >>> _is_local(["127.0.0.1:8001"], []), _is_local(["localhost:1"], ["http://localhost:1"])
    (True, True)
    >>> _is_local(["evil.example:8001"], []), _is_local(["127.0.0.1:1"], ["http://evil.example"])
    (False, False)
    """
    if len(hosts) != 1 or hosts[0].partition(":")[0] not in HOSTS:
        return False
    return all(origin == f"http://{hosts[0]}" for origin in origins)


def _error(status: int, sentence: str) -> Response:
    return JSONResponse({"error": sentence}, status)


async def _refused(_: Request, error: Refused) -> Response:
    return _error(error.status, error.sentence)


async def _bad(_: Request, error: AntiadvError) -> Response:
    return _error(400, str(error))


async def _no_path(_: Request, error: HTTPException) -> Response:
    return _error(error.status_code, f"{error.detail}; the page is at /.")
