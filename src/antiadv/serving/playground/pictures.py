"""Uploads become images of the network's size.

uploaded(bytes, shape)   any picture  →  float32 [1, C, H, W] in [0, 1]: upright, its middle, made smaller
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from antiadv.core.errors import BadInput, reason
from antiadv.data.pictures import open_picture

LARGEST_UPLOAD = 8 * 2**20  # bytes
WHERE = "the upload"


def uploaded(content: bytes, shape: tuple[int, int, int]) -> Tensor:
    """`shape` is channels, height and width. A telephone stores how a picture was held: it is turned upright."""
    if not content:
        raise BadInput("the upload is empty; give a PNG or JPEG file.")
    picture = open_picture(content, WHERE)
    channels, height, width = shape
    try:
        upright = ImageOps.exif_transpose(picture).convert("L" if channels == 1 else "RGB")
        fitted = ImageOps.fit(upright, (width, height), Image.Resampling.LANCZOS)
    except Exception as error:  # PIL fails in many ways for odd modes
        raise BadInput(f"{WHERE} cannot be resized: {reason(error)}; give an ordinary PNG or JPEG file.") from error
    pixels = torch.from_numpy(np.array(fitted, dtype=np.uint8).reshape(height, width, channels))
    return pixels.permute(2, 0, 1)[None].contiguous().float() / 255
