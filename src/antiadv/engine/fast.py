"""The fast engine: the same passes as `Eager`, in a chosen precision, replayed from CUDA graphs on a GPU.

    engine(device, batch, precision, compiled)   →  an engine for the oracle

A request is cut into parts of at most `batch` images. On CUDA each part is padded to one of a few static sizes. Forward
pass, loss, gradient and the loop of the defence are captured as one CUDA graph at the first request of their kind
(`cuda_graphs.py`). Samples are independent, so padding cannot change a result. A model that needs the host in the
middle cannot be captured and runs as it is. A defence that needs it to select samples offers two models that do not
(`Defence.stages`): the first is asked about all images, and the second about those that go on.

The passes may go through a copy of the network that suits the device (`optimise.py`). The judge's passes go through the
network itself. When the device runs out of memory, the batch is halved and the request continues.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from antiadv.core.defence import Defence, Stages, base_of
from antiadv.core.draws import Draws
from antiadv.core.engine import answer, scores_and_gradient, scores_and_jacobian
from antiadv.core.errors import BadInput
from antiadv.core.losses import Loss, wide
from antiadv.core.validation import check_base, check_float, check_whole
from antiadv.engine.background import Background
from antiadv.engine.cuda_graphs import LEAST_IMAGES, MODELS_KEPT, Graph, GraphCache
from antiadv.engine.meter import Passes, aside, bill, metered
from antiadv.engine.optimise import Copies, gains
from antiadv.engine.precision import check_precision
from antiadv.engine.switches import ALONE, switched, switched_for_compiled
from antiadv.models.remote import Remote

# Images in one pass, if nobody says how many. On a CPU 64 to 128 are the fastest: with 256 a gradient takes 6 % longer
# (compact:trades). On a GPU more are faster: on an H200 1,024 images take as long as 600 in passes of 512.
BATCH_ON_GPU, BATCH_ON_CPU = 1024, 128
PASSES_KEPT = 4 * MODELS_KEPT  # kinds of request whose passes per image are known

Kind = tuple[Any, ...]  # of a request
SCORES: Kind = ("scores",)
Run = Callable[..., tuple[Tensor, ...]]  # (model, tensors of one part) → scores, and what else was asked for


def default_batch(device: torch.device) -> int:
    """The number of images in one pass that suits a device."""
    return BATCH_ON_GPU if device.type == "cuda" else BATCH_ON_CPU


def engine(device: torch.device, batch: int | None = None, precision: str = "float32", compiled: bool = False) -> Fast:
    """The fast engine for a device and a precision."""
    batch = default_batch(device) if batch is None else batch
    check_precision(precision)
    _check_available(precision, device)
    return Fast(batch, precision, compiled=compiled)


def _check_available(precision: str, device: torch.device) -> None:
    if precision in ("tf32", "half") and device.type != "cuda":
        raise BadInput(f"precision {precision} needs a CUDA device; found {device.type}. Use float32 or mixed there.")


class Fast:
    """See the head of this file.

    `least` is the smallest size of a CUDA graph. With `tuned` its convolutions time their algorithms, for serving. With
    `plain` no copy of a network is made.
    """

    def __init__(
        self,
        batch: int = 256,
        precision: str = "float32",
        least: int = LEAST_IMAGES,
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
        self._copies, self._graphs = Copies(precision, compiled), GraphCache(least, tuned)
        self._passes: dict[tuple[nn.Module, str], Passes] = {}
        self._stages: dict[nn.Module, Stages | None] = {}
        self._judge: Fast | None = None
        self._background: Background | None = None

    def compile_if_it_pays(self, queries: int) -> None:
        """In a job of at most so many queries, let the compiled network take over when it can (`background.py`)."""
        if not self.compiled:
            self._background = Background(self.precision, queries)

    def _take_over(self) -> None:
        """Go on with the compiled network. Graphs are captured again."""
        self.compiled, self._background = True, None
        self._copies = Copies(self.precision, compiled=True)
        self._graphs.clear()

    def forget(self) -> None:
        """Forget which sizes were asked for, so that later requests are cut as a new engine would cut them."""
        self._graphs.forget_repeats()
        if self._judge is not None:
            self._judge.forget()

    def judge(self, model: nn.Module) -> Fast:
        """An engine in float32 without copies of the network; this engine, if it is one for this model."""
        self._check_remote(model)
        fixed = not self.compiled and self._background is None
        if self.precision == "float32" and fixed and (self.plain or not gains(base_of(model), "float32")):
            return self
        if self._judge is None:
            self._judge = Fast(self.batch, "float32", self.least, plain=True)
        return self._judge

    def _check_remote(self, model: nn.Module) -> bool:
        """Whether an endpoint answers. It has no other precision, and its code is not here."""
        if not isinstance(base_of(model), Remote):
            return False
        if self.compiled or self.precision != "float32":
            raise BadInput(
                f"an endpoint is asked in float32 and cannot be compiled; found precision {self.precision}"
                f"{', compiled' * self.compiled}. Leave these options out."
            )
        return True

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        def run(model: nn.Module, z: Tensor, *keys: Tensor) -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (answer(model, z, _draws(keys)).to(z),)

        return self._run(model, SCORES, run, z, *_keys(draws))[0]

    def gradient(
        self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor, draws: Draws | None = None
    ) -> tuple[Tensor, Tensor]:
        def exact(s: Tensor, *aims: Tensor) -> Tensor:
            return loss(wide(s), *aims)

        def run(model: nn.Module, z: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
            s, g = scores_and_gradient(model, z, _draws(rest[len(targets) :]), exact, *rest[: len(targets)])
            return s.to(z), g

        s, g = self._run(model, ("gradient", loss, len(targets)), run, z, *targets, *_keys(draws))
        return s, g

    def jacobian(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
        def run(model: nn.Module, z: Tensor, *keys: Tensor) -> tuple[Tensor, ...]:
            s, j = scores_and_jacobian(model, z, _draws(keys))
            return s.to(z), j

        s, j = self._run(model, ("jacobian",), run, z, *_keys(draws))
        return s, j

    def _run(self, model: nn.Module, kind: Kind, run: Run, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Make a request part by part; the parts become smaller when memory runs out."""
        inputs = (inputs[0].detach(), *inputs[1:])
        if self._background is not None and len(inputs[0]) and self._background.ready(model, inputs[0][: self.batch]):
            self._take_over()
        if (stages := self._stages_of(model, inputs[0])) is not None:
            return self._in_stages(stages, kind, run, inputs)
        done: list[tuple[Tensor, ...]] = []
        at, total = 0, len(inputs[0])
        while at < total or not done:  # once for no images too: the model knows the shape of its answer
            part = inputs if total <= self.batch else [t[at : at + self.batch] for t in inputs]
            try:
                done.append(self._part(model, kind, run, part))
            except torch.OutOfMemoryError:
                self._shrink(len(part[0]))
                continue
            at += len(part[0])
        return done[0] if len(done) == 1 else tuple(map(torch.cat, zip(*done, strict=True)))

    def _stages_of(self, model: nn.Module, z: Tensor) -> Stages | None:
        """The stages of a model, for graphs and compiled code. Anything else runs a defence as it is."""
        if not isinstance(model, Defence) or len(z) == 0 or not (z.is_cuda or self.compiled):
            return None
        if model not in self._stages:
            if len(self._stages) >= MODELS_KEPT:
                self._stages.clear()
            self._stages[model] = model.stages()  # kept, because graphs and copies are found by their model
        return self._stages[model]

    def _in_stages(self, stages: Stages, kind: Kind, run: Run, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Ask the first model for the scores of all images. Then each model makes the request for its own images."""
        s = self.scores(stages.first, inputs[0])
        on = stages.goes_on(s)
        count = int(on.sum())  # waits for the device
        if count == len(s):
            return self._run(stages.second, kind, run, *inputs)
        if count == 0:
            return (s,) if kind == SCORES else self._run(stages.first, kind, run, *inputs)
        order = on.int().argsort(stable=True)
        stay, go = order[:-count], order[-count:]
        first = (s[stay],) if kind == SCORES else self._run(stages.first, kind, run, *(t[stay] for t in inputs))
        second = self._run(stages.second, kind, run, *(t[go] for t in inputs))
        back = order.argsort()
        return tuple(torch.cat(pair)[back] for pair in zip(first, second, strict=True))

    def _shrink(self, images: int) -> None:
        if images == 1:
            raise BadInput("the device has no memory for one image; free some, or use a larger one.") from None
        self._graphs.clear()
        self.batch = max(1, min(self.batch, images) // 2)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _part(self, model: nn.Module, kind: Kind, run: Run, part: Sequence[Tensor]) -> tuple[Tensor, ...]:
        n, device = len(part[0]), part[0].device
        remote = self._check_remote(model)
        captures = device.type == "cuda" and not remote  # a capture would ask more than was charged
        if n == 0 or not (captures or self.compiled):
            with self._settings(device):
                answers = run(self._copy(model, run, part) if n else model, *part)
            return tuple(t.contiguous() for t in answers)  # the gradients of a copy have the layout of its weights
        counted, graph = metered(), None
        if captures:
            with torch.cuda.device(device):  # streams and graphs belong to the current device
                graph = self._graph(model, kind, run, part)
                answers = () if graph is None else graph.replay(part)
        if graph is None:
            with aside() if self.compiled else nullcontext(), self._settings(device):
                answers = run(self._copy(model, run, part), *part)
            answers = tuple(t.contiguous() for t in answers)
        if counted and (graph is not None or self.compiled):
            bill(self._passes_per_image(model, kind, run, part), n)
        return answers

    def _settings(self, device: torch.device) -> AbstractContextManager[None]:
        """What torch must be set to during a pass."""
        return (switched_for_compiled if self.compiled else switched)(self.precision, device)

    def _passes_per_image(self, model: nn.Module, kind: Kind, run: Run, part: Sequence[Tensor]) -> Passes:
        """The passes of one image through the base, counted once: graphs and compiled code call no hooks."""
        key = (model, kind[0])
        if key not in self._passes or not metered() <= self._passes[key].keys():
            if len(self._passes) > PASSES_KEPT:
                self._passes.clear()
            with aside() as seen, self._settings(part[0].device):
                run(model, *(t[:1] for t in part))
            self._passes[key] = seen
        return self._passes[key]

    def _copy(self, model: nn.Module, run: Run, part: Sequence[Tensor]) -> nn.Module:
        """The model on a copy of its bare network that suits the device."""
        if self.plain:
            return model
        return self._copies.of(model, lambda other: run(other, *(t[:1] for t in part)), part[0])

    def _graph(self, model: nn.Module, kind: Kind, run: Run, part: Sequence[Tensor]) -> Graph | None:
        """The graph for this request; None if the model cannot be captured."""
        size = self._graphs.size(kind, len(part[0]), self.batch)

        def capture(pool: Any, side: torch.cuda.Stream) -> Graph | None:
            with aside(), self._settings(part[0].device):
                copied = self._copy(model, run, part)
                channels_last = self.precision != "float32" and copied is not model
                return Graph.of(functools.partial(run, copied), part, size, channels_last, self.tuned, pool, side)

        return self._graphs.get(model, (*kind, size, *((t.shape[1:], t.dtype) for t in part)), capture)


class Replayed(nn.Module):
    """A classifier, bare or defended, for serving: the same scores without gradients, from CUDA graphs on a GPU.

    It keeps the weights of the first call. After a change of the network, make a new one. Several threads may call it.

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
        check_float(x)  # scores have the type of the images
        _check_available(self._engine.precision, x.device)  # at each call: a module may be moved after it is made
        with ALONE if x.is_cuda else nullcontext():  # threads share the tensors of the graphs
            return self._engine.scores(self.model, x)


def _keys(draws: Draws | None) -> tuple[Tensor, ...]:
    return () if draws is None else (draws.keys,)


def _draws(keys: Sequence[Tensor]) -> Draws | None:
    return Draws(keys[0]) if keys else None
