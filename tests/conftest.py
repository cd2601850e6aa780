"""One thread per process: the tensors here are small, and the suite runs a process per core (pytest-xdist)."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest
import torch

from tests.reporting.browser import NAMES, Browser, find

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

# Torch's compiler caches code on disk, and its key does not hold these two switches. Code that was compiled without
# them gives wrong numbers with them, so an emulated CPU has a cache of its own.
EMULATED = [os.environ[name] for name in ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY") if name in os.environ]
if EMULATED:
    cache = f"torchinductor-{'-'.join(EMULATED)}-{os.getuid()}"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/{cache}")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # a shell in the background has it ignored; then so would the programs whose Ctrl-C is tested
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser. Without one, the tests that ask for it are skipped."""
    binary = find()
    if binary is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed, so nobody looks at the page")
    with Browser(binary) as found:
        yield found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each case of `adaptive` is slow: it begins with the transfer of `fast`, which goes on to AutoAttack on toys."""
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("name")  # type: ignore[attr-defined]
        if isinstance(name, str) and name.startswith("adaptive") and item.path.parent.name in ("contract", "attacks"):
            item.add_marker(pytest.mark.slow)
