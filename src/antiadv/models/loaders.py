"""One loader for each name in `MODELS`. The parameters of a loader are the options of its spec.

    compact:trades                         comes with the package, in models/zoo
    resnet18:standard, wrn16-4:awp         in the weights/ folder of the repository, or path=FILE
    wrn28-10:mart,path=FILE                a file of the authors; we may not distribute these
    file:OUT.safetensors                   a file from `antiadv train`, described by the card next to it

The authors' networks: MART, HYDRA and RST-AWP (`awp`) are WideResNet-28-10 without normalisation. ImageNet-Pre
(`pretraining`) is a WideResNet-28-10 that takes 2x − 1. TRADES is a WideResNet-34-10; AT-AWP on CIFAR-100 is one with
normalisation.
"""

from __future__ import annotations

import hashlib
import warnings
from importlib import resources
from pathlib import Path
from typing import Literal

from torch import nn

from antiadv.core import spec
from antiadv.core.errors import BadInput
from antiadv.models import checkpoints
from antiadv.models.card import Card, read_card
from antiadv.models.resnet import PreActResNet18, ResNet18, ResNet50
from antiadv.models.wide_resnet import WideResNet

ARCHITECTURES: spec.Registry = {
    "resnet18": ResNet18,
    "preact18": PreActResNet18,
    "wrn": WideResNet,
    "resnet50": ResNet50,
}

Data = Literal["cifar10", "cifar100"]


def build(text: str) -> nn.Module:
    """Build an untrained network in training mode: `build("wrn:depth=16,widen=4")`."""
    network: nn.Module = spec.parse(text, ARCHITECTURES, "architecture")
    return network


# ---------------------------------------------------------------- networks of this project


def compact(variant: str = "standard", data: Data = "cifar10") -> nn.Module:
    """Small networks that come with the package."""
    return _from_folders(f"compact-{data}-", variant, [zoo_folder()], "the package")


def resnet18(variant: str = "standard", path: str | None = None, data: Data = "cifar10") -> nn.Module:
    """CIFAR ResNet-18."""
    return _ours("resnet18", variant, path, data, f"resnet18:{_head(data)}")


def wrn16_4(variant: str = "trades", path: str | None = None, data: Data = "cifar10") -> nn.Module:
    """WideResNet-16-4."""
    return _ours("wrn16-4", variant, path, data, f"wrn:depth=16,widen=4,{_head(data)}")


def file(path: str, architecture: str | None = None) -> nn.Module:
    """Any file of weights. The card next to it names its architecture; else give architecture=(wrn:16,4)."""
    return _from_file(Path(path).expanduser(), architecture)


def _ours(name: str, variant: str, path: str | None, data: Data, architecture: str) -> nn.Module:
    if path is None:
        return _from_folders(f"{name}-{data}-", variant, weights_folders(), "the weights/ folder, or give path=FILE")
    at = Path(path).expanduser()
    return _from_file(at, None if _card_of(at).is_file() else architecture)


def _head(data: Data) -> str:
    return f"classes={100 if data == 'cifar100' else 10}"


def _from_folders(stem: str, variant: str, folders: list[Path], place: str) -> nn.Module:
    for folder in folders:
        if (folder / f"{stem}{variant}.safetensors").is_file():
            return _from_file(folder / f"{stem}{variant}.safetensors", None)
    known = sorted({p.stem.removeprefix(stem) for folder in folders for p in folder.glob(f"{stem}*.safetensors")})
    raise BadInput(f"there is no {stem}{variant} in {place}; known there: {', '.join(known) or 'none'}")


