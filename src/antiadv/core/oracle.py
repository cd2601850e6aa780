"""The oracle: the only access that an attack has to the model. It grants what the threat grants, and counts queries.

    labels(z)                 [N]       the predicted classes
    scores(z)                 [N, K]    all scores
    gradient(z, loss, y, …)   s, ∂ Σ loss(s, y, …) / ∂z       per sample, since loss is [N]
    jacobian(z)               s, ∂ s / ∂z    [N, K, …]        one query, and one gradient per class
    scores_and_pullback(z)    s, and v ↦ ∂ Σ v·s / ∂z         one query, and one gradient per call of the function
    open()                    the classifier itself
    confirm(z)                the judge's answer to images that were sent before (`confirm.py`)
    mark_rejected(z)          record images that the judge rejected; was_rejected(z) [N] asks for them
    left()                    [N]       queries left, per sample
    zeros()                   [N]       gradients so far that were exactly zero, per sample
    repeated(z)               [len(z)]  which images of the last request were refused as repetitions
    randomised                whether equal images may get different answers
    hold(search)              make the images of a search readable if the model fails (`held.py`)

Every image is charged to its sample before the model runs. More than the threat grants raises `AccessDenied`, more than
the budget raises `BudgetSpent`; then nothing is run or charged. `oracle[rows]` is the same model and ledger for some of
the samples. z may hold k candidates per sample (sample by sample, `len(z) = k · len(oracle)`); each is charged. The
engine cuts a request into passes (`engine.py`), so attacks know no batch size.

NaN or infinity in scores or gradients is noted in the ledger, and the shard fails at the end. Such an answer never
counts as a success. The label of such scores is `NO_LABEL`.

A randomised defence (`randomised`) gets new random numbers for every image. They are keyed by the sample and by how
many images were sent for it before, so they are the same in any batch, order and shard.

A defence that remembers queries (`Defence.session`) has one memory for each sample, which lasts as long as the oracle
and its parts. For a repeated query it replaces the scores, and the gradient is zero. The attacker learns which queries
were repeated. A real service shows it too: it refuses the query, or gives equal scores for different images.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from antiadv.core.ball import per_row
from antiadv.core.confirm import Confirmation
from antiadv.core.defence import Defence
from antiadv.core.deprecated import renamed_method
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager, Engine
from antiadv.core.errors import AccessDenied, BudgetSpent, EndpointFailed
from antiadv.core.held import Search, hold
from antiadv.core.ledger import Ledger
from antiadv.core.losses import Loss, margin, negated, weighted
from antiadv.core.threat import Access, Threat
from antiadv.core.wire import sending

UNLIMITED = 2**62  # queries
NO_LABEL = -1  # the label of scores with NaN or infinity
_OWN_MODEL = 0xBE51DE  # fold for the random numbers of a model that the attacker owns


class Oracle:
    """See the head of this file. `watch` is called after each request, for progress displays.

    `rows` are the places of the samples in the ledger. `draws` holds one key per sample of the ledger, for the random
    numbers of a randomised defence. Without them, samples are numbered by their places in the ledger.
    """

    def __init__(
        self,
        model: nn.Module,
        threat: Threat,
        ledger: Ledger,
        engine: Engine | None = None,
        rows: Tensor | None = None,
        watch: Callable[[], None] | None = None,
        draws: Draws | None = None,
    ) -> None:
        self._model, self._ledger, self._watch = model, ledger, watch
        self._engine = Eager() if engine is None else engine
        self._rows = torch.arange(len(ledger.queries)) if rows is None else rows
        self._draws = Draws.of(0, torch.arange(len(ledger.queries))) if draws is None else draws
        self._confirmation = Confirmation(model, self._engine, ledger)  # one for all parts of an oracle
        self._session = model.session() if isinstance(model, Defence) else None  # one for all parts, too
        self._repeated: Tensor | None = None  # of the last request
        self._attacked: Oracle | None = None  # on a model of the attacker: the oracle on the model under attack
        self.threat = threat

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Tensor) -> Self:
        """The same model and ledger for some of the samples: places in this oracle, or a mask over it."""
        part = copy.copy(self)
        part._rows = self._rows[rows.cpu()]
        return part

    @property
    def targeted(self) -> bool:
        return self.threat.targeted

    @property
    def places(self) -> Tensor:
        """The places of these samples in the complete batch, on the host."""
        return self._rows if self._attacked is None else self._attacked.places[self._rows]

    def hold(self, search: Search) -> None:
        """Register a search, so that its images can be read if the model fails (`held.py`)."""
        if self._attacked is None:
            hold(self._rows, search, self._ledger)
        else:
            self._attacked[self._rows].hold(search)

    def left(self) -> Tensor:
        """Queries left, per sample, on the host."""
        if self._ledger.budget is None:
            return torch.full((len(self),), UNLIMITED)
        return self._ledger.budget - self._ledger.queries.index_select(0, self._rows)

    def zeros(self) -> Tensor:
        """How many gradients were exactly zero so far, per sample, on the host. Waits for the device."""
        return self._ledger.zeros.index_select(0, self._rows)

    def repeated(self, z: Tensor) -> Tensor:
        """Which of these images, those of the last request, were refused as repetitions."""
        known = self._repeated is not None and len(self._repeated) == len(z)
        return self._repeated if known and self._repeated is not None else z.new_zeros(len(z), dtype=torch.bool)

    @property
    def randomised(self) -> bool:
        """Whether the model is a randomised defence."""
        return bool(getattr(self._model, "randomised", False))

    def labels(self, z: Tensor) -> Tensor:
        """The predicted classes, [N]."""
        return _labelled(self._ask(z, Access.LABELS))

    def scores(self, z: Tensor) -> Tensor:
        """All scores, [N, K]."""
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
        """Scores at z, and the gradient of each sample's loss there. For a targeted threat the loss is negated."""
        draws = self._charge(z, Access.GRADIENTS)
        if len(z) == 0:
            return _nothing(z), torch.zeros_like(z)
        signed = negated(loss) if self.targeted else loss
        s, g = self._engine.gradient(self._model, z, signed, *targets, **draws)
        s, g = self._remembered(z, s, g)
        self._note(s, g)
        self._seen()
        return s, g

    def jacobian(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Scores at z, and the gradient of every score there, `[N, K, …]`. Needs the memory of K images for each z."""
        draws = self._charge(z, Access.GRADIENTS)
        if len(z) == 0:
            return _nothing(z), z.new_zeros(0, 2, *z.shape[1:])
        s, j = self._engine.jacobian(self._model, z, **draws)
        s, j = self._remembered(z, s, j)
        more = (s.shape[1] - 1) * (len(z) // len(self))  # one was charged already
        self._ledger.gradients.index_add_(0, self._rows, torch.full_like(self._rows, more))
        self._note(s, j.flatten(0, 1))
        self._seen()
        return s, j

    def scores_and_pullback(self, z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Scores at z, and a function that returns the gradient of their sum with given weights [N, K].

        For code that makes its own loss from the scores. Each call of the function is one gradient, and no query.
        """
        draws = self._charge(z, Access.SCORES)
        if len(z) == 0:
            return _nothing(z), torch.zeros_like
        s, unit = self._remembered(z, self._engine.scores(self._model, z, **draws), z.new_ones(len(z)))
        self._note(s)
        self._seen()

        def pullback(weights: Tensor) -> Tensor:
            self._need(Access.GRADIENTS)
            each = torch.full_like(self._rows, len(z) // len(self))
            self._ledger.gradients.index_add_(0, self._rows, each)
            again, g = self._engine.gradient(self._model, z, weighted, weights.to(s), **draws)
            g = g if self._session is None else g * per_row(unit, g)
            self._note(again, g)
            return g

        return s, pullback

    def open(self) -> nn.Module:
        """The classifier itself. Needs access to INTERNALS."""
        self._need(Access.INTERNALS)
        return self._model

    def on_own_model(self, model: nn.Module) -> Oracle:
        """An oracle on a model that the attacker owns, such as the base of an opened defence.

        Its passes are counted, and its queries are not charged. A randomised model gets other random numbers than the
        model under attack.
        """
        self._need(Access.INTERNALS)
        free = Threat(self.threat.ball, Access.INTERNALS, None, self.targeted)
        draws = self._draws[self._rows.to(self._draws.keys.device)].fold(_OWN_MODEL)
        ledger = Ledger(len(self), above=(self._ledger, self._rows))
        other = Oracle(model, free, ledger, self._engine, watch=self._watch, draws=draws)
        other._attacked = self
        return other

    # names of 0.1, which attacks written by others may use
    beside = renamed_method("on_own_model")
    exactly = renamed_method("confirm")
    refuse = renamed_method("mark_rejected")
    refused = renamed_method("was_rejected")

    @property
    def rounds(self) -> bool:
        warnings.warn("rounds is now called needs_confirmation; the old name goes in 0.3.", DeprecationWarning, 2)
        return self.needs_confirmation

    def fooled(self, s: Tensor, y: Tensor) -> Tensor:
        """Whether these scores, or labels, are a success for the attacker. NaN and infinity never are."""
        label, sound = (s.argmax(1), largest(s) < math.inf) if s.ndim == 2 else (s, s != NO_LABEL)
        return (label == y if self.targeted else label != y) & sound

    def margin(self, s: Tensor, y: Tensor) -> Tensor:
        """How far these scores are from a success; negative for a success."""
        return -margin(s, y) if self.targeted else margin(s, y)

    def _ask(self, z: Tensor, need: Access) -> Tensor:
        draws = self._charge(z, need)
        if len(z) == 0:
            return _nothing(z)
        each = self._per_sample(z)

        def again(places: Sequence[int]) -> None:
            self._ledger.charge(self._rows[torch.tensor(places) // each], 1)
            self._ledger.repeats += len(places)

        with sending(again, len(z)):
            s = self._engine.scores(self._model, z, **draws)
        s, _ = self._remembered(z, s, s)
        self._note(s)
        self._seen()
        return s

    def _charge(self, z: Tensor, need: Access) -> dict[str, Draws]:
        """Charge the images sent. Returns their random numbers, as keyword arguments, if the model is randomised."""
        self._need(need)
        each = self._per_sample(z)
        spent = self._ledger.queries[self._rows] if self.randomised else None
        try:
            self._ledger.charge(self._rows, each, gradient=need == Access.GRADIENTS)
        except BudgetSpent as error:
            if not self._ledger.repeats:
                raise
            raise EndpointFailed(
                f"the endpoint did not answer at once, and {self._ledger.repeats} repeats took the queries that the "
                "next step needs. Give a larger budget, or charge=answered if its owner does not count them."
            ) from error
        if spent is None:
            return {}
        sent = (spent + each * _occurrence(self._rows)).repeat_interleave(each) + torch.arange(each).repeat(len(self))
        keys = self._draws.keys
        draws = Draws(keys[self._rows.to(keys.device)].repeat_interleave(each).to(z.device))
        return {"draws": draws.fold(sent.to(z.device))}

    def _remembered(self, z: Tensor, s: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and slopes after the memory of the defence, if it has one."""
        if self._session is None:
            return s, slope
        s, repeated = self._session.answer(self._rows.repeat_interleave(self._per_sample(z)), z, s)
        self._repeated = repeated
        return s, slope.masked_fill(per_row(repeated, slope), 0)

    def _per_sample(self, z: Tensor) -> int:
        """How many images z holds for each sample."""
        each, rest = divmod(len(z), len(self)) if len(self) else (0, len(z))
        if rest:
            raise ValueError(f"{len(z)} images were sent for {len(self)} samples; send the same number for each")
        return each

    def _note(self, s: Tensor, g: Tensor | None = None) -> None:
        """Note answers with NaN or infinity, and zero gradients. Stays on the device, so that nothing waits.

        A gradient with NaN leads to images with NaN, so it counts as much as a score with NaN.
        """
        self._ledger.note_scores(self._rows, largest(s))
        if g is not None:
            self._ledger.note_gradients(self._rows, largest(g))

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
    """The largest magnitude in each row. It is NaN for rows with NaN, so `largest(v) < inf` means: all are finite."""
    flat = v.flatten(1)
    return torch.linalg.vector_norm(flat, math.inf, dim=1) if flat.shape[1] else flat.new_zeros(len(flat))


def _labelled(s: Tensor) -> Tensor:
    return s.argmax(1).masked_fill(~(largest(s) < math.inf), NO_LABEL)


def _nothing(z: Tensor) -> Tensor:
    """The scores of no images, without running the model."""
    return z.new_zeros(0, 2)


def _occurrence(rows: Tensor) -> Tensor:
    """For each entry, how many equal ones come before it: a request may name a sample several times."""
    ordered, order = rows.sort(stable=True)
    count = torch.empty_like(rows)
    count[order] = torch.arange(len(rows)) - torch.searchsorted(ordered, ordered)
    return count
