"""Randomised smoothing (Cohen et al., ICML 2019, arXiv:1902.02918): the majority vote of f over noisy copies of x.

    v_k = #{m : argmax f(x + σ·n_m) = k}                 votes; n_m ~ N(0, I), m = 1 … M                       (1)
    p_k = 1/M · Σ_m softmax f(x + σ·n_m)_k               mean probabilities                                    (2)
    s_k = log (v_k + p_k) / (M + 1)                      scores                                                (3)

The prediction is the class with most votes, because p_k adds less than one vote; p decides ties. s is finite, near the
log of the vote share, and its softmax is (v + p) / (M + 1). Votes have no gradient. That of s is the gradient of p,
which attacks on smoothed classifiers use (Salman et al., NeurIPS 2019).

`antiadv certify` computes a radius within which the vote cannot change. It holds for the vote over infinitely many
copies, to which this one comes close for large M. The base must be trained with the same noise to be accurate.

Notation:   σ → `std` (pixels of [0, 1], before any normalisation inside the base), M → `samples`.
Cost:       M forward passes of f.
Departures: the authors abstain if the two classes with most votes are too close; here every image gets scores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.defence import LARGEST, Randomised
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.validation import is_count, is_number


class Smoothing(Randomised):
    """The classifier `base`, asked about `samples` noisy copies of each image; the majority decides.

    >>> import torch
    >>> g = Smoothing(torch.nn.Linear(4, 3).eval(), std=0.1, samples=20)
    >>> s = g(torch.full((5, 4), 0.5))
    >>> torch.allclose(s.exp().sum(1), torch.ones(5))
    True
    """

    def __init__(self, base: nn.Module, std: float = 0.25, samples: int = 10) -> None:
        super().__init__(base)
        if not is_number(std, LARGEST) or std == 0:
            raise BadInput(
                f"smoothing needs a std above 0, at most {LARGEST:.0f}, in pixels of [0, 1]; found {std!r}. Use 0.25."
            )
        if not is_count(samples, 1):
            raise BadInput(f"smoothing needs an integer samples ≥ 1; found {samples!r}. Use 10.")
        self.std, self.samples = std, samples

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        each = torch.stack([self._noisy(x, draws.fold(m)) for m in range(self.samples)])
        votes = F.one_hot(each.argmax(2), each.shape[2]).sum(0)  # (1)
        log_p = each.double().log_softmax(2).logsumexp(0) - math.log(self.samples)  # (2)
        # in logarithms: a probability may be too small for a float
        return (torch.logaddexp(votes.double().log(), log_p) - math.log(self.samples + 1)).to(x.dtype)  # (3)

    def _noisy(self, x: Tensor, draws: Draws) -> Tensor:
        s: Tensor = self.base(x + self.std * draws.normal(*x.shape[1:]).to(x))
        self.check_answer(s, x)
        return s
