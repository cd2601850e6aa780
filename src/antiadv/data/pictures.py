"""Pictures from files that may be damaged, or made to do harm.

open_picture(source, where)   →  the picture, decoded, in its own mode

PIL reports a damaged file by almost any exception, and decodes some formats with other programs (EPS) or into far more
memory than the file has bytes. So the formats are named, the size is checked before anything is decoded, and whatever
goes wrong is one sentence.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from PIL import Image

from antiadv.core.bounds import PIXELS
from antiadv.core.errors import BadInput, reason

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")


def open_picture(source: bytes | Path, where: str) -> Image.Image:
    """A decoded picture of at most PIXELS; `where` names it in the error. A path that is not there stays an OSError."""
    content = source.read_bytes() if isinstance(source, Path) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PIL warns of a size that is refused here anyway, and of odd metadata
            picture = Image.open(io.BytesIO(content), formats=FORMATS)
            check_size(picture.width, picture.height, where)
            picture.load()
    except BadInput:
        raise
    except Exception as error:  # OSError, SyntaxError, ValueError, struct.error, DecompressionBombError, KeyError …
        raise BadInput(
            f"{where} cannot be read as a picture ({_said(error)}); give a PNG, JPEG or WebP file."
        ) from error
    return picture


def check_size(width: int, height: int, where: str) -> None:
    if width * height > PIXELS:
        raise BadInput(
            f"{where} would have {width} x {height} pixels; at most {PIXELS:,} are read. Give a smaller one."
        )


def _said(error: Exception) -> str:
    """PIL names the stream in memory, which nobody knows."""
    said = reason(error)
    return "it is of no known format" if "cannot identify image" in said else said
