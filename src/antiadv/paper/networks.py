"""The networks in the rows of the paper's tables: which network of the zoo, or of the authors, represents each method.

    of_method(zoo, "cifar10", "trades")  →  [compact:trades, wrn16-4:trades]      the project's own, smallest first
    of_method(official, …)               →  [wrn34-10:trades,path=DIR/…]          the authors' checkpoints, in DIR

A network whose file or images are missing keeps its row. `Network.absent` says what to do about it.

Units: the authors' layer steps after the normalisation, ours in pixels. Two of their networks normalise, ImageNet-Pre
and AT-AWP on CIFAR-100. For these α becomes α·std of each channel (`unit`). On the zoo α is always in pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from antiadv import models
from antiadv.core import spec
from antiadv.core.errors import BadInput, BadSpec

Size = Literal["compact", "larger", "official"]

TITLES = {
    "standard": "nominal",
    "trades": "TRADES",
    "pretraining": "ImageNet-Pre",
    "mart": "MART",
    "hydra": "HYDRA",
    "awp": "AWP",
    "self_ensemble": "RSE",
}
LARGER = {"standard": "resnet18", "trades": "wrn16-4", "awp": "wrn16-4"}  # of CIFAR-10
SUFFIXES = (".pt", ".pth", ".pth.tar", ".safetensors")


@dataclass(frozen=True)
class Network:
    """`model` and `data` are specs. `absent` is empty, or says what is missing and what to do."""

    title: str
    size: Size
    model: str
    data: str
    unit: tuple[float, ...] = (1.0,)
    absent: str = ""

    @property
    def name(self) -> str:
        """The model spec without the path of its file."""
        return models.canonical(self.model)


@dataclass(frozen=True)
class Published:
    """A checkpoint of the authors: its model spec, the name of their file, and α = 1 in pixels."""

    model: str
    file: str
    unit: tuple[float, ...] = (1.0,)


# units: ImageNet-Pre computes 2x − 1, so its std is 0.5; AT-AWP normalises by the std of CIFAR-100
OFFICIAL = {
    ("cifar10", "standard"): Published("resnet18:standard", "resnet18"),
    ("cifar10", "trades"): Published("wrn34-10:trades", "model_cifar_wrn"),
    ("cifar10", "pretraining"): Published("wrn28-10:pretraining", "cifar10wrn_baseline_epoch_4", (0.5,)),
    ("cifar10", "mart"): Published("wrn28-10:mart", "mart"),
    ("cifar10", "hydra"): Published("wrn28-10:hydra", "hydra"),
    ("cifar10", "awp"): Published("wrn28-10:awp", "RST-AWP_cifar10_linf_wrn28-10"),
    ("cifar100", "pretraining"): Published(
        "wrn28-10:pretraining,data=cifar100", "cifar100wrn_baseline_epoch_4", (0.5,)
    ),
    ("cifar100", "awp"): Published("wrn34-10:awp", "AT-AWP_cifar100_linf_wrn34-10", (0.26733, 0.25644, 0.27615)),
}


@dataclass(frozen=True)
class Source:
    """Where networks and images come from: `zoo` or `official:DIR`, and the folder of imported data sets."""

    networks: str = "zoo"
    directory: str | None = None

    @property
    def official(self) -> Path | None:
        name, _, folder = self.networks.partition(":")
        if name == "zoo" and not folder:
            return None
        if name != "official" or not folder:
            raise BadSpec(
                f"networks must be zoo, or official:DIR for the authors' checkpoints; found {self.networks!r}."
            )
        if not Path(folder).expanduser().is_dir():
            raise BadInput(f"{folder} is not a folder. Give official:DIR, where DIR holds the authors' checkpoints.")
        return Path(folder).expanduser()

    def data(self, name: str) -> str:
        """The spec of a data set, with the folder if one was given."""
        return name if self.directory is None else f"{name}:dir={spec.show(self.directory)}"


def of_method(source: Source, data: str, method: str) -> list[Network]:
    """The networks that represent a training method, one of each size."""
    folder, where, title = source.official, source.data(data), TITLES[method]
    if folder is not None:
        return [_official(folder, data, method, where)]
    cifar100 = ",data=cifar100" if data == "cifar100" else ""
    networks = [_of_zoo(title, "compact", f"compact:{method}{cifar100}", where)]
    if data == "cifar10" and method in LARGER:
        networks.append(_of_zoo(title, "larger", f"{LARGER[method]}:{method}", where))
    return networks


def compact(source: Source, data: str, method: str) -> Network:
    """The smallest network of a method, for tables that show one network in many settings."""
    return of_method(source, data, method)[0]


def imagenet(source: Source) -> Network:
    """ResNet-50 on ImageNet. Its weights are not in the package; they are read from the official or the data folder."""
    folder = source.official or (None if source.directory is None else Path(source.directory).expanduser())
    where = source.data("nips2017")
    for variant, stem in (("v1", "resnet50-v1"), ("v1", "resnet50_v1"), ("v1.5", "resnet50")):
        if folder is not None and (path := _file(folder, stem)) is not None:
            return Network("nominal", "larger", f"resnet50:{variant},path={spec.show(str(path))}", where)
    absent = (
        f"there is no ResNet-50 in {folder or 'a data directory'}. Put resnet50.pt (torchvision's layout) or "
        "resnet50-v1.pt (stride on the first convolution) there, and name the folder with --dir."
    )
    return Network("nominal", "larger", "resnet50:v1", where, absent=absent)


def _of_zoo(title: str, size: Size, model: str, data: str) -> Network:
    available = {models.canonical(card.spec) for card in models.cards()}
    absent = (
        "" if models.canonical(model) in available else f"{model} is not in the zoo yet. Train it as docs/zoo.md says."
    )
    return Network(title, size, model, data, absent=absent)


def _official(folder: Path, data: str, method: str, where: str) -> Network:
    title = TITLES[method]
    known = OFFICIAL.get((data, method))
    if known is None:
        return Network(title, "official", f"compact:{method}", where, absent=f"no checkpoint of {title} is published.")
    own = f"{data}-{method}"
    path = _file(folder, own) or _file(folder, known.file)
    if path is None:
        absent = f"{folder} holds neither {own}.pt nor {known.file}.pt. Put the authors' checkpoint of {title} there."
        return Network(title, "official", known.model, where, known.unit, absent)
    return Network(title, "official", f"{known.model},path={spec.show(str(path))}", where, known.unit)


def _file(folder: Path, stem: str) -> Path | None:
    return next((folder / (stem + suffix) for suffix in SUFFIXES if (folder / (stem + suffix)).is_file()), None)
