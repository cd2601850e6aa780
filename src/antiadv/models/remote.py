"""A classifier behind an address: an nn.Module without weights and without gradients, which asks a server.

    Remote("http://127.0.0.1:8000/v2/models/net")                       the Open Inference Protocol v2, binary
    Remote(url, api="json", request="inputs", answer="scores")          any other JSON API
    load("http://127.0.0.1:8000/v2/models/net,rate=50")                 the same by name, with options

What the server answers (`output`):

    scores           logits, used as they are
    probabilities    their logarithms are the scores
    labels           one class for each image; then only attacks on labels work. `classes` says how many there are
    auto             scores or probabilities, whichever the first answer looks like

`grants` is the access that the endpoint gives, and the house refuses attacks that need more. `sent` counts the images
that went over the wire, repeats and the judge's included. A repeat is charged to its sample like any other query
(`core/wire.py`); with `charge="answered"` those that the server refused (429, 503) are free, for owners who count so.
A host that is not this machine is refused without `authorised=True`.
"""

from __future__ import annotations

import inspect
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiadv.core.errors import BadInput, BudgetSpent, EndpointFailed
from antiadv.core.threat import Access
from antiadv.core.validation import at_least, check_flag, check_float, check_whole
from antiadv.core.wire import Request, current
from antiadv.models.connection import Line
from antiadv.models.journal import Journal, key_of
from antiadv.models.wire_formats import TYPES, V2, BadAnswer, Images, Json

Output = Literal["auto", "scores", "probabilities", "labels"]
Api = Literal["v2", "json"]
Charge = Literal["sent", "answered"]
HOW = ("batch", "connections", "rate", "timeout", "retries", "backoff", "key_env", "authorised")  # change no answer
SUM = 1e-3  # by which probabilities may miss a sum of 1
SMALLEST = float(np.finfo(np.float32).tiny)  # probability: its logarithm is finite


