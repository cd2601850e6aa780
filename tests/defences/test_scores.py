"""Defences that change scores: what they answer, which labels they keep, and the attacks that undo them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import attacks
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.defences import full_text, wrap
from antiadv.defences.mirrored_scores import LEAST, MirroredScores
from antiadv.defences.scaled_scores import ScaledScores
from antiadv.defences.score_noise import ScoreNoise
from antiadv.defences.small_noise import SmallNoise
from tests.toys import halfspace

N = 400


class Pixels(nn.Module):
    """Ten pixels are ten scores from −6 to 6."""

    def forward(self, x: Tensor) -> Tensor:
        return 12 * (x.flatten(1) - 0.5)


def images(n: int = N) -> Tensor:
    return torch.rand((n, 10, 1, 1), generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def margin_of(s: Tensor) -> Tensor:
    two = s.topk(2, dim=1).values
    return two[:, 0] - two[:, 1]


def confidence_of(s: Tensor) -> Tensor:
    return s.softmax(1).amax(1)


def possible(t: Tensor, p: Tensor, classes: int) -> Tensor:
    """Whether scores with this margin and confidence exist: between two and all classes share what is left."""
    odds = (p / (1 - p)).log()
    return (t > odds + 0.05) & (t < odds + math.log(classes - 1) - 0.05)


# ---------------------------------------------------------------- mirrored scores


@pytest.mark.parametrize("spec", ["tau=1", "tau=4", "tau=4,alpha=0.5", "tau=2,kind=sine", "tau=1,exact=true"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_label_changes(spec: str, dtype: torch.dtype) -> None:
    x = images().to(dtype)
    x[:20, 1] = x[:20, 0]  # ties
    x[20:40, 1:] = x[20:40, :1] - 1e-7
    f = Pixels().eval()
    assert torch.equal(wrap(f"mirrored_scores:{spec}", f)(x).argmax(1), f(x).argmax(1))


def test_the_margin_is_mirrored_inside_its_interval() -> None:
    g = MirroredScores(Pixels().eval(), tau=6)
    m = torch.tensor([1.0, 5.0, 3.0, 7.0, 0.0, 5.9999])
    assert torch.allclose(g.target(m), torch.tensor([5.0, 1.0, 3.0, 11.0, 6.0, 6 * LEAST]))
    sine = MirroredScores(Pixels().eval(), tau=6, kind="sine")
    assert torch.allclose(sine.target(torch.tensor([3.0, 4.5, 1.5])), torch.tensor([3.0, 0.3, 5.7]))


@pytest.mark.parametrize("tau", [1.0, 4.0])
def test_the_margin_is_the_target_the_order_stays_and_the_confidence_where_it_can(tau: float) -> None:
    f = Pixels().eval()
    s, a = f(images()), MirroredScores(f, tau=tau)(images())
    t, p = MirroredScores(f, tau=tau).target(margin_of(s)), confidence_of(s)
    assert torch.allclose(margin_of(a), t)
    fits = possible(t, p, 10)
    compressed = a.topk(3, dim=1).values.diff(dim=1)[:, 1].abs() < 1.01 * LEAST * tau  # the third stays third
    assert (fits & ~compressed).sum() > 20
    assert torch.allclose(confidence_of(a)[fits & ~compressed], p[fits & ~compressed])
    assert torch.equal(a.argsort(1), s.argsort(1))


def test_with_two_classes_only_the_margin_is_left() -> None:
    x = images()[:, :2]
    f = Pixels().eval()
    x.requires_grad_()
    a = MirroredScores(f, tau=1)(x)
    assert torch.allclose(margin_of(a), MirroredScores(f, tau=1).target(margin_of(f(x))))
    (slope,) = torch.autograd.grad(a[:, 0].sum(), x)
    assert torch.isfinite(slope).all()


def test_the_published_optimisation_agrees_where_margin_and_confidence_can_both_be_had() -> None:
    """Margins within Adam's last step, 0.1, and confidences within 0.05."""
    f, x = Pixels().eval(), images()
    s, closed, exact = f(x), MirroredScores(f, tau=1)(x), MirroredScores(f, tau=1, exact=True)(x)
    fits = (margin_of(closed) - MirroredScores(f, tau=1).target(margin_of(s))).abs() < 1e-6
    fits &= (confidence_of(closed) - confidence_of(s)).abs() < 1e-6
    assert fits.sum() > 0.3 * N
    assert (margin_of(closed) - margin_of(exact)).abs()[fits].max() <= 0.1
    assert (confidence_of(closed) - confidence_of(exact)).abs()[fits].max() <= 0.05


