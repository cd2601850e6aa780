"""What a network says of its images, as arguments of `wrap`: processors of Hugging Face, settings of timm.

    of_processor(processor)     a processor of transformers, or what its preprocessor_config.json holds
    of_folder(folder)           that file of a folder; {} where there is none
    of_timm(network)            timm keeps it in `pretrained_cfg`, older versions in `default_cfg`

A processor of Hugging Face resizes, crops, scales bytes, normalises and turns channels. Here images lie in [0, 1], so
the scale is 255 times its own, and 1 for most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from antiadv.core.bounds import read_json
from antiadv.core.errors import BadInput, first_line

LARGEST_CONFIG = 1 << 20  # bytes of a preprocessor_config.json
FILES = ("preprocessor_config.json", "processor_config.json")
BICUBIC = 3  # PIL's number for it
WARPED = 384  # edge from which the processor of ConvNeXT no longer crops
FAULTS = (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)

Settings = dict[str, Any]


def of_folder(folder: Path) -> Settings:
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        return {}
    try:
        return _settings(read_json(path, LARGEST_CONFIG))
    except FAULTS as error:
        raise BadInput(f"{path} is not a processor's configuration ({first_line(error)}).") from error


def of_processor(processor: object) -> Settings:
    """The settings of a processor of transformers, or of a mapping such as its configuration."""
    processor = getattr(processor, "image_processor", processor)  # a processor of text and images holds one
    try:
        held = processor if isinstance(processor, Mapping) else processor.to_dict()  # type: ignore[attr-defined]
        return _settings({name: value for name, value in held.items() if value is not None})
    except FAULTS as error:
        raise BadInput(
            f"a processor is an image processor of transformers, or its settings; found {type(processor).__name__} "
            f"({first_line(error)}). Give AutoImageProcessor.from_pretrained(FOLDER)."
        ) from error


def of_timm(model: nn.Module) -> Settings:
    for name in ("pretrained_cfg", "default_cfg"):
        found = getattr(model, name, None)
        if isinstance(found, Mapping) and {"mean", "std"} <= set(found):
            settings = {"mean": tuple(found["mean"]), "std": tuple(found["std"])}
            shape = found.get("input_size")
            return {**settings, "size": tuple(shape[1:])} if shape else settings
    return {}


def _settings(read: Mapping[str, Any]) -> Settings:
    read = read.get("image_processor", read)
    return {**_numbers(read), **_shape(read), **({"bgr": True} if read.get("do_flip_channel_order") else {})}


def _numbers(read: Mapping[str, Any]) -> Settings:
    """Scale, mean and std."""
    scale = 255 * float(read.get("rescale_factor", 1 / 255)) if read.get("do_rescale", True) else 255.0
    settings: Settings = {} if math.isclose(scale, 1, rel_tol=1e-6) else {"scale": scale}
    mean, std = [0.0], [1.0]
    normalises = not read.get("do_flip_channel_order")  # MobileViT's writes a mean that it does not use
    if read.get("do_normalize", normalises) and "image_mean" in read:
        mean, std = [float(v) for v in read["image_mean"]], [float(v) for v in read["image_std"]]
        if read.get("include_top"):  # of EfficientNet: divided by std once more
            std = [v * v for v in std]
    if read.get("rescale_offset"):  # it takes 1 off after scaling
        mean = [v + 1 for v in mean]
    return settings if (mean, std) == ([0.0], [1.0]) else {**settings, "mean": tuple(mean), "std": tuple(std)}


def _shape(read: Mapping[str, Any]) -> Settings:
    """`resize`, a height and width or the shorter edge, and `size`, the middle that is cropped from it."""
    mode = {"mode": "bicubic"} if read.get("resample") == BICUBIC else {}
    resized = _extent(read["size"]) if read.get("do_resize", True) and "size" in read else None
    if isinstance(resized, int) and "crop_pct" in read:  # of ConvNeXT
        size = (resized, resized)
        return {"size": size, "resize": int(resized / float(read["crop_pct"])) if resized < WARPED else size, **mode}
    crop = _extent(read["crop_size"]) if read.get("do_center_crop") and "crop_size" in read else None
    crop = (crop, crop) if isinstance(crop, int) else crop
    final = crop or (resized if isinstance(resized, tuple) else None)
    found = {"size": final, "resize": None if resized == final else resized}
    shape = {name: value for name, value in found.items() if value is not None}
    return {**shape, **mode} if shape else {}


def _extent(found: Any) -> tuple[int, int] | int:
    """`{"height": 8, "width": 8}` and a number are a height and width, `{"shortest_edge": 8}` is the shorter edge."""
    if isinstance(found, int):
        return found, found
    if "height" in found or "width" in found:
        return int(found["height"]), int(found["width"])
    return int(found["shortest_edge"])
