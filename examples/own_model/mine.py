"""A network of your own, trained on pictures that this file draws: discs, squares, crosses and rings in noise.

python mine.py          trains it and writes mine.safetensors, and 400 other pictures as mine.npz
--model mine:make       is then its name in every command, and --data arrays:mine.npz names the pictures
"""

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

import antiadv


def draw(n: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """n pictures [n, 32, 32, 3] and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    size = rng.integers(6, 11, n)[:, None, None]
    row, column = rng.integers(12, 20, (2, n, 1, 1))
    down, across = np.abs(np.arange(32)[:, None] - row), np.abs(np.arange(32) - column)
    away, near, far = np.hypot(down, across), np.minimum(down, across), np.maximum(down, across)
    kinds = [away < size, far < size, (near < 2) & (far < size), (away < size) & (away > size - 3)]
    shape = np.choose(y[:, None, None], kinds)[..., None]
    front, back = rng.uniform(0, 1, (2, n, 1, 1, 3))
    pixels = np.where(shape, front, back) + rng.normal(0, 0.08, (n, 32, 32, 3))
    return np.rint(255 * pixels.clip(0, 1)).astype(np.uint8), y


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 16, 4),
    )  # fmt: skip


def make() -> nn.Module:
    """The trained network, in eval mode. It wants normalised images; `wrap` normalises."""
    net = network()
    net.load_state_dict(load_file("mine.safetensors"))
    return antiadv.wrap(net.eval(), mean=(0.5,) * 3, std=(0.25,) * 3)


def images(pixels: NDArray[np.uint8]) -> Tensor:
    """As antiadv takes them: [n, 3, 32, 32] in [0, 1]."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def train(steps: int = 400) -> None:
    torch.manual_seed(0)
    net, (pixels, labels) = network(), draw(2000, seed=0)
    x, y = (images(pixels) - 0.5) / 0.25, torch.from_numpy(labels)
    optimiser = torch.optim.Adam(net.parameters(), 0.002)
    for _ in range(steps):
        rows = torch.randint(len(x), (64,))
        optimiser.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        optimiser.step()
    save_file(net.state_dict(), "mine.safetensors")
    pixels, labels = draw(400, seed=1)
    np.savez("mine.npz", images=pixels, labels=labels)
    right = make()(images(pixels)).argmax(1) == torch.from_numpy(labels)
    print(f"{right.double().mean():.1%} of 400 new pictures are classified correctly")


if __name__ == "__main__":
    train()
