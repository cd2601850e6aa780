"""How the names in a cell become things: networks and data sets, loaded once per process and kept.

    world.model("compact:trades")  →  nn.Module on the world's device         world.weights(…)  →  its digest
    world.data("cifar10:test")     →  Dataset                                 world.defended(model, defence)

A network in hand enters by name: `Resources(models={"mine": net})`, and is then called `mine` in cells; a data set too,
under a name that is registered. A world crosses process borders as its device and what is in hand: the rest is loaded
anew where it arrives. With `compiled`, networks are compiled before they are attacked (`engine/fast.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from antiadv import attacks, data, defences, models
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.validation import check_base
from antiadv.data.dataset import Dataset
from antiadv.engine.fast import Fast, engine
from antiadv.evaluation.cell import Cell


def find_device(said: str | torch.device | None) -> torch.device:
    """The device that a text names; by default a GPU where there is one."""
    device = said or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=device).cpu().to(device).device  # `meta` gives no number back
    except Exception as error:  # a missing backend may raise anything: AssertionError, ModuleNotFoundError
        raise BadInput(f"{device} cannot be used as a device here; say cpu, or cuda where there is a GPU.") from error


class Resources:
    """Keeps the last network it loaded, so that consecutive shards of one cell load nothing."""

    def __init__(
        self,
        device: str | torch.device | None = None,
        models: Mapping[str, nn.Module] | None = None,
        data: Mapping[str, Dataset] | None = None,
        compiled: bool = False,
    ) -> None:
        self.asked, self.device, self.compiled = device, find_device(device), compiled
        self._given: Mapping[str, nn.Module] = {} if models is None else models
        self._sets: Mapping[str, Dataset] = {} if data is None else data
        self._digests: dict[str, str] = {}
        self._data: dict[str, Dataset] = {}
        self._last: tuple[str, nn.Module] | None = None
        self._defended: tuple[str, nn.Module, nn.Module] | None = None
        self._engine: tuple[str, int, Fast] | None = None

    def __reduce__(self) -> tuple[type[Resources], tuple[object, ...]]:
        return Resources, (self.asked, dict(self._given), dict(self._sets), self.compiled)

    def on(self, device: str | torch.device | None) -> Resources:
        """The same names on another device."""
        return Resources(device, self._given, self._sets, self.compiled)

    def model(self, text: str) -> nn.Module:
        if self._last is None or self._last[0] != text:
            with torch.inference_mode(False):  # weights that are made in it pass no gradients on, ever
                net = self._given[text] if text in self._given else self._loaded(text)
                check_base(net)
                if any(t.is_meta for t in (*net.parameters(), *net.buffers())):
                    raise BadInput(f"{text} has no weights: some of it is on the device meta. Load them first.")
                self._last = (text, net.to(self.device))
                self._digests.pop(text, None)  # its file may have changed since it was loaded before
        return self._last[1]

    def check_name(self, text: str) -> None:
        """A network in hand must not go by the name of another, as which a report would show it, nor by one that its
        tables would take for something else."""
        if text in self._given and (strange := [c for c in text if c in "`|<>" or not c.isprintable()]):
            raise BadInput(
                f"the name of a network in hand stands in tables; found {text!r}, with {strange[0]!r}. "
                "Use letters, digits and - _ . instead."
            )
        if text in self._given and models.is_registered(text):
            raise BadInput(
                f"a network in hand needs a name of its own; found {text!r}, which begins as one of the library's. "
                "Call it otherwise, for example mine."
            )

    def _loaded(self, text: str) -> nn.Module:
        try:
            return models.load(text)
        except BadSpec as error:
            if not self._given:
                raise
            here = ", ".join(map(repr, self._given))
            raise BadSpec(f"{error}; in hand, by the names this World was given: {here}") from error

    def defended(self, model: str, defence: str) -> nn.Module:
        """The same object for the same words, so that what was captured of it serves the next shard too."""
        base = self.model(model)
        if self._defended is None or self._defended[0] != defence or self._defended[1] is not base:
            with torch.inference_mode(False):
                self._defended = (defence, base, defences.wrap(defence, base))
        return self._defended[2]

    def engine(self, precision: str = "float32", batch: int = 256) -> Fast:
        """The engine for this device, as if it were new: whatever shards it ran before, another has the same answers.

        It is kept, with what it has captured, until another batch or precision is asked.
        """
        if self._engine is None or self._engine[:2] != (precision, batch):
            self._engine = (precision, batch, engine(self.device, batch, precision, self.compiled))
        self._engine[2].forget()
        return self._engine[2]

    def weights(self, text: str) -> str:
        """The digest of what `model` gives now. A network in hand can be trained on between two calls."""
        net = self.model(text)
        if text in self._given or text not in self._digests:
            self._digests[text] = models.digest(net)
        return self._digests[text]

    def check(self, cell: Cell) -> None:
        """The weights, images and files found here must be those the cell was planned with."""
        dataset = self.data(cell.data)
        if dataset.digest != cell.images:
            raise BadInput(
                f"the cell was planned with images {cell.images}; {cell.data} here has {dataset.digest}. Plan again."
            )
        weights = self.weights(cell.model)
        if weights != cell.weights:
            raise BadInput(
                f"the cell was planned with weights {cell.weights}; {cell.model} here has {weights}. "
                "Use the same file everywhere, or plan again."
            )
        files = attacks.files_digest(attacks.parse(cell.attack))
        if files != cell.files:
            raise BadInput(
                f"the cell was planned with files {cell.files or 'of unknown content'}; {cell.attack} here reads "
                f"{files}. Use the same file everywhere, or plan again."
            )

    def data(self, text: str) -> Dataset:
        if text not in self._data:
            self._data[text] = self._sets[text] if text in self._sets else data.load(text)
        return self._data[text]
