"""Is it a defence at all? The laws every entry of DEFENCES keeps, with its default options."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

import antiadv
from antiadv.core import spec
from antiadv.core.defence import Defence, base_of
from antiadv.core.errors import BadInput
from antiadv.defences import DEFENCES, full_text, wrap
from tests.toys import halfspace, small_net

every = pytest.mark.parametrize("name", DEFENCES)


def images(n: int = 4) -> Tensor:
    return torch.rand((n, 3, 8, 8), generator=torch.Generator().manual_seed(2))


def defended(name: str) -> Defence:
    made = wrap(name, small_net(classes=5))
    assert isinstance(made, Defence)
    return made


@every
@pytest.mark.parametrize("n", [0, 1, 4])
def test_is_a_classifier(name: str, n: int) -> None:
    s = defended(name)(images(n))
    assert s.shape == (n, 5)
    assert torch.isfinite(s).all()


@every
def test_works_in_every_context(name: str) -> None:
    g, x = defended(name), images()
    plain = g(x)
    with torch.no_grad():
        torch.testing.assert_close(g(x), plain)
    with torch.inference_mode():
        torch.testing.assert_close(g(x.clone()), plain)


@every
def test_leaves_everything_untouched(name: str) -> None:
    g, x = defended(name), images()
    before, state, dice = x.clone(), copy.deepcopy(g.state_dict()), torch.random.get_rng_state()
    g(x)
    assert torch.equal(x, before)
    assert all(torch.equal(a, b) for a, b in zip(state.values(), g.state_dict().values(), strict=True))
    assert all(p.grad is None for p in g.parameters())
    assert not any(m.training for m in g.modules())
    assert torch.equal(torch.random.get_rng_state(), dice)


@every
def test_each_sample_stands_alone(name: str) -> None:
    toy = halfspace(2, n=6)
    g = wrap(name, toy.model)
    assert torch.equal(g(toy.x), torch.cat([g(x[None]) for x in toy.x]))


@every
def test_has_a_text_copies_and_pickles(name: str) -> None:
    g, x = defended(name), images()
    assert spec.text(g) == name
    assert full_text(name).endswith(f"@{g.version}")
    assert torch.equal(copy.deepcopy(g)(x), g(x))
    assert torch.equal(pickle.loads(pickle.dumps(g))(x), g(x))


@every
def test_is_evaluated_and_its_base_is_found(name: str) -> None:
    g, x = defended(name), images()
    outcome = antiadv.attack(g, x, g(x).argmax(1), "transfer", antiadv.Linf(8 / 255))
    assert all(r.queries == 0 for r in outcome.records)
    assert not isinstance(base_of(g), Defence)


@every
def test_refuses_a_base_in_training_mode(name: str) -> None:
    with pytest.raises(BadInput, match="evaluation mode"):
        wrap(name, small_net().train())


def test_none_is_the_bare_classifier() -> None:
    net = small_net()
    assert wrap("none", net) is net
