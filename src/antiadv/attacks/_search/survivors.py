"""The samples still under attack, side by side: what a search carries from step to step.

    offer(z, s)           keep z where it lowers the margin; whoever is fooled leaves with it
    take(z, s)            the first half of that, which waits for nobody: who is fooled, on the device
    keep(z, m, better)    the same by any measure m of its own
    release(fooled, …)    the second: the places that go on, or nothing where all of them do
    dismiss(done)         the same for any other reason to leave
    afford(need)          a step costs so many queries from now on
    images()              the best candidate of every sample, whether it left or not

Success is looked at again before a sample leaves: an engine that answers in few digits may believe of an image that it
fools where it does not (`Oracle.exactly`). Such an image is then one like any other, kept if it lowers m, and m is the
engine's still: below what it takes for zero the way goes on as above it. A sample leaves once it is done or cannot pay
for another step. Only then is anything looked up or moved, and a step waits for its device once, to hear whether any
left: between two requests of a search a GPU waits for its host, so operations count there, not numbers. What can be
worked out before that wait costs nothing: the device has a pass to run meanwhile.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from antiadv.core.ball import per_row
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle


class Survivors:
    """Of those left: `oracle`, `x`, `y`, `draws`, the best images `z` and their measures `m`, infinite at first;
    `rows`, on the host, say where they stand in the whole."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor, draws: Draws, need: int = 1) -> None:
        self.oracle, self.x, self.y, self.draws = oracle, x, y, draws
        self.z, self.m = x, x.new_full((len(x),), math.inf)
        self._offered = self.z, self.m
        self.rows = torch.arange(len(x))
        self._images = x.clone()
        oracle.hold(self)
        self.afford(need)

    def __len__(self) -> int:
        return len(self.rows)

    def offer(self, z: Tensor, s: Tensor) -> Tensor | None:
        """`s` are the scores that the oracle gave for z."""
        return self.release(self.take(z, s).tolist())

    def take(self, z: Tensor, s: Tensor) -> Tensor:
        m, fooled = self.oracle.margin(s, self.y), self.oracle.fooled(s, self.y)
        self.keep(z, m.to(self.m), m < self.m)
        return fooled

    def keep(self, z: Tensor, m: Tensor, better: Tensor) -> None:
        self._offered = z, m
        self.z = torch.where(per_row(better, z), z, self.z)
        self.m = torch.where(better, m, self.m)

    def release(self, fooled: list[bool], refused: float | None = None) -> Tensor | None:
        """Those whose last images fool, as the oracle said, leave with them if they do; of others m is what is kept, or
        `refused`."""
        if True in fooled:
            fooled = self._checked(fooled, refused)
        return self.dismiss(fooled)

    def _checked(self, fooled: list[bool], refused: float | None) -> list[bool]:
        there, (z, m) = torch.tensor(fooled).nonzero().squeeze(1), self._offered
        here = there.to(z.device)
        s = self.oracle[there].confirm(z[here])
        if s is not None:
            sure = self.oracle.fooled(s, self.y[here]).cpu()
            there, stay = there[sure], there[~sure]
            here, on = there.to(z.device), stay.to(z.device)
            fooled = torch.zeros(len(fooled), dtype=torch.bool).index_fill(0, there, True).tolist()
            if refused is not None:
                self.m = self.m.index_fill(0, on, refused)
            self.oracle[stay].mark_rejected(self.z[on])
        self.z = self.z.index_copy(0, here, z[here])
        self.m = self.m.index_copy(0, here, m[here])
        return fooled

    def dismiss(self, done: list[bool]) -> Tensor | None:
        """Decided on the host, where the ledger is."""
        left = self.oracle.left()
        if not len(left) or (int(left.min()) >= self._need and True not in done):
            return None
        self.images()
        on = ((left >= self._need) & ~torch.tensor(done)).nonzero().squeeze(1)
        self.oracle, self.rows = self.oracle[on], self.rows[on]
        on = on.to(self.z.device)
        self.x, self.y, self.z, self.m = self.x[on], self.y[on], self.z[on], self.m[on]
        self.draws = self.draws[on]
        return on

    def afford(self, need: int) -> Tensor | None:
        self._need = need
        return self.dismiss([False] * len(self))

    def found(self) -> Tensor:
        return self.images()

    def images(self) -> Tensor:
        self._images[self.rows.to(self.z.device)] = self.z
        return self._images
