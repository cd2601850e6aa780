"""The step: augmentation, schedule, SGD, averages, and random numbers keyed by (seed, phase, epoch, step)."""

from __future__ import annotations

import copy

import pytest
import torch

from antiadv.train import Settings, parse
from antiadv.train.augment import crop_and_flip, padded
from antiadv.train.step import Step, accelerate, descend, schedule
from tests.train.tiny import colours, network

IMAGES = torch.randint(0, 256, (5, 6, 7, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    rows = torch.tensor([3, 0, 3, 4])
    shift, flip = torch.tensor([[0, 0], [4, 4], [8, 1], [2, 8]]), torch.tensor([0, 0, 1, 1])
    x = crop_and_flip(padded(IMAGES), rows, shift, flip)
    assert x.shape == (4, 3, 6, 7)
    whole = torch.zeros(5, 14, 15, 3)
    whole[:, 4:10, 4:11] = IMAGES.float() / 255
    for got, row, (i, j), mirrored in zip(x, rows, shift.tolist(), flip, strict=True):
        window = whole[row, i : i + 6, j : j + 7].permute(2, 0, 1)
        assert torch.equal(got, window.flip(2) if mirrored else window)


def test_the_middle_crop_is_the_image() -> None:
    x = crop_and_flip(padded(IMAGES), torch.arange(5), torch.full((5, 2), 4), torch.zeros(5, dtype=torch.int64))
    assert torch.equal(x, IMAGES.permute(0, 3, 1, 2).float() / 255)


def test_the_schedule_rises_then_falls_to_nearly_0() -> None:
    eta, follow, t = schedule(100, Settings(epochs=1, learning_rate=2.0, warmup=0.2, ema=0.9), 0.5).unbind(1)
    assert eta.max().item() == pytest.approx(1.0)
    assert int(eta.argmax()) == 19
    assert (eta[1:20] > eta[:19]).all()
    assert (eta[21:] < eta[20:-1]).all()
    assert eta[-1].item() == pytest.approx(1 / 80)
    assert (1 - follow[0]).item() == pytest.approx(0.1)
    assert (1 - follow[-1]).item() == pytest.approx(0.9)
    assert torch.equal(t, torch.arange(100) / 100)


def test_the_descent_is_torch_nesterov() -> None:
    dice = torch.Generator().manual_seed(0)
    ours = [torch.randn(4, 3, generator=dice), torch.randn(5, generator=dice)]
    theirs = [w.clone().requires_grad_(True) for w in ours]
    settings = Settings(epochs=1, momentum=0.8, weight_decay=0.01)
    other = torch.optim.SGD(theirs, lr=0.1, momentum=0.8, weight_decay=0.01, nesterov=True)
    momenta = [torch.zeros_like(w) for w in ours]
    for _ in range(4):
        g = [torch.randn(w.shape, generator=dice) for w in ours]
        for w, slope in zip(theirs, g, strict=True):
            w.grad = slope.clone()
        other.step()
        descend(ours, momenta, g, torch.tensor(0.1), settings)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.detach())


def one(recipe: str = "standard", seed: int = 0, key: tuple[int, int, int] = (0, 0, 0)) -> Step:
    sets = colours()
    step = Step(network(), parse(recipe), sets.x, sets.y, Settings(epochs=1, batch=16, seed=seed))
    step.draw(step.order(*key[:2])[:16], torch.tensor([0.1, 0.25, 0.0]), *key)
    return step


def test_draws_depend_on_seed_phase_epoch_and_step_alone() -> None:
    def drawn(**of: object) -> list[torch.Tensor]:
        step = one(**of)  # type: ignore[arg-type]
        return [step.rows, step.shift, step.flip, step.d]

    def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
        return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))

    before = torch.get_rng_state()
    base = drawn()
    torch.randn(7, generator=torch.Generator())
    assert same(base, drawn())
    for other in ({"seed": 1}, {"key": (1, 0, 0)}, {"key": (0, 1, 0)}):
        assert not torch.equal(base[0], drawn(**other)[0])
    assert torch.equal(base[0], drawn(key=(0, 0, 1))[0])  # the order is the epoch's
    assert not torch.equal(base[3], drawn(key=(0, 0, 1))[3])
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_cover_all_shifts_and_both_flips_evenly() -> None:
    step = one()
    shifts, flips = [], []
    for k in range(300):
        step.draw(step.rows, step.knobs, 0, 0, k)
        shifts.append(step.shift.clone())
        flips.append(step.flip.clone())
    shares = torch.bincount(torch.cat(shifts).flatten(), minlength=9) / (300 * 32)
    assert len(shares) == 9
    assert (shares - 1 / 9).abs().max() < 0.015
    assert torch.cat(flips).float().mean().item() == pytest.approx(0.5, abs=0.03)


def test_an_epoch_visits_every_image_once() -> None:
    step = one()
    assert torch.equal(step.order(0, 3).sort().values, torch.arange(64))
    assert step.steps == 4


def test_the_averages_follow_weights_and_statistics() -> None:
    step = one()
    before = copy.deepcopy(step.averaged.state_dict())
    step()
    for name, mean in step.finish().state_dict().items():
        now = step.net.state_dict()[name]
        expected = before[name] + 0.25 * (now - before[name]) if now.is_floating_point() else now
        torch.testing.assert_close(mean, expected)
    assert not torch.equal(before["1.weight"], step.net.state_dict()["1.weight"])
    assert not torch.equal(before["2.running_mean"], step.net.state_dict()["2.running_mean"])


def test_sums_are_the_mean_loss_and_the_accuracy() -> None:
    step = one()
    twin = copy.deepcopy(step.net)
    x = crop_and_flip(step.images, step.rows, step.shift, step.flip)
    s, y = twin(x), step.labels[step.rows]
    step()
    loss, hits = step.read_sums()
    assert loss * step.steps == pytest.approx(torch.nn.functional.cross_entropy(s, y).item(), rel=1e-5)
    assert hits * step.steps == pytest.approx((s.argmax(1) == y).float().mean().item())
    assert step.read_sums() == (0.0, 0.0)


def test_on_a_cpu_a_step_is_taken_as_it_is() -> None:
    step = one()
    said: list[str] = []
    assert accelerate(step, "auto", said.append) is step
    assert said == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("speed", ["graph", "compiled graph"])
def test_on_a_gpu_a_fast_step_does_what_a_plain_one_does(speed: str) -> None:
    def after(speed: str) -> list[torch.Tensor]:
        sets = colours()
        step = Step(network().cuda(), parse("trades"), sets.x.cuda(), sets.y.cuda(), Settings(epochs=1, batch=16))
        go = accelerate(step, speed, lambda _: None)  # type: ignore[arg-type]
        assert speed == "eager" or go is not step
        for k in range(4):
            step.draw(step.order(0, 0)[:16], torch.tensor([0.05, 0.5, 0.0], device="cuda"), 0, 0, k)
            go()
        return [p.detach() for p in step.net.parameters()]

    for a, b in zip(after("eager"), after(speed), strict=True):
        assert (a - b).norm() < 0.05 * a.norm() + 1e-3
