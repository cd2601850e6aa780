"""Settings of torch are put back, and its private parts are used in one file only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import antiadv
from antiadv.engine.switches import VARIANTS_COMPILED, algorithms_timed, switched, switched_for_compiled

SOURCE = Path(antiadv.__file__).parent
PRIVATE = re.compile(
    r"torch\._(?!foreach)[a-z]\w*|\._conv_forward|\._parameters\b|\._modules\b|\._version\b|_create_jit_fn"
)
CPU = torch.device("cpu")


def compiler() -> tuple[int, bool]:
    import torch._dynamo.config as dynamo
    import torch._functorch.config as functorch

    return dynamo.recompile_limit, functorch.donated_buffer


@pytest.mark.parametrize("fails", [False, True])
def test_the_compilers_settings_hold_for_the_block_alone(fails: bool) -> None:
    before = compiler()
    try:
        with switched_for_compiled("mixed", CPU):
            assert compiler() == (max(VARIANTS_COMPILED, before[0]), False)
            assert torch.is_autocast_enabled("cpu")
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert compiler() == before
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("before", [False, True])
def test_timing_of_algorithms_is_put_back(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    for on in (False, True):
        with algorithms_timed(on):
            assert torch.backends.cudnn.benchmark is (before or on)
        assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_on_a_cpu_only_mixed_computes_in_16_bits(precision: str) -> None:
    with switched(precision, CPU):
        product = torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.dtype == (torch.bfloat16 if precision == "mixed" else torch.float32)


def test_private_parts_of_torch_are_used_in_one_file() -> None:
    users = {p.name for p in SOURCE.rglob("*.py") if PRIVATE.search(re.sub(r'"""(?s:.*?)"""', "", p.read_text()))}
    assert users == {"torch_private.py"}