def _from_file(path: Path, architecture: str | None) -> nn.Module:
    """Load weights into the network that the card describes. With a card, both digests must match it."""
    if not path.is_file():
        raise BadInput(f"{path} is not a file; give the path of a checkpoint")
    card = read_card(_card_of(path)) if _card_of(path).is_file() else None
    if card is not None and file_digest(path) != card.file["digest"]:
        raise BadInput(
            f"{path} is not the file its card describes: its digest is {file_digest(path)}, "
            f"expected {card.file['digest']}; get both again"
        )
    if card is None and architecture is None:
        raise BadInput(
            f"{path} has no card {_card_of(path).name}; give its architecture, such as architecture=(resnet18)"
        )
    network = build(architecture or card.architecture)  # type: ignore[union-attr]  # one of the two is given
    checkpoints.fill(network, checkpoints.plain(checkpoints.read(path)), str(path))
    if card is None and isinstance(network, ResNet50) and "normalise" not in str(architecture):
        warnings.warn(
            f"{path} is used without normalisation, but most networks of this kind were trained with it. Write "
            "resnet50:path=FILE for one of torchvision, or say normalise=none in the architecture.",
            stacklevel=2,
        )
    if card is not None and architecture is None and card.weights not in (None, checkpoints.digest(network)):
        raise BadInput(
            f"the network in {path} is not the one its card describes: its digest is "
            f"{checkpoints.digest(network)}, expected {card.weights}; get both again"
        )
    return network


def file_digest(path: Path) -> str:
    with path.open("rb") as content:
        return "sha256:" + hashlib.file_digest(content, "sha256").hexdigest()


def zoo_folder() -> Path:
    return Path(str(resources.files("antiadv.models"))) / "zoo"


def weights_folders() -> list[Path]:
    """Return weights/ in the current folder, and that of the repository when running from a source checkout."""
    return [Path.cwd() / "weights", Path(__file__).parents[3] / "weights"]


def find_cards() -> list[Card]:
    """Return the cards of all networks at hand, those of the package first."""
    folders = dict.fromkeys(folder.resolve() for folder in [zoo_folder(), *weights_folders()])
    return [read_card(path) for folder in folders for path in sorted(folder.glob("*.json")) if _has_weights(path)]


def _has_weights(card: Path) -> bool:
    return card.with_suffix(".safetensors").is_file()


def _card_of(path: Path) -> Path:
    return path.with_suffix(".json")


# ---------------------------------------------------------------- networks of the authors


def wrn28_10(
    variant: Literal["mart", "hydra", "awp", "pretraining"], path: str | None = None, data: Data = "cifar10"
) -> nn.Module:
    """WideResNet-28-10: MART, HYDRA, RST-AWP and, for both data sets, ImageNet-Pre."""
    if data == "cifar100" and variant != "pretraining":
        raise BadInput(f"wrn28-10:{variant} is published for cifar10 only; use pretraining for cifar100")
    normalise = "half" if variant == "pretraining" else "none"
    return _official(f"wrn:depth=28,widen=10,normalise={normalise},{_head(data)}", path, f"wrn28-10:{variant}")


def wrn34_10(
    variant: Literal["trades", "awp"], path: str | None = None, data: Literal["cifar10", "cifar100"] | None = None
) -> nn.Module:
    """WideResNet-34-10: TRADES for CIFAR-10, AT-AWP for CIFAR-100."""
    published: Data = "cifar10" if variant == "trades" else "cifar100"
    if data not in (None, published):
        raise BadInput(f"wrn34-10:{variant} is published for {published} only; asked for {data}")
    normalise = "none" if variant == "trades" else "cifar100"
    return _official(f"wrn:depth=34,widen=10,normalise={normalise},{_head(published)}", path, f"wrn34-10:{variant}")


def resnet50(variant: Literal["v1", "v1.5"] = "v1.5", path: str | None = None) -> nn.Module:
    """ResNet-50 for ImageNet: torchvision's (v1.5), or with the stride on the first convolution of a block (v1)."""
    normalise = "imagenet" if variant == "v1.5" else "resnet50-v1"
    return _official(f"resnet50:{variant},normalise={normalise}", path, f"resnet50:{variant}")


def _official(architecture: str, path: str | None, name: str) -> nn.Module:
    if path is None:
        raise BadInput(
            f"{name} does not come with this library; get the file from its authors and write {name},path=FILE"
        )
    network = build(architecture)
    checkpoints.fill(network, checkpoints.plain(checkpoints.read(Path(path).expanduser())), path)
    return network
