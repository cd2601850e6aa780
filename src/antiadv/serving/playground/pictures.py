"""Uploads become images of the network's size; images become pictures that a page can show.

uploaded(bytes, size)   any picture  →  float32 [1, 3, H, W] in [0, 1]: its middle square, made smaller
png(x)                  [C, H, W] in [0, 1]  →  the bytes of a PNG
inline(x)               the same as a data URI
magnified(d)            a perturbation around grey, and the factor by which it was multiplied
"""

from __future__ import annotations

import base64
import io

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from antiadv.core.errors import BadInput, reason
from antiadv.data.pictures import open_picture

LARGEST_UPLOAD = 8 * 2**20  # bytes
WHERE = "the upload"


def uploaded(content: bytes, size: tuple[int, int]) -> Tensor:
    if not content:
        raise BadInput("the upload is empty; give a PNG or JPEG file.")
    picture = open_picture(content, WHERE)
    height, width = size
    try:
        fitted = ImageOps.fit(picture.convert("RGB"), (width, height), Image.Resampling.LANCZOS)
    except Exception as error:  # PIL fails in many ways for odd modes
        raise BadInput(f"{WHERE} cannot be resized: {reason(error)}; give an ordinary PNG or JPEG file.") from error
    pixels = torch.from_numpy(np.array(fitted, dtype=np.uint8))
    return pixels.permute(2, 0, 1)[None].contiguous().float() / 255


def png(x: Tensor) -> bytes:
    pixels = (x.detach().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


def inline(x: Tensor) -> str:
    return "data:image/png;base64," + base64.b64encode(png(x)).decode()


def magnified(d: Tensor) -> tuple[Tensor, float]:
    most = float(d.abs().max())
    factor = 0.5 / most if most > 0 else 1.0
    return 0.5 + factor * d, factor
