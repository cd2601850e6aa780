"""The contract of every entry of DEFENCES, with its default options; and of the gated layer, which selects samples."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.core import spec
from antiadv.core.defence import Defence, Randomised, base_of
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.defences import DEFENCES, full_text, wrap
from antiadv.models.noise import GaussianNoise
from tests.toys import halfspace, small_net, spec_for

every = pytest.mark.parametrize("name", [*DEFENCES, "anti_adversary:gate=0.212"])  # in the middle of the images


def images(n: int = 4) -> Tensor:
    return torch.rand((n, 3, 8, 8), generator=torch.Generator().manual_seed(2))


def noisy(net: nn.Module) -> nn.Module:
    """A network with a noise layer, which a self-ensemble needs."""
    return nn.Sequential(GaussianNoise(0.1), net).eval()


class Exact(nn.Linear):
    """A linear layer whose sums do not depend on the batch."""

    def forward(self, h: Tensor) -> Tensor:
        return (h[:, None] * self.weight).sum(2) + self.bias


def defended(name: str) -> Defence:
    base = noisy(small_net(classes=5))
    made = wrap(spec_for(name, base), base)
    assert isinstance(made, Defence)
    assert made.randomised == isinstance(made, Randomised)
    return made


def ask(g: nn.Module, x: Tensor, rows: Tensor | None = None) -> Tensor:
    """The scores, with the same random numbers at every call. `rows` are the places of x among the samples."""
    more = (Draws.of(3, torch.arange(len(x)) if rows is None else rows),) if isinstance(g, Randomised) else ()
    s: Tensor = g(x, *more)
    return s


@every
@pytest.mark.parametrize("n", [0, 1, 4])
def test_is_a_classifier(name: str, n: int) -> None:
    for s in (defended(name)(images(n)), ask(defended(name), images(n))):
        assert s.shape == (n, 5)
        assert torch.isfinite(s).all()


@every
def test_works_in_every_context(name: str) -> None:
    g, x = defended(name), images()
    plain = ask(g, x)
    with torch.no_grad():
        torch.testing.assert_close(ask(g, x), plain)
    with torch.inference_mode():
        torch.testing.assert_close(ask(g, x.clone()), plain)


@every
def test_leaves_everything_untouched(name: str) -> None:
    g, x = defended(name), images()
    before, state, rng = x.clone(), copy.deepcopy(g.state_dict()), torch.random.get_rng_state()
    g(x)
    ask(g, x)
    assert torch.equal(x, before)
    assert all(torch.equal(a, b) for a, b in zip(state.values(), g.state_dict().values(), strict=True))
    assert all(p.grad is None for p in g.parameters())
    assert not any(m.training for m in g.modules())
    assert torch.equal(torch.random.get_rng_state(), rng)


@every
def test_each_sample_stands_alone(name: str) -> None:
    toy = halfspace(2, n=6)
    base = noisy(nn.Sequential(nn.AdaptiveAvgPool2d(4), toy.model, Exact(4, 4)))
    g = wrap(spec_for(name, base), base)
    alone = [ask(g, x[None], torch.tensor([i])) for i, x in enumerate(toy.x)]
    assert torch.equal(ask(g, toy.x), torch.cat(alone))


@every
def test_has_a_text_copies_and_pickles(name: str) -> None:
    g, x = defended(name), images()
    text = spec_for(name, small_net(classes=5))
    assert spec.text(g) == text
    assert full_text(text).endswith(f"@{g.edition}")
    for other in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert torch.equal(ask(other, x), ask(g, x))


@every
def test_is_evaluated_and_its_base_is_found(name: str) -> None:
    g, x = defended(name), images()
    outcome = antiadv.attack(g, x, g(x).argmax(1), "transfer", antiadv.Linf(8 / 255))
    assert all(r.queries == 0 for r in outcome.records)
    assert not isinstance(base_of(g), Defence)


@every
def test_refuses_a_base_in_training_mode(name: str) -> None:
    with pytest.raises(BadInput, match="evaluation mode"):
        wrap(spec_for(name, small_net()), noisy(small_net()).train())
    g = defended(name).train()
    with pytest.raises(BadInput, match="evaluation mode"):
        g(images())


@pytest.mark.parametrize("name", [name for name, cls in DEFENCES.items() if cls.randomised])
def test_plain_calls_draw_fresh_numbers_and_the_same_draws_give_the_same_answers(name: str) -> None:
    g, x = defended(name), images()
    assert torch.equal(ask(g, x), ask(g, x))
    plain = torch.stack([g(x) for _ in range(8)])  # two of resize_pad's few places may be equal, but not eight
    assert (plain != plain[0]).flatten(2).any(2).any(0).all()
    copies = torch.stack([copy.deepcopy(g)(x) for _ in range(8)])  # copies of a defence have different random numbers
    assert (copies != copies[0]).flatten(2).any(2).any(0).all()
    with pytest.raises(BadInput, match="one key per image"):
        g(x, Draws.of(0, torch.arange(len(x) + 1)))


def test_none_is_the_bare_classifier() -> None:
    net = small_net()
    assert wrap("none", net) is net


@every
@pytest.mark.parametrize("shape", [(4, 8, 8), (3, 12, 12)])
def test_images_of_another_shape_get_one_sentence(name: str, shape: tuple[int, ...]) -> None:
    """As from `attack`, for a network with a flat head."""
    base = nn.Sequential(GaussianNoise(0.1), nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(256, 5)).eval()
    g, x = wrap(spec_for(name, base), base), torch.rand(2, *shape)
    with pytest.raises(BadInput, match="images"):
        g(x)
    with pytest.raises(BadInput, match="images"):
        antiadv.attack(g, x, torch.zeros(2, dtype=torch.int64), "square", antiadv.Linf(0.1), queries=2)
