"""What a processor of Hugging Face does to an image, `wrap` does too: compared with the processors of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from antiadv import models
from antiadv.core.errors import BadInput
from antiadv.models.processor import of_folder, of_processor
from antiadv.models.wrap import wrap

BYTES = torch.randint(0, 256, (2, 3, 40, 60), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


class Keeps(nn.Module):
    """Remembers the images that reach it."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        return x.flatten(1)[:, :5]


def smooth(high: int, wide: int) -> Tensor:
    """Bytes without sharp edges: libraries round them in different ways."""
    down, across = torch.linspace(0, 3, high)[:, None], torch.linspace(0, 5, wide)
    return torch.stack([120 + 110 * torch.sin(down * k + across) for k in (0.4, 0.8, 1.1)])[None].round().byte()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ConvNext", {"size": {"shortest_edge": 28}, "crop_pct": 0.875}),
        ("ConvNext", {"size": {"shortest_edge": 384}}),
        ("MobileViT", {"size": {"shortest_edge": 32}, "crop_size": {"height": 24, "width": 24}}),
        ("MobileViT", {"size": {"shortest_edge": 24}, "crop_size": {"height": 32, "width": 28}}),
        ("EfficientNet", {"size": {"height": 32, "width": 32}, "rescale_offset": True, "rescale_factor": 1 / 127.5,
                          "do_normalize": False, "include_top": False, "resample": 2}),
        ("EfficientNet", {"size": {"height": 32, "width": 32}, "include_top": True, "resample": 2}),
        ("ViT", {"size": {"height": 16, "width": 24}, "do_rescale": False, "image_mean": [99, 98, 97]}),
    ],
)  # fmt: skip
def test_images_are_prepared_as_the_processor_does(kind: str, options: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, f"{kind}ImageProcessorPil", None) or getattr(
        transformers, f"{kind}ImageProcessor"
    )
    made = processor(**options)
    images, net = smooth(40, 60), Keeps()
    theirs = made(list(images.numpy()), return_tensors="pt", input_data_format="channels_first")["pixel_values"].float()
    wrap(net, processor=made)(images.float() / 255)
    assert net.seen.shape == theirs.shape
    apart = (net.seen - theirs).abs()
    inner = apart[..., 2:-2, 2:-2]  # filters treat the border in ways of their own
    assert inner.max() <= 3 / 255 * (theirs.max() - theirs.min())


def test_images_of_the_final_size_are_left_alone_and_what_is_given_counts_more() -> None:
    settings = {"size": {"shortest_edge": 9}, "do_center_crop": True, "crop_size": {"height": 8, "width": 8},
                "image_mean": [0.5], "image_std": [0.5]}  # fmt: skip
    net, x = Keeps(), BYTES[:, :, :8, :8].float() / 255
    wrap(net, processor=settings)(x)
    torch.testing.assert_close(net.seen, 2 * x - 1)
    wrap(net, processor=settings, mean=0, std=1, size=4)(x)
    assert net.seen.shape[-2:] == (4, 4)
    assert net.seen.min() >= 0


@pytest.mark.parametrize("processor", [3, "resnet", {"image_mean": 1}, {"size": {"height": 3}}])
def test_what_is_no_processor_gets_a_sentence(processor: object) -> None:
    with pytest.raises(BadInput):
        of_processor(processor)


def test_the_processor_of_text_and_images_holds_one(tmp_path: Path) -> None:
    inner = {"image_mean": [0.1], "image_std": [0.2], "size": {"height": 7, "width": 9}}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": inner}))
    assert of_folder(tmp_path) == {"mean": (0.1,), "std": (0.2,), "size": (7, 9)}


def test_a_network_of_hugging_face_without_a_processor_is_not_silent(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=4)
    net = transformers.ResNetForImageClassification(config).eval()
    with pytest.warns(UserWarning, match="processor"):
        wrap(net)
    net.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="processor"):
        models.load(f"huggingface:{tmp_path}")
    settings = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.2] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    x = BYTES[:, :, :8, :8].float() / 255
    torch.testing.assert_close(wrap(net, processor=settings)(x), models.load(f"huggingface:{tmp_path}")(x))
