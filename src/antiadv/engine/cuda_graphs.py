"""Captured graphs: a request of one kind on CUDA, recorded once and replayed: one launch instead of hundreds.

    Graph.of(run, part, size, …)   →  the graph of `run` on `size` images; nothing if it cannot be captured
    graph.replay(part)             →  the answers of `run` to as many images, or fewer

The rows that a smaller part leaves over hold what was in them before. The engine (`speed.py`) decides what is captured,
when, in which sizes, and how long it is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Run = Callable[..., tuple[Tensor, ...]]


class Graph:
    """One captured request: tensors to fill, a graph to replay, tensors to copy the answers from."""

    def __init__(self, graph: torch.cuda.CUDAGraph, inputs: list[Tensor], outputs: tuple[Tensor, ...]) -> None:
        self._graph, self._inputs, self._outputs = graph, inputs, outputs

    @classmethod
    def of(
        cls,
        run: Run,
        part: Sequence[Tensor],
        size: int,
        channels_last: bool,
        tuned: bool,
        pool: Any,
        side: torch.cuda.Stream,
    ) -> Graph | None:
        """`pool` is the graphs' common memory: answers are copied out of it before another graph runs.

        `tuned`: convolutions try all their algorithms first, which takes a second.
        """
        inputs = [_padded(t, size, channels_last) for t in part]
        side.wait_stream(torch.cuda.current_stream())
        graph, outputs = torch.cuda.CUDAGraph(), None
        with torch.cuda.stream(side), _trying(tuned):
            run(*inputs)  # libraries set themselves up, and compilers compile, which no graph may hold
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads may ask for memory
            try:
                outputs = run(*inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # the model asked the host something: it runs as it stands
                outputs = None
            finally:
                try:
                    graph.capture_end()
                except RuntimeError:  # a capture that failed ends with an error of its own
                    outputs = None
        torch.cuda.current_stream().wait_stream(side)
        return None if outputs is None else cls(graph, inputs, outputs)

    def replay(self, part: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n = len(part[0])
        whole = n == len(self._inputs[0])  # a service of small batches counts every microsecond
        for static, t in zip(self._inputs, part, strict=True):
            (static if whole else static[:n]).copy_(t)
        self._graph.replay()
        answers = self._outputs if whole else [t[:n] for t in self._outputs]
        return tuple(t.clone(memory_format=torch.contiguous_format) for t in answers)


@contextlib.contextmanager
def _trying(all_algorithms: bool) -> Iterator[None]:
    """Inside, a convolution tries its algorithms before it settles on one."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or all_algorithms
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def _padded(t: Tensor, size: int, channels_last: bool) -> Tensor:
    """A copy with as many rows as asked, the last ones like the first.

    Tensor cores want images with channels last, and convolutions in plain float32 are slower on them.
    """
    copy = t[torch.arange(size, device=t.device) % len(t)]
    if channels_last and copy.ndim == 4 and copy.is_floating_point():
        return copy.contiguous(memory_format=torch.channels_last)
    return copy
