"""Robust feature inference, RFI (Singh et al., arXiv:2307.11672): the last layer keeps only its main directions.

    Σ  = E h hᵀ = U diag(λ) Uᵀ             second moment of the penultimate features h on clean images         (1)
    r_c(k) = λ_k ⟨w_c, u_k⟩²               how much direction k contributes to the score of class c            (2)
    V  = the u_k that are among the `keep` best of some class;   W ← W V Vᵀ                                    (3)

An edit of the weights, made once: no random numbers and no cost at test time. Gradient attacks run on it directly.

Notation:   Σ → the tensor `moment` in the file `path`, which `write_moment` makes from a network and images; `keep` is
            the number of classes if it is none.
Cost:       one forward pass of f. `base` is a copy of the network with the new weights.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import ClassVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from antiadv.core.defence import TRANSFERS, Defence
from antiadv.core.errors import BadInput, first_line
from antiadv.core.validation import check_base, check_images, is_count


class RobustFeatures(Defence):
    """The network `base` with an edited last layer. `path` names a .safetensors file of `write_moment`."""

    files: ClassVar[tuple[str, ...]] = ("path",)
    adaptive: ClassVar[tuple[str, ...]] = TRANSFERS  # its base is the edited network, so this attacks it directly

    def __init__(self, base: nn.Module, path: str, keep: int | None = None) -> None:
        check_base(base)
        if keep is not None and not is_count(keep, 1):
            raise BadInput(f"keep, the directions of each class, must be an integer ≥ 1; found {keep!r}. Leave it out.")
        edited = copy.deepcopy(base)
        layer = last_layer(edited)
        moment = _read_moment(path, layer.weight)
        with torch.no_grad():
            layer.weight.copy_(edit(layer.weight, moment, len(layer.weight) if keep is None else keep))
        super().__init__(edited)
        self.path, self.keep = path, keep

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(x)


def edit(weight: Tensor, moment: Tensor, keep: int) -> Tensor:
    """(2) and (3): the weights `[K, d]` projected on the directions that matter, computed in float64.

    >>> moment = torch.diag(torch.tensor([9.0, 4.0, 1.0]))
    >>> edit(torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]), moment, keep=1)
    tensor([[1., 1., 0.],
            [0., 1., 0.]])
    """
    w = weight.detach().cpu().double()
    values, u = torch.linalg.eigh(moment.double())
    rank = values.clamp_min(0) * (w @ u).square()
    kept = rank.topk(min(keep, rank.shape[1]), dim=1).indices.unique()
    v = u[:, kept]
    edited: Tensor = (w @ v @ v.T).to(weight)
    return edited


def write_moment(path: str | Path, base: nn.Module, images: Tensor, batch: int = 256) -> None:
    """Write the second moment of the penultimate features of `base` on these images: the file for `path`."""
    check_base(base)
    check_images(images)
    if not len(images):
        raise BadInput("the second moment needs images; found none. Give a thousand or more, not those of the test.")
    layer = last_layer(base)
    moment = torch.zeros(layer.in_features, layer.in_features, dtype=torch.float64)
    for x in images.split(batch):
        h = _features(base, layer, x)
        moment += h.T @ h / len(images)
    save_file({"moment": moment.float(), "weight": layer.weight.detach().cpu().contiguous()}, path)


def last_layer(base: nn.Module) -> nn.Linear:
    layers = [m for m in base.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise BadInput("robust_features edits the last linear layer; found none in this network. Use another defence.")
    return layers[-1]


def _features(base: nn.Module, layer: nn.Linear, x: Tensor) -> Tensor:
    """The input of the layer, `[N, d]` on the host. The layer must give the scores."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = layer.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    try:
        with torch.no_grad():
            s = base(x.clone())
    finally:
        hook.remove()
    if len(seen) != 1 or seen[0][0].ndim != 2 or not torch.equal(seen[0][1], s):
        raise BadInput(
            "robust_features needs a network that ends in a linear layer; the last one in this network does not give "
            "its scores. Use another defence."
        )
    return seen[0][0].cpu().double()


def _read_moment(path: str, weight: Tensor) -> Tensor:
    """The second moment in a file, checked: it must belong to a network with these weights in its last layer."""
    if not Path(path).is_file():
        raise BadInput(f"path={path} must name a file of write_moment; found no file. Make it from this network.")
    try:
        held = load_file(path)
    except (SafetensorError, OSError) as error:
        raise BadInput(f"{path} is not a .safetensors file ({first_line(error)}). Make it with write_moment.") from None
    moment, before = held.get("moment"), held.get("weight")
    d = weight.shape[1]
    if moment is None or before is None or moment.shape != (d, d) or not torch.isfinite(moment).all():
        shape = None if moment is None else tuple(moment.shape)
        raise BadInput(
            f"{path} must hold tensors `weight` and `moment` [{d}, {d}], all finite; found {shape}. "
            "Make it from this network with write_moment."
        )
    if before.shape != weight.shape or not torch.equal(before.to(weight), weight):
        raise BadInput(f"{path} was made from another network: its last layer differs. Make it from this one.")
    return moment
