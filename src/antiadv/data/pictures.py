"""Pictures: files that may be damaged or malicious become pixels, and images become PNG files.

open_picture(source, where)   →  the decoded picture, in its own mode
to_bytes(x)                   [C, H, W] in [0, 1]  →  uint8 [H, W, C], or [H, W] for one channel
png(x)                        the same as a PNG file
data_uri(png)                 →  the text by which a page holds a PNG file
magnified(d)                  →  a perturbation around grey, and the factor by which it was multiplied

PIL raises almost any exception for a damaged file. It decodes some formats with other programs (EPS), or into far more
memory than the file has bytes. So only listed formats are opened, the size is checked before decoding, and every
failure becomes a `BadInput`.
"""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from antiadv.core.bounds import PIXELS
from antiadv.core.errors import BadInput, reason

LARGEST = 8 * PIXELS  # bytes of a file: four channels of 16 bits, not packed
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")


def open_picture(source: bytes | Path, where: str) -> Image.Image:
    """Decode a picture of at most PIXELS pixels. `where` names it in errors. A missing file raises OSError."""
    content = _content(source) if isinstance(source, Path) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PIL warns about large sizes and odd metadata
            picture = Image.open(io.BytesIO(content), formats=FORMATS)
            check_size(picture.width, picture.height, where)
            picture.load()
    except BadInput:
        raise
    except Exception as error:  # OSError, SyntaxError, ValueError, struct.error, DecompressionBombError, KeyError …
        raise BadInput(
            f"{where} cannot be read as a picture: {_reason(error)}; give a PNG, JPEG or WebP file."
        ) from error
    return picture


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise BadInput(f"{path} is larger than {LARGEST:,} bytes, which no picture needs. Give a smaller picture.")
    return content


def check_size(width: int, height: int, where: str) -> None:
    if width * height > PIXELS:
        raise BadInput(
            f"{where} would have {width} x {height} pixels; at most {PIXELS:,} are allowed. Give a smaller picture."
        )


def to_bytes(x: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    pixels: np.ndarray[Any, np.dtype[np.uint8]]
    pixels = (x.detach().cpu().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels


def png(x: Tensor) -> bytes:
    out = io.BytesIO()
    Image.fromarray(to_bytes(x)).save(out, "png", optimize=True)
    return out.getvalue()


def data_uri(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def magnified(d: Tensor) -> tuple[Tensor, float]:
    most = float(d.abs().max())
    factor = 0.5 / most if most > 0 else 1.0
    return 0.5 + factor * d, factor


def _reason(error: Exception) -> str:
    """Replace PIL's message for an unknown format, which shows the address of a buffer."""
    text = reason(error)
    return "unknown format" if "cannot identify image" in text else text