class Remote(nn.Module):
    """See the head of this file.

    `batch` images go into one request, over `connections` at a time, at most `rate` requests in a second. A request
    that fails is repeated `retries` times. `key_env` names an environment variable with the endpoint's key, which is
    sent as a bearer token; `headers` are sent with every request, for any other way. `input` and
    `output_name` name the tensors of the v2 protocol; by default the server says them. For `api="json"`, `request` and
    `answer` are the fields of images and scores (`wire_formats.py`), and `images` says how they are written.

    >>> Remote("http://192.0.2.7/v2/models/net")
    Traceback (most recent call last):
        ...
    antiadv.core.errors.BadInput: an endpoint on another machine is only attacked with its owner's permission; found \
the host 192.0.2.7. If you have it, say so with --authorised, or authorised=True in Python.
    """

    def __init__(
        self,
        url: str,
        *,
        output: Output = "auto",
        classes: int | None = None,
        api: Api = "v2",
        images: Images | None = None,
        input: str | None = None,
        output_name: str | None = None,
        request: str = "instances",
        answer: str = "predictions",
        single: bool = False,
        charge: Charge = "sent",
        batch: int = 32,
        connections: int = 4,
        rate: float | None = None,
        timeout: float = 30.0,
        retries: int = 5,
        backoff: float = 0.25,
        key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        authorised: bool = False,
    ) -> None:
        super().__init__()
        self.training = False
        check_whole(batch=batch)
        at_least(1, batch=batch)
        check_flag(authorised=authorised, single=single)
        _check_output(output, classes)
        self.url, self.output, self.classes, self.charge = url.rstrip("/"), output, classes, charge
        self.batch, self.connections = 1 if single else batch, connections
        self.journal: Journal | None = None
        self.sent = 0
        self._kind: Output = output
        self._lock = threading.Lock()
        sent_always = {**_key(key_env), **(headers or {})}
        self._line = Line(
            self.url, headers=sent_always, connections=connections, rate=rate, timeout=timeout, retries=retries,
            backoff=backoff, authorised=authorised,
        )  # fmt: skip
        parts = self._line.parts
        path = f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}"
        self._path = f"{path}/infer" if api == "v2" else path
        if api == "v2":
            names = input, output_name
            self._format: V2 | Json = V2(*self._names(path, *names), "lists" if images == "lists" else "binary")
        else:
            self._format = Json(request, answer, "png" if images == "png" else "lists", single)

    @property
    def grants(self) -> Access:
        """The most that an attacker gets from this endpoint."""
        return Access.LABELS if self.output == "labels" else Access.SCORES

    def extra_repr(self) -> str:
        return f"{self.url}, output={self.output}"

    def forward(self, x: Tensor) -> Tensor:
        check_float(x)
        request, n = current(), len(x)
        places = [] if request is None else request.take(n)
        images = x.detach().to("cpu", torch.float32).contiguous().numpy()
        keys = [key_of(image) for image in images] if self.journal is not None else []
        kept = [None if self.journal is None else self.journal.take(key) for key in keys] or [None] * n
        missing = [i for i in range(n) if kept[i] is None]
        parts = [missing[i : i + self.batch] for i in range(0, len(missing), self.batch)]

        def ask(part: Sequence[int]) -> NDArray[np.float32]:
            charged = [places[i] for i in part] if request is not None else []
            scores = self._ask(images[list(part)], request, charged)
            if self.journal is not None:
                self.journal.add([keys[i] for i in part], scores)
            return scores

        for part, scores in zip(parts, self._at_once(ask, parts), strict=True):
            for i, row in zip(part, scores, strict=True):
                kept[i] = row
        if not n:
            return x.new_zeros(0, self.classes or 2)
        return torch.from_numpy(self._stacked([row for row in kept if row is not None])).to(x.device, x.dtype)

    def _at_once(
        self, ask: Callable[[Sequence[int]], NDArray[np.float32]], parts: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float32]]:
        """Ask for all parts, over several connections. After a failure nothing new is sent."""
        workers = min(self.connections, len(parts))
        if workers < 2:
            return [ask(part) for part in parts]
        pool = ThreadPoolExecutor(workers)
        try:
            return list(pool.map(ask, parts))
        finally:
            pool.shutdown(cancel_futures=True)

    def _ask(self, images: NDArray[np.float32], request: Request | None, places: Sequence[int]) -> NDArray[np.float32]:
        """The scores of one request. What is sent again is charged again, before it is sent."""
        body, headers = self._format.encode(images)

        def sent() -> None:
            with self._lock:
                self.sent += len(images)

        def again(refused: bool) -> None:
            if request is not None and not (refused and self.charge == "answered"):
                request.charge(places)

        try:
            reply = self._line.ask("POST", self._path, body, headers, sent, again)
        except BudgetSpent as error:
            raise EndpointFailed(
                f"the endpoint {self.url} did not answer, and a sample has no query left to ask again. Give a larger "
                "budget, or charge=answered if its owner does not count what it refused (429, 503)."
            ) from error
        try:
            return self._scores(self._format.decode(reply, len(images)))
        except BadAnswer as error:
            raise EndpointFailed(
                f"the endpoint {self.url} must answer {len(images)} images with finite "
                f"{'scores' if self.output == 'auto' else self.output}; found {error}. Check its address and options."
            ) from error

    def _scores(self, found: NDArray[Any]) -> NDArray[np.float32]:
        """Scores [n, K] of an answer."""
        if self.output == "labels":
            return _log(_one_hot(found, self.classes or 0))
        if found.ndim != 2:
            raise BadAnswer(f"shape {list(found.shape)}; if these are labels, say output=labels and classes=10")
        if found.shape[1] < 2 or (self.classes is not None and found.shape[1] != self.classes):
            raise BadAnswer(f"{found.shape[1]} scores for an image")
        if not np.isfinite(found).all():
            raise BadAnswer("NaN or infinity")
        likely = bool((found >= 0).all() and (found <= 1 + SUM).all() and (abs(found.sum(1) - 1) < SUM).all())
        with self._lock:
            if self._kind == "auto":
                self._kind = "probabilities" if likely else "scores"
        if self._kind == "probabilities" and not likely:
            raise BadAnswer("numbers that are no probabilities, after others that were; say output=scores")
        return _log(found) if self._kind == "probabilities" else found.astype(np.float32)

    def _stacked(self, rows: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        if len({len(row) for row in rows}) > 1:
            raise EndpointFailed(
                f"the endpoint {self.url} must answer every image with the same number of scores; found several. "
                "Check whether its model was changed meanwhile."
            )
        return np.stack(rows)

    def _names(self, path: str, input: str | None, output: str | None) -> tuple[str, str]:
        """The names of the tensors: as given, or as the server's metadata say."""
        if input is not None and output is not None:
            return input, output
        try:
            reply = self._line.ask("GET", path)
            if reply.kind != "application/json":
                raise BadAnswer(f"the content type {reply.kind or 'nothing'!r}")
            return _from_metadata(reply.body, input, output, self.output == "labels")
        except BadAnswer as error:
            raise EndpointFailed(
                f"the endpoint {self.url} must describe its model in JSON, as the Open Inference Protocol v2 says; "
                f"found {error}. Give input= and output_name=, or api=json for another protocol."
            ) from error


def _check_output(output: str, classes: int | None) -> None:
    if classes is not None:
        check_whole(classes=classes)
        at_least(2, classes=classes)
    if output == "labels" and classes is None:
        raise BadInput(
            "an endpoint that answers with labels does not say how many classes there are; found no classes. "
            "Give for example classes=10."
        )


def _from_metadata(content: bytes, input: str | None, output: str | None, labels: bool) -> tuple[str, str]:
    """The first input, and the first output of floats, or of integers for labels."""
    try:
        said = json.loads(content)
        inputs = [str(tensor["name"]) for tensor in said["inputs"]]
        outputs = {str(tensor["name"]): str(tensor["datatype"]) for tensor in said["outputs"]}
    except (ValueError, LookupError, TypeError, RecursionError):
        raise BadAnswer("no names of inputs and outputs") from None
    fitting = [name for name, kind in outputs.items() if kind in TYPES and ("INT" in kind) == labels] or [*outputs]
    if not inputs or not fitting:
        raise BadAnswer("no inputs or no outputs")
    return input or inputs[0], output or fitting[0]


def _one_hot(found: NDArray[Any], classes: int) -> NDArray[np.float64]:
    labels = found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found
    if labels.ndim != 1 or not np.isfinite(labels).all() or (labels != np.rint(labels)).any():
        raise BadAnswer(f"shape {list(found.shape)} and type {found.dtype} for labels")
    if ((labels < 0) | (labels >= classes)).any():
        raise BadAnswer(f"a label outside 0 … {classes - 1}")
    return np.eye(classes)[labels.astype(np.int64)]


def _log(p: NDArray[Any]) -> NDArray[np.float32]:
    return np.log(np.maximum(p.astype(np.float64), SMALLEST)).astype(np.float32)


# ---------------------------------------------------------------- by name


def _loader(scheme: str) -> Callable[..., Remote]:
    def load(url: str, **options: Any) -> Remote:
        """A classifier behind an address, asked over HTTP."""
        return Remote(f"{scheme}:{url}", **options)

    load.__signature__ = inspect.signature(Remote)  # type: ignore[attr-defined]  # its options are those of the spec
    load.__annotations__ = Remote.__init__.__annotations__
    return load


def _key(name: str | None) -> dict[str, str]:
    """The header with the key in this environment variable. A name may be stored and shown; the key never is."""
    if name is None:
        return {}
    if not (value := os.environ.get(name, "").strip()):
        raise BadInput(f"key_env={name} names an environment variable with the endpoint's key; found none. Set it.")
    return {"Authorization": f"Bearer {value}"}


http, https = _loader("http"), _loader("https")
