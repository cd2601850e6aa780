"""Label-based attacks: true distances, the images they keep, when they stop, and each rule separately."""

from __future__ import annotations

import copy
import itertools
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

import antiadv
from antiadv.attacks import parse
from antiadv.attacks._search.nearest import Nearest
from antiadv.attacks.decision_based.boundary import _Window, propose
from antiadv.attacks.decision_based.hop_skip_jump import estimate
from antiadv.attacks.decision_based.qeba import Qeba, pca_basis, write_basis
from antiadv.attacks.decision_based.rays import TOLERANCE, Rays, blocks
from antiadv.attacks.score_based.simba import cosines
from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.defence import Defence
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.toys import Halfspace, Toy, four, halfspace, sphere

ALL = [("boundary", 2.0), ("hop_skip_jump", 2.0), ("hop_skip_jump", math.inf), ("qeba", 2.0), ("qeba", math.inf)]
ALL += [("rays", math.inf)]
everywhere = pytest.mark.parametrize(("name", "p"), ALL)


def oracle_of(model: nn.Module, n: int, ball: Ball, queries: int | None = None, targeted: bool = False) -> Oracle:
    return Oracle(model, Threat(ball, Access.LABELS, queries, targeted), Ledger(n, queries))


def excess(text: str, toy: Toy, ball: Ball, queries: int) -> Tensor:
    """How much further than the true distance, as a share of it."""
    found = antiadv.attack(toy.model, toy.x, toy.y, text, ball, queries=queries)
    assert found.fooled.all()
    return ball.distance(toy.x, found.images) / toy.distance - 1


# ---------------------------------------------------------------- where they get


@pytest.mark.parametrize("text", ["boundary", "hop_skip_jump", "qeba:factor=1"])
def test_in_the_plane_they_reach_the_true_l2_distance(text: str) -> None:
    assert excess(text, halfspace(2, shape=(1, 1, 2)), L2(math.inf), 1000).max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "queries"),
    [("boundary", 5000), ("hop_skip_jump", 10_000), ("qeba:factor=1,probes=100,max_probes=10000", 10_000)],
)
def test_in_48_dimensions_they_reach_the_true_l2_distance(text: str, queries: int) -> None:
    assert excess(text, halfspace(2), L2(math.inf), queries).max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("step", [0.01, 0.05, 0.3])
def test_boundary_forgets_first_steps_that_were_too_long(step: float) -> None:
    """With the rule (4); without it a walk that begins with 0.05 stops a hundredth too far."""
    text = f"boundary:around={step},towards={step}"
    assert excess(text, halfspace(2), L2(math.inf), 5000).max() < 0.003


@pytest.mark.parametrize(("text", "queries"), [("hop_skip_jump", 10_000), ("rays", 300)])
def test_they_reach_the_true_linf_distance(text: str, queries: int) -> None:
    assert excess(text, halfspace(math.inf), Linf(math.inf), queries).max() < 0.01


@pytest.mark.parametrize("basis", ["resize", "dct"])
def test_qeba_needs_fewer_queries_where_the_normal_lies_in_its_subspace(basis: str) -> None:
    toy = halfspace(2, shape=(3, 8, 8))
    assert isinstance(toy.model, Halfspace)
    w = toy.model.w
    w.copy_(w.mean((1, 2), keepdim=True).expand_as(w))
    flat = Toy(toy.model, (0.5 + 0.3 * w / w.norm()).expand(4, -1, -1, -1), torch.zeros(4, dtype=torch.int64), 0.3)
    ours = excess(f"qeba:basis={basis},factor=4", flat, L2(math.inf), 600)
    assert ours.max() < 0.1
    assert ours.max() < 0.5 * excess("qeba:factor=1", flat, L2(math.inf), 600).min()


