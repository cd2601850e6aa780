"""JPEG compression as a defence (Guo et al., ICLR 2018, arXiv:1711.00117): g(x) = f(JPEG(x)).

    round       pixels to 8 bits
    colours     RGB → Y, Cb, Cr; with `subsample` Cb and Cr keep one value for 2 × 2 pixels
    transform   c = D·b·Dᵀ for every 8 × 8 block b, less 128;    D_ui = √(2/8)·cos((2i + 1)·u·π/16),  D_0i = √(1/8)
    quantise    c ← q·round(c / q);    q: tables of the standard's annex K times 50/Q for Q < 50, else times 2 − Q/50
    back        b = Dᵀ·c·D + 128; Cb and Cr are stretched with weights ¾ and ¼ of the two nearest values; RGB in 8 bits

The coding of these numbers as bits loses nothing, so it is left out. A grey image has Y alone. Rounding has no slope,
so the gradient of g is zero. It is undone by BPDA: JPEG leaves an image much as it is, so the gradient of f takes the
place of that of g.

Notation:   Q → `quality`, D → `_cosines`.
Cost:       one forward pass of f, and about 150 operations on all pixels. No random numbers.
Departures: libjpeg computes in whole numbers, so single pixels may differ by a few grey levels from its answer.

Every operation works on single pixels, in a fixed order, without matrix products. So an image has the same answer, bit
for bit, in any batch.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.defence import Defence
from antiadv.core.errors import BadInput
from antiadv.core.losses import wide
from antiadv.core.validation import check_flag, is_count

BLOCK = 8
BRIGHTNESS = (
    *(16, 11, 10, 16, 24, 40, 51, 61),
    *(12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56),
    *(14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77),
    *(24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101),
    *(72, 92, 95, 98, 112, 100, 103, 99),
)
COLOUR = (
    *(17, 18, 24, 47, 99, 99, 99, 99),
    *(18, 21, 26, 66, 99, 99, 99, 99),
    *(24, 26, 56, 99, 99, 99, 99, 99),
    *(47, 66, 99, 99, 99, 99, 99, 99),
    *(99,) * 32,
)


class Jpeg(Defence):
    """The classifier `base` on images that went through JPEG at this `quality`, 1 … 100.

    `subsample` halves the resolution of the colours, as most programs do by default. Images have one channel or three.

    >>> import torch
    >>> f = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    >>> Jpeg(f)(torch.full((5, 3, 32, 32), 0.5)).shape
    torch.Size([5, 3])
    """

    def __init__(self, base: nn.Module, quality: int = 75, subsample: bool = True) -> None:
        super().__init__(base)
        if not is_count(quality, 1, 100):
            raise BadInput(f"quality must be an integer, 1 … 100; found {quality!r}. Use 75.")
        check_flag(subsample=subsample)
        self.quality, self.subsample = quality, subsample
        # buffers, so that they follow the module to its device; not persistent, because they are no weights
        self.register_buffer("_cosines", _cosines(), persistent=False)
        self.register_buffer("_brightness", self._scaled(BRIGHTNESS), persistent=False)
        self.register_buffer("_colour", self._scaled(COLOUR), persistent=False)

    _cosines: Tensor
    _brightness: Tensor
    _colour: Tensor

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        """The smooth version is f itself, for any κ."""
        return self.base

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(x, self.compressed)

    def shown(self, x: Tensor) -> Tensor:
        return self.compressed(x)

    def compressed(self, x: Tensor) -> Tensor:
        """The images as the base sees them."""
        if x.ndim != 4 or x.shape[1] not in (1, 3):
            raise BadInput(
                f"jpeg needs images [N, 1 or 3, H, W]; found {tuple(x.shape)}. Use another defence for others."
            )
        if x.numel() == 0:
            return x.clone()
        v = _nearest(wide(x).clamp(0, 1) * 255)
        if x.shape[1] == 1:
            v = self._coarse(v, self._brightness)
        else:
            y, cb, cr = _from_rgb(v)
            colours = torch.cat([cb, cr], 1)
            colours = self._halved(colours) if self.subsample else self._coarse(colours, self._colour)
            v = _to_rgb(self._coarse(y, self._brightness), *colours.split(1, 1))
        return (v / 255).to(x.dtype)

    def _halved(self, v: Tensor) -> Tensor:
        """Both colours with one value for 2 × 2 pixels, quantised, and stretched again."""
        h, w = v.shape[2:]
        v = _grown(v, 2, 2 * BLOCK)
        total = v[:, :, ::2, ::2] + v[:, :, ::2, 1::2] + v[:, :, 1::2, ::2] + v[:, :, 1::2, 1::2]
        half = (
            1 + torch.arange(total.shape[3], device=v.device) % 2
        )  # quarters .5 go down and up in turn, as in libjpeg
        v = self._coarse(((total + half) / 4).floor(), self._colour)[:, :, : (h + 1) // 2, : (w + 1) // 2]
        return _nearest(_stretched(_stretched(v, 2), 3))[:, :, :h, :w]

    def _coarse(self, v: Tensor, table: Tensor) -> Tensor:
        """`[N, C, H, W]` after transform, quantisation and transform back, in whole numbers 0 … 255."""
        n, c, h, w = v.shape
        v = _grown(v, BLOCK, BLOCK) - 128
        blocks = v.reshape(n, c, v.shape[2] // BLOCK, BLOCK, v.shape[3] // BLOCK, BLOCK)
        q, down = table.to(v).view(BLOCK, 1, BLOCK), self._cosines.to(v)
        eighths = _nearest(8 * _product(_product(blocks, down, 3), down, 5))  # the digits that libjpeg keeps
        coded = _nearest(eighths / (8 * q)) * q
        back = _product(_product(coded, down.T, 3), down.T, 5).reshape(v.shape)[:, :, :h, :w]
        return _nearest(back + 128).clamp(0, 255)

    def _scaled(self, table: tuple[int, ...]) -> Tensor:
        percent = 5000 // self.quality if self.quality < 50 else 200 - 2 * self.quality
        return torch.tensor([min(max((entry * percent + 50) // 100, 1), 255) for entry in table])


def _nearest(v: Tensor) -> Tensor:
    """The nearest whole number; halves go away from zero, as in libjpeg."""
    return v.sign() * (v.abs() + 0.5).floor()


def _grown(v: Tensor, high: int, wide: int) -> Tensor:
    """Height and width up to the next multiples of these numbers, by repeating the last row and column."""
    return F.pad(v, (0, -v.shape[3] % wide, 0, -v.shape[2] % high), mode="replicate")


def _cosines() -> Tensor:
    """D."""
    rows = [
        [math.sqrt((2 if u else 1) / BLOCK) * math.cos((2 * i + 1) * u * math.pi / (2 * BLOCK)) for i in range(BLOCK)]
        for u in range(BLOCK)
    ]
    return torch.tensor(rows, dtype=torch.float64)


def _product(blocks: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Σ_i matrix[u, i]·blocks[…, i, …] along an axis, term by term: a matrix product would depend on the batch."""
    shape = [BLOCK if a == axis else 1 for a in range(blocks.ndim)]
    terms = [matrix[:, i].reshape(shape) * blocks.narrow(axis, i, 1) for i in range(BLOCK)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _stretched(v: Tensor, axis: int) -> Tensor:
    """Twice as long: each value becomes two, of ¾ itself and ¼ of the neighbour on that side."""
    last = v.shape[axis] - 1
    before = torch.cat([v.narrow(axis, 0, 1), v.narrow(axis, 0, last)], axis)
    after = torch.cat([v.narrow(axis, 1, last), v.narrow(axis, last, 1)], axis)
    pairs = torch.stack([0.75 * v + 0.25 * before, 0.75 * v + 0.25 * after], axis + 1)
    return pairs.flatten(axis, axis + 1)


def _from_rgb(v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r, g, b = v.split(1, 1)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    cb = -0.168735892 * r - 0.331264108 * g + 0.5 * b + 128
    cr = 0.5 * r - 0.418687589 * g - 0.081312411 * b + 128
    return _nearest(y), _nearest(cb).clamp(0, 255), _nearest(cr).clamp(0, 255)


def _to_rgb(y: Tensor, cb: Tensor, cr: Tensor) -> Tensor:
    cb, cr = cb - 128, cr - 128
    rgb = (y + 1.402 * cr, y - 0.344136286 * cb - 0.714136286 * cr, y + 1.772 * cb)
    return _nearest(torch.cat(rgb, 1)).clamp(0, 255)
