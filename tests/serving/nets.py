"""A small classifier, a backend that can be stopped, and requests, for the tests of the server."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from antiadv import AntiAdversary
from antiadv.serving.backend import Answer, Images
from antiadv.serving.torch_backend import TorchBackend

SHAPE = (3, 8, 8)
CLASSES = 5


def network(seed: int = 0) -> nn.Module:
    """A small network behind the layer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        base = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)).eval()
    return AntiAdversary(base, steps=1, step_size=0.1)


def backend(seed: int = 0) -> TorchBackend:
    return TorchBackend(network(seed), SHAPE, torch.device("cpu"), captured=False)


def pictures(rows: int, seed: int = 0) -> Images:
    return np.random.default_rng(seed).random((rows, *SHAPE), dtype=np.float32)


class Stoppable:
    """Scores are two sums of each image, so each row can be told from the others. `go` lets batches run."""

    kind, shape, classes = "stoppable", SHAPE, 2

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.go.set()
        self.sizes: list[int] = []
        self.fails = False

    def run(self, images: Images) -> Answer:
        self.sizes.append(len(images))
        self.begun.set()
        assert self.go.wait(60)
        if self.fails:
            raise RuntimeError("out of order")
        return Answer(sums(images), sums(images))


def sums(images: Images) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    flat = images.reshape(len(images), -1)
    return np.stack([flat[:, ::2].sum(1), flat[:, 1::2].sum(1)], 1).astype(np.float32)


def json_request(images: Images, **more: object) -> dict[str, Any]:
    entry = {"name": "images", "datatype": "FP32", "shape": list(images.shape), "data": images.ravel().tolist()}
    return {"inputs": [entry], **more}


def binary_request(images: Images, **more: object) -> tuple[bytes, dict[str, str]]:
    """The body and the header of a request in the binary extension, with a binary answer."""
    parameters = {"binary_data_size": images.nbytes}
    entry = {"name": "images", "datatype": "FP32", "shape": list(images.shape), "parameters": parameters}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}, **more}).encode()
    return head + images.astype("<f4").tobytes(), {"Inference-Header-Content-Length": str(len(head))}


def binary_scores(body: bytes, length: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The scores of a binary answer, which come first."""
    head = json.loads(body[: int(length)])
    entry = head["outputs"][0]
    assert entry["name"] == "scores"
    size = entry["parameters"]["binary_data_size"]
    return np.frombuffer(body[int(length) : int(length) + size], "<f4").reshape(entry["shape"])


def bare() -> nn.Module:
    """The small network without the layer, for `--model tests.serving.nets:bare`."""
    inner: nn.Module = network().base  # type: ignore[assignment]
    return inner


class Slow(nn.Module):
    """Needs a tenth of a second for a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = bare()
        self.training = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.1)
        scores: torch.Tensor = self.inner(x)
        return scores