def test_the_published_optimisation_is_that_of_autograd_and_adam() -> None:
    """The same with gradients from autograd."""
    f, x = Pixels().eval(), images(50)
    s = f(x)
    t, p, label = MirroredScores(f, tau=2).target(margin_of(s)), confidence_of(s), s.argmax(1, keepdim=True)
    z, mean, square = s.clone(), torch.zeros_like(s), torch.zeros_like(s)
    for i in range(1, 101):
        z.requires_grad_()
        own = z.softmax(1).gather(1, label).squeeze(1)
        (g,) = torch.autograd.grad(((margin_of(z) - t).abs() + 5 * (own - p).abs()).sum(), z)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g**2
        z = z.detach() - 0.1 * (mean / (1 - 0.9**i)) / ((square / (1 - 0.999**i)).sqrt() + 1e-8)
    a = MirroredScores(f, tau=2, exact=True)(x)
    same = a.argmax(1) == z.argmax(1)
    assert same.double().mean() > 0.9
    assert torch.allclose(a[same], z[same], atol=1e-6)
    with torch.inference_mode():
        alone = torch.cat([MirroredScores(f, tau=2, exact=True)(v[None]) for v in x])
    assert torch.allclose(alone, a)


# ---------------------------------------------------------------- random scores


def test_scales_are_uniform_and_shared_by_the_scores_of_an_image() -> None:
    f, x = Pixels().eval(), images(4000).float()
    c = ScaledScores(f)(x, Draws.of(0, torch.arange(len(x)))) / f(x)
    assert (c.std(1) < 1e-3).all()
    assert c.mean().item() == pytest.approx(5.25, abs=0.2)
    assert 0.499 < c.min() < 0.6
    assert 9.9 < c.max() < 10.01


def test_a_scale_free_search_does_not_see_the_scale() -> None:
    """Queries, successes and images are those of the bare classifier. A search by margin is led astray."""
    toy = halfspace(math.inf, n=12)
    x, ball = toy.x.double(), antiadv.Linf(1.25 * toy.distance)
    bare, scaled, astray = (
        antiadv.attack(wrap(d, toy.model), x, toy.y, a, ball, queries=300)
        for d, a in (("none", "square:loss=dlr"), ("scaled_scores", "square:loss=dlr"), ("scaled_scores", "square"))
    )
    assert [r.queries for r in bare.records] == [r.queries for r in scaled.records]
    assert torch.equal(bare.images, scaled.images)
    assert bare.robust_accuracy < astray.robust_accuracy


def test_score_noise_has_its_std_and_stops_at_the_gate() -> None:
    f, x = Pixels().eval(), images(2000).float()
    s = f(x)
    noise = ScoreNoise(f, std=0.5)(x) - s
    assert noise.std().item() == pytest.approx(0.5, rel=0.05)
    assert noise.mean().item() == pytest.approx(0, abs=0.02)
    gated = ScoreNoise(f, std=0.5, gate=0.6)(x)
    sure = confidence_of(s) > 0.6
    assert torch.equal(gated[sure], s[sure])
    assert (gated[~sure] != s[~sure]).any(1).all()


