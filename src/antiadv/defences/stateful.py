"""A memory of queries (Blacklight: Li et al., USENIX Security 2022, arXiv:2006.14042): searches repeat themselves.

    salted        v = (255·x + salt) mod 255, flat                        salt: whole numbers, one per value, secret
    coarse        round(v / 50)
    digests       a hash of every window of w consecutive values, one window every p values
    fingerprint   the 50 largest digests, each counted once
    repeated      a query shares at least the fraction t of its digests with an earlier query of the same client
    answer        f(x); for a repeated query the answer to the earliest query that it repeats

An attack that searches sends many images that hardly differ. It gets the same answer to all of them. Nothing is hidden
from an attacker who has a copy of f: `transfer` undoes the defence. Without a copy, an attacker can see which queries
count as repeated, and make them so coarse that few do (`avoid` of `square` and `hop_skip_jump`).

Each attacked sample is one client with a memory of its own, which starts empty. So samples and shards are independent.
The memory belongs to an oracle (`session`), not to the model: a plain call has none, and returns f(x). The judge asks
in this way, as if the final image came from a new client. So what is evaluated is whether the search gets anywhere.
Not evaluated: attackers with several accounts (they are stronger), and clients who share a memory. Honest clients who
send near-duplicates get an old answer, and no accuracy shows that: docs/stateful.md has how often it happens.

Notation:   w → `window`, p → `stride`, t → `share`. The authors' values: w 20 and p 1 for CIFAR-10, 50 and 25 for
            ImageNet, t 0.5.
Cost:       one forward pass of f, and a comparison with the client's earlier queries, on the host. The forward pass of
            a repeated query is made, too.
Departures: the digest is a 64-bit hash; the authors' is SHA-256. A repeated query has the answer of the earliest match,
            not of the nearest. The salt is the same in every evaluation; a server must draw its own. An image with
            fewer than 50 digests is compared by the share of those it has. A repeated query has a zero gradient.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.defence import TRANSFERS, Defence, Session
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.validation import is_count, is_number

LEVEL = 50  # width of a level, in grey levels
DIGESTS_KEPT = 50
SALT = 0x5A17  # seed
WRAP = 2**64
SIGN = -(WRAP // 2)
# of the hash of a window, and the two of the output function of SplitMix64; with a sign, as torch has them
FACTOR, MIX_1, MIX_2 = 0x9E3779B97F4A7C15 - WRAP, 0xBF58476D1CE4E5B9 - WRAP, 0x94D049BB133111EB - WRAP
INVERSE = (pow(FACTOR, -1, WRAP) + SIGN) % WRAP + SIGN  # FACTOR · INVERSE wraps to 1

Digests = frozenset[int]


class Stateful(Defence):
    """The classifier `base`, which remembers the queries of each client; see the head of this file.

    >>> import torch
    >>> g = Stateful(torch.nn.Linear(64, 3).eval())
    >>> x, clients = torch.linspace(0, 1, 128).view(2, 64), torch.tensor([0, 1])
    >>> session = g.session()
    >>> [session.answer(clients, x, g(x))[1].tolist() for _ in range(2)]
    [[False, False], [True, True]]
    """

    edition: ClassVar[int] = 2  # `adaptive` names more attacks
    adaptive: ClassVar[tuple[str, ...]] = (
        *TRANSFERS,
        "square:steps=1000,avoid=true",
        "hop_skip_jump:steps=10,avoid=true",
    )

    def __init__(self, base: nn.Module, window: int = 20, stride: int = 1, share: float = 0.5) -> None:
        super().__init__(base)
        for name, value in (("window", window), ("stride", stride)):
            if not is_count(value, 1):
                raise BadInput(f"{name} must be a whole number ≥ 1; found {value!r}. Use window=20,stride=1.")
        if not is_number(share, 1) or share == 0:
            raise BadInput(f"share, a fraction of the digests, must be in (0, 1]; found {share!r}. Use 0.5.")
        self.window, self.stride, self.share = window, stride, float(share)

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(x)

    def session(self) -> Memory:
        return Memory(self.window, self.stride, self.share)


class Memory(Session):
    """The queries of each client, and the answers to them."""

    def __init__(self, window: int, stride: int, share: float) -> None:
        self.window, self.stride, self.share = window, stride, share
        self._seen: dict[int, list[tuple[Digests, Tensor]]] = {}

    def answer(self, clients: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """In the order of the images, so that a request of several equals several requests."""
        answers, repeated = [], []
        for client, digests, fresh in zip(clients.tolist(), self.fingerprints(x), s, strict=True):
            seen = self._seen.setdefault(client, [])
            need = max(1, self.share * len(digests))
            earlier = next((old for kept, old in seen if len(digests & kept) >= need), None)
            # 0·fresh: NaN and infinity are not hidden by an older answer
            answers.append(fresh if earlier is None else torch.add(earlier, fresh.detach(), alpha=0))
            repeated.append(earlier is not None)
            seen.append((digests, answers[-1].detach()))
        return torch.stack(answers), torch.tensor(repeated, device=s.device)

    def fingerprints(self, x: Tensor) -> list[Digests]:
        """The fingerprint of each image, made on its device."""
        flat = x.detach().float().flatten(1)
        salt = Draws.of(SALT, torch.zeros(1, dtype=torch.int64)).below(255, flat.shape[1]).to(flat)
        coarse = ((255 * flat + salt) % 255 / LEVEL).round().long()
        digests = _hashed(coarse, min(self.window, flat.shape[1]))[:, :: self.stride]
        return [frozenset(row[:n]) for row, n in zip(*map(Tensor.tolist, _largest(digests)), strict=True)]


def _hashed(values: Tensor, window: int) -> Tensor:
    """One word for each window of a row; whole numbers wrap. The order of words is that of numbers without a sign.

    Σ_j (v_{i+j} + 1)·f^{w−j} = f^{i+w} · (S_{i+w} − S_i), where S_i is the sum of (v_k + 1)·f^{−k} over k < i.
    """
    up, down = (torch.full_like(values[0], factor).cumprod(0) for factor in (FACTOR, INVERSE))  # f^{k+1}, f^{−k−1}
    sums = F.pad(((values + 1) * (down * FACTOR)).cumsum(1), (1, 0))
    total = (sums[:, window:] - sums[:, :-window]) * up[window - 1 :]
    total = (total ^ _right(total, 30)) * MIX_1
    total = (total ^ _right(total, 27)) * MIX_2
    return total ^ _right(total, 31) ^ SIGN


def _right(word: Tensor, bits: int) -> Tensor:
    """The word shifted to the right, filled up with zeros."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _largest(digests: Tensor) -> tuple[Tensor, Tensor]:
    """The largest different digests of each row, and how many there are."""
    ordered = digests.sort(1, descending=True).values
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    place = fresh.cumsum(1).sub(1).masked_fill(~fresh, DIGESTS_KEPT).clamp(max=DIGESTS_KEPT)
    kept = ordered.new_zeros(len(ordered), DIGESTS_KEPT + 1).scatter(1, place, ordered)
    return kept[:, :-1], fresh.sum(1).clamp(max=DIGESTS_KEPT)
