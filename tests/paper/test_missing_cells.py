"""Which cells can be run, and in which order."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from antiadv import paper
from antiadv.evaluation import Resources, Store
from antiadv.paper.missing_cells import as_stored, in_order, resolve
from antiadv.paper.networks import Source, of_method
from tests.engine.probes import RECEIPT, record
from tests.paper.written import put, request

NAMES = list(paper.EXPERIMENTS)


def test_informative_cells_come_first_each_once_with_the_most_samples() -> None:
    layouts = {name: paper.layout(name) for name in NAMES}
    requests = in_order(layouts)
    assert len({request.names for request in requests}) == len(requests)
    assert {request.names for request in requests} == {
        request.names for layout in layouts.values() for request in layout.requests
    }
    first = [request.network.name for request in requests[:20]]
    assert set(first) == {"compact:trades", "compact:awp"}
    sizes = [request.network.size for request in requests]
    assert sizes == sorted(sizes)  # compact before larger
    square = next(a for a in layouts["table-2"].requests if a.attack == "square")  # also of table 3
    assert (square.samples, next(a.samples for a in requests if a.names == square.names)) == (500, 1000)


def test_a_data_set_that_is_not_imported_is_reported(tmp_path: Path) -> None:
    """There is a CIFAR-100 network, but no images for it."""
    network = dataclasses.replace(of_method(Source(directory=str(tmp_path)), "cifar100", "awp")[0], absent="")
    requested = dataclasses.replace(request("apgd"), network=network)
    _, (missing,) = resolve([requested], "float32", Resources("cpu"))
    assert "CIFAR-100" in missing.why
    assert "antiadv data import" in missing.why


def test_a_cell_that_is_incomplete_in_another_precision_is_run(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    (requested,), _ = resolve([request("square", samples=40)], "float32", resources)
    mixed = dataclasses.replace(requested, precision="mixed")
    store.append(mixed, [record(i) for i in range(39)], RECEIPT)
    assert as_stored(requested, store) == requested
    store.append(mixed, [record(39)], RECEIPT)
    assert as_stored(requested, store) == mixed


def test_a_store_does_not_hold_paths_of_files(tmp_path: Path, resources: Resources) -> None:
    """Results are shared. They must not name folders of this machine."""
    (tmp_path / "sets").mkdir()
    network = dataclasses.replace(
        request("apgd").network, data=Source(directory=str(tmp_path / "sets")).data("cifar10")
    )
    (cell,), _ = resolve([dataclasses.replace(request("apgd"), network=network)], "float32", resources)
    put(Store(tmp_path), cell, 2)
    (path,) = tmp_path.glob("*/cell.json")
    assert str(tmp_path) not in path.read_text()
    (again,) = Store(tmp_path).cells()
    assert (again.key, again.data, len(Store(tmp_path).read(again))) == (cell.key, "cifar10:test", 40)
