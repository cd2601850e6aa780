"""Resources: the networks and data sets that the names in a cell stand for. Each is loaded once per process.

    resources.model("compact:trades")  →  nn.Module on the device         resources.weights(…)  →  its digest
    resources.data("cifar10:test")     →  Dataset                         resources.defended(model, defence)

A network in hand gets a name: `Resources(models={"mine": net})`. Cells then call it `mine`. A data set does too, under
a registered name. Pickled, Resources are the device and the objects in hand; the rest is loaded again by name.
`compiled=True` compiles networks before they are attacked, `False` never. With `"auto"`, a long job on a GPU goes on
with the compiled network once another process has compiled it (`engine/background.py`).
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
from antiadv.engine.precision import AUTO
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.digits import TRIED, survives


def find_device(asked: str | torch.device | None) -> torch.device:
    """The device of this name; by default a GPU if there is one."""
    device = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=device).cpu().to(device).device  # `meta` cannot be copied back
    except Exception as error:  # a missing backend may raise anything: AssertionError, ModuleNotFoundError
        raise BadInput(f"{device} cannot be used as a device here; say cpu, or cuda where there is a GPU.") from error


def check_compiled(compiled: bool | str) -> None:
    if not (isinstance(compiled, bool) or compiled == AUTO):
        raise BadInput(f"compiled is True, False or {AUTO!r}; found {compiled!r}. Give one of these.")


def fast_engine(device: torch.device, batch: int | None, precision: str, compiled: bool | str, queries: int) -> Fast:
    """The engine for a job of at most so many queries, which decide about compiling if `compiled` is `auto`."""
    check_compiled(compiled)
    made = engine(device, batch, precision, compiled is True)
    if compiled == AUTO and device.type == "cuda":
        made.compile_if_it_pays(queries)
    return made


class Resources:
    """Keeps the last network that it loaded, so that the next shard of the same cell loads nothing."""

    def __init__(
        self,
        device: str | torch.device | None = None,
        models: Mapping[str, nn.Module] | None = None,
        data: Mapping[str, Dataset] | None = None,
        compiled: bool | str = AUTO,
    ) -> None:
        check_compiled(compiled)
        self.asked, self.device, self.compiled = device, find_device(device), compiled
        self._given: Mapping[str, nn.Module] = {} if models is None else models
        self._sets: Mapping[str, Dataset] = {} if data is None else data
        self._digests: dict[str, str] = {}
        self._data: dict[str, Dataset] = {}
        self._last: tuple[str, nn.Module] | None = None
        self._defended: tuple[str, nn.Module, nn.Module] | None = None
        self._survives: dict[tuple[str | bool, ...], bool] = {}
        self._engine: tuple[tuple[str, int | None, str | None], Fast] | None = None

    def __reduce__(self) -> tuple[type[Resources], tuple[object, ...]]:
        return Resources, (self.asked, dict(self._given), dict(self._sets), self.compiled)

    def on(self, device: str | torch.device | None) -> Resources:
        """The same names on another device."""
        return Resources(device, self._given, self._sets, self.compiled)

    def model(self, text: str) -> nn.Module:
        if self._last is None or self._last[0] != text:
            with torch.inference_mode(False):  # weights made in inference mode never pass gradients on
                net = self._given[text] if text in self._given else self._loaded(text)
                check_base(net)
                if any(t.is_meta for t in (*net.parameters(), *net.buffers())):
                    raise BadInput(f"{text} has no weights: some of it is on the device meta. Load them first.")
                self._last = (text, net.to(self.device))
                self._digests.pop(text, None)  # its file may have changed since it was last loaded
        return self._last[1]

    def check_name(self, text: str) -> None:
        """Refuse a name for a network in hand that belongs to another network, or that would break a table."""
        if text in self._given and (strange := [c for c in text if c in "`|<>" or not c.isprintable()]):
            raise BadInput(
                f"the name of a network in hand is shown in tables; found {text!r}, with {strange[0]!r}. "
                "Use letters, digits and - _ . instead."
            )
        if text in self._given and models.is_registered(text):
            raise BadInput(
                f"a network in hand needs a name of its own; found {text!r}, which begins like one of the library's. "
                "Choose another name, for example mine."
            )

    def _loaded(self, text: str) -> nn.Module:
        try:
            return models.load(text)
        except BadSpec as error:
            if not self._given:
                raise
            names = ", ".join(map(repr, self._given))
            raise BadSpec(f"{error}; networks in hand: {names}") from error

    def defended(self, model: str, defence: str) -> nn.Module:
        """The network with the defence. The same object for the same specs, so that its CUDA graphs are kept.

        A defence that reads a file is made anew each time.
        """
        base = self.model(model)
        kept = self._defended
        if kept is None or kept[0] != defence or kept[1] is not base or defences.files(defence):  # a file may change
            with torch.inference_mode(False):
                kept = self._defended = (defence, base, defences.wrap(defence, base))
        return kept[2]

    def engine(self, precision: str = "float32", batch: int | None = None, queries: int = 0) -> Fast:
        """The engine for this device and the network loaded last, for a job of at most so many queries.

        It is kept, with its CUDA graphs, until another batch, precision or network is asked for. What it learned from
        earlier shards is forgotten, so that results do not depend on them.
        """
        kind = precision, batch, None if self._last is None else self._last[0]
        if self._engine is None or self._engine[0] != kind:
            self._engine = kind, fast_engine(self.device, batch, precision, self.compiled, queries)
        self._engine[1].forget()
        return self._engine[1]

    def survives(self, model: str, defence: str, data: str, precision: str, gradients: bool) -> bool:
        """Whether the classifier can be searched in this precision: tried once, on the first images of the data."""
        key = model, self.weights(model), defence, data, precision, gradients
        if key not in self._survives:
            dataset = self.data(data)
            x = dataset.images(dataset.ids[:TRIED]).to(self.device)
            self._survives[key] = survives(precision, self.defended(model, defence), x, gradients)
        return self._survives[key]

    def weights(self, text: str) -> str:
        """The digest of the network's weights. For a network in hand it is computed each time: they may change."""
        net = self.model(text)
        if text in self._given or text not in self._digests:
            self._digests[text] = models.digest(net)
        return self._digests[text]

    def check(self, cell: Cell) -> None:
        """Check that weights, images and files have the digests that the cell was planned with."""
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
        files = attacks.files_digest(attacks.parse(cell.attack), defences.files(cell.defence))
        if files != cell.files:
            raise BadInput(
                f"the cell was planned with files {cell.files or 'of unknown content'}; attack {cell.attack} and "
                f"defence {cell.defence} here read {files or 'none'}. Use the same file everywhere, or plan again."
            )

    def data(self, text: str) -> Dataset:
        if text not in self._data:
            self._data[text] = self._sets[text] if text in self._sets else data.load(text)
        return self._data[text]
