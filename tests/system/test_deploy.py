"""The road of docs/deploy.md: train, check, tune, export, serve, ask, attack the endpoint, judge it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.cli.__main__ import main
from antiadv.evaluation.preflight import preflight
from tests.serving.live import serving

pytest.importorskip("onnxruntime")
triton = pytest.importorskip("tritonclient.http")
pytestmark = pytest.mark.slow

CLASSES, SHAPE = 3, (3, 8, 8)


def patterns(n: int, seed: int) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], Tensor]:
    """Bytes [N, H, W, C]: a bright bar on a noisy ground, at a place that says the class."""
    rng = np.random.default_rng(seed)
    images = rng.integers(60, 120, (n, 8, 8, 3))
    labels = np.arange(n) % CLASSES
    for image, label in zip(images, labels, strict=True):
        image[:, 1 + 2 * label : 3 + 2 * label] += 90
    return images.astype(np.uint8), torch.from_numpy(labels)


def trained(x: Tensor, y: Tensor) -> nn.Module:
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES)
        )
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(60):
        loss = nn.functional.cross_entropy(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net.eval().requires_grad_(False)


def test_from_training_to_a_verdict_on_the_endpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pixels, y = patterns(96, 0)
    np.savez(tmp_path / "mine.npz", images=pixels, labels=y.numpy())
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    net = trained(x, y)
    assert all(f.fine for f in preflight(net, x, y) if f.name in ("range", "scores", "gradients"))

    tuned = antiadv.tune(net, x, y, keep=0.95, queries=20, attacked=12, steps=(1,), gates=(1.0,))
    assert tuned.tried  # it may find that nothing gains on so easy a task
    spec = tuned.spec or "anti_adversary:steps=1,step_size=0.01"
    defended = antiadv.defences.wrap(spec, net)
    bundle = antiadv.export(defended, x[:32], tmp_path / "bundle")
    assert bundle.card["check"]["same_labels"] == bundle.card["check"]["images"]

    with serving(str(tmp_path / "bundle")) as live:
        client = triton.InferenceServerClient(live.host)
        asked = triton.InferInput("images", [4, *SHAPE], "FP32")
        asked.set_data_from_numpy(x[:4].numpy())
        scores = client.infer("bundle", [asked]).as_numpy("scores")
        assert np.allclose(scores, defended(x[:4]).detach().numpy(), atol=1e-3)

        url = f"{live.url}/v2/models/bundle"
        found = antiadv.attack(antiadv.Remote(url), x[:6], y[:6], "square", antiadv.Linf(0.3), queries=40)
        assert all(1 <= record.queries <= 40 for record in found.records)

        data = f"arrays:{tmp_path / 'mine.npz'}"
        words = ["verdict", "--model", url, "--data", data, "--samples", "0:6", "--threat", "linf:0.3,queries=30"]
        assert main([*words, "--store", str(tmp_path / "store"), "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert {row["attack"] for row in rows} == {"square", "rays"}
