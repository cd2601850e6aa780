"""`auto` tries a network in 16 bits before it searches there. A named precision that fails says what else to name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import Linf
from antiadv.core import torch_private
from antiadv.core.errors import BadInput, Interrupted, Unfinished
from antiadv.defences import wrap
from antiadv.evaluation import Resources, evaluate, make_cell
from antiadv.evaluation.digits import survives
from antiadv.reporting.trial import verdict
from tests.toys import small_net

BALL = Linf(8 / 255)


class Around(nn.Module):
    """A small network, and a last step that may not like numbers of 16 bits."""

    def __init__(self, last: Callable[[Tensor], Tensor] = lambda s: s) -> None:
        super().__init__()
        *base, end = small_net().children()
        self.base, self.end, self.last = nn.Sequential(*base), end, last
        self.asked = 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.asked += len(x)
        return self.last(self.base(x) @ self.end.weight.T)  # with a bias autocast would return float32


def put(s: Tensor) -> Tensor:
    """Written in pieces into a tensor of float32: torch refuses where the pieces are of another type."""
    made, some = torch.zeros(s.shape, device=s.device), s.sum(1) > 0
    made[some], made[~some] = s[some], s[~some] * 2
    return made


class _Sixteen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, s: Tensor) -> Tensor:
        ctx.rough = s.dtype == torch.bfloat16  # type: ignore[attr-defined]
        return s.clone()

    @staticmethod
    def backward(ctx: object, g: Tensor) -> Tensor:
        if ctx.rough:  # type: ignore[attr-defined]
            raise RuntimeError("a gradient in bfloat16")
        return g


def no_slope(s: Tensor) -> Tensor:
    made: Tensor = _Sixteen.apply(s)  # type: ignore[no-untyped-call]
    return made


def nan(s: Tensor) -> Tensor:
    return s if s.dtype == torch.float32 else s * float("nan")


def other(s: Tensor) -> Tensor:
    return s if s.dtype == torch.float32 else -s


def flat(s: Tensor) -> Tensor:
    return s if s.dtype == torch.float32 else s + (s.detach() - s)


@pytest.fixture(autouse=True)
def _bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "computes_in_bfloat16", lambda: True)


def images(n: int = 6) -> Tensor:
    return torch.rand((n, 3, 8, 8), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("defended", [False, True])
@pytest.mark.parametrize(
    ("last", "scores", "gradients"),
    [(put, False, False), (nan, False, False), (other, False, False), (no_slope, True, False), (flat, True, False)],
)
def test_a_network_that_fails_in_bfloat16_is_found(
    last: Callable[[Tensor], Tensor], scores: bool, gradients: bool, defended: bool
) -> None:
    net: nn.Module = Around(last)
    net = wrap("jpeg", net) if defended else net  # its own gradients are zero; those of the network behind it are not
    assert survives("mixed", net, images(), gradients=False) == scores
    assert survives("mixed", net, images(), gradients=True) == gradients


@pytest.mark.parametrize("defence", ["none", "anti_adversary", "small_noise", "stateful"])
def test_one_that_does_not_fail_is_searched_in_bfloat16(defence: str) -> None:
    assert survives("mixed", wrap(defence, small_net()), images(), gradients=True)


def test_trying_costs_no_queries_and_changes_no_random_numbers() -> None:
    net, x = Around(), images()
    y = net(x).argmax(1)
    before = torch.random.get_rng_state()
    first = antiadv.attack(net, x, y, "pgd:steps=2", BALL)
    assert torch.equal(before, torch.random.get_rng_state())
    named = antiadv.attack(net, x, y, "pgd:steps=2", BALL, precision="mixed")
    assert first.records == named.records
    assert first.judge_queries == named.judge_queries
    assert (first.receipt.forwards, first.receipt.backwards) == (named.receipt.forwards, named.receipt.backwards)


def test_a_network_that_fails_in_float32_too_is_left_to_the_run() -> None:
    def refuse(s: Tensor) -> Tensor:
        raise RuntimeError("never")

    assert survives("mixed", Around(refuse), images(), gradients=True)


def test_a_network_that_draws_random_numbers_gets_the_same_ones_twice() -> None:
    def dice(s: Tensor) -> Tensor:
        return s + 3 * torch.rand(s.shape).to(s)

    assert survives("mixed", Around(dice), images(), gradients=True)


def test_auto_attacks_what_fails_in_bfloat16() -> None:
    net, x = Around(put), images()
    y = net(x).argmax(1)
    assert antiadv.attack(net, x, y, "pgd:steps=3", BALL).records == (
        antiadv.attack(net, x, y, "pgd:steps=3", BALL, precision="float32").records
    )
    found = verdict(net, x, y, queries=5)
    assert {row.cell.precision for row in found.rows} == {"float32"}


def cells(net: nn.Module, tmp_path: str, precision: str) -> tuple[antiadv.Cell, Resources]:
    x = images()
    np.savez(f"{tmp_path}/mine.npz", images=(255 * x).byte().permute(0, 2, 3, 1).numpy(), labels=[0] * len(x))
    resources = Resources("cpu", models={"mine": net})
    made = make_cell(
        model="mine", attack="pgd", threat="linf:8/255", data=f"arrays:{tmp_path}/mine.npz", precision=precision,
        samples=range(len(x)), resources=resources,
    )  # fmt: skip
    return made, resources


def test_the_cell_states_float32_and_the_network_is_tried_once(tmp_path: str) -> None:
    net = Around(put)
    made, resources = cells(net, tmp_path, "auto")
    assert made.precision == "float32"
    asked = net.asked
    for _ in range(3):
        make_cell(model="mine", attack="pgd", threat="linf:8/255", data=made.data, samples="0:2", resources=resources)
    assert 0 < net.asked == asked
    assert cells(Around(), tmp_path, "auto")[0].precision == "mixed"


def test_a_named_precision_that_fails_says_to_search_in_float32(tmp_path: str) -> None:
    net, x = Around(put), images()
    y = net(x).argmax(1)
    with pytest.raises(Interrupted, match="--precision float32"):
        antiadv.attack(net, x, y, "pgd:steps=3", BALL, precision="mixed")
    with pytest.raises(BadInput, match="--precision float32"):
        antiadv.attack(Around(nan), x, Around(nan)(x).argmax(1), "pgd:steps=3", BALL, precision="mixed")
    cell, resources = cells(net, tmp_path, "mixed")
    with pytest.raises(Unfinished, match="--precision float32"):
        evaluate([cell], f"{tmp_path}/store", resources=resources)
