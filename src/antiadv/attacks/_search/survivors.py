"""The samples still under attack: what a search carries from step to step.

    offer(z, s)           keep z where it lowers the margin; fooled samples leave with it
    take(z, s)            the first half of `offer`: which samples are fooled, still on the device
    keep(z, m, better)    the same with a measure m of your own (lower is better)
    release(fooled, …)    the second half of `offer`: fooled samples leave once the judge confirms them
    dismiss(done)         samples leave for any other reason
    afford(need)          from now on a step costs `need` queries
    images()              the best image of every sample, gone or not

A sample leaves when it is fooled or cannot pay for another step. If the engine computes in a lower precision than the
judge, a success is confirmed first (`Oracle.confirm`). A rejected image is treated like any other image, and the
search goes on.

Cost:       no query. The search waits for the device once a step, to learn which samples leave. Work that is queued
            before that wait is free on a GPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from antiadv.core.ball import per_row
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle


class Survivors:
    """One row per remaining sample: `oracle`, `x`, `y`, `draws`, the best images `z` and their measures `m`.

    `m` is infinite at first. `rows`, on the CPU, are the places of these samples in the batch that came in.
    """

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
        """Keep the better images, and let fooled samples leave. `s` are the oracle's scores for z.

        Returns the places of the samples that go on, or None if all do.
        """
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
        """Let samples leave whose last offered image fools, if the judge confirms it.

        The others go on; if `refused` is given, it becomes their measure m.
        """
        if True in fooled:
            fooled = self._confirmed(fooled, refused)
        return self.dismiss(fooled)

    def _confirmed(self, fooled: list[bool], refused: float | None) -> list[bool]:
        places, (z, m) = torch.tensor(fooled).nonzero().squeeze(1), self._offered
        on_device = places.to(z.device)
        s = self.oracle[places].confirm(z[on_device])
        if s is not None:
            sure = self.oracle.fooled(s, self.y[on_device]).cpu()
            places, rejected = places[sure], places[~sure]
            on_device, stay = places.to(z.device), rejected.to(z.device)
            fooled = torch.zeros(len(fooled), dtype=torch.bool).index_fill(0, places, True).tolist()
            if refused is not None:
                self.m = self.m.index_fill(0, stay, refused)
            self.oracle[rejected].mark_rejected(self.z[stay])
        self.z = self.z.index_copy(0, on_device, z[on_device])
        self.m = self.m.index_copy(0, on_device, m[on_device])
        return fooled

    def dismiss(self, done: list[bool]) -> Tensor | None:
        """Let samples leave that are done or cannot pay for a step. Decided on the CPU, where the ledger is."""
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

    def images(self) -> Tensor:
        self._images[self.rows.to(self.z.device)] = self.z
        return self._images

    found = images  # the name under which `Oracle.hold` asks for them
