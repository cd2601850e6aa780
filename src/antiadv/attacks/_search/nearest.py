"""How a label-based attack asks, starts and finds the boundary. It keeps the closest fooling image of each sample.

    ask(rows, z)       which of z fool; the closest is kept                                                (1)
    start              x itself, then noise until it fools                                                 (2)
    bisect             z ← the last fooling point on the way from z to x, by halving an interval           (3)
    the way to x       L2: z_a = x + a(z − x).  Linf: z_a = the nearest point to z with |z_a − x|_∞ ≤ a|z − x|_∞

A query that was refused as a repetition (`refused`, of the last request) counts as not fooled. It ends an interval:
its last fooling point is taken.

Samples that no longer go on (`Closest.going`) are not asked about, and count as not fooled. So an attack may ask for
all its samples and cannot exceed the budget.

Cost:       `start` one query for x and one per try, at most `tries`. `bisect` ⌈log₂(1/tolerance)⌉, at most 30.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from antiadv.attacks._search.closest import Closest, taken
from antiadv.core.ball import per_row
from antiadv.core.draws import Draws

COARSE = 4  # kinds of noise for a start: single pixels, then blocks of side 2, 4 and 8
HALVINGS = 30  # of an interval at most: beyond that float32 images do not change


class Nearest(Closest):
    """The closest fooling images, found by asking for labels."""

    refused: Tensor  # of the last request, as `fooled`

    def ask(self, rows: Tensor, z: Tensor) -> Tensor:
        """(1): which of z fool, one for each row."""
        fooled = self.going(rows)
        on = fooled.nonzero().squeeze(1)
        if len(on) < len(rows):
            rows, z = rows[on], z[on]
        far = self.ball.distance(taken(self.x, rows), z)
        asked = self.oracle[rows]
        fools = self.oracle.fooled(asked.labels(z), self.y[rows])
        repeated = asked.repeated(z).to(fools.device)
        fools = self.checked(rows, z, fools & ~repeated, far)
        self.keep(rows, z, fools, far)
        fooled[on] = fools
        self.refused = torch.zeros_like(fooled).index_copy(0, on, repeated)
        return fooled

    def ask_many(self, rows: Tensor, z: Tensor, asked: Tensor) -> Tensor:
        """(1) for k candidates per row, z `[M·k, …]` row by row. Only those marked in `asked` `[M, k]` are sent."""
        each = rows.repeat_interleave(asked.shape[1])[asked.flatten()]  # as often as the row pays
        oracle, sent = self.oracle[each], z if len(each) == len(z) else z[asked.flatten()]
        s = oracle.labels(sent)
        fooled, self.refused = torch.zeros_like(asked), torch.zeros_like(asked)
        self.refused[asked] = oracle.repeated(sent).to(asked.device)
        fooled[asked] = self.oracle.fooled(s, self.y[each])
        fooled &= ~self.refused
        far = self.ball.distance(self.x[rows].repeat_interleave(asked.shape[1], 0), z).view_as(asked)
        closest, which = far.masked_fill(~fooled, math.inf).min(1)
        z = z.view(*asked.shape, *z.shape[1:])[torch.arange(len(rows), device=rows.device), which]
        self.keep(rows, z, self.checked(rows, z, closest < math.inf, closest), closest)
        return fooled

    def start(self, draws: Draws, tries: int) -> Tensor:
        """(2). Returns the rows that have a fooling image, which is in `z`."""
        every = torch.arange(len(self.x), device=self.x.device)
        self.ask(every, self.x)
        for t in range(tries):
            rows = every[(self.distance == math.inf) & self.going(every)]
            if not len(rows):
                break
            self.ask(rows, _noise(draws[rows].fold(t), self.x, t % COARSE))
        return every[self.distance < math.inf]

    def bisect(self, rows: Tensor, z: Tensor, tolerance: Tensor | float) -> Tensor:
        """(3), for z that fools. The tolerance is a share of the way from z to x, for each row."""
        x, length = self.x[rows], self.ball.distance(self.x[rows], z)
        low, high = torch.zeros_like(length), torch.ones_like(length)
        narrow = torch.as_tensor(tolerance, dtype=high.dtype, device=high.device).expand_as(high)
        for _ in range(HALVINGS):
            on = ((high - low > narrow) & self.going(rows)).nonzero().squeeze(1)
            if not len(on):
                break
            middle = (low[on] + high[on]) / 2
            fooled = self.ask(rows[on], self._between(x[on], z[on], middle, length[on]))
            high[on] = torch.where(fooled, middle, high[on])
            low[on] = torch.where(fooled, low[on], torch.where(self.refused, high[on], middle))
        return torch.where(per_row(high == 1, z), z, self._between(x, z, high, length))

    def _between(self, x: Tensor, z: Tensor, a: Tensor, length: Tensor) -> Tensor:
        if self.ball.p == math.inf:
            r = per_row((a * length).to(x), x)
            return torch.minimum(torch.maximum(z, x - r), x + r).clamp(0, 1)
        return (x + per_row(a.to(x), x) * (z - x)).clamp(0, 1)


def _noise(draws: Draws, x: Tensor, halvings: int) -> Tensor:
    """Uniform noise like x. For images, at a resolution halved `halvings` times and enlarged in blocks."""
    if x.ndim != 4 or halvings == 0:
        return draws.uniform(*x.shape[1:]).to(x)
    side = 2**halvings
    small = draws.uniform(x.shape[1], -(-x.shape[2] // side), -(-x.shape[3] // side)).to(x)
    return F.interpolate(small, scale_factor=side, mode="nearest")[:, :, : x.shape[2], : x.shape[3]]
