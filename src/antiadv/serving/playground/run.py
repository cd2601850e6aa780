"""Run the playground under uvicorn at 127.0.0.1, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

from antiadv.core.errors import MissingExtra
from antiadv.core.signals import handling
from antiadv.serving.playground.app import make_app
from antiadv.serving.playground.choices import Choices
from antiadv.serving.playground.session import Sessions
from antiadv.serving.serve import listen

try:
    import uvicorn
except ImportError as error:
    raise MissingExtra("uvicorn", "serve") from error

HOST = "127.0.0.1"


def play(port: int, device: str | None, ready: Callable[[str], None], choices: Choices | None = None) -> None:
    """Listen and answer. `ready` is called with the address when the page can be opened."""
    with contextlib.closing(listen(HOST, port)) as listener:
        config = uvicorn.Config(
            make_app(Sessions(choices, device)),
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        asyncio.run(_Server(config, ready).serve([listener]))


class _Server(uvicorn.Server):
    """uvicorn, which ends at the first signal with exit code 0."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            self._ready(f"http://{HOST}:{listener.getsockname()[1]}")

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        def end(*_: object) -> None:
            self.should_exit = True

        with handling({signal.SIGTERM: end, signal.SIGINT: end}):
            yield
