"""What is served: a bundle, or a network and a defence by name. Small, so that it can be sent to other machines.

    Source(bundle=Path("my-bundle")).load(batch)                        →  Loaded(backends, name, version, …)
    Source(model="compact:trades", defence="anti_adversary").load(batch)

`load` may be called again for the files of today: that is what a reload does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any  # what a card holds

from antiadv.core.errors import BadInput
from antiadv.serving.backend import Backend
from antiadv.serving.limits import check_batch

MOST_THREADS = 1024


@dataclass(frozen=True)
class Loaded:
    """Backends of the same classifier, one for each device, and what describes it."""

    backends: Sequence[Backend]
    name: str
    version: str = "1"
    class_names: Sequence[str] | None = None
    card: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """See the head of this file. `devices` has one backend each; `threads` is for the passes of a CPU."""

    bundle: Path | None = None
    model: str = ""
    defence: str = "none"
    shape: tuple[int, ...] = (3, 32, 32)
    backend: str = "auto"  # or eager, graph
    devices: tuple[str, ...] = ()
    threads: int | None = None
    name: str = ""
    trust: bool = False  # of a bundle whose format can run code

    def __post_init__(self) -> None:
        if (self.bundle is None) == (not self.model):
            raise BadInput("serve needs either a bundle or --model; give one of them.")
        if self.backend not in ("auto", "eager", "graph"):
            raise BadInput(f"a backend is auto, eager or graph; found {self.backend!r}.")
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise BadInput(f"threads are 1 to {MOST_THREADS:,}; found {self.threads}. Give the number of cores.")
        if self.bundle is not None and (self.devices or self.backend != "auto"):
            raise BadInput("a bundle brings its own backend; --device and --backend are for --model.")

    def resolved(self) -> Source:
        """The same with an absolute path: another process may have another working folder."""
        return self if self.bundle is None else replace(self, bundle=self.bundle.expanduser().resolve())

    def load(self, batch: int) -> Loaded:
        """Load what is named now, for batches of at most this many rows."""
        if self.bundle is None:
            check_batch(batch, self.shape)
        return self._from_names(batch) if self.bundle is None else self._from_bundle(self.bundle, batch)

    def _from_bundle(self, path: Path, batch: int) -> Loaded:
        from antiadv.serving.bundle import open_bundle

        bundle = open_bundle(path, trust=self.trust)
        check_batch(batch, bundle.shape)
        backend = bundle.unchecked(threads=self.threads)
        version = _short_digest(bundle.card)
        return Loaded([backend], self.name or path.resolve().name, version, bundle.class_names or None, bundle.card)

    def _from_names(self, batch: int) -> Loaded:
        import torch

        from antiadv.evaluation.resources import Resources, find_device
        from antiadv.models import is_remote
        from antiadv.serving.torch_backend import TorchBackend

        if is_remote(self.model):
            raise BadInput(f"{self.model} is served already; give a network or a bundle, or ask that endpoint.")
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        devices = [find_device(name) for name in self.devices or (None,)]
        network = Resources("cpu").defended(self.model, self.defence)
        backends = []
        for device in devices:
            captured = device.type == "cuda" if self.backend == "auto" else self.backend == "graph"
            backends.append(TorchBackend(network, self.shape, device, captured, batch))
        card: dict[str, Any] = {"model": self.model, "defence": self.defence}
        return Loaded(backends, self.name or self.model.partition(":")[0].partition(",")[0], card=card)


def _short_digest(card: Mapping[str, Any]) -> str:
    """The version of a bundle: the first digits of the digest of its model file."""
    (facts,) = card["files"].values()
    return str(facts["digest"]).partition(":")[2][:12]
