"""An exported bundle behind the server answers as the network does, and its version is the digest of its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from antiadv.serving.source import Source
from tests.serving.nets import CLASSES, SHAPE, network, pictures

export = pytest.importorskip("antiadv.serving.export")
pytest.importorskip("onnxruntime")


def test_a_bundle_is_served_as_its_network(tmp_path: Path) -> None:
    x = pictures(8)
    made = export.export(network(), torch.from_numpy(x), tmp_path / "small")
    loaded = Source(tmp_path / "small", threads=1).load(8)
    (backend,) = loaded.backends
    assert (loaded.name, backend.shape, backend.classes) == ("small", SHAPE, CLASSES)
    (file,) = made.card["files"].values()
    assert file["digest"].partition(":")[2].startswith(loaded.version)
    assert len(loaded.version) == 12
    assert np.allclose(backend.run(x).scores, network()(torch.from_numpy(x)).detach().numpy(), atol=1e-4)