def test_small_noise_with_a_gate_leaves_sure_samples_alone() -> None:
    f, x = Pixels().eval(), images(100).float()
    s, draws = f(x), Draws.of(0, torch.arange(100))
    sure = confidence_of(s) > 0.6
    assert 10 < sure.sum() < 90
    always, gated = (SmallNoise(f, std=0.1, gate=gate)(x, draws) for gate in (1, 0.6))
    assert torch.equal(gated[sure], s[sure])
    assert torch.equal(gated[~sure], always[~sure])


# ---------------------------------------------------------------- undone

RIVALS = [
    ("mirrored_scores:tau=6", 1.1),
    ("scaled_scores", 1.1),
    ("score_noise:std=2", 1.5),  # room to go beyond the boundary, where chance no longer decides
    ("score_noise:std=2,gate=0.99", 1.5),
    ("small_noise:std=0.1,gate=0.99", 1.1),
]


@pytest.mark.parametrize(("defence", "reach"), RIVALS)
def test_adaptive_brings_a_toy_back_to_its_base(defence: str, reach: float) -> None:
    toy = halfspace(math.inf, n=12)
    ball = antiadv.Linf(reach * toy.distance)

    def standing(d: str, attack: str, queries: int | None = None) -> float:
        return antiadv.attack(wrap(d, toy.model), toy.x, toy.y, attack, ball, queries=queries).robust_accuracy

    assert standing("none", "square", 300) == 0
    assert standing(defence, "square", 300) > 0, "else nothing is tested here"
    assert standing(defence, "adaptive:steps=20") == 0


@pytest.mark.parametrize(
    ("defence", "attack"),
    [
        ("mirrored_scores:tau=6", "rays"),
        ("mirrored_scores:tau=20", "square:accept=both"),
        ("scaled_scores", "square:loss=dlr"),
        ("score_noise:std=1", "eot:attack=square,samples=10"),
        ("small_noise:std=0.1,gate=0.99", "eot:attack=square,samples=10"),
    ],
)
def test_each_attack_that_undoes_a_defence_breaks_more_than_square(defence: str, attack: str) -> None:
    toy = halfspace(math.inf, n=12)
    g, ball = wrap(defence, toy.model), antiadv.Linf(1.1 * toy.distance)
    naive, undone = (
        antiadv.attack(g, toy.x, toy.y, a, ball, queries=4000).robust_accuracy for a in ("square:steps=300", attack)
    )
    assert undone < naive


def test_what_cannot_be_asked_for() -> None:
    f = Pixels().eval()
    for text in ("tau=0", "tau=-1", "tau=nan", "alpha=2", "alpha=-1"):
        with pytest.raises((BadInput, BadSpec)):
            wrap(f"mirrored_scores:{text}", f)
    with pytest.raises(BadInput):
        MirroredScores(f, kind="cosine")  # type: ignore[arg-type]
    for text in ("scaled_scores:low=0", "scaled_scores:low=3,high=2", "score_noise:std=-1", "score_noise:gate=0"):
        with pytest.raises(BadInput):
            wrap(text, f)
    for gate in (0, 1.5, -1, math.nan, True, "0.5"):
        with pytest.raises(BadInput):
            SmallNoise(f, gate=gate)  # type: ignore[arg-type]


def test_options_added_later_leave_stored_keys_alone() -> None:
    assert full_text("small_noise") == full_text("small_noise:gate=1") == "small_noise:std=0.01,clip=false@1"
    assert full_text("small_noise:gate=0.5") == "small_noise:std=0.01,clip=false,gate=0.5@1"
    assert attacks.full_text(attacks.parse("square")) == "square:p=0.8,steps=5000,rescale=false@1"
    assert attacks.full_text(attacks.parse("square:loss=dlr")) == "square:p=0.8,steps=5000,rescale=false,loss=dlr@1"
    inside = attacks.full_text(attacks.parse("eot:attack=square"))
    assert inside == "eot:attack=(square:p=0.8,steps=5000,rescale=false),samples=20@1.1"
