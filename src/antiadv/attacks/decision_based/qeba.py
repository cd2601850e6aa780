"""QEBA: HopSkipJump with noise in a subspace of few dimensions (Li et al., CVPR 2020, arXiv:2005.14137).

    as `hop_skip_jump`, with        u_i = bᵢ / |bᵢ|₂,  bᵢ = Wᵀn, n Gaussian in k « d dimensions            (1)
                                    θ = γ/√d (L2) or γ/d (Linf), so that δ = γ·r;   B = B₀√j ≤ B_max       (2)
    W   resize    n has C × H/f × W/f values, enlarged bilinearly
        dct       the same number of 2-D cosines, those of lowest frequency, in each channel
        pca       the rows of a basis `[k, d]` in a file: the main directions of another network's gradients

Notation:   f → `factor`, B₀ → `probes`, B_max → `max_probes`, γ → `gamma`. `path` names a .safetensors file with a
            tensor `basis`. `write_basis` makes one from the gradients of any network.
Cost:       as HopSkipJump: one query for x, the start, then 30 a step and log₂ 1/θ to go back (13 in L2 on CIFAR), and
            one for the step and one per halving of it.
Departures: as HopSkipJump. The authors rotate the cosines of each channel at random, which changes nothing for Gaussian
            n. The default is their schedule for CIFAR (150 steps of 30 probes, f = 2); theirs for ImageNet is
            `steps=200,probes=100,max_probes=100,factor=4`. The start is noise; theirs is an image of another class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.attacks._search.nearest import Nearest
from antiadv.attacks.decision_based.hop_skip_jump import Noise, Walk
from antiadv.attacks.score_based.simba import cosines
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least


@dataclass(frozen=True)
class Qeba:
    """The authors' setting for CIFAR, in the resized subspace."""

    basis: Literal["resize", "dct", "pca"] = "resize"
    factor: float = 2.0
    path: str | None = None
    steps: int = 150
    probes: int = 30
    max_probes: int = 30
    gamma: float = 0.01
    tries: int = 100

    access: ClassVar[Access] = Access.LABELS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = True
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps, tries=self.tries, gamma=self.gamma)
        at_least(1, factor=self.factor, probes=self.probes, max_probes=self.max_probes)
        if (self.basis == "pca") != (self.path is not None):
            raise BadSpec(
                f"basis=pca needs a path, and no other basis takes one; found basis={self.basis}, "
                f"path={self.path}. Write qeba:basis=pca,path=gradients.safetensors."
            )

    @property
    def files(self) -> tuple[str, ...]:
        """The files it reads. A cell's key has the digest of their content."""
        return () if self.path is None else (self.path,)

    def least_queries(self, threat: Threat) -> int:
        return 2  # the first query is x itself

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        if x.ndim != 4:
            raise BadInput(f"qeba needs images [N, C, H, W]; found shape {tuple(x.shape)}. Reshape them.")
        d = max(1, math.prod(x.shape[1:]))
        theta = self.gamma / (d if ball.p == math.inf else math.sqrt(d))  # (2)
        walk = Walk(self.steps, self.probes, self.max_probes, self.tries, theta)
        return walk(Nearest(oracle, x, y, ball), self.noise(x), draws)

    def noise(self, x: Tensor) -> Noise:
        """(1): a function from M keys to M images of noise like x, in the subspace."""
        channels, height, width = x.shape[1:]
        h, w = max(1, int(height / self.factor)), max(1, int(width / self.factor))

        def resize(keys: Draws) -> Tensor:
            return F.interpolate(keys.normal(channels, h, w).to(x), size=(height, width), mode="bilinear")

        def dct(keys: Draws) -> Tensor:
            down, across = cosines(height, x.dtype, x.device)[:h], cosines(width, x.dtype, x.device)[:w]
            return down.T @ keys.normal(channels, h, w).to(x) @ across

        if self.path is None:
            return resize if self.basis == "resize" else dct
        basis = read_basis(self.path, math.prod(x.shape[1:])).to(x)
        return lambda keys: (keys.normal(len(basis)).to(x) @ basis).view(-1, *x.shape[1:])


def read_basis(path: str, d: int) -> Tensor:
    """The tensor `basis` `[k, d]` of a .safetensors file."""
    if not Path(path).is_file():
        raise BadInput(
            f"path={path} must name a .safetensors file with a basis; found no file. Make one with write_basis."
        )
    basis = load_file(path).get("basis")
    if basis is None or basis.ndim != 2 or basis.shape[1] != d or not len(basis):
        shape = None if basis is None else tuple(basis.shape)
        raise BadInput(f"{path} must hold a tensor `basis` of shape [k, {d}]; found {shape}. Make it with write_basis.")
    return basis


def write_basis(path: str | Path, surrogate: nn.Module, x: Tensor, y: Tensor, k: int, batch: int = 256) -> None:
    """Write a file for `basis=pca`: the k main directions of ∇CE(f(x), y), for a surrogate f."""
    parts = zip(x.split(batch), y.split(batch), strict=True)
    basis = pca_basis(torch.cat([_gradient(surrogate, z, labels) for z, labels in parts]), k)
    save_file({"basis": basis.float().cpu()}, path)


def _gradient(f: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.enable_grad():
        z = x.detach().clone().requires_grad_()
        (g,) = torch.autograd.grad(F.cross_entropy(f(z), y, reduction="sum"), z)
    return g


def pca_basis(g: Tensor, k: int) -> Tensor:
    """The k main directions of these gradients `[n, …]`, each scaled to length 1: orthonormal rows `[k, d]`.

    >>> g = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 2.0], [1.0, 0.0, 1.0]])
    >>> basis = pca_basis(g, 2)
    >>> torch.allclose(g @ basis.T @ basis, g, atol=1e-6)
    True
    """
    flat = F.normalize(g.flatten(1), dim=1)
    if not 1 <= k <= min(flat.shape):
        raise BadInput(f"k must be 1 … {min(flat.shape)} for these {len(flat)} gradients; found {k}. Use a smaller k.")
    basis: Tensor = torch.linalg.svd(flat.double(), full_matrices=False).Vh[:k]
    return basis.to(g.dtype).contiguous()