def test_qeba_on_a_basis_of_gradients(tmp_path: Path) -> None:
    toy = halfspace(2)
    assert isinstance(toy.model, Halfspace)
    noise = torch.randn((6, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    save_file({"basis": pca_basis(toy.model.w + 0.2 * noise, 2)}, tmp_path / "b.safetensors")
    assert excess(f"qeba:basis=pca,path={tmp_path / 'b.safetensors'}", toy, L2(math.inf), 600).max() < 0.05


def test_qeba_on_a_basis_of_a_surrogates_gradients(tmp_path: Path) -> None:
    """A surrogate whose boundary is rotated a little; its gradients lie along its own normal."""
    toy, path = halfspace(2), tmp_path / "b.safetensors"
    surrogate = copy.deepcopy(toy.model)
    assert isinstance(surrogate, Halfspace)
    surrogate.w += 0.05 * torch.randn(surrogate.w.shape, generator=torch.Generator().manual_seed(0))
    write_basis(path, surrogate, toy.x, toy.y, k=1, batch=4)
    (direction,) = load_file(path)["basis"]
    assert F.cosine_similarity(direction, surrogate.w.flatten(), dim=0).abs() == pytest.approx(1, abs=1e-5)
    assert toy.x.grad is None
    assert excess(f"qeba:basis=pca,path={path}", toy, L2(math.inf), 200).max() < 0.02


# ---------------------------------------------------------------- what they keep


class Curved(nn.Module):
    """Five classes with curved boundaries through the grey image: noise falls into all of them."""

    def __init__(self, d: int = 192) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.a: Tensor
        self.b: Tensor
        self.register_buffer("a", torch.randn((d, 32), generator=generator))
        self.register_buffer("b", torch.randn((32, 5), generator=generator))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return ((x.flatten(1) - 0.5) @ self.a.to(x)).relu() @ self.b.to(x)


class Recorder(Defence):
    """A defence that only remembers its images."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__(base)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.clone())
        s: Tensor = self.base(x)
        return s


@everywhere
@pytest.mark.parametrize("queries", [3, 40, 333])
def test_what_is_returned_is_the_closest_fooling_image_ever_asked_about(name: str, p: float, queries: int) -> None:
    net, ball = Curved(), Ball(p, math.inf)
    x = torch.rand((1, 3, 8, 8), generator=torch.Generator().manual_seed(3))
    y = net(x).argmax(1)
    recorder = Recorder(net)
    z = parse(name)(oracle_of(recorder, 1, ball, queries), x, y, ball, Draws.of(0, torch.arange(1)))
    asked = torch.cat(recorder.seen)
    assert len(asked) <= queries
    fools = asked[net(asked).argmax(1) != y]
    assert ball.distance(x, z)[0] == ball.distance(x.expand_as(fools), fools).min()
    assert any(torch.equal(z[0], f) for f in fools)


@pytest.mark.parametrize(("name", "p"), [("boundary", 2.0), ("rays", math.inf)])
def test_more_queries_never_bring_it_further_away(name: str, p: float) -> None:
    toy = halfspace(p)
    found = [excess(name, toy, Ball(p, math.inf), queries) for queries in (20, 60, 150, 400)]
    assert all((b <= a).all() for a, b in itertools.pairwise(found))


@everywhere
def test_where_all_labels_agree_the_trajectories_are_the_same(name: str, p: float) -> None:
    class Rescaled(Defence):
        def forward(self, x: Tensor) -> Tensor:
            s: Tensor = self.base(x) * 8
            return s

    f = Curved()
    x = torch.rand((5, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    y = f(x).argmax(1)
    for ball in (Ball(p, math.inf), Ball(p, 0.02 if p == math.inf else 0.2)):
        a, b = (antiadv.attack(model, x, y, name, ball, queries=300) for model in (f, Rescaled(f).eval()))
        assert torch.equal(a.images, b.images)
        assert [r.queries for r in a.records] == [r.queries for r in b.records]
        assert (a.images != x).flatten(1).any(1).all()


# ---------------------------------------------------------------- where they stop


@everywhere
def test_an_image_that_is_misclassified_already_is_returned(name: str, p: float) -> None:
    toy, ball = halfspace(p), Ball(p, math.inf)
    oracle = oracle_of(toy.model, 6, ball)
    z = parse(name)(oracle, toy.x, 1 - toy.y, ball, Draws.of(0, torch.arange(6)))
    assert torch.equal(z, toy.x)
    assert oracle._ledger.queries.tolist() == [1] * 6


@everywhere
def test_where_nothing_fools_x_is_returned_after_so_many_tries(name: str, p: float) -> None:
    class Same(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return four(1 + 0 * x.flatten(1).sum(1))

    x, ball = torch.rand((2, 3, 4, 4), generator=torch.Generator().manual_seed(0)), Ball(p, 0.1)
    oracle = oracle_of(Same(), 2, ball)
    attack = parse(f"{name}:{'steps' if name == 'rays' else 'tries'}=7")
    z = attack(oracle, x, torch.zeros(2, dtype=torch.int64), ball, Draws.of(0, torch.arange(2)))
    assert torch.equal(z, x)
    assert oracle._ledger.queries.tolist() == [9 if name == "rays" else 8] * 2  # rays asks about its first s too


@everywhere
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_model_that_answers_by_chance_is_survived(name: str, p: float, share: float) -> None:
    class Chance(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator = torch.Generator().manual_seed(0)

        def forward(self, x: Tensor) -> Tensor:
            return four(share - torch.rand(len(x), generator=self.generator))

    x, ball = torch.full((3, 3, 4, 4), 0.5), Ball(p, math.inf)
    oracle = oracle_of(Chance(), 3, ball)
    z = parse(f"{name}:steps=20")(oracle, x, torch.zeros(3, dtype=torch.int64), ball, Draws.of(0, torch.arange(3)))
    assert torch.isfinite(z).all()
    assert 0 <= z.min() <= z.max() <= 1
    assert oracle._ledger.queries.max() < 20 * (450 + 60) + 200


def test_coarse_noise_starts_where_fine_noise_does_not_fool() -> None:
    class Blocks(nn.Module):
        """Class 1: means of 4 × 4 pixels that differ. In the mean, noise in pixels is grey."""

        def forward(self, x: Tensor) -> Tensor:
            return four(0.15 - F.avg_pool2d(x, 4).flatten(1).std(1))

    x, y = torch.full((8, 3, 16, 16), 0.5), torch.zeros(8, dtype=torch.int64)
    nearest = Nearest(oracle_of(Blocks(), 8, L2(math.inf)), x, y, L2(math.inf))
    assert len(nearest.start(Draws.of(0, torch.arange(8)), tries=1)) == 0
    assert len(nearest.start(Draws.of(0, torch.arange(8)), tries=4)) == 8


# ---------------------------------------------------------------- each rule by itself


@pytest.mark.parametrize("p", [2.0, math.inf])
def test_bisect_finds_the_boundary_on_the_way_to_x(p: float) -> None:
    toy, ball = sphere(p), Ball(p, math.inf)
    oracle = oracle_of(toy.model, 4, ball)
    nearest = Nearest(oracle, toy.x, toy.y, ball)
    z = (toy.x + 0.4 * Draws.of(0, torch.arange(4)).signs(*toy.x.shape[1:])).clamp(0, 1)
    length = ball.distance(toy.x, z)
    found = ball.distance(toy.x, nearest.bisect(torch.arange(4), z, 2.0**-12))
    assert ((found >= toy.distance - 1e-6) & (found <= toy.distance + length * 2.0**-12 + 1e-6)).all()
    assert oracle._ledger.queries.tolist() == [12] * 4


def test_hop_skip_jump_costs_what_its_head_says() -> None:
    toy, ball = sphere(2.0), L2(math.inf)
    spent = []
    for text in ("hop_skip_jump:steps=0", "hop_skip_jump:steps=1"):
        oracle = oracle_of(toy.model, 4, ball)
        parse(text)(oracle, toy.x, toy.y, ball, Draws.of(0, torch.arange(4)))
        spent.append(oracle._ledger.queries)
    assert spent[0].tolist() == [1 + 1 + 10] * 4
    assert (spent[1] - spent[0]).tolist() == [100 + 1 + 10] * 4


@pytest.mark.parametrize("k", [50, 200])
def test_the_estimate_points_along_the_normal_as_often_as_it_should(k: int) -> None:
    """k unit vectors in d dimensions, each turned to the right side: Σ is k√(2/πd) along the normal, √k across."""
    n, model = 60, Halfspace((2, 10, 10))
    x, ball = torch.full((n, 2, 10, 10), 0.5), L2(math.inf)
    nearest = Nearest(oracle_of(model, n, ball), x, torch.zeros(n, dtype=torch.int64), ball)
    generator, rows = Draws.of(0, torch.arange(n)), torch.arange(n)
    delta = torch.full((n,), 0.1, dtype=torch.float64)
    args = (nearest, rows, x, delta, lambda d: d.normal(2, 10, 10), generator)
    g = estimate(*args, torch.full((n,), k))
    cosine = F.cosine_similarity(g.flatten(1), -model.w.flatten()[None])
    law = 2 * k / (math.pi * 200)
    assert cosine.mean().item() == pytest.approx(math.sqrt(law / (1 + law)), abs=0.02)
    paid = torch.where(rows % 2 == 0, k, 2 * k)  # does not depend on what another row can pay
    assert torch.equal(estimate(*args, paid)[::2], g[::2])


def test_a_step_of_boundary_keeps_the_distance_then_comes_closer() -> None:
    x = torch.full((5, 3, 8, 8), 0.5)
    z = x + 0.1 * Draws.of(1, torch.arange(5)).normal(3, 8, 8).clamp(-2, 2)
    r = (z - x).flatten(1).norm(dim=1)
    around, towards = torch.full((5,), 0.02).double(), torch.linspace(0.01, 0.1, 5).double()
    q, w = propose(x, z, Draws.of(0, torch.arange(5)), around, towards)
    assert torch.allclose((q - x).flatten(1).norm(dim=1), r, rtol=1e-5)
    assert torch.allclose((w - x).flatten(1).norm(dim=1), (1 - towards.float()) * r, rtol=1e-5)
    angle = F.cosine_similarity((q - x).flatten(1), (z - x).flatten(1)).double()
    assert torch.allclose(angle, (1 + around**2).rsqrt(), atol=1e-6)
    assert torch.equal(propose(x[3:], z[3:], Draws.of(0, torch.arange(3, 5)), around[3:], towards[3:])[1], w[3:])


def test_boundary_adapts_each_sample_by_its_own_count() -> None:
    window, rows = _Window(3, 10, torch.device("cpu")), torch.arange(3)
    for t in range(10):
        assert window.verdict(rows, 0.2, 0.5).tolist() == [0, 0, 0]  # too few to tell
        window.add(rows, torch.tensor([True, t < 1, t < 4]))
    assert window.verdict(rows, 0.2, 0.5).tolist() == [1, -1, 0]
    assert window.verdict(rows, 0.2, 0.5).tolist() == [0, 0, 0]  # two begin anew
    window.add(rows, torch.tensor([True, True, True]))
    assert window.verdict(rows, 0.2, 0.5).tolist() == [0, 0, 0]
    window.add(rows[2:], torch.tensor([True]))
    window.add(rows[2:], torch.tensor([True]))
    assert window.verdict(rows, 0.2, 0.3).tolist() == [0, 0, 1]


def test_the_blocks_of_rays() -> None:
    first = [(0, 0), (0, 5), (0, 3), (3, 5), (0, 2), (2, 4), (4, 5)]
    singles = [(i, i + 1) for i in range(5)]
    assert list(blocks(5, 16)) == first + singles + singles
    assert list(blocks(5, 3)) == first[:4]
    assert list(blocks(0, 3)) == []


@pytest.mark.parametrize("queries", [30, 200, 1000])
def test_rays_is_the_plain_loop(queries: int) -> None:
    net = Curved()
    x = torch.rand((4, 3, 8, 8), generator=torch.Generator().manual_seed(1)).double()
    y = net(x).argmax(1)
    draws, ball = Draws.of(0, torch.arange(4)), Linf(math.inf)
    oracle = oracle_of(net, 4, ball, queries)
    z = Rays()(oracle, x, y, ball, draws)
    for i in range(4):
        r, spent = plain_rays(net, x[i], int(y[i]), float(draws.signs(1)[i]), queries)
        assert ball.distance(x, z)[i].item() == pytest.approx(r, abs=1e-9)
        assert oracle._ledger.queries[i] == spent or (queries == 1000 and spent == 1000)  # ours ends when all is tried


def plain_rays(net: nn.Module, x: Tensor, y: int, first: float, queries: int) -> tuple[float, int]:
    """One image; radii in L2 along the ray, as published. → the Linf distance and the queries spent."""
    d, spent, best = x.numel(), 1, math.sqrt(x.numel())
    s = torch.full((d,), first, dtype=x.dtype)

    def fools(v: Tensor, r: float) -> bool:
        nonlocal spent
        spent += 1
        return int(net((x + r * (v / v.norm()).view_as(x)).clamp(0, 1)[None]).argmax()) != y

    found = False
    for a, b in blocks(d, 10_000):
        if spent == queries:
            break
        v = s.clone()
        v[a:b] *= -1
        if not fools(v, best):
            continue
        low, high = 0.0, best
        while high - low > TOLERANCE and spent < queries:
            middle = (low + high) / 2
            low, high = (low, middle) if fools(v, middle) else (middle, high)
        s, best, found = v, high, True
    end = (x + best * (s / s.norm()).view_as(x)).clamp(0, 1)
    return (end - x).abs().max().item() if found else 0.0, spent


@pytest.mark.parametrize("factor", [2.0, 4.0, 1.6])
@pytest.mark.parametrize("basis", ["resize", "dct"])
def test_the_noise_of_qeba_fills_its_subspace_and_no_more(basis: str, factor: float) -> None:
    x = torch.zeros((1, 1, 16, 16), dtype=torch.float64)
    attack = parse(f"qeba:basis={basis},factor={factor}")
    assert isinstance(attack, Qeba)
    noise = attack.noise(x)(Draws.of(0, torch.arange(256)))
    assert noise.shape == (256, 1, 16, 16)
    kept = int(16 / factor)
    assert torch.linalg.matrix_rank(noise.flatten(1), rtol=1e-9) == kept**2
    if basis == "dct":
        c = cosines(16, x.dtype, x.device)
        spectrum = c @ noise @ c.T
        spectrum[:, :, :kept, :kept] = 0
        assert spectrum.abs().max() < 1e-10


def test_a_basis_of_gradients_is_orthonormal_and_holds_them() -> None:
    g = torch.randn((5, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    basis = pca_basis(g, 5)
    assert torch.allclose(basis @ basis.T, torch.eye(5), atol=1e-5)
    assert torch.allclose(g.flatten(1) @ basis.T @ basis, g.flatten(1), atol=1e-4)
    with pytest.raises(BadInput, match=r"1 … 5.*6"):
        pca_basis(g, 6)


def test_qeba_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="path"):
        parse("qeba:basis=pca")
    with pytest.raises(BadSpec, match="basis=resize"):
        parse("qeba:path=b.safetensors")
    toy, path = halfspace(2), tmp_path / "b.safetensors"
    text = f"qeba:basis=pca,path={path}"
    with pytest.raises(BadInput, match=r"b\.safetensors"):
        antiadv.attack(toy.model, toy.x, toy.y, text, L2(1))
    save_file({"basis": torch.eye(4)}, path)
    with pytest.raises(BadInput, match=r"\[k, 48\]; found \(4, 4\)"):
        antiadv.attack(toy.model, toy.x, toy.y, text, L2(1))


@pytest.mark.parametrize(
    "text", ["rays:steps=-1", "boundary:adaptation=0.5", "hop_skip_jump:probes=0", "qeba:factor=0"]
)
def test_options_out_of_range(text: str) -> None:
    with pytest.raises(BadSpec):
        parse(text)
