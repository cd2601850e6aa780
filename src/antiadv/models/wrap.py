"""Make a classifier of what people have: images in [0, 1] in, logits out.

    wrap(model, mean=…, std=…)       a module that wants normalised images
    wrap(model)                      a network of Hugging Face or timm: its logits, and its own mean, std and size
    wrap(function)                   a Python function on numpy arrays, without gradients
    load("onnx:net.onnx")            an ONNX file, without gradients
    load("torchscript:net.pt")       a TorchScript file
    load("huggingface:FOLDER")       a folder that `save_pretrained` of transformers wrote
    load("timm:NAME,path=FILE")      a network of timm with the weights of a file

In order, an image is resized, its channels are turned (`bgr`), it is scaled (`scale`), normalised and laid channels
last. A model without gradients serves attacks on scores and labels. An attack that needs gradients says why it cannot.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.bounds import read_json
from antiadv.core.errors import BadInput, MissingExtra, first_line
from antiadv.models import checkpoints
from antiadv.models.preprocess import Normalise

Output = Literal["auto", "logits", "probabilities"]
LEAST_PROBABILITY = 1e-12  # below it, its logarithm says nothing
LARGEST_CONFIG = 1 << 20  # bytes of a preprocessor_config.json


def wrap(
    model: nn.Module | Callable[[np.ndarray[Any, Any]], Any],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | tuple[int, int] | None = None,
    scale: float = 1.0,
    bgr: bool = False,
    channels_last: bool = False,
    output: Output = "auto",
) -> Wrapped:
    """Turn a model into a classifier of images [N, C, H, W] in [0, 1] that returns logits [N, K], in eval mode.

    `mean` and `std` are per channel, in the scale of the model's input. `size` resizes images first. `scale=255` is for
    models that take bytes. With `output="probabilities"` the scores are their logarithms. Other settings are found in
    the model itself, if it has them: networks of timm and Hugging Face say how they were trained. What you give counts
    more.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    >>> x = torch.linspace(0, 1, 60).reshape(5, 3, 2, 2)
    >>> wrap(net, mean=(0.5,), std=(0.25,))(x).shape
    torch.Size([5, 3])
    >>> wrap(lambda images: images.mean((2, 3)))(x).shape
    torch.Size([5, 3])
    """
    if not callable(model):
        raise BadInput(f"a model is an nn.Module or a function on arrays; found {type(model).__name__}. Give one.")
    inner = model if isinstance(model, nn.Module) else OnArrays(model)
    known = settings_of(inner)
    mean = known.get("mean") if mean is None else mean
    std = known.get("std") if std is None else std
    size = known.get("size") if size is None else size
    return Wrapped(inner, mean, std, size, scale, bgr, channels_last, output).eval()


class Wrapped(nn.Module):
    """See `wrap`, which makes it."""

    def __init__(
        self,
        model: nn.Module,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        size: int | tuple[int, int] | None,
        scale: float,
        bgr: bool,
        channels_last: bool,
        output: Output,
    ) -> None:
        super().__init__()
        self.model, self.scale, self.bgr, self.channels_last, self.output = model, scale, bgr, channels_last, output
        self.size = (size, size) if isinstance(size, int) else size
        plain = mean is None and std is None
        self.normalise = nn.Identity() if plain else Normalise(tuple(mean or (0.0,)), tuple(std or (1.0,)))

    def forward(self, x: Tensor) -> Tensor:
        if self.size is not None and tuple(x.shape[-2:]) != self.size:
            x = F.interpolate(x, self.size, mode="bilinear", align_corners=False, antialias=True)
        x = x.flip(1) if self.bgr else x
        x = self.normalise(x * self.scale if self.scale != 1 else x)
        s = scores_in(self.model(x.permute(0, 2, 3, 1) if self.channels_last else x))
        return s.clamp_min(LEAST_PROBABILITY).log() if self.output == "probabilities" else s

    def extra_repr(self) -> str:
        given = {"size": self.size, "scale": self.scale, "bgr": self.bgr, "channels_last": self.channels_last}
        return ", ".join(f"{name}={value}" for name, value in given.items() if value not in (None, 1.0, False))


def scores_in(answer: object) -> Tensor:
    """The scores in what a model returned: a tensor, `.logits`, `["logits"]`, or the first of several."""
    for _ in range(3):
        if isinstance(answer, Tensor):
            return answer
        if hasattr(answer, "logits"):
            answer = answer.logits
        elif isinstance(answer, Mapping) and "logits" in answer:
            answer = answer["logits"]
        elif isinstance(answer, tuple | list) and len(answer):
            answer = answer[0]
    raise BadInput(
        f"the model must return a tensor of scores, or an object with .logits; found {type(answer).__name__}. "
        "Wrap it in a module that returns the scores."
    )


def settings_of(model: nn.Module) -> dict[str, Any]:
    """What a network says of its images: timm keeps it in `pretrained_cfg`, older versions in `default_cfg`."""
    for name in ("pretrained_cfg", "default_cfg"):
        found = getattr(model, name, None)
        if isinstance(found, Mapping) and {"mean", "std"} <= set(found):
            settings = {"mean": tuple(found["mean"]), "std": tuple(found["std"])}
            shape = found.get("input_size")
            return {**settings, "size": tuple(shape[1:])} if shape else settings
    return {}


class OnArrays(nn.Module):
    """A function on float32 arrays [N, C, H, W]. It passes no gradients. `files` are part of its digest."""

    def __init__(self, function: Callable[[np.ndarray[Any, Any]], Any], digest: bytes = b"") -> None:
        super().__init__()
        self._function = function
        self.register_buffer("digest", torch.frombuffer(bytearray(digest or b"\0"), dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        answer = np.asarray(self._function(x.detach().cpu().numpy()), dtype=np.float32)
        return torch.from_numpy(answer).to(x.device)


# ---------------------------------------------------------------- loaders, see `MODELS`


def onnx(
    path: str,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    size: int | None = None,
    scale: float = 1.0,
    bgr: bool = False,
    channels_last: bool = False,
    output: Output = "auto",
) -> nn.Module:
    """An ONNX file from images to scores, run by ONNX Runtime; no gradients."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx") from error
    at = _file(path)
    try:
        session = onnxruntime.InferenceSession(str(at), providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
    except Exception as error:  # its errors derive from Exception alone
        raise BadInput(f"{path} cannot be read as ONNX ({first_line(error)}). Export the network again.") from error
    inner = OnArrays(lambda images: session.run(None, {name: images})[0], _digest_of_onnx(at))
    return wrap_module(inner, mean, std, size, scale, bgr, channels_last, output)


def _digest_of_onnx(path: Path) -> bytes:
    """Return a digest of the file, and of the files in its folder that it names: they may hold its weights."""
    content = path.read_bytes()
    beside = sorted(p for p in path.parent.iterdir() if p != path and p.is_file() and os.fsencode(p.name) in content)
    total = hashlib.sha256(content)
    for other in beside:
        with other.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.digest()


def torchscript(
    path: str,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    size: int | None = None,
    scale: float = 1.0,
    output: Output = "auto",
) -> nn.Module:
    """A TorchScript file. It holds code, which torch runs: load only files that you trust."""
    at = _file(path)
    try:
        inner = torch.jit.load(str(at), map_location="cpu")
    except Exception as error:  # a damaged file may raise anything
        raise BadInput(f"{path} cannot be read as TorchScript ({first_line(error)}). Save it again.") from error
    return wrap_module(inner, mean, std, size, scale, False, False, output)


def huggingface(path: str) -> nn.Module:
    """A folder of transformers with an image classifier: its size, mean and std come from its processor."""
    try:
        import transformers
    except ImportError as error:
        raise BadInput("huggingface:… needs the package transformers; install it with pip.") from error
    folder = Path(path).expanduser()
    if not (folder / "config.json").is_file():
        raise BadInput(f"{path} must be a folder with config.json, as save_pretrained writes it. Give its path.")
    try:
        inner = transformers.AutoModelForImageClassification.from_pretrained(
            str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False
        )
    except Exception as error:  # of transformers, safetensors or torch
        raise BadInput(f"{path} cannot be loaded as an image classifier ({first_line(error)}).") from error
    return wrap(inner, **processor_settings(folder))


def timm(network: str, path: str, classes: int | None = None) -> nn.Module:
    """A network of timm with the weights of a file: its size, mean and std are those that timm names."""
    try:
        import timm as library
    except ImportError as error:
        raise BadInput("timm:… needs the package timm; install it with pip.") from error
    if not library.is_model(network):  # other names, such as hf-hub:…, would be fetched
        raise BadInput(f"timm has no network {network!r}; timm.list_models() names those that it has.")
    at = _file(path)
    made = library.create_model(network, pretrained=False, **({} if classes is None else {"num_classes": classes}))
    checkpoints.fill(made, checkpoints.plain(checkpoints.read(at)), path)
    return wrap(made)


def processor_settings(folder: Path) -> dict[str, Any]:
    """Size, mean and std of `preprocessor_config.json`; the scale is that of images in [0, 1]."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return {}
    try:
        read = read_json(path, LARGEST_CONFIG)
        settings: dict[str, Any] = {}
        if read.get("do_normalize", True) and "image_mean" in read:
            settings |= {"mean": tuple(map(float, read["image_mean"])), "std": tuple(map(float, read["image_std"]))}
        cropped = read.get("crop_size") if read.get("do_center_crop") else None
        found: Any = cropped or (read.get("size") if read.get("do_resize", True) else None)
        if not found:
            return settings
        if isinstance(found, int):
            return {**settings, "size": found}
        edge = found.get("shortest_edge", 0)
        return {**settings, "size": (int(found.get("height", edge)), int(found.get("width", edge)))}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{path} is not a processor's configuration ({first_line(error)}).") from error


def wrap_module(inner: nn.Module, *settings: Any) -> nn.Module:
    return Wrapped(inner, *settings).eval()


def _file(path: str) -> Path:
    at = Path(path).expanduser()
    if not at.is_file():
        raise BadInput(f"{path} is not a file; give the path of a model.")
    return at
