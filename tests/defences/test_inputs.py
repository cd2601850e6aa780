"""Defences that change the image before the classifier sees it, and the attacks that undo them."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import antiadv
from antiadv.attacks.adaptive.eot import Averaged
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences import wrap
from antiadv.defences.bit_depth import BitDepth
from antiadv.defences.hedge import SHORT, Hedge
from antiadv.defences.jpeg import Jpeg
from tests.toys import four, halfspace, small_net

FLAT = nn.Flatten().eval()


def picture(height: int, width: int, channels: int = 3) -> Tensor:
    """Waves and some noise, in 8 bits, `[1, C, H, W]`."""
    down, across = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    noise = torch.rand((channels, height, width), generator=torch.Generator().manual_seed(0))
    waves = torch.stack([torch.sin(6 * across + k) * torch.cos(5 * down * (k + 1)) for k in range(channels)])
    return ((0.4 + 0.3 * waves + 0.2 * noise)[None].clamp(0, 1) * 255).round() / 255


# ---------------------------------------------------------------- jpeg


def by_pillow(x: Tensor, quality: int, subsample: bool) -> Tensor:
    pixels = (x[0] * 255).round().byte().permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, "JPEG", quality=quality, subsampling=2 if subsample else 0)
    found = np.asarray(Image.open(file)).reshape(pixels.shape)
    return torch.from_numpy(found.copy()).permute(2, 0, 1)[None] / 255


@pytest.mark.parametrize("quality", [10, 50, 75, 95, 100])
@pytest.mark.parametrize("subsample", [True, False])
@pytest.mark.parametrize("shape", [(32, 32, 3), (30, 45, 3), (64, 48, 3), (21, 19, 1)])
def test_jpeg_is_within_a_few_grey_levels_of_pillow(shape: tuple[int, int, int], subsample: bool, quality: int) -> None:
    x = picture(*shape)
    theirs = by_pillow(x, quality, subsample)
    ours = Jpeg(FLAT, quality, subsample).compressed(x)
    apart = (ours - theirs).abs() * 255
    assert apart.max() < 12  # a coefficient on the other side of a tie moves a block by a fraction of its step
    assert apart.mean() < 0.6
    assert (ours - x).abs().mean() * 255 == pytest.approx((theirs - x).abs().mean().item() * 255, abs=0.1)


def test_jpeg_loses_more_at_lower_quality_and_keeps_an_even_image() -> None:
    x = picture(32, 32)
    lost = [(Jpeg(FLAT, q).compressed(x) - x).abs().mean().item() for q in (95, 75, 50, 20, 5)]
    assert lost == sorted(lost)
    assert lost[-1] > 2 * lost[0]
    grey = torch.full((1, 3, 16, 16), 128 / 255)
    assert torch.equal(Jpeg(FLAT).compressed(grey), grey)


@pytest.mark.parametrize("name", ["jpeg", "jpeg:quality=20,subsample=false", "bit_depth"])
def test_an_image_has_the_same_answer_bit_for_bit_in_any_batch(name: str) -> None:
    x = torch.rand((70, 3, 32, 32), generator=torch.Generator().manual_seed(1))
    g = wrap(name, FLAT)
    together = g(x)
    for i in (0, 33, 69):
        assert torch.equal(g(x[i : i + 1])[0], together[i])
    assert torch.equal(g(x[5:38]), together[5:38])


@pytest.mark.parametrize("name", ["jpeg", "jpeg:subsample=false", "bit_depth"])
def test_rounding_has_no_gradient_and_the_dtype_stays(name: str) -> None:
    g = wrap(name, small_net())
    x = picture(16, 16).requires_grad_()
    (slope,) = torch.autograd.grad(g(x).sum(), x)
    assert not slope.any()
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        assert wrap(name, FLAT)(picture(16, 16).to(dtype)).dtype == dtype


def test_jpeg_wants_pictures() -> None:
    for shape in ((2, 4), (2, 2, 8, 8)):
        with pytest.raises(BadInput, match="jpeg"):
            Jpeg(FLAT)(torch.rand(shape))


# ---------------------------------------------------------------- bit_depth


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_bit_depth_keeps_the_nearest_of_its_levels(bits: int) -> None:
    x = torch.linspace(0, 1, 1001)[None]
    z = BitDepth(FLAT, bits)(x)
    assert len(z.unique()) == 2**bits
    assert (z - x).abs().max() <= 0.5 / (2**bits - 1) + 1e-6
    assert (z.min(), z.max()) == (0, 1)
    assert torch.equal(BitDepth(FLAT, bits)(z), z)


# ---------------------------------------------------------------- hedge


def test_hedge_stays_in_its_radius_and_in_the_box_and_makes_a_network_surer() -> None:
    toy = halfspace(math.inf, n=12)
    draws = Draws.of(0, torch.arange(12))
    moved = Hedge(FLAT, steps=0)(toy.x, draws).view_as(toy.x)
    assert 0.9 * 8 / 255 < (moved - toy.x).abs().max() <= 8 / 255 + 1e-6
    bright = Hedge(FLAT, steps=0, radius=0.5)(torch.full((4, 30), 0.9), draws[:4])
    assert 0.4 - 1e-6 <= bright.min() < bright.max() == 1
    g = Hedge(toy.model)
    sure, surer = (s.softmax(1).gather(1, toy.y[:, None]) for s in (toy.model(toy.x), g(toy.x, draws)))
    assert (surer > sure).all()
    w = toy.model.w.abs().sum()  # at the corner of its cube the margin of a linear network grows by ε·|w|₁
    margins = [(s[:, 0] - s[:, 1]).abs() for s in (toy.model(toy.x), g(toy.x, draws))]
    torch.testing.assert_close(margins[1] - margins[0], (8 / 255 * w).expand(12), rtol=1e-3, atol=1e-3)


def test_the_gradient_of_hedge_holds_its_correction_constant() -> None:
    f, x = small_net(), picture(8, 8)
    g, draws = Hedge(f, steps=3), Draws.of(0, torch.arange(1))
    x.requires_grad_()
    (slope,) = torch.autograd.grad(g(x, draws)[0, 3], x)
    z = g._moved(x, draws).requires_grad_()
    (there,) = torch.autograd.grad(f(z)[0, 3], z)
    torch.testing.assert_close(slope, there)
    assert (z - x).abs().max() <= 8 / 255 + 1e-6


def test_the_surrogate_of_hedge_is_shorter_and_its_answers_are_averaged() -> None:
    g = Hedge(small_net(), radius=0.1)
    short = g.surrogate()
    assert isinstance(short, Hedge)
    assert (short.steps, short.step_size, short.radius, short.base) == (SHORT, g.step_size, g.radius, g.base)
    assert short.surrogate() is short
    ledger = Ledger(2)
    oracle = Averaged(Oracle(g, Threat(antiadv.Linf(0.1), Access.INTERNALS), ledger), 16)
    x, y = picture(8, 8).repeat(2, 1, 1, 1), torch.zeros(2, dtype=torch.int64)
    own = oracle.on_own_model(short)
    _, mean = own.gradient(x, ce, y)
    assert ledger.queries.tolist() == [0, 0]
    assert isinstance(own, Averaged)
    _, one = own.inner.gradient(x, ce, y)
    assert mean.shape == one.shape
    assert (mean[0] - mean[1]).norm() < (one[0] - one[1]).norm()  # both rows are the same image with other starts
    assert not isinstance(oracle.on_own_model(g.base), Averaged)


class Pits(nn.Module):
    """Wrong for images whose brightness grew by about 0.08, in a wide pit, or 0.195, in one narrower than a step."""

    def forward(self, x: Tensor) -> Tensor:
        u = (x - 0.5).flatten(1).mean(1)
        wide, narrow = ((1 - (u - place).abs() / width).clamp_min(0) for place, width in ((0.08, 0.07), (0.195, 0.012)))
        return four(4 * (1 + 2 * (u - 0.08).abs() - 2.5 * (wide + narrow)))


def test_transfer_alone_flatters_hedge_and_its_adaptive_attack_does_not() -> None:
    noise = torch.rand((8, 3, 4, 4), generator=torch.Generator().manual_seed(0)) * 0.1
    x = 0.5 + noise - noise.flatten(1).mean(1).view(-1, 1, 1, 1)
    f, y = Pits().eval(), torch.zeros(8, dtype=torch.int64)

    def standing(defence: str, attack: str) -> float:
        return antiadv.attack(wrap(defence, f), x, y, attack, antiadv.Linf(0.2)).robust_accuracy

    assert standing("none", "transfer:attack=fast") == 0
    assert standing("hedge:steps=10", "transfer:attack=fast") > 0.5
    for attack in ("smooth:attack=apgd", "bpda:attack=apgd"):
        assert standing("hedge:steps=10", f"eot:attack=({attack}),samples=4") == 0
    assert standing("hedge:steps=10", "adaptive:steps=20,samples=4") == 0


# ---------------------------------------------------------------- undone


@pytest.mark.parametrize(
    ("defence", "reach"),
    [("jpeg", 1.1), ("jpeg:quality=20", 1.5), ("bit_depth", 1.1), ("bit_depth:bits=2", 1.1), ("hedge:steps=6", 1.1)],
)
def test_adaptive_brings_a_toy_back_to_its_base(defence: str, reach: float) -> None:
    toy = halfspace(math.inf, n=12, shape=(3, 8, 8))
    g, ball = wrap(defence, toy.model), antiadv.Linf(reach * toy.distance)
    assert antiadv.attack(g, toy.x, toy.y, "adaptive:steps=20,samples=4", ball).robust_accuracy == 0
    if g.randomised:
        return
    naive, undone = (antiadv.attack(g, toy.x, toy.y, a, ball).robust_accuracy for a in ("pgd", "bpda:attack=apgd"))
    assert (naive, undone) == (1, 0)


def test_what_cannot_be_asked_for() -> None:
    wrong = ("jpeg:quality=0", "jpeg:quality=101", "jpeg:subsample=2", "bit_depth:bits=0", "bit_depth:bits=9")
    for text in (*wrong, "bit_depth:bits=1.5", "hedge:steps=-1", "hedge:step_size=nan", "hedge:radius=2"):
        with pytest.raises((BadInput, BadSpec)):
            wrap(text, FLAT)
    for value in (True, 1.0, "4"):
        with pytest.raises(BadInput):
            BitDepth(FLAT, value)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            Jpeg(FLAT, value)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            Hedge(FLAT, value)  # type: ignore[arg-type]
