"""A classifier for attacks of other libraries. It charges every image, and stops at the budget.

    counted(z)        scores of z; with `access=labels` a one-hot row for the label
    gradients         a backward pass asks the oracle for the gradient, if the threat grants it
    counted.images    the best image of each sample so far: in the ball the first success, else the closest

Other code may send only some of the samples, and does not say which. So the sample of an image is a guess. With as many
images as samples, image i is taken to belong to sample i: wrong for code that sends as many images of one sample. Else
an image is taken to belong to the sample whose clean image is nearest: wrong for images far from their own, such as
random ones. An oracle of one sample needs no guess, so attacks that do not keep to the batch run on one at a time.

Cost:       one query per image, one gradient per backward pass. The backward pass repeats the forward pass.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.ball import Ball
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access


class CountingModel(nn.Module):
    """See the head of this file."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, access: Access) -> None:
        super().__init__()
        self.oracle, self.x, self.y, self.ball, self.access = oracle, x, y, ball, access
        self.training = False
        self.images = x.clone()
        self.distance = x.new_full((len(x),), math.inf, dtype=torch.float64)
        self.place = nn.Parameter(x.new_empty(0), requires_grad=False)  # other code looks here for the device
        self._classes = 2
        oracle.hold(self)

    def found(self) -> Tensor:
        return self.images

    @property
    def fooled(self) -> Tensor:
        """Which samples have an adversarial image in the ball."""
        return self.distance <= self.ball.reach

    def forward(self, z: Tensor) -> Tensor:
        sent = z.detach().to(self.x)
        rows = self._samples(sent)
        part = self.oracle[rows.cpu()]
        if self.access == Access.LABELS:
            labels = part.labels(sent)
            self._keep(rows, sent, labels)
            self._classes = max(self._classes, int(labels.max()) + 1, int(self.y.max()) + 1) if len(labels) else 2
            return F.one_hot(labels.clamp_min(0), self._classes).to(z)
        if torch.is_grad_enabled() and z.requires_grad:
            answers: Tensor = _Answer.apply(z, sent, part)  # type: ignore[no-untyped-call]
        else:
            answers = part.scores(sent).to(z)
        self._keep(rows, sent, answers.detach())
        return answers

    def _samples(self, z: Tensor) -> Tensor:
        """The sample of each image, as its place in the batch."""
        if len(z) == len(self.x):
            return torch.arange(len(z), device=z.device)
        if len(self.x) == 1:
            return torch.zeros(len(z), dtype=torch.int64, device=z.device)
        return torch.cdist(z.flatten(1).double(), self.x.flatten(1).double()).argmin(1)

    def _keep(self, rows: Tensor, z: Tensor, s: Tensor) -> None:
        fooled = self.oracle.fooled(s, self.y[rows])
        distance = self.ball.distance(self.x[rows], z)
        closer = fooled & (distance < self.distance[rows])
        if self.ball.eps < math.inf:  # a success in the ball is enough
            closer &= self.distance[rows] > self.ball.reach
        places = closer.nonzero().squeeze(1)
        places = places[distance[places].argsort(descending=True)]  # of several images of a sample the closest is last
        for place in places.tolist():
            self.images[rows[place]] = z[place]
            self.distance[rows[place]] = distance[place]


class _Answer(torch.autograd.Function):
    """Scores from an oracle. The backward pass asks it for the gradient of the weighted sum of the scores."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, sent: Tensor, oracle: Oracle) -> Tensor:
        s, ctx.pull = oracle.scores_and_pullback(sent)
        return s.to(z)

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor, None, None]:
        return ctx.pull(weights[0]).to(weights[0]), None, None
