"""CUDA graphs: a request of one kind is captured once and replayed, as one launch instead of hundreds.

    Graph.of(run, part, size, …)      capture `run` on `size` images; None if it cannot be captured
    graph.replay(part)                the answers of `run` to that many images, or fewer
    GraphCache                        the graphs of one engine, and the sizes they are captured in

A part smaller than its graph fills the first rows. The other rows keep older images, whose answers are dropped.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from antiadv.engine.switches import algorithms_timed

MODELS_KEPT = 4  # a defence, its base, a surrogate and one to spare
GRAPHS_KEPT_PER_MODEL = 64
LEAST_IMAGES = 16  # the smallest static size: on a GPU one image takes as long as sixteen
REPEATS_FOR_OWN_SIZE = 200  # requests of one size in a row, after which a graph without padding pays

Run = Callable[..., tuple[Tensor, ...]]
Key = tuple[Any, ...]


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
        """Capture `run` on the stream `side`.

        `pool` is memory that the graphs share: answers are copied out of it before the next graph runs. With `tuned`
        the convolutions try all their algorithms first, which takes a second.
        """
        inputs = [_padded(t, size, channels_last) for t in part]
        side.wait_stream(torch.cuda.current_stream())
        graph, outputs = torch.cuda.CUDAGraph(), None
        with torch.cuda.stream(side), algorithms_timed(tuned):
            run(*inputs)  # libraries initialise and compilers compile: a capture may contain neither
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")  # other threads may allocate memory
            try:
                outputs = run(*inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:  # the model needs the host in the middle, so it cannot be captured
                outputs = None
            finally:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # that the graph is empty, when memory ran out at once
                        graph.capture_end()
                except RuntimeError:  # raised again at the end of a capture that failed
                    outputs = None
        torch.cuda.current_stream().wait_stream(side)
        return None if outputs is None else cls(graph, inputs, outputs)

    def replay(self, part: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n = len(part[0])
        full = n == len(self._inputs[0])  # then nothing is sliced: for small batches every microsecond counts
        for static, t in zip(self._inputs, part, strict=True):
            (static if full else static[:n]).copy_(t)
        self._graph.replay()
        answers = self._outputs if full else [t[:n] for t in self._outputs]
        return tuple(t.clone(memory_format=torch.contiguous_format) for t in answers)


class GraphCache:
    """The graphs of one engine, for the models it was asked about last.

    `least` is the smallest size. A `tuned` cache uses the few static sizes only, so that later requests find a graph.
    """

    def __init__(self, least: int, tuned: bool) -> None:
        self.least, self.tuned = least, tuned
        self.by_model: OrderedDict[nn.Module, OrderedDict[Key, Graph | None]] = OrderedDict()
        self._workspace: tuple[Any, torch.cuda.Stream] | None = None  # shared memory, and the stream of captures
        self._repeats: dict[Key, tuple[int, int]] = {}  # kind of request → its last size, and how often in a row

    def get(
        self, model: nn.Module, key: Key, capture: Callable[[Any, torch.cuda.Stream], Graph | None]
    ) -> Graph | None:
        """The graph of this model and key, captured now if there is none; None if the model cannot be captured."""
        graphs = self.by_model.setdefault(model, OrderedDict())
        self.by_model.move_to_end(model)
        if len(self.by_model) > MODELS_KEPT:
            self.by_model.popitem(last=False)
        if key not in graphs:
            if self._workspace is None:
                self._workspace = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
            graphs[key] = capture(*self._workspace)
            if graphs[key] is None:
                self._workspace = None  # a failed capture leaves pool and stream unusable
            if len(graphs) > GRAPHS_KEPT_PER_MODEL:
                graphs.popitem(last=False)
        graphs.move_to_end(key)
        return graphs[key]

    def size(self, kind: Key, images: int, batch: int) -> int:
        """The size to capture for a request: a static one, or nearly its own if the same size repeats often."""
        if self.tuned:
            return static_size(images, batch, self.least)
        own = min(batch, -(-images // self.least) * self.least)
        last, times = self._repeats.get(kind, (own, 0))
        times = times + 1 if last == own else 1
        if len(self._repeats) > GRAPHS_KEPT_PER_MODEL:
            self._repeats.clear()
        self._repeats[kind] = own, times
        return own if times > REPEATS_FOR_OWN_SIZE else static_size(images, batch, self.least)

    def forget_repeats(self) -> None:
        self._repeats.clear()

    def clear(self) -> None:
        """Drop all graphs, so that their memory is free."""
        self.by_model.clear()
        self._workspace = None


@functools.lru_cache(maxsize=4096)
def static_size(images: int, batch: int, least: int = LEAST_IMAGES) -> int:
    """The smallest static size that holds this many images: batch, ⅞, ¾, ⅝, ½, 7/16, … of it, down to `least`.

    >>> [static_size(n, 512) for n in (1, 100, 129, 200, 300, 512)]
    [16, 112, 160, 224, 320, 512]
    """
    return min(size for size in static_sizes(batch, least) if size >= images)


def static_sizes(batch: int, least: int) -> list[int]:
    """All of them, the largest first."""
    sizes = [batch]
    while sizes[-1] // 2 >= least:
        sizes += [sizes[-1] * eighths // 8 for eighths in (7, 6, 5, 4)]
    return list(dict.fromkeys(sizes))


def _padded(t: Tensor, size: int, channels_last: bool) -> Tensor:
    """A copy with `size` rows, which repeats the first ones.

    Images lie channels last for tensor cores. Convolutions in plain float32 are slower on that layout.
    """
    padded = t[torch.arange(size, device=t.device) % len(t)]
    if channels_last and padded.ndim == 4 and padded.is_floating_point():
        return padded.contiguous(memory_format=torch.channels_last)
    return padded
