"""Speed: the same passes as `Eager`, in a stated precision, on a GPU captured once and replayed.

    engine(device, batch, precision, compiled)   →  an engine for the oracle: attacks know nothing of what is in here

A request is cut into parts of at most `batch` images. On CUDA each part is padded up to one of a few static sizes (or,
where requests go on with one size, hardly), and forward pass, loss, gradient and the defence's own loop run as one CUDA
graph, captured at the first request of its kind (`graphs.py`). Padding cannot matter, since samples stand alone. A
model that cannot be captured (it asks the host something midway) runs as it stands. What is asked may be a copy of the
network that suits the device (`ready.py`), on a CPU too, with the weights of the first request; the judge asks the
network itself. Where memory runs out, the batch is halved and the request goes on; memory is bounded by the batch, not
by the number of samples.
"""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from antiadv.core.defence import base_of
from antiadv.core.draws import Draws
from antiadv.core.engine import answer, scores_and_gradient, scores_and_jacobian
from antiadv.core.errors import BadInput
from antiadv.core.losses import Loss
from antiadv.core.validation import check_base, check_float, check_whole
from antiadv.engine.cuda_graphs import Graph
from antiadv.engine.meter import Passes, aside, bill, metered
from antiadv.engine.optimise import gains, optimised, with_base
from antiadv.engine.precision import ALONE, check_precision, switched

MODELS_KEPT = 4  # whose graphs are kept: a defence, its base, a stand-in, and one to spare
GRAPHS_KEPT = 64  # for each of them
LEAST = 16  # the smallest static size: on a GPU one image costs what sixteen do
REPEATS_FOR_OWN_SIZE = 200  # requests of one size in a row, after which another pays for a graph without padding

Run = Callable[..., tuple[Tensor, ...]]  # a model and the tensors of one part → scores, and what else was asked


def engine(device: torch.device, batch: int = 256, precision: str = "float32", compiled: bool = False) -> Fast:
    """The fastest engine that this device has for this precision."""
    check_precision(precision)
    _check_there(precision, device)
    return Fast(batch, precision, compiled=compiled)


def _check_there(precision: str, device: torch.device) -> None:
    if precision in ("tf32", "half") and device.type != "cuda":
        raise BadInput(f"precision {precision} needs a CUDA device; found {device.type}. Use float32 or mixed there.")


