"""Spec: parse and text are inverses for every registered class; messages name the nearest known word."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiadv.attacks import ATTACKS
from antiadv.core import spec
from antiadv.core.ball import L2, Linf
from antiadv.core.errors import BadSpec
from antiadv.core.threat import Access, Threat, parse_threat
from antiadv.defences import DEFENCES, wrap
from antiadv.models.noise import GaussianNoise
from tests.toys import spec_for


@dataclass(frozen=True)
class Inner:
    size: float = 0.5


@dataclass(frozen=True)
class Outer:
    steps: int = 3
    share: float = 0.25
    on: bool = False
    mode: Literal["slow", "fast"] = "slow"
    path: str | None = None
    sizes: float | tuple[float, ...] = 0.1
    inner: Inner = Inner()
    parts: tuple[Inner, ...] = ()


TOYS = {"inner": Inner, "outer": Outer}
finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(codec="ascii", min_codepoint=33, exclude_characters="()"), min_size=1).filter(
    lambda t: t != "none" and t == t.strip()
)
outers = st.builds(
    Outer,
    steps=st.integers(1 - 2**63, 2**63 - 1),
    share=finite,
    on=st.booleans(),
    mode=st.sampled_from(["slow", "fast"]),
    path=st.none() | words,
    sizes=finite | st.lists(finite, min_size=1, max_size=4).map(tuple),
    inner=st.builds(Inner, finite),
    parts=st.lists(st.builds(Inner, finite), max_size=3).map(tuple),
)


@settings(deadline=None)  # other work on the machine may slow an example down
@given(outers)
def test_parse_and_text_are_inverses(value: Outer) -> None:
    assert spec.parse(spec.text(value), TOYS, "toy") == value
    assert spec.parse(spec.full(value), TOYS, "toy") == value


@settings(deadline=None)
@given(finite)
def test_numbers_read_back_exactly(value: float) -> None:
    assert spec.number(spec.show_number(value)) == value


@pytest.mark.parametrize("k", range(1, 255))
def test_pixel_fractions_are_shown_as_such(k: int) -> None:
    text = spec.show_number(k / 255)
    assert spec.number(text) == k / 255
    assert len(text) <= 7


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_reads_back_and_is_named_after_its_class(name: str) -> None:
    attack = spec.parse(name, ATTACKS, "attack")
    assert spec.name_of(type(attack)) == name
    assert spec.parse(spec.text(attack), ATTACKS, "attack") == attack
    assert spec.parse(spec.full(attack), ATTACKS, "attack") == attack
    assert spec.text(attack) == name


@pytest.mark.parametrize("name", DEFENCES)
def test_every_defence_reads_back_and_is_named_after_its_class(name: str) -> None:
    base = torch.nn.Sequential(GaussianNoise(0.1), torch.nn.Linear(3, 2)).eval()  # noise, for the self-ensemble
    text = spec_for(name, base)
    defence = wrap(text, base)
    assert spec.text(defence) == text
    assert spec.full(wrap(spec.full(defence), base)) == spec.full(defence)


def test_defaults_are_left_out_or_filled_in() -> None:
    assert spec.text(Outer(steps=5, inner=Inner(2))) == "outer:steps=5,inner=(inner:size=2)"
    assert spec.full(Inner()) == "inner:size=0.5"
    assert spec.parse("outer:9,share=8/255", TOYS, "toy") == Outer(9, 8 / 255)
    assert spec.parse("outer:sizes=0.1+8/255", TOYS, "toy").sizes == (0.1, 8 / 255)
    assert spec.parse("outer:parts=inner+(inner:size=2)", TOYS, "toy").parts == (Inner(), Inner(2))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("otter", "unknown toy 'otter'; did you mean outer"),
        ("outer,x=1", r"did you mean outer:x=1\?"),
        ("zzz", "unknown toy 'zzz'; known: inner, outer"),
        ("outer:stps=3", "no option 'stps'; did you mean steps"),
        ("outer:steps=three", "whole number"),
        ("outer:steps=3.5", "whole number"),
        ("outer:steps=1_", "whole number"),
        ("outer:share=8/0", "not a number"),
        ("outer:share=nan", "not a number"),
        ("outer:on=yes", "true or false"),
        ("outer:mode=quick", "slow, fast"),
        ("outer:steps=1,steps=2", "given twice"),
        ("outer:steps=1,2", "not key=value"),
        ("outer:inner=(inner:size=2", "brackets"),
        ("outer:inner=(iner)", "did you mean inner"),
        (f"outer:steps={2**63}", "2\\^63"),
        (f"outer:steps={-(2**63)}", "2\\^63"),
        (f"outer:steps=+{'9' * 5000}", "5000 digits"),
        (f"outer:steps={'9_' * 2500}9", "2501 digits"),
        (f"outer:path={'a' * 10_000}", "10,011"),
        (f"outer:inner={'(' * 21}inner{')' * 21}", "at most 20 deep; found 21"),
        ("(" * 400, "found 400"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(text: str, says: str) -> None:
    with pytest.raises(BadSpec, match=says):
        spec.parse(text, TOYS, "toy")


@pytest.mark.parametrize(
    ("text", "value"),
    [("0" * 5000 + "7", 7), ("+7", 7), ("-0_7", -7), ("0", 0), ("-0", 0), (f"{2**63 - 1}", 2**63 - 1),
     (f"{1 - 2**63}", 1 - 2**63)],
    ids=["many zeros", "plus", "grouped", "zero", "minus zero", "largest", "smallest"],
)  # fmt: skip
def test_whole_numbers_that_can_be_read(text: str, value: int) -> None:
    assert spec.parse(f"outer:steps={text}", TOYS, "toy").steps == value


def test_brackets_may_be_nested_as_deep_as_is_said() -> None:
    value = spec.parse(
        "transfer:attack=(" * spec.DEEPEST_BRACKETS + "pgd" + ")" * spec.DEEPEST_BRACKETS, ATTACKS, "attack"
    )
    assert spec.parse(spec.text(value), ATTACKS, "attack") == value


def test_threats() -> None:
    threat = parse_threat("linf:8/255,queries=1000", Access.SCORES)
    assert threat == Threat(Linf(8 / 255), Access.SCORES, 1000)
    assert str(threat) == "linf:8/255,access=scores,queries=1000"
    assert parse_threat(str(threat), Access.LABELS) == threat
    assert parse_threat("l2:inf", Access.LABELS) == Threat(L2(math.inf), Access.LABELS)
    for text in ("linf", "linf:x", "linf:0.1,queries=0", "l3:1", "linf:-1", "linf:0.1,access=all"):
        with pytest.raises(BadSpec):
            parse_threat(text, Access.SCORES)
