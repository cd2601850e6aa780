"""Random crop and horizontal flip of each sample, as one gather from padded uint8 images on the device.

    crop      the image padded by 4 zeros on each side; a window of its own size at (i, j), i and j in 0..8
    flip      with probability 1/2, the columns reversed
    output    window / 255, [N, C, H, W] in [0, 1], channels last in memory

The random numbers are arguments, so the function is pure. The loop makes them from (seed, phase, epoch, step).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

PAD = 4


def padded(x: Tensor) -> Tensor:
    """Pad uint8 [N, H, W, C] with zeros to [N, H + 8, W + 8, C]."""
    return F.pad(x, (0, 0, PAD, PAD, PAD, PAD))


def crop_and_flip(images: Tensor, rows: Tensor, shift: Tensor, flip: Tensor) -> Tensor:
    """Return the given rows of padded images, cropped and flipped; `shift` [N, 2] in 0..8, `flip` [N] 0 or 1."""
    height, width = images.shape[1] - 2 * PAD, images.shape[2] - 2 * PAD
    i = shift[:, :1] + torch.arange(height, device=images.device)
    j = torch.arange(width, device=images.device).expand(len(rows), width)
    j = shift[:, 1:] + torch.where(flip[:, None] > 0, width - 1 - j, j)
    window = images[rows[:, None, None], i[:, :, None], j[:, None, :]]  # [N, H, W, C]
    return window.permute(0, 3, 1, 2).float() / 255
