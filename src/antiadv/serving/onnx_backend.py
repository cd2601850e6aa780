"""ONNX Runtime as a backend, and what an ONNX file from a stranger may contain.

    OnnxBackend(content, shape, classes, threads=None, provider="cpu")     `content` are the bytes of the file
    check_graph(content)                                                  refuses what a plain network does not need

An ONNX file is data, but a graph can name other files, libraries and endless loops. So a file may hold standard
operators only, no functions, no graph inside an operator (loops and branches) and no weights outside the file. No
operator library is ever loaded. It can still ask for much memory: load only what you would also run.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from antiadv.core.errors import BadInput, MissingExtra, reason
from antiadv.serving.backend import Answer, Images

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
STANDARD = ("", "ai.onnx")
QUIET = 3  # errors only, on stderr


def package(name: str) -> Any:
    """An optional package, or one sentence that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(name, "onnx") from error


class OnnxBackend:
    """Answers with ONNX Runtime. By default it uses as many threads as there are cores."""

    kind = "onnx"

    def __init__(
        self,
        content: bytes,
        shape: tuple[int, ...],
        classes: int,
        threads: int | None = None,
        provider: str = "cpu",
    ) -> None:
        check_graph(content)
        self.shape, self.classes = shape, classes
        runtime = package("onnxruntime")
        self._session = _session(runtime, content, threads, provider)
        self._outputs = _outputs(self._session, shape, classes)
        none = np.zeros((0, classes), np.float32)
        self._nothing = Answer(none, none if len(self._outputs) > 1 else None)

    def run(self, images: Images) -> Answer:
        if len(images) == 0:
            return self._nothing
        found = self._session.run(self._outputs, {"images": images})
        return Answer(found[0], found[1] if len(found) > 1 else None)


def _session(runtime: Any, content: bytes, threads: int | None, provider: str) -> Any:
    if provider not in PROVIDERS or PROVIDERS[provider] not in runtime.get_available_providers():
        usable = [name for name, known in PROVIDERS.items() if known in runtime.get_available_providers()]
        raise BadInput(f"ONNX Runtime here runs on {' and '.join(usable)}; asked for {provider}. Use one of these.")
    options = runtime.SessionOptions()
    options.log_severity_level = QUIET
    if threads is not None:
        if threads < 1:
            raise BadInput(f"a backend needs at least one thread; found {threads}. Give 1 or more.")
        options.intra_op_num_threads = threads
    try:
        return runtime.InferenceSession(content, options, providers=[PROVIDERS[provider]])
    except Exception as error:  # ONNX Runtime has an exception for every kind of failure
        raise BadInput(f"ONNX Runtime cannot load this file: {reason(error)}. Export it again.") from error


def _outputs(session: Any, shape: tuple[int, ...], classes: int) -> list[str]:
    """The names of the outputs, after a look at all shapes."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    names = [output.name for output in outputs]
    fits = (
        [one.name for one in inputs] == ["images"]
        and tuple(inputs[0].shape[1:]) == shape
        and names in (["scores"], ["scores", "base_scores"])
        and all(one.type == "tensor(float)" for one in (*inputs, *outputs))
        and all(len(one.shape) == 2 and one.shape[1] == classes for one in outputs)
    )
    if not fits:
        raise BadInput(
            f"the ONNX file must take images {shape} and give {classes} scores; found inputs "
            f"{[(one.name, one.shape) for one in inputs]} and outputs {[(one.name, one.shape) for one in outputs]}."
        )
    return names


def check_graph(content: bytes) -> None:
    """Refuse functions, graphs inside operators, foreign operators, and weights outside the file."""
    onnx = package("onnx")
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's DecodeError, and others
        raise BadInput(f"this is not an ONNX file: {reason(error)}. Export it again.") from error
    if model.functions:  # functions that call functions can grow without end
        raise BadInput("the ONNX file defines functions of its own, which are not allowed. Export it without them.")
    graph = model.graph
    tensors = [*graph.initializer, *_parts(graph.sparse_initializer)]
    for node in graph.node:
        if node.domain not in STANDARD:
            raise BadInput(f"the ONNX file uses the operator {node.domain}.{node.op_type}, which is no standard one.")
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                raise BadInput(f"the ONNX file has a graph inside the operator {node.op_type}, which is not allowed.")
            sparse = _parts([attribute.sparse_tensor, *attribute.sparse_tensors])
            tensors += [attribute.t, *attribute.tensors, *sparse]
    outside = [t for t in tensors if t.external_data or t.data_location == onnx.TensorProto.EXTERNAL]
    if outside:
        raise BadInput(f"the ONNX file keeps the weights {outside[0].name!r} in another file, which is not allowed.")


def _parts(sparse: Iterable[Any]) -> list[Any]:
    """The values and the indices of sparse tensors."""
    return [part for tensor in sparse for part in (tensor.values, tensor.indices)]
