"""HTTP to one host, with the standard library: bounded time, bounded answers, a stated rate, repeats with back-off.

    line = Line(url, authorised=False, …)        refuses a host that is not this machine, unless authorised
    line.ask("POST", path, body, headers, …)     →  Reply; raises `EndpointFailed` with one sentence

A request is repeated after 429, 502, 503 and 504, after a broken connection and after a time-out, and later each time.
`Retry-After` is obeyed up to a minute. Redirects and proxies are not followed: what is sent goes to the named host.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import queue
import re
import select
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from antiadv.core.errors import BadInput, EndpointFailed, first_line
from antiadv.core.printable import printable
from antiadv.core.validation import at_least, check_whole

LARGEST = 2**26  # bytes of an answer that are read
CHUNK = 2**16
PATIENCE = 60.0  # seconds: the longest wait that a server may ask for
LONGEST_WAIT = 8.0  # seconds between two tries, without such a wish
REFUSED = (429, 503)  # the server says that it did not answer
AGAIN = (*REFUSED, 502, 504)
_ADDRESS = re.compile(r"[A-Za-z0-9\-._~:/?\[\]!$&'*;=%]+")  # of RFC 3986, without what a spec or a table uses


@dataclass(frozen=True)
class Reply:
    """A complete answer of a server."""

    status: int
    headers: Mapping[str, str]  # by names in lower case: servers differ in how they write them
    body: bytes

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True)
class _Failed:
    """A try without an answer: why, whether the body was sent, and whether and for how long the server refused."""

    why: str
    was_sent: bool
    refused: bool = False
    wait: float | None = None


def check_address(url: str, authorised: bool) -> SplitResult:
    """Split an address. Refuse one that is not plain, and a host that is not this machine unless authorised."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        parts, host = SplitResult("", "", "", "", ""), None
    if parts.scheme not in ("http", "https") or not host or not _ADDRESS.fullmatch(url):
        raise BadInput(
            f"an endpoint is an address such as http://127.0.0.1:8000/v2/models/net; found {url!r}. Leave out names "
            "and passwords, fragments and spaces."
        )
    if not authorised and not is_this_machine(host):
        raise BadInput(
            f"an endpoint on another machine is only attacked with its owner's permission; found the host {host}. If "
            "you have it, say so with --authorised, or authorised=True in Python."
        )
    return parts


def is_this_machine(host: str) -> bool:
    """Whether a host is the loopback of this machine.

    >>> [is_this_machine(host) for host in ("127.0.0.1", "::1", "localhost", "127.0.0.1.example.org", "10.0.0.1")]
    [True, True, True, False, False]
    """
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


