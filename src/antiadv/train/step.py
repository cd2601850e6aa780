"""One optimiser step, as a function on fixed tensors, so that it can run as a CUDA graph.

    draw       rows, shifts, flips and the normal d, from a generator seeded by (seed, phase, epoch, step)
    batch      x = crop and flip of the rows, y their labels
    gradient   g = recipe.gradients(net, weights, batch) + λ w
    descend    b ← μ b + g;   w ← w − η (g + μ b)             SGD with Nesterov momentum
    average    a ← a + (1 − δ_k)(w − a),  δ_k = min(δ, (1 + k)/(10 + k)); the float buffers (batch statistics) too
    schedule   η rises linearly over the first 15 % of the steps, then falls linearly to 0

Notation:   η → `learning_rate`, λ → `weight_decay`, μ → `momentum`, δ → `ema`, a → `averaged`.
No step reads a number from the device: losses and hits are summed there and read once per epoch. On CUDA the network
runs in bfloat16 (autocast), and `accelerate` turns the step into a CUDA graph, compiled first if requested. On a CPU it
runs in float32, or in bfloat16 with the speed `mixed`: with AVX-512 twice as fast.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args  # Any: see _compiled

import torch
from torch import Tensor, nn

from antiadv.core.strides import taken_first
from antiadv.models.noise import fold, noise_layers, reseed
from antiadv.train.augment import PAD, crop_and_flip, padded
from antiadv.train.recipe import Batch, Recipe

Speed = Literal["auto", "compiled graph", "graph", "compiled", "eager", "mixed"]
SPEEDS: tuple[Speed, ...] = get_args(Speed)


@dataclass(frozen=True)
class Settings:
    """The settings of a training, besides recipe, network and data."""

    epochs: int
    batch: int = 512
    learning_rate: float = 0.4
    weight_decay: float = 5e-4
    momentum: float = 0.9
    warmup: float = 0.15
    ema: float = 0.999
    seed: int = 0


def schedule(steps: int, settings: Settings, rate: float) -> Tensor:
    """Return [steps, 3]: learning rate η_k, averaging weight 1 − δ_k, and time t_k = k/steps."""
    k = torch.arange(steps, dtype=torch.float64)
    rise = max(1.0, settings.warmup * steps)
    eta = torch.minimum((k + 1) / rise, (steps - k) / max(1.0, steps - rise))
    delta = torch.minimum((1 + k) / (10 + k), torch.full_like(k, settings.ema))
    return torch.stack([settings.learning_rate * rate * eta, 1 - delta, k / steps], 1).float()


class Step:
    """The network, its momenta and averages, and the random numbers of one batch. A call takes one step."""

    def __init__(self, net: nn.Module, recipe: Recipe, images: Tensor, labels: Tensor, settings: Settings) -> None:
        """`images` uint8 [N, H, W, C] and `labels` int64 [N], on the device of `net`."""
        self.recipe, self.settings, self.device = recipe, settings, images.device
        self.net = net.train()
        self.mixed = images.device.type == "cuda"  # bfloat16
        self.callee = net  # the network or its compiled form, for the recipe
        self.averaged = copy.deepcopy(net).eval()
        self.images, self.labels = padded(images), labels
        n, height, width, channels = images.shape
        self.size = min(settings.batch, n)
        self.steps = n // self.size  # per epoch; an incomplete last batch is left out

        self.weights: list[Tensor] = [p for p in net.parameters() if p.requires_grad]
        self.momenta = [torch.zeros_like(w) for w in self.weights]
        self.followed = _followed(net)
        self.means = _followed(self.averaged)

        self.rows = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        self.shift = torch.zeros(self.size, 2, dtype=torch.int64, device=self.device)
        self.flip = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        self.d = torch.zeros(self.size, height, width, channels, device=self.device)
        self.knobs = torch.zeros(3, device=self.device)
        self.sums = torch.zeros(2, device=self.device)
        self._generator = torch.Generator(self.device)
        self._noise = noise_layers(net)

    def order(self, *key: int) -> Tensor:
        """Return the shuffled rows of an epoch."""
        return torch.randperm(len(self.labels), generator=self._seeded(*key), device=self.device)

    def draw(self, rows: Tensor, knobs: Tensor, *key: int) -> None:
        """Set the input of the next step; `key` is (phase, epoch, step)."""
        generator = self._seeded(*key)
        self.rows.copy_(rows)
        self.knobs.copy_(knobs)
        self.shift.random_(0, 2 * PAD + 1, generator=generator)
        self.flip.random_(0, 2, generator=generator)
        self.d.normal_(generator=generator)
        reseed(self._noise, fold(self.settings.seed, *key))

    def __call__(self) -> None:
        rate, follow, t = self.knobs.unbind()
        x = crop_and_flip(self.images, self.rows, self.shift, self.flip)
        y = self.labels[self.rows]
        # without the cache of cast weights, which a CUDA graph would replay with old weights
        short = torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed, cache_enabled=False)
        with short, taken_first(self.device):
            g, loss = self.recipe.gradients(self.callee, self.weights, Batch(x, y, self.d.permute(0, 3, 1, 2), t))
        with torch.no_grad():
            descend(self.weights, self.momenta, g, rate, self.settings)
            torch._foreach_add_(self.means, torch._foreach_mul(torch._foreach_sub(self.followed, self.means), follow))
            self.sums += torch.stack([loss.value.sum(), (loss.scores.argmax(1) == y).float().sum()])

    def read_sums(self) -> tuple[float, float]:
        """Return mean loss and accuracy since the last call. Only this waits for the device."""
        loss, hits = self.sums.tolist()
        self.sums.zero_()
        return loss / (self.steps * self.size), hits / (self.steps * self.size)

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that a step changes and the next one reads, by name, not copied."""
        named = {f"net.{k}": v for k, v in self.net.state_dict().items()}
        named |= {f"averaged.{k}": v for k, v in self.averaged.state_dict().items()}
        return named | {f"momentum.{i}": v for i, v in enumerate(self.momenta)}

    def finish(self) -> nn.Module:
        """Return the averaged network, with integer counters copied."""
        with torch.no_grad():
            for mean, value in zip(self.averaged.buffers(), self.net.buffers(), strict=True):
                if not mean.is_floating_point():
                    mean.copy_(value)
        return self.averaged

    def _seeded(self, *key: int) -> torch.Generator:
        return self._generator.manual_seed(fold(self.settings.seed, *key))


