"""How the names in a cell become things: networks and data sets, loaded once per process and kept.

    world.model("compact:trades")  →  nn.Module on the world's device         world.weights(…)  →  its digest
    world.data("cifar10:test")     →  Dataset                                 world.defended(model, defence)

A network in hand enters by name: `World(models={"mine": net})`, and is then called `mine` in cells.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from antiadv import data, defences, models
from antiadv.core.door import check_base
from antiadv.core.errors import BadInput
from antiadv.data.dataset import Dataset


def find_device(said: str | torch.device | None) -> torch.device:
    """The device that a text names; by default a GPU where there is one."""
    device = said or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        raise BadInput(f"{device} cannot be used as a device here; say cpu, or cuda where there is a GPU.") from error


class World:
    """Keeps the last network it loaded, so that consecutive shards of one cell load nothing."""

    def __init__(self, device: str | torch.device | None = None, models: Mapping[str, nn.Module] | None = None) -> None:
        self.device = find_device(device)
        self._given = dict(models or {})
        self._digests: dict[str, str] = {}
        self._data: dict[str, Dataset] = {}
        self._last: tuple[str, nn.Module] | None = None

    def model(self, text: str) -> nn.Module:
        if self._last is None or self._last[0] != text:
            net = self._given[text] if text in self._given else models.load(text)
            check_base(net)
            self._last = (text, net.to(self.device))
        return self._last[1]

    def defended(self, model: str, defence: str) -> nn.Module:
        return defences.wrap(defence, self.model(model))

    def weights(self, text: str) -> str:
        if text not in self._digests:
            self._digests[text] = models.digest(self.model(text))
        return self._digests[text]

    def data(self, text: str) -> Dataset:
        if text not in self._data:
            self._data[text] = data.load(text)
        return self._data[text]
