"""Run the application under uvicorn: one process, until SIGTERM or Ctrl-C.

SIGTERM, SIGINT   `ready` answers 503 and answers close their connections; after `drain` seconds the server stops
                  listening, finishes every accepted request and ends with exit code 0; a second SIGINT ends it at once
SIGHUP            loads the bundle again, next to the one that is served, and swaps them; reads the keys again
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from antiadv.core.bounds import read_text
from antiadv.core.errors import BadInput, MissingExtra, reason
from antiadv.core.signals import Handler, handling
from antiadv.serving import logs
from antiadv.serving.app import make_app
from antiadv.serving.keys import Keys
from antiadv.serving.limits import Limits, Refused
from antiadv.serving.request_handler import RequestHandler
from antiadv.serving.source import Source

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as error:
    raise MissingExtra("uvicorn and httptools", "serve") from error

KEEP_ALIVE = 75  # seconds: longer than clients and proxies keep idle connections, so that they close first
LONGEST_HEAD = 2**16  # bytes of all headers
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
SAVE_EVERY = 1.0  # seconds between two writes of the ledger
SWITCH = 0.0005  # seconds: the engine thread and the event loop take turns more often than by default
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def serve(
    source: Source, limits: Limits, read: Callable[[], Keys], host: str, port: int, log: logs.Log, quiet: bool = False
) -> None:
    """Load, listen and answer until a signal. With `quiet` requests are not logged, only events."""
    keys = read()
    keep_memory()
    sys.setswitchinterval(SWITCH)
    listener = listen(host, port)
    with contextlib.closing(listener):
        requests = logs.without_requests(log) if quiet else log
        handler = RequestHandler(limits, keys, requests, lambda: source.load(limits.batch), read)
        handler.serve(handler.start(source.load(limits.batch)))
        gc.collect()
        gc.freeze()  # else a search for garbage looks at all of PyTorch, and stops every request for 0.1 seconds
        try:
            with logs.libraries(log):
                asyncio.run(_run(handler, listener, log))
        finally:
            handler.close()
    log("ended")


def keep_memory() -> None:
    """Tell glibc to keep the memory of a batch for the next one; giving it back and forth costs 5 % of a pass."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, 2**30)
        mallopt(TRIM_THRESHOLD, 2**30)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; it accepts connections when the server starts."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as undo:
            listener = undo.enter_context(socket.socket(family, kind, number))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            undo.pop_all()
    except (OSError, OverflowError, UnicodeError) as error:
        raise BadInput(f"cannot listen at {host}, port {port}: {error}. Choose another --host or --port.") from error
    return listener


def read_keys(path: Path | None, text: str | None, ledger: Path | None) -> Keys:
    """The keys of a file, or of a text from the environment."""
    if path is not None:
        try:
            text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the file of keys {path} cannot be read: {error}.") from error
    if text is None and ledger is not None:
        raise BadInput("a ledger counts the queries of keys; give --keys too.")
    keys = Keys.read(text or "", ledger)
    if path is not None and not keys:
        raise BadInput(f"the file of keys {path} has no key, so everyone could ask. Add one, or leave out --keys.")
    if text is not None and not keys:
        raise BadInput("ANTIADV_KEYS is set but has no key, so everyone could ask. Add one, or unset it.")
    return keys


async def _run(handler: RequestHandler, listener: socket.socket, log: logs.Log) -> None:
    limits = handler.limits
    config = uvicorn.Config(
        make_app(handler),
        http=Connection,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(limits.read + limits.answer) + 1,
    )
    server = Server(config, handler, log)
    saving = asyncio.create_task(_save(handler.keys, log))
    try:
        await server.serve([listener])
    finally:
        saving.cancel()


async def _save(keys: Keys, log: logs.Log) -> None:
    """Write the ledger again and again. A full disk is said in the log, and the next write may succeed."""
    while True:
        await asyncio.sleep(SAVE_EVERY)
        try:
            keys.save()
        except OSError as error:
            log("ledger_failed", error=reason(error))


class Connection(HttpToolsProtocol):
    """uvicorn's connection over httptools, with a limit on headers and trailers, which httptools does not have."""

    _head = 0  # bytes since the start of the request or the last part of its body
    _answered = False  # whether the headers ended, so that an answer may be under way

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._head > LONGEST_HEAD and not self.transport.is_closing():
            if not self._answered:
                self.transport.write(TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        self._answered = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head, self._answered = 0, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()


class Server(uvicorn.Server):
    """uvicorn, with the signals of this file."""

    def __init__(self, config: uvicorn.Config, handler: RequestHandler, log: logs.Log) -> None:
        super().__init__(config)
        self._handler, self._log, self._tasks = handler, log, set[asyncio.Task[None]]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            host, port, *_ = listener.getsockname()
            self._log("listening", url=f"http://{f'[{host}]' if ':' in host else host}:{port}", **self._facts())

    def _facts(self) -> dict[str, object]:
        served = self._handler.served
        return {"model": served.name, "version": served.version, "backend": served.kind, "shape": served.shape}

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def when(act: Callable[[int], None]) -> Handler:
            return lambda number, _: loop.call_soon_threadsafe(act, number)

        wanted: dict[int, Handler] = {signal.SIGTERM: when(self._end), signal.SIGINT: when(self._end)}
        if hasattr(signal, "SIGHUP"):
            wanted[signal.SIGHUP] = when(self._reload)
        with handling(wanted):
            yield

    def _end(self, number: int) -> None:
        if self._handler.closing:
            if number == signal.SIGINT:  # asked twice: end at once
                self.should_exit = self.force_exit = True
            return
        self._handler.closing = True
        self._log("closing", signal=signal.Signals(number).name)
        asyncio.get_running_loop().call_later(self._handler.limits.drain, self._stop)

    def _stop(self) -> None:
        self.should_exit = True

    def _reload(self, _: int) -> None:
        task = asyncio.get_running_loop().create_task(self._try_reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _try_reload(self) -> None:
        with contextlib.suppress(Refused):  # the handler has logged it
            await self._handler.reload()