class Fast:
    """See the head of this file. A `plain` one asks the network itself, whatever would be faster."""

    def __init__(
        self,
        batch: int = 256,
        precision: str = "float32",
        least: int = LEAST,
        compiled: bool = False,
        tuned: bool = False,
        plain: bool = False,
    ) -> None:
        check_whole(batch=batch)
        if batch < 1:
            raise BadInput(f"a batch needs at least one image; found {batch}. Give for example --batch 256.")
        check_precision(precision)
        self.batch, self.precision, self.least = batch, precision, least
        self.compiled, self.tuned, self.plain = compiled, tuned, plain
        self._ready: OrderedDict[nn.Module, nn.Module] = OrderedDict()
        self._twins: OrderedDict[nn.Module, nn.Module] = OrderedDict()
        self._passes: dict[tuple[nn.Module, str], Passes] = {}
        self._graphs: OrderedDict[nn.Module, OrderedDict[tuple[Any, ...], Graph | None]] = OrderedDict()
        self._capturing: tuple[Any, torch.cuda.Stream] | None = None
        self._lately: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._judge: Fast | None = None

    def forget(self) -> None:
        """How often it was asked what: requests from here on have the graphs they would have of a new engine."""
        self._lately.clear()
        if self._judge is not None:
            self._judge.forget()

    def judge(self, model: nn.Module) -> Fast:
        """The same in float32 and of the network itself, no copy of it: this engine, where it asks that."""
        if self.precision == "float32" and not self.compiled and (self.plain or not gains(base_of(model), "float32")):
            return self
        if self._judge is None:
            self._judge = Fast(self.batch, "float32", self.least, plain=True)
        return self._judge

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        def run(model: nn.Module, z: Tensor, *keys: Tensor) -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (answer(model, z, _dice(keys)).to(z),)

        return self._run(model, ("scores",), run, z, *_keys(draws))[0]

    def gradient(
        self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor, draws: Draws | None = None
    ) -> tuple[Tensor, Tensor]:
        def exact(s: Tensor, *aims: Tensor) -> Tensor:
            return loss(s if s.dtype == torch.float64 else s.float(), *aims)

        def run(model: nn.Module, z: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
            s, g = scores_and_gradient(model, z, _dice(rest[len(targets) :]), exact, *rest[: len(targets)])
            return s.to(z), g

        s, g = self._run(model, ("gradient", loss, len(targets)), run, z, *targets, *_keys(draws))
        return s, g

    def jacobian(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
        def run(model: nn.Module, z: Tensor, *keys: Tensor) -> tuple[Tensor, ...]:
            s, j = scores_and_jacobian(model, z, _dice(keys))
            return s.to(z), j

        s, j = self._run(model, ("jacobian",), run, z, *_keys(draws))
        return s, j

    def _run(self, model: nn.Module, what: tuple[Any, ...], run: Run, *inputs: Tensor) -> tuple[Tensor, ...]:
        """`run` on parts of the inputs, whose first is z; where memory runs out, on smaller ones from there on."""
        inputs = (inputs[0].detach(), *inputs[1:])
        done: list[tuple[Tensor, ...]] = []
        at, total = 0, len(inputs[0])
        while at < total or not done:  # of no image too, the model knows the shape of the answer
            part = inputs if total <= self.batch else [t[at : at + self.batch] for t in inputs]
            try:
                done.append(self._part(model, what, run, part))
            except torch.OutOfMemoryError:
                self._shrink(len(part[0]))
                continue
            at += len(part[0])
        return done[0] if len(done) == 1 else tuple(map(torch.cat, zip(*done, strict=True)))

    def _shrink(self, images: int) -> None:
        if images == 1:
            raise BadInput("the device has no memory for one image; free some, or use a larger one.") from None
        self._graphs.clear()
        self._capturing = None
        self.batch = max(1, min(self.batch, images) // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _part(self, model: nn.Module, what: tuple[Any, ...], run: Run, part: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n, device = len(part[0]), part[0].device
        captures = device.type == "cuda"
        if n == 0 or not (captures or self.compiled):
            with switched(self.precision, device):
                answers = run(self._twin(model, run, part) if n else model, *part)
            return tuple(t.contiguous() for t in answers)  # a copy's gradients lie as its weights do
        counted, graph = metered(), None
        if captures:
            with torch.cuda.device(device):  # streams and graphs are of the current one, which may be another
                graph = self._graph(model, what, run, part)
                answers = () if graph is None else graph.replay(part)
        if graph is None:
            with aside(), switched(self.precision, device):
                answers = run(self._twin(model, run, part), *part)
            answers = tuple(t.contiguous() for t in answers)
        if counted:
            bill(self._passes_of(model, what, run, part), n)
        return answers

    def _passes_of(self, model: nn.Module, what: tuple[Any, ...], run: Run, part: Sequence[Tensor]) -> Passes:
        """What a request costs the base for each image: tried on one, for graphs and compiled code call no hook."""
        kind = (model, what[0])
        if kind not in self._passes or not metered() <= self._passes[kind].keys():
            if len(self._passes) > 4 * MODELS_KEPT:
                self._passes.clear()
            with aside() as seen, switched(self.precision, part[0].device):
                run(model, *(t[:1] for t in part))
            self._passes[kind] = seen
        return self._passes[kind]

    def _twin(self, model: nn.Module, run: Run, part: Sequence[Tensor]) -> nn.Module:
        """The model in front of a copy of its bare network that suits its device; itself where that is the network."""
        if self.plain:
            return model
        if model not in self._twins:

            def works(copied: nn.Module) -> bool:
                """A network may count on how its images lie, and then fails with channels last."""
                try:
                    with aside():
                        run(with_base(model, copied), *(t[:1] for t in part))
                except Exception:  # if the network fails too, that is said when it is asked
                    return False
                return True

            base = base_of(model)
            if base not in self._ready:  # one for every defence in front
                with aside(), torch.inference_mode(False):  # weights of a copy made in it would have no gradients
                    ready = optimised(base, self.precision, self.compiled, works, part[0][:1])
                _keep(self._ready, base, ready)
            ready = self._ready[base]
            _keep(self._twins, model, model if ready is base else with_base(model, ready))
        return self._twins[model]

    def _graph(self, model: nn.Module, what: tuple[Any, ...], run: Run, part: Sequence[Tensor]) -> Graph | None:
        """The graph for this request, captured now if there is none; nothing if the model cannot be captured."""
        size = self._size(what, len(part[0]))
        kind = (*what, size, *((t.shape[1:], t.dtype) for t in part))
        graphs = self._graphs.setdefault(model, OrderedDict())
        self._graphs.move_to_end(model)
        if len(self._graphs) > MODELS_KEPT:
            self._graphs.popitem(last=False)
        if kind not in graphs:
            with aside(), switched(self.precision, part[0].device):
                twin = self._twin(model, run, part)
                layout = self.precision != "float32" and twin is not model
                graph = Graph.of(functools.partial(run, twin), part, size, layout, self.tuned, *self._shared())
                graphs[kind] = graph
            if graph is None:
                self._capturing = None  # a stream and a pool that a capture broke off in are not used again
            if len(graphs) > GRAPHS_KEPT:
                graphs.popitem(last=False)
        graphs.move_to_end(kind)
        return graphs[kind]

    def _size(self, what: tuple[Any, ...], images: int) -> int:
        """One of a few static sizes, of which there are graphs soon; for a search that stays at one, nearly its own.

        A service that is `tuned` captures at its first requests, and makes no later one wait for another graph.
        """
        if self.tuned:
            return static_size(images, self.batch, self.least)
        close = min(self.batch, -(-images // self.least) * self.least)
        last, times = self._lately.get(what, (close, 0))
        times = times + 1 if last == close else 1
        if len(self._lately) > GRAPHS_KEPT:
            self._lately.clear()
        self._lately[what] = close, times
        return close if times > REPEATS_FOR_OWN_SIZE else static_size(images, self.batch, self.least)

    def _shared(self) -> tuple[Any, torch.cuda.Stream]:
        """The memory that this engine's graphs share, and the stream on which they are captured."""
        if self._capturing is None:
            self._capturing = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        return self._capturing


@functools.lru_cache(maxsize=4096)
def static_size(images: int, batch: int, least: int = LEAST) -> int:
    """The smallest of the static sizes that holds so many images: batch, ⅞, ¾, ⅝, ½, 7/16, … of it, down to `least`.

    >>> [static_size(n, 512) for n in (1, 100, 129, 200, 300, 512)]
    [16, 112, 160, 224, 320, 512]
    """
    sizes = [batch]
    while sizes[-1] // 2 >= least:
        sizes += [sizes[-1] * eighths // 8 for eighths in (7, 6, 5, 4)]
    return min(size for size in sizes if size >= images)


class Replayed(nn.Module):
    """A classifier, bare or defended, for serving: the same scores without gradients, from captured graphs on a GPU.

    The weights are those of the first call; of a network that changed, make another. Several threads may call it.

    >>> g = Replayed(torch.nn.Linear(4, 3).eval())
    >>> g(torch.full((5, 4), 0.5)).shape
    torch.Size([5, 3])
    """

    def __init__(self, model: nn.Module, batch: int = 256, precision: str = "float32", compiled: bool = False) -> None:
        check_base(model)
        super().__init__()
        self.model, self.training = model, False
        self._engine = Fast(batch, precision, least=1, compiled=compiled, tuned=True)

    def forward(self, x: Tensor) -> Tensor:
        check_float(x)  # scores come in the type of the images: of bytes they would be bytes
        _check_there(self._engine.precision, x.device)  # only now: a module may be moved after it is made
        with ALONE if x.is_cuda else contextlib.nullcontext():  # threads share the graphs' tensors
            return self._engine.scores(self.model, x)


def _keep(kept: OrderedDict[nn.Module, nn.Module], model: nn.Module, twin: nn.Module) -> None:
    kept[model] = twin
    if len(kept) > MODELS_KEPT:
        kept.popitem(last=False)


def _keys(draws: Draws | None) -> tuple[Tensor, ...]:
    return () if draws is None else (draws.keys,)


def _dice(keys: Sequence[Tensor]) -> Draws | None:
    return Draws(keys[0]) if keys else None
