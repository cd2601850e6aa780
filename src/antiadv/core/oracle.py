"""The oracle: all an attack ever holds of the model. It grants what the threat grants, and writes the bill.

    labels(z)                 [N]       the predicted classes
    scores(z)                 [N, K]    all scores
    gradient(z, loss, y, …)   s, ∂ Σ loss(s, y, …) / ∂z       per sample, since loss is [N]
    open()                    the classifier itself
    left()                    [N]       queries left, per sample

Every image sent is charged to its sample before the model runs; more than the threat grants raises `AccessDenied`,
more than the budget `BudgetSpent`, and nothing is run or charged then. `oracle[rows]` is the same model and the same
ledger for those samples. Where z holds k candidates a sample (sample by sample, `len(z) = k · len(oracle)`), each is
charged. How a request is cut into passes is the engine's business: attacks know of no batch size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from antiadv.core.errors import AccessDenied, BudgetSpent
from antiadv.core.losses import Loss, margin, negated
from antiadv.core.threat import Access, Threat

UNLIMITED = 2**62


class Ledger:
    """What each sample has spent. Kept on the host, so that budgets are exact without asking the device.

    queries     images sent to the classifier        [N]
    gradients   of these, how many with a gradient    [N]
    zeros       of these, how many gradients were exactly zero: a sign of masking, for the report    [N]
    """

    def __init__(self, samples: int, budget: int | None = None) -> None:
        self.budget = budget
        self.queries = torch.zeros(samples, dtype=torch.int64)
        self.gradients = torch.zeros(samples, dtype=torch.int64)
        self.zeros = torch.zeros(samples, dtype=torch.int64)

    def charge(self, rows: Tensor, each: int, *, gradient: bool = False) -> None:
        """Charge `each` queries to every row, or nothing at all if one of them cannot pay."""
        cost = torch.bincount(rows, minlength=len(self.queries)) * each
        if self.budget is not None and bool((self.queries + cost > self.budget).any()):
            raise BudgetSpent(
                f"the threat allows {self.budget} queries per sample; "
                f"{int((self.queries + cost).max())} were asked. Ask oracle.left() before spending."
            )
        self.queries += cost
        if gradient:
            self.gradients += cost


class Engine(Protocol):
    """How a request becomes passes. `evaluate.speed` has faster ones than `Eager`."""

    def scores(self, model: nn.Module, z: Tensor) -> Tensor: ...

    def gradient(self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Eager:
    """Micro-batches of at most `batch` images through the module as it stands."""

    batch: int = 256

    def scores(self, model: nn.Module, z: Tensor) -> Tensor:
        with torch.no_grad():
            return _join([model(part) for part in z.detach().split(self.batch)])

    def gradient(self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]:
        parts = zip(*(t.split(self.batch) for t in (z.detach(), *targets)), strict=True)
        pairs = [_gradient(model, part, loss, *cut) for part, *cut in parts]
        return _join([s for s, _ in pairs]), _join([g for _, g in pairs])


def _gradient(model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False), torch.enable_grad():
        z = z.clone().requires_grad_()
        s = model(z)
        (g,) = torch.autograd.grad(loss(s, *targets).sum(), z)  # the only sum over samples in the house
    return s.detach(), g


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _nothing(z: Tensor) -> Tensor:
    """Scores of no image: no model is run for them."""
    return z.new_zeros(0, 2)


class Oracle:
    """See the head of this file. `watch` is called after each request, for progress displays."""

    def __init__(
        self,
        model: nn.Module,
        threat: Threat,
        ledger: Ledger,
        engine: Engine | None = None,
        rows: Tensor | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        self._model, self._ledger, self._watch = model, ledger, watch
        self._engine = Eager() if engine is None else engine
        self._rows = torch.arange(len(ledger.queries)) if rows is None else rows
        self.threat = threat

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Tensor) -> Oracle:
        """The same model, the same ledger, those samples: `rows` are places in this oracle, or a mask over it."""
        return Oracle(self._model, self.threat, self._ledger, self._engine, self._rows[rows.cpu()], self._watch)

    @property
    def targeted(self) -> bool:
        return self.threat.targeted

    def left(self) -> Tensor:
        """Queries left, per sample, on the host."""
        if self._ledger.budget is None:
            return torch.full((len(self),), UNLIMITED)
        return self._ledger.budget - self._ledger.queries[self._rows]

    def labels(self, z: Tensor) -> Tensor:
        return self._ask(z, Access.LABELS).argmax(1)

    def scores(self, z: Tensor) -> Tensor:
        return self._ask(z, Access.SCORES)

    def gradient(self, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]:
        """Scores at z and the gradient of each sample's loss there; for a targeted threat the loss is negated."""
        self._charge(z, Access.GRADIENTS)
        if len(z) == 0:
            return _nothing(z), torch.zeros_like(z)
        s, g = self._engine.gradient(self._model, z, negated(loss) if self.targeted else loss, *targets)
        still = (g.flatten(1) == 0).all(1).cpu()
        if still.any():
            self._ledger.zeros += torch.bincount(
                self._rows.repeat_interleave(len(z) // len(self))[still], minlength=len(self._ledger.zeros)
            )
        self._seen()
        return s, g

    def open(self) -> nn.Module:
        """The classifier itself, for an attacker who has it: INTERNALS only."""
        self._need(Access.INTERNALS)
        return self._model

    def beside(self, model: nn.Module) -> Oracle:
        """An oracle on a model the attacker owns, such as the base of an opened defence: metered, never charged."""
        self._need(Access.INTERNALS)
        free = Threat(self.threat.ball, Access.INTERNALS, None, self.targeted)
        return Oracle(model, free, Ledger(len(self)), self._engine, watch=self._watch)

    def fooled(self, s: Tensor, y: Tensor) -> Tensor:
        """Whether these scores, or labels, are what the attacker wants."""
        label = s.argmax(1) if s.ndim == 2 else s
        return label == y if self.targeted else label != y

    def margin(self, s: Tensor, y: Tensor) -> Tensor:
        """How far these scores are from what the attacker wants: negative once it is there."""
        return -margin(s, y) if self.targeted else margin(s, y)

    def _ask(self, z: Tensor, need: Access) -> Tensor:
        self._charge(z, need)
        if len(z) == 0:
            return _nothing(z)
        s = self._engine.scores(self._model, z)
        self._seen()
        return s

    def _charge(self, z: Tensor, need: Access) -> None:
        self._need(need)
        each, rest = divmod(len(z), len(self)) if len(self) else (0, len(z))
        if rest:
            raise ValueError(f"{len(z)} images were sent for {len(self)} samples; send the same number for each")
        self._ledger.charge(self._rows, each, gradient=need == Access.GRADIENTS)

    def _need(self, need: Access) -> None:
        if self.threat.access < need:
            raise AccessDenied(
                f"the attack asked for {need}; the threat grants {self.threat.access}. "
                f"Grant more with access={need}, or choose an attack that needs less."
            )

    def _seen(self) -> None:
        if self._watch is not None:
            self._watch()
