"""Pictures from files that may be damaged or malicious.

open_picture(source, where)   →  the decoded picture, in its own mode

PIL raises almost any exception for a damaged file. It decodes some formats with other programs (EPS), or into far more
memory than the file has bytes. So only listed formats are opened, the size is checked before decoding, and every
failure becomes a `BadInput`.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from PIL import Image

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


def _reason(error: Exception) -> str:
    """Replace PIL's message for an unknown format, which shows the address of a buffer."""
    text = reason(error)
    return "unknown format" if "cannot identify image" in text else text
