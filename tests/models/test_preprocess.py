"""Normalise: known answers for every set of constants, any number of channels, and what is saved."""

from __future__ import annotations

import pytest
import torch

from antiadv.core.errors import BadInput
from antiadv.models.preprocess import CONSTANTS, Normalise, normaliser


@pytest.mark.parametrize("name", CONSTANTS)
def test_named_constants_are_subtracted_and_divided_by(name: str) -> None:
    mean, std = (torch.tensor(values).expand(3) for values in CONSTANTS[name])  # type: ignore[index]
    x = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    out = normaliser(name)(x)  # type: ignore[arg-type]
    for channel in range(3):
        torch.testing.assert_close(out[:, channel], (x[:, channel] - mean[channel]) / std[channel])


def test_half_maps_to_minus_one_and_one_and_none_to_itself() -> None:
    x = torch.tensor([0.0, 0.5, 1.0]).view(1, 3, 1, 1)
    assert normaliser("half")(x).flatten().tolist() == [-1, 0, 1]
    assert torch.equal(normaliser("none")(x), x)


def test_v1_constants_are_pixels_without_a_scale() -> None:
    x = torch.tensor([123.68, 116.779, 103.939]).view(1, 3, 1, 1) / 255 + 10 / 255
    torch.testing.assert_close(normaliser("resnet50-v1")(x).flatten(), torch.full((3,), 10.0), atol=1e-4, rtol=0)


def test_any_number_of_channels() -> None:
    x = torch.ones(1, 4, 2, 2)
    assert Normalise((0, 0, 0, 1), (1, 2, 4, 8))(x)[0, :, 0, 0].tolist() == [1, 0.5, 0.25, 0]
    assert Normalise((0.5,), (0.25,))(x).unique().tolist() == [2]


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_images_with_other_channels_are_refused(channels: int) -> None:
    """Without the check, one channel would be broadcast to all, and the network would return logits."""
    with pytest.raises(BadInput, match=rf"4 channels.*found {channels}\b.*\(1, {channels}, 2, 2"):
        Normalise((0, 0, 0, 1), (1,))(torch.ones(1, channels, 2, 2))


def test_constants_move_with_the_module_and_are_not_saved() -> None:
    module = Normalise((0.5,), (0.25,))
    assert module.state_dict() == {}
    assert module.to(torch.float64).mean.dtype == torch.float64


def test_constants_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match="mean has 3 values and std 2"):
        Normalise((0, 0, 0), (1, 1))
    with pytest.raises(BadInput, match="above 0"):
        Normalise((0,), (0,))
