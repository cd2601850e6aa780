"""The oracle: all an attack ever holds of the model. It grants what the threat grants, and writes the bill.

    labels(z)                 [N]       the predicted classes
    scores(z)                 [N, K]    all scores
    gradient(z, loss, y, …)   s, ∂ Σ loss(s, y, …) / ∂z       per sample, since loss is [N]
    jacobian(z)               s, ∂ s / ∂z    [N, K, …]        one query, and one gradient per class
    open()                    the classifier itself
    exactly(z)                the answer to images sent before, scores or labels, to the last digit: see below
    refuse(z), refused(z)     a search knows of these images that they do not fool;  [N]  whether it said so of these
    left()                    [N]       queries left, per sample
    hold(search)              a search says where its images are, in case the model fails: see `held.py`

Every image sent is charged to its sample before the model runs; more than the threat grants raises `AccessDenied`,
more than the budget `BudgetSpent`, and nothing is run or charged then. `oracle[rows]` is the same model and the same
ledger for those samples. Where z holds k candidates a sample (sample by sample, `len(z) = k · len(oracle)`), each is
charged. How a request is cut into passes is the engine's business (`engine.py`): attacks know of no batch size.

An engine may answer in fewer digits than the judge looks with, and an attack that ends at the first image that fools
ends where the digits matter. `exactly` gives the judge's answer for such an image, which was paid for when it was sent:
of a sample no more images are answered so than were sent for it. A search that goes on with the others as if the image
had not seemed to fool may `refuse` it: it was not misled, and need not be made again to the last digit for this image.

NaN or infinity in an answer, in scores or in gradients, is noted in the ledger and fails the shard at the end. Until
then such an answer fools nobody: no sample leaves a search with it. A label made of such scores is `NO_LABEL`.

A defence that rolls dice (`randomised`) meets every image with fresh ones, keyed by its sample and by how many images
were sent for that sample before: noise as in deployment, and the same in any batch, order and shard.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

from antiadv.core.confirm import Confirmation
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager, Engine
from antiadv.core.errors import AccessDenied
from antiadv.core.held import Search, hold
from antiadv.core.ledger import Ledger
from antiadv.core.losses import Loss, margin, negated
from antiadv.core.threat import Access, Threat

UNLIMITED = 2**62
NO_LABEL = -1  # of scores that are no numbers
_BESIDE = 0xBE51DE  # the dice of a model beside the one under attack


class Oracle:
    """See the head of this file. `watch` is called after each request, for progress displays.

    `dice`, one key per sample of the ledger, are what the noise of a randomised defence is made of; without any, its
    samples are numbered by their places in the ledger.
    """

    def __init__(
        self,
        model: nn.Module,
        threat: Threat,
        ledger: Ledger,
        engine: Engine | None = None,
        rows: Tensor | None = None,
        watch: Callable[[], None] | None = None,
        dice: Draws | None = None,
    ) -> None:
        self._model, self._ledger, self._watch = model, ledger, watch
        self._engine = Eager() if engine is None else engine
        self._rows = torch.arange(len(ledger.queries)) if rows is None else rows
        self._dice = Draws.of(0, torch.arange(len(ledger.queries))) if dice is None else dice
        self._confirmation = Confirmation(model, self._engine, ledger)  # one for all parts of an oracle
        self._above: Oracle | None = None  # of an oracle on a model beside: the one on the model under attack
        self.threat = threat

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Tensor) -> Self:
        """The same model, the same ledger, those samples: `rows` are places in this oracle, or a mask over it."""
        part = copy.copy(self)
        part._rows = self._rows[rows.cpu()]
        return part

    @property
    def targeted(self) -> bool:
        return self.threat.targeted

    @property
    def places(self) -> Tensor:
        """Where these samples stand in the whole batch, on the host."""
        return self._rows if self._above is None else self._above.places[self._rows]

    def hold(self, search: Search) -> None:
        if self._above is None:
            hold(self._rows, search, self._ledger)
        else:
            self._above[self._rows].hold(search)

    def left(self) -> Tensor:
        """Queries left, per sample, on the host."""
        if self._ledger.budget is None:
            return torch.full((len(self),), UNLIMITED)
        return self._ledger.budget - self._ledger.queries.index_select(0, self._rows)

    def labels(self, z: Tensor) -> Tensor:
        return _labelled(self._ask(z, Access.LABELS))

    def scores(self, z: Tensor) -> Tensor:
        return self._ask(z, Access.SCORES)

    @property
    def needs_confirmation(self) -> bool:
        """Whether the judge may answer otherwise than this oracle does."""
        return self._confirmation.needed

    def confirm(self, z: Tensor) -> Tensor | None:
        """The judge's scores of images that were sent before; labels, if the threat grants no more.

        None where the judge's answers are those of this oracle (`needs_confirmation`). Costs no queries.
        """
        self._need(Access.LABELS)
        each = self._per_sample(z)
        if not len(z) or not self.needs_confirmation:
            return None
        s = self._confirmation.scores(self._rows, z, each)
        self._note(s)
        return s if self.threat.access >= Access.SCORES else _labelled(s)

    def mark_rejected(self, z: Tensor) -> None:
        """Record that the judge rejected these images, one per sample."""
        self._confirmation.mark_rejected(self._rows, z)

    def was_rejected(self, z: Tensor) -> Tensor:
        """Whether each image is the last one that was rejected for its sample; on the host."""
        return self._confirmation.was_rejected(self._rows, z)

    def gradient(self, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]:
        """Scores at z and the gradient of each sample's loss there; for a targeted threat the loss is negated."""
        dice = self._charge(z, Access.GRADIENTS)
        if len(z) == 0:
            return _nothing(z), torch.zeros_like(z)
        signed = negated(loss) if self.targeted else loss
        s, g = self._engine.gradient(self._model, z, signed, *targets, **dice)
        self._note(s, g)
        self._seen()
        return s, g

    def jacobian(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Scores at z and the gradient of every score there, `[N, K, …]`: K images of memory for each z."""
        dice = self._charge(z, Access.GRADIENTS)
        if len(z) == 0:
            return _nothing(z), z.new_zeros(0, 2, *z.shape[1:])
        s, j = self._engine.jacobian(self._model, z, **dice)
        more = (s.shape[1] - 1) * (len(z) // len(self))  # one was charged before the number of classes was known
        self._ledger.gradients.index_add_(0, self._rows, torch.full_like(self._rows, more))
        self._note(s, j.flatten(0, 1))
        self._seen()
        return s, j

    def open(self) -> nn.Module:
        """The classifier itself, for an attacker who has it: INTERNALS only."""
        self._need(Access.INTERNALS)
        return self._model

    def beside(self, model: nn.Module) -> Oracle:
        """An oracle on a model the attacker owns, such as the base of an opened defence: metered, never charged.

        If that model rolls dice, they are not those of the one under attack.
        """
        self._need(Access.INTERNALS)
        free = Threat(self.threat.ball, Access.INTERNALS, None, self.targeted)
        dice = self._dice[self._rows.to(self._dice.keys.device)].fold(_BESIDE)
        ledger = Ledger(len(self), above=(self._ledger, self._rows))
        other = Oracle(model, free, ledger, self._engine, watch=self._watch, dice=dice)
        other._above = self
        return other

    def fooled(self, s: Tensor, y: Tensor) -> Tensor:
        """Whether these scores, or labels, are what the attacker wants; never where they are no numbers."""
        label, sound = (s.argmax(1), largest(s) < math.inf) if s.ndim == 2 else (s, s != NO_LABEL)
        return (label == y if self.targeted else label != y) & sound

    def margin(self, s: Tensor, y: Tensor) -> Tensor:
        """How far these scores are from what the attacker wants: negative once it is there."""
        return -margin(s, y) if self.targeted else margin(s, y)

    def _ask(self, z: Tensor, need: Access) -> Tensor:
        dice = self._charge(z, need)
        if len(z) == 0:
            return _nothing(z)
        s = self._engine.scores(self._model, z, **dice)
        self._note(s)
        self._seen()
        return s

    def _charge(self, z: Tensor, need: Access) -> dict[str, Draws]:
        """Write the bill; → the dice for the images sent, where the model rolls any."""
        self._need(need)
        each = self._per_sample(z)
        randomised = getattr(self._model, "randomised", False)
        spent = self._ledger.queries[self._rows] if randomised else None
        self._ledger.charge(self._rows, each, gradient=need == Access.GRADIENTS)
        if spent is None:
            return {}
        sent = (spent + each * _occurrence(self._rows)).repeat_interleave(each) + torch.arange(each).repeat(len(self))
        keys = self._dice.keys
        dice = Draws(keys[self._rows.to(keys.device)].repeat_interleave(each).to(z.device))
        return {"draws": dice.fold(sent.to(z.device))}

    def _per_sample(self, z: Tensor) -> int:
        """How many images these are for each sample."""
        each, rest = divmod(len(z), len(self)) if len(self) else (0, len(z))
        if rest:
            raise ValueError(f"{len(z)} images were sent for {len(self)} samples; send the same number for each")
        return each

    def _note(self, s: Tensor, g: Tensor | None = None) -> None:
        """Which answers are no numbers, and which gradients vanished; on the device, which is not waited for.

        A gradient that is no number leads to images that are none, so it counts as much as a score.
        """
        self._ledger.note_unsound(self._rows, self._any(largest(s) < math.inf))
        if g is not None:
            size = largest(g)
            self._ledger.note_unsound(self._rows, self._any(size < math.inf))
            self._ledger.note_zeros(self._rows.repeat_interleave(len(g) // len(self)), size == 0)

    def _any(self, sound: Tensor) -> Tensor:
        """Whether any of a sample's answers is not sound."""
        return ~(sound if len(sound) == len(self) else sound.view(len(self), -1).all(1))

    def _need(self, need: Access) -> None:
        if self.threat.access < need:
            raise AccessDenied(
                f"the attack asked for {need}; the threat grants {self.threat.access}. "
                f"Grant more with access={need}, or choose an attack that needs less."
            )

    def _seen(self) -> None:
        if self._watch is not None:
            self._watch()


def largest(v: Tensor) -> Tensor:
    """The largest size of any entry of each row: one pass over v. Of NaN it is NaN, so `< inf` says that all are
    numbers."""
    flat = v.flatten(1)
    return torch.linalg.vector_norm(flat, math.inf, dim=1) if flat.shape[1] else flat.new_zeros(len(flat))


def _labelled(s: Tensor) -> Tensor:
    return s.argmax(1).masked_fill(~(largest(s) < math.inf), NO_LABEL)


def _nothing(z: Tensor) -> Tensor:
    """Scores of no image: no model is run for them."""
    return z.new_zeros(0, 2)


def _occurrence(rows: Tensor) -> Tensor:
    """For each entry, how many equal ones stand before it: a sample may be named several times in one request."""
    ordered, order = rows.sort(stable=True)
    count = torch.empty_like(rows)
    count[order] = torch.arange(len(rows)) - torch.searchsorted(ordered, ordered)
    return count


class OracleWrapper(Oracle):
    """An oracle in front of another, which it asks: what adaptive attacks change one answer of.

    It passes every request on as it came. `inner` has the ledger and refuses what the threat does not grant.
    """

    def __init__(self, inner: Oracle) -> None:
        self.inner, self.threat = inner, inner.threat

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Tensor) -> Self:
        part = copy.copy(self)
        part.inner = self.inner[rows]
        return part

    @property
    def places(self) -> Tensor:
        return self.inner.places

    def hold(self, search: Search) -> None:
        self.inner.hold(search)

    def left(self) -> Tensor:
        return self.inner.left()

    def labels(self, z: Tensor) -> Tensor:
        return self.inner.labels(z)

    def scores(self, z: Tensor) -> Tensor:
        return self.inner.scores(z)

    @property
    def needs_confirmation(self) -> bool:
        return self.inner.needs_confirmation

    def confirm(self, z: Tensor) -> Tensor | None:
        return self.inner.confirm(z)

    def mark_rejected(self, z: Tensor) -> None:
        self.inner.mark_rejected(z)

    def was_rejected(self, z: Tensor) -> Tensor:
        return self.inner.was_rejected(z)

    def gradient(self, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.gradient(z, loss, *targets)

    def jacobian(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.jacobian(z)

    def open(self) -> nn.Module:
        return self.inner.open()

    def beside(self, model: nn.Module) -> Oracle:
        return self.inner.beside(model)
