"""Random resizing and padding (Xie et al., ICLR 2018, arXiv:1711.01991), scaled to the image.

    room     P = S + max(2, ⌊m·S⌋)                                  for each side S of the image
    resize   to R, uniform in S + 1 … P − 1, by nearest neighbour   pixel j of R shows pixel ⌊j·S/R⌋ of S        (1)
    pad      with zeros to P, the image at an offset uniform in 0 … P − R, one for each axis                    (2)

For 32 pixels and m = 1/8: R in 33 … 35, P = 36. The authors have 299, 310 … 330 and 331.

Notation:   m → `margin`, P → `room`.
Cost:       one forward pass of f, on a larger image. The base must accept it, so it must pool over space; any other is
            refused. (Resizing back to S would be another defence than the published one.)
Departures: each sample draws its own R and offsets; the authors draw one for a batch. Zero is black here; their images
            lie in [−1, 1], where it is grey. Both sides of an image that is not square grow by the same draw.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from antiadv.core.defence import Randomised
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, first_line
from antiadv.core.validation import is_number


class ResizePad(Randomised):
    """The classifier `base` on images that are resized and padded at random.

    >>> import torch
    >>> g = ResizePad(torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval())
    >>> g(torch.full((5, 3, 32, 32), 0.5)).shape
    torch.Size([5, 3])
    """

    def __init__(self, base: nn.Module, margin: float = 0.125) -> None:
        super().__init__(base)
        if not is_number(margin, 8):
            raise BadInput(f"margin, a share of the image's side, must be 0 … 8; found {margin!r}. Use 0.125.")
        self.margin = margin

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        z = self.place(x, draws)
        try:
            s: Tensor = self.base(z)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, AssertionError) as error:
            if not self._takes(x):
                raise
            raise BadInput(
                f"resize_pad needs a classifier for images of any size; this one accepts {_size(x)} pixels and "
                f"fails at {_size(z)} ({first_line(error)}). Use one that pools over space before its last layer, "
                "or another defence."
            ) from error
        return s

    def _takes(self, x: Tensor) -> bool:
        """Whether the base accepts images of the original size. If so, the larger size made it fail."""
        try:
            with torch.no_grad():
                self.base(x[:1].clone())
        except Exception:
            return False
        return True

    def place(self, x: Tensor, draws: Draws) -> Tensor:
        """The images as the base sees them, `[N, C, P, P']`."""
        if x.ndim != 4:
            raise BadInput(f"resize_pad needs images [N, C, H, W]; found {tuple(x.shape)}. Add the missing axes.")
        u = draws.uniform(3)  # one number for the size, one for each offset
        rows, tall = self._axis(x.shape[2], u[:, 0], u[:, 1])
        columns, wide = self._axis(x.shape[3], u[:, 0], u[:, 2])
        z = x.gather(2, rows[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))
        z = z.gather(3, columns[:, None, None, :].expand(-1, x.shape[1], z.shape[2], -1))
        return torch.where(tall[:, None, :, None] & wide[:, None, None, :], z, torch.zeros_like(z))

    def _axis(self, side: int, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """For every pixel of the padded axis: which pixel of the image it shows, and whether it shows one."""
        room = side + max(2, int(self.margin * side))
        size = side + 1 + (u * (room - side - 1)).long().clamp_max(room - side - 2)
        offset = torch.minimum((v * (room - size + 1)).long(), room - size)  # (2); float32 may round up
        j = torch.arange(room, device=u.device) - offset[:, None]
        return (j * side // size[:, None]).clamp(0, side - 1), (j >= 0) & (j < size[:, None])  # (1)


def _size(x: Tensor) -> str:
    return f"{x.shape[2]} × {x.shape[3]}"