class Line:
    """Connections to one host. Several threads may ask; each gets a connection of its own."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        connections: int,
        rate: float | None,
        timeout: float,
        retries: int,
        backoff: float,
        authorised: bool,
    ) -> None:
        check_whole(connections=connections, retries=retries)
        at_least(1, connections=connections)
        at_least(0, retries=retries, backoff=backoff)
        if not timeout > 0 or not (rate is None or rate > 0):
            raise BadInput(
                f"an endpoint needs a time-out and a rate above zero; found timeout={timeout!r} and rate={rate!r}. "
                "Give seconds, and requests per second."
            )
        self.url, self.parts = url, check_address(url, authorised)
        self.headers, self.rate, self.timeout = dict(headers), rate, timeout
        self.retries, self.backoff = retries, backoff
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue(connections)
        self.close = weakref.finalize(self, _close, self._idle)
        self._lock, self._next = threading.Lock(), 0.0
        self._down = False  # after a failure the next request is tried once, so that errors come soon

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        sent: Callable[[], None] = lambda: None,
        again: Callable[[bool], None] = lambda refused: None,
    ) -> Reply:
        """Ask until there is an answer. `sent` is called each time that the body is sent. `again` is called before it
        is sent again; its argument tells whether the server refused the last one (429, 503)."""
        tries, last = 1 if self._down else 1 + self.retries, _Failed("", was_sent=False)
        for attempt in range(tries):
            if attempt:
                own = min(LONGEST_WAIT, self.backoff * 2 ** (attempt - 1))
                time.sleep(own if last.wait is None else min(last.wait, PATIENCE))
            if last.was_sent:
                again(last.refused)
            found = self._try(method, path, body, headers or {}, sent)
            if isinstance(found, Reply):
                self._down = False
                return self._checked(found, path)
            last = found
        self._down = True
        times = "once" if tries == 1 else f"{tries} times"
        raise EndpointFailed(
            f"the endpoint {self.url} was asked {times} without an answer; the last time it was: {last.why}. "
            "Check that it runs, or lower the rate, and run again."
        )

    def _try(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], sent: Callable[[], None]
    ) -> Reply | _Failed:
        """One try: an answer, or why it makes sense to try again."""
        counted: list[bool] = []

        def count() -> None:
            counted.append(True)
            sent()

        try:
            reply = self._once(method, path, body, headers, count)
        except (OSError, http.client.HTTPException) as error:
            return _Failed(first_line(error), bool(counted))
        if reply.status not in AGAIN:
            return reply
        return _Failed(_status(reply), True, reply.status in REFUSED, _asked_wait(reply))

    def _checked(self, reply: Reply, path: str) -> Reply:
        if reply.status == 200:
            return reply
        todo = "Check the address and the options."
        if 300 <= reply.status < 400:
            todo = "Redirects are not followed: give the address that it leads to."
        elif reply.status in (401, 403):
            todo = "Give the key that its owner gave you, with key_env=NAME of an environment variable."
        elif reply.status == 404:
            todo = f"Nothing is served at {printable(path)}: check the address."
        raise EndpointFailed(f"the endpoint {self.url} refused: {_status(reply)}. {todo}")

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str], sent: Callable[[], None]) -> Reply:
        self._pace()
        end = time.monotonic() + self.timeout
        with self._connection() as connection:
            if connection.sock is None:
                connection.connect()
            sent()
            connection.request(method, path, body, {**self.headers, **headers})
            answer = connection.getresponse()
            return Reply(
                answer.status, {name.lower(): value for name, value in answer.headers.items()}, self._read(answer, end)
            )

    def _read(self, answer: http.client.HTTPResponse, end: float) -> bytes:
        """The body, at most LARGEST bytes, until the time is over."""
        parts, total = list[bytes](), 0
        while part := answer.read(CHUNK):
            total += len(part)
            parts.append(part)
            if total > LARGEST:
                raise EndpointFailed(
                    f"the endpoint {self.url} answered with more than {LARGEST:,} bytes; no answer needs that. Send "
                    "fewer images in a request (batch=), or check the address."
                )
            if time.monotonic() > end:
                raise TimeoutError(f"the answer took longer than {self.timeout:g} s")
        if answer.length:  # the connection ended before the announced length
            raise http.client.IncompleteRead(b"", answer.length)
        return b"".join(parts)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[http.client.HTTPConnection]:
        """A kept connection, or a new one. It is kept again only after a complete answer."""
        try:
            connection = self._idle.get_nowait()
            if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
                connection.close()  # the server closed it meanwhile
        except queue.Empty:
            connection = self._new()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with contextlib.suppress(queue.Full):
            self._idle.put_nowait(connection)

    def _new(self) -> http.client.HTTPConnection:
        host, port = self.parts.hostname or "", self.parts.port
        if self.parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self.timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=self.timeout)

    def _pace(self) -> None:
        """Wait for the next turn, so that no more than `rate` requests start in a second."""
        if self.rate is None:
            return
        with self._lock:
            turn = max(time.monotonic(), self._next)
            self._next = turn + 1 / self.rate
        time.sleep(max(0.0, turn - time.monotonic()))


def _close(idle: queue.LifoQueue[http.client.HTTPConnection]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            idle.get_nowait().close()


def _asked_wait(reply: Reply) -> float | None:
    """The seconds of `Retry-After`; a date is not read."""
    text = reply.headers.get("retry-after", "")
    return float(text) if re.fullmatch(r"\d{1,6}", text) else None


def _status(reply: Reply) -> str:
    """The status and the first words of the answer."""
    said = " ".join(printable(reply.body[:200].decode(errors="replace")).split())
    return f"status {reply.status}" + (f" ({said})" if said else "")
