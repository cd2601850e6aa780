"""`auto` becomes a stated precision before a cell's key is made, and a long job is known by its text."""

from __future__ import annotations

import warnings
from typing import ClassVar

import pytest
import torch
from torch import nn

import antiadv
from antiadv import Linf, defences
from antiadv.attacks import ATTACKS, parse
from antiadv.core import torch_private
from antiadv.core.attack import Attack
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.threat import Access, Threat
from antiadv.engine.precision import AUTO, PRECISIONS
from antiadv.evaluation.automatic import LOSES_NOTHING, most_queries, resolve_precision
from antiadv.evaluation.plan import make_cell
from antiadv.evaluation.resources import Resources, fast_engine
from antiadv.reporting.select import WEAK
from tests.toys import Spy, small_net

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def always(precision: str, gradients: bool) -> bool:
    return True


def resolved(attack: Attack | str, model: nn.Module | None = None, device: torch.device = GPU) -> str:
    chosen = parse(attack) if isinstance(attack, str) else attack
    return resolve_precision(AUTO, chosen, small_net() if model is None else model, Linf(0.1), device, always)


@pytest.fixture
def bfloat16(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> bool:
    """Whether the CPU is taken to compute in bfloat16."""
    able: bool = request.param
    monkeypatch.setattr(torch_private, "computes_in_bfloat16", lambda: able)
    return able


@pytest.mark.parametrize("bfloat16", [False, True], indirect=True)
@pytest.mark.parametrize("name", sorted(set(ATTACKS) & set(LOSES_NOTHING)))
def test_on_a_cpu_a_search_is_in_bfloat16_if_that_misses_nothing(name: str, bfloat16: bool) -> None:
    found = resolved(name, device=CPU)
    assert found == ("mixed" if bfloat16 and LOSES_NOTHING[name] else "float32")
    assert found not in WEAK.get(name, ()), "too_few_digits would be raised"


@pytest.mark.parametrize("bfloat16", [True], indirect=True)
@pytest.mark.parametrize("device", [CPU, GPU])
def test_a_network_that_autocast_does_not_change_searches_in_float32(device: torch.device, bfloat16: bool) -> None:
    class Elsewhere(nn.Module):
        """Its scores come from another machine or library."""

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: quantisation moves to another package
        quantised = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
    assert resolved("pgd", small_net(), device) == ("mixed" if device == CPU else "half")
    assert resolved("pgd", Elsewhere(), device) == "float32"
    assert resolved("pgd", quantised, device) == "float32"


@pytest.mark.parametrize("name", sorted(set(ATTACKS) & set(LOSES_NOTHING)))
def test_on_a_gpu_a_search_is_in_the_precision_that_is_stated_for_it(name: str) -> None:
    assert resolved(name) == ("half" if LOSES_NOTHING[name] else "float32")
    assert resolved(name) not in WEAK.get(name, ()), "too_few_digits would be raised"


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("cascade:stages=apgd+square", "half"),
        ("cascade:stages=apgd+(eot:attack=simba)", "float32"),
        ("transfer:attack=autoattack", "half"),
        ("bpda:attack=(pgd:steps=3)", "half"),
        ("eot:attack=bandits", "float32"),
        ("adaptive", "half"),
    ],
)
def test_an_attack_made_of_others_takes_the_finest_that_one_needs(text: str, precision: str) -> None:
    assert resolved(text) == precision
    assert resolved(text, defences.wrap("anti_adversary", small_net())) == precision


class Unusual(Spy):
    """A defence that is undone by an attack that needs its digits."""

    adaptive: ClassVar[tuple[str, ...]] = ("hop_skip_jump",)


class Own:
    """An attack of the user's own, which keeps none of its options."""

    access, norms, minimal, edition = Access.LABELS, frozenset({2.0}), False, 1

    def __init__(self, size: int) -> None:
        pass

    def __call__(self, *_: object) -> torch.Tensor:
        raise NotImplementedError


def test_the_adaptive_attack_depends_on_the_defence() -> None:
    assert resolved("adaptive", Unusual(small_net())) == "float32"


def test_an_attack_of_ones_own_keeps_all_digits_and_is_never_long() -> None:
    own = Own(3)
    assert isinstance(own, Attack)
    assert resolved(own) == "float32"
    assert most_queries(own, small_net(), Threat(Linf(0.1), Access.LABELS, None)) == 0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_stated_precision_is_kept(precision: str) -> None:
    assert resolve_precision(precision, parse("qeba"), small_net(), Linf(0.1), GPU, always) == precision


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(BadSpec, match=r"'float8'.*auto, float32"):
        resolve_precision("float8", parse("pgd"), small_net(), Linf(0.1), CPU, always)


@pytest.mark.parametrize("compiled", ["yes", None, 1])
def test_compiled_is_true_false_or_auto(compiled: object) -> None:
    with pytest.raises(BadInput, match="compiled is True, False or 'auto'"):
        Resources("cpu", compiled=compiled)  # type: ignore[arg-type]
    x = torch.rand(1, 3, 8, 8)
    with pytest.raises(BadInput, match="compiled is True"):
        antiadv.attack(small_net(), x, torch.zeros(1).long(), "pgd", Linf(0.1), compiled=compiled)  # type: ignore[arg-type]


# ---------------------------------------------------------------- cells

TRADES = {"model": "compact:trades", "threat": "linf:8/255", "samples": range(4)}


@pytest.mark.parametrize("bfloat16", [False], indirect=True)
def test_the_cell_states_its_precision_and_keeps_its_key(bfloat16: bool) -> None:
    """The key was recorded before there was a default to choose."""
    made = make_cell(**TRADES, attack="pgd", resources=Resources("cpu"))  # type: ignore[arg-type]
    assert made.precision == "float32"
    assert made.key == "c4fe1f06ea8624ef9a6d"
    assert made == make_cell(**TRADES, attack="pgd", precision="float32", resources=Resources("cpu"))  # type: ignore[arg-type]
    assert "--precision float32" in str(made.command), "on another device the default is another one"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("attack", "precision"), [("pgd", "half"), ("bandits", "float32")])
def test_on_a_gpu_the_key_holds_what_auto_became(attack: str, precision: str) -> None:
    resources = Resources("cuda")
    made = make_cell(**TRADES, attack=attack, resources=resources)  # type: ignore[arg-type]
    said = make_cell(**TRADES, attack=attack, precision=precision, resources=resources)  # type: ignore[arg-type]
    assert (made.precision, made.key) == (precision, said.key)


# ---------------------------------------------------------------- length


@pytest.mark.parametrize(
    ("text", "budget", "queries"),
    [
        ("pgd:steps=20,restarts=3", None, 60),
        ("apgd:loss=dlr,targets=9", None, 900),
        ("square", None, 5000),
        ("square", 200, 200),
        ("nes", 700, 700),
        ("cascade:stages=(pgd:steps=20)+(square:steps=50)", 30, 50),
        ("transfer:attack=(apgd:steps=10,eot=4)", None, 40),
        ("autoattack", None, 8000),
    ],
)
def test_the_length_of_a_job_is_known_from_its_text(text: str, budget: int | None, queries: int) -> None:
    assert most_queries(parse(text), small_net(), Threat(Linf(0.1), Access.INTERNALS, budget)) == queries


def test_on_a_cpu_nothing_is_compiled_by_default() -> None:
    made = fast_engine(CPU, 64, "float32", AUTO, queries=10**9)
    net = small_net()
    made.scores(net, torch.rand(2, 3, 8, 8))
    assert not made.compiled
    assert made._background is None
