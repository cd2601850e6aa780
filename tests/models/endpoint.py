"""A real HTTP server around a network, in threads of this process: the v2 protocol and a plain JSON API.

    with Endpoint(net) as server: …     server.url, server.rows (answered), server.received, server.trouble

`trouble` is called with the number of each POST; it may return a raw answer instead of the network's.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

LENGTH = "Inference-Header-Content-Length"


@dataclass
class Raw:
    """An answer that is sent as it is. With `cut`, so many bytes are announced beyond those sent."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    cut: int = 0
    drop: bool = False  # close the connection without a word


class Endpoint:
    def __init__(self, net: nn.Module, kind: str = "scores", binary: bool = True) -> None:
        self.net, self.kind, self.binary = net, kind, binary
        self.rows = self.received = self.posts = self.busy = self.most_busy = 0
        self.keys: list[str | None] = []
        self.trouble: Callable[[int], Raw | None] = lambda number: None
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

            def do_GET(self) -> None:
                kinds = [("scores", "FP32", [-1, 4]), ("labels", "INT64", [-1])]
                outputs = [{"name": n, "datatype": t, "shape": s} for n, t, s in kinds]
                inputs = [{"name": "images", "datatype": "FP32", "shape": [-1, 3, -1, -1]}]
                known = self.path == "/v2/models/net"
                said = {"name": "net", "inputs": inputs, "outputs": outputs} if known else {"error": "unknown"}
                outer.send(self, Raw(200 if known else 404, json.dumps(said).encode()))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.post(self, body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v2/models/net"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def post(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        x, answer = self.read(handler, body)
        with self.lock:
            number, self.posts = self.posts, self.posts + 1
            self.received += len(x)
            self.keys.append(handler.headers.get("Authorization"))
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
        try:
            raw = self.trouble(number)
            if raw is None:
                raw = answer(self.values(x))
                with self.lock:
                    self.rows += len(x)
        finally:
            with self.lock:
                self.busy -= 1
        self.send(handler, raw)

    def values(self, x: Tensor) -> np.ndarray:
        with torch.no_grad():
            s = self.net(x)
        s = s.softmax(1) if self.kind == "probabilities" else s
        values: np.ndarray = (s.argmax(1) if self.kind == "labels" else s).numpy()
        return values

    def read(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[Tensor, Callable[[np.ndarray], Raw]]:
        if not handler.path.endswith("/infer"):
            images = json.loads(body)["instances"]
            return torch.stack([_image(v) for v in images]), lambda s: Raw(
                body=json.dumps({"predictions": [{"p": row} for row in s.tolist()]}).encode()
            )
        length = handler.headers.get(LENGTH)
        head = json.loads(body if length is None else body[: int(length)])
        (tensor,) = head["inputs"]
        if length is None:
            values = np.array(tensor["data"], np.float32)
        else:
            values = np.frombuffer(body[int(length) :], "<f4").copy()
        return torch.from_numpy(values.reshape(tensor["shape"])), lambda s: self.v2(s, head["outputs"][0]["name"])

    def v2(self, s: np.ndarray, name: str) -> Raw:
        kind = "INT64" if s.dtype.kind == "i" else "FP32"
        tensor: dict[str, Any] = {"name": name, "shape": list(s.shape), "datatype": kind}
        if not self.binary:
            return Raw(body=json.dumps({"outputs": [tensor | {"data": s.ravel().tolist()}]}).encode())
        raw = s.astype("<i8" if kind == "INT64" else "<f4").tobytes()
        head = json.dumps({"outputs": [tensor | {"parameters": {"binary_data_size": len(raw)}}]}).encode()
        return Raw(body=head + raw, headers={"Content-Type": "application/octet-stream", LENGTH: str(len(head))})

    def send(self, handler: BaseHTTPRequestHandler, raw: Raw) -> None:
        if raw.drop:
            handler.close_connection = True
            return
        handler.send_response(raw.status)
        for name, value in raw.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(raw.body) + raw.cut))
        handler.end_headers()
        handler.wfile.write(raw.body)
        handler.close_connection = raw.cut > 0


def _image(value: Any) -> Tensor:
    if not isinstance(value, str):
        return torch.tensor(value)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(value))))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