def descend(weights: list[Tensor], momenta: list[Tensor], g: list[Tensor], rate: Tensor, settings: Settings) -> None:
    """b ← μ b + g + λ w;  w ← w − η (g + λ w + μ b)."""
    g = list(torch._foreach_add(g, weights, alpha=settings.weight_decay))
    torch._foreach_mul_(momenta, settings.momentum)
    torch._foreach_add_(momenta, g)
    torch._foreach_add_(g, momenta, alpha=settings.momentum)
    torch._foreach_sub_(weights, torch._foreach_mul(g, rate))


def _followed(net: nn.Module) -> list[Tensor]:
    """Return the averaged tensors: weights and float buffers."""
    return [p.detach() for p in net.parameters()] + [b for b in net.buffers() if b.is_floating_point()]


# ---------------------------------------------------------------- speed; a step computes the same in every way


def accelerate(step: Step, speed: Speed, say: Callable[[str], None]) -> Callable[[], None]:
    """Return the step as a CUDA graph or compiled, if that works; else the plain step.

    A trial takes a few real steps, and then restores the state, so it does not change the training.
    """
    step.mixed = step.mixed or speed == "mixed"
    for way in _ways(step, speed):
        before = [t.clone() for t in (*step.state().values(), step.sums)]
        try:
            go = _WAYS[way](step)
        except Exception as error:  # compilers and drivers fail in many ways; train without
            say(f"{way} failed here ({type(error).__name__}: {str(error)[:300]}); continuing without")
            step.callee = step.net
            go = None
        with torch.no_grad():
            for t, value in zip((*step.state().values(), step.sums), before, strict=True):
                t.copy_(value)
        step.net.train()
        if go is not None:
            say(f"steps are {way}")
            return go
    return step


def _ways(step: Step, speed: Speed) -> tuple[Speed, ...]:
    if step.device.type != "cuda" or noise_layers(step.net):  # noise layers create a generator for each call
        return ()
    return _TRIED[speed]


def _captured(step: Step) -> Callable[[], None]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _compiled(step: Step) -> Callable[[], None]:
    compiled: Any = torch.compile(step.net, dynamic=False)  # torch annotates it as a function
    step.callee = compiled
    step()
    step()
    torch.cuda.synchronize()
    return step


def _compiled_and_captured(step: Step) -> Callable[[], None]:
    _compiled(step)
    return _captured(step)


_TRIED: dict[Speed, tuple[Speed, ...]] = {
    "auto": ("compiled graph", "graph"),
    "compiled graph": ("compiled graph", "graph"),
    "graph": ("graph",),
    "compiled": ("compiled",),
    "eager": (),
    "mixed": (),
}
_WAYS: dict[Speed, Callable[[Step], Callable[[], None]]] = {
    "compiled graph": _compiled_and_captured,
    "graph": _captured,
    "compiled": _compiled,
}
