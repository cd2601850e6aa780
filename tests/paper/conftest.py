"""Fixtures of the paper's tests: a CPU, and attacks so small that a table takes seconds."""

from __future__ import annotations

import pytest

from antiadv.evaluation import Resources
from antiadv.paper import settings

# the same attacks with so little to spend that a table takes seconds
SMALL = {
    "APGD": ("apgd:steps=3", settings.EPS),
    "ADLR": ("apgd:loss=dlr,targets=2,steps=2", settings.EPS),
    "FAB": ("fab:targets=2,steps=2", settings.EPS),
    "Square": ("square", f"{settings.EPS},queries=10"),
    "NES": ("nes:probes=3", f"{settings.EPS_BLACK_BOX},queries=21"),
    "Bandits": ("bandits", f"{settings.EPS_BLACK_BOX},queries=21"),
    "Bandits, wide": ("bandits:tile=50", f"{settings.EPS_BLACK_BOX},queries=21"),
    "adaptive": ("transfer:attack=(apgd:steps=3)", settings.EPS),
    "adaptive, 0.031": ("transfer:attack=(apgd:steps=3)", settings.EPS_BLACK_BOX),
    "BA": ("boundary", "l2:8/255,queries=30"),
    "QEBA": ("qeba", f"{settings.EPS},queries=30"),
}


@pytest.fixture(scope="package")
def resources() -> Resources:
    return Resources("cpu")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, attack in SMALL.items():
        monkeypatch.setitem(settings.ATTACKS, name, attack)
