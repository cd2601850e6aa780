"""Make a classifier of what people have: images in [0, 1] in, logits out.

    wrap(model, mean=…, std=…)          a module that wants normalised images
    wrap(model, processor=processor)    a network of Hugging Face: its logits, prepared as its processor says
    wrap(model)                         a network of timm, which knows its own mean, std and size
    wrap(function)                      a Python function on numpy arrays, without gradients
    load("onnx:net.onnx")               an ONNX file, without gradients
    load("torchscript:net.pt")          a TorchScript file
    load("huggingface:FOLDER")          a folder that `save_pretrained` of transformers wrote, with its processor
    load("timm:NAME,path=FILE")         a network of timm with the weights of a file

In order, an image is resized and cropped, its channels are turned (`bgr`), it is scaled (`scale`), normalised and laid
channels last. A model without gradients serves attacks on scores and labels. An attack that needs gradients says why it
cannot.
"""

from __future__ import annotations

import hashlib
import math
import os
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.errors import BadInput, MissingExtra, first_line
from antiadv.models import checkpoints
from antiadv.models.preprocess import Normalise
from antiadv.models.processor import of_folder, of_processor, of_timm

Output = Literal["auto", "logits", "probabilities"]
LEAST_PROBABILITY = 1e-12  # below it, its logarithm says nothing


def wrap(
    model: nn.Module | Callable[[np.ndarray[Any, Any]], Any],
    *,
    mean: ArrayLike | Tensor | None = None,
    std: ArrayLike | Tensor | None = None,
    size: int | Sequence[int] | None = None,
    scale: float | None = None,
    bgr: bool | None = None,
    channels_last: bool = False,
    output: Output = "auto",
    processor: object = None,
) -> Wrapped:
    """Turn a model into a classifier of images [N, C, H, W] in [0, 1] that returns logits [N, K], in eval mode.

    `mean` and `std` are per channel, in the scale of the model's input. `size` resizes images first. `scale=255` is for
    models that take bytes. With `output="probabilities"` the scores are their logarithms.

    `processor` is the image processor of a network of Hugging Face, or its settings. It says how images are resized,
    cropped, scaled and normalised; the network itself does not say it. Images that have the final size already are
    neither resized nor cropped. Networks of timm know their mean, std and size. What you give counts more.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    >>> x = torch.linspace(0, 1, 60).reshape(5, 3, 2, 2)
    >>> wrap(net, mean=(0.5,), std=(0.25,))(x).shape
    torch.Size([5, 3])
    >>> wrap(net, processor={"image_mean": [0.5], "image_std": [0.25]})(x).equal(wrap(net, mean=0.5, std=0.25)(x))
    True
    >>> wrap(lambda images: images.mean((2, 3)))(x).shape
    torch.Size([5, 3])
    """
    if not callable(model):
        raise BadInput(f"a model is an nn.Module or a function on arrays; found {type(model).__name__}. Give one.")
    inner = model if isinstance(model, nn.Module) else OnArrays(model)
    given = {"mean": mean, "std": std, "size": size, "scale": scale, "bgr": bgr}
    given = {name: value for name, value in given.items() if value is not None}
    if processor is None and not given and _is_hugging_face(inner):
        warnings.warn(
            f"{type(inner).__name__} does not say how its images are prepared, so they are given as they are. "
            "Write antiadv.wrap(model, processor=processor), or give size, mean and std.",
            stacklevel=2,
        )
    known = of_timm(inner) if processor is None else of_processor(processor)
    return _wrapped(inner, known | ({"resize": None} if "size" in given else {}) | given, channels_last, output)


def _wrapped(inner: nn.Module, settings: Mapping[str, Any], channels_last: bool, output: Output) -> Wrapped:
    return Wrapped(inner, **settings, channels_last=channels_last, output=output).eval()


def _is_hugging_face(model: nn.Module) -> bool:
    return any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__)


class Wrapped(nn.Module):
    """See `wrap`, which makes it. `resize` is the height and width, or the shorter edge, before `size` is cropped."""

    def __init__(
        self,
        model: nn.Module,
        mean: ArrayLike | Tensor | None = None,
        std: ArrayLike | Tensor | None = None,
        size: int | Sequence[int] | None = None,
        scale: float = 1.0,
        bgr: bool = False,
        channels_last: bool = False,
        output: Output = "auto",
        resize: int | tuple[int, int] | None = None,
        mode: str = "bilinear",
    ) -> None:
        super().__init__()
        if output not in typing.get_args(Output):
            raise BadInput(f"output is {', '.join(typing.get_args(Output))}; found {output!r}. Give one of these.")
        self.model, self.scale, self.bgr, self.channels_last, self.output = model, scale, bgr, channels_last, output
        self.size, self.resize, self.mode = _extent(size), resize, mode
        plain = mean is None and std is None
        self.normalise = nn.Identity() if plain else Normalise(_values("mean", mean, 0.0), _values("std", std, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        x = self._fitted(x)
        x = x.flip(1) if self.bgr else x
        x = self.normalise(x * self.scale if self.scale != 1 else x)
        s = scores_in(self.model(x.permute(0, 2, 3, 1) if self.channels_last else x))
        return s.clamp_min(LEAST_PROBABILITY).log() if self.output == "probabilities" else s

    def _fitted(self, x: Tensor) -> Tensor:
        """Resized and cropped. Images of the final size are left alone."""
        if tuple(x.shape[-2:]) == self.size:
            return x
        to = self.size if self.resize is None else self.resize
        if isinstance(to, int):
            (high, wide), short = x.shape[-2:], min(x.shape[-2:])
            to = to * high // short, to * wide // short
        if to is not None and tuple(x.shape[-2:]) != to:
            x = F.interpolate(x, to, mode=self.mode, align_corners=False, antialias=True)
            x = x.clamp(0, 1) if self.mode == "bicubic" else x  # as bytes are: bicubic overshoots
        if self.size is None or tuple(x.shape[-2:]) == self.size:
            return x
        (high, wide), (top, left) = self.size, ((a - b) // 2 for a, b in zip(x.shape[-2:], self.size, strict=True))
        return F.pad(x, (-left, left + wide - x.shape[-1], -top, top + high - x.shape[-2]))  # negative ones crop

    def extra_repr(self) -> str:
        given = {
            "size": self.size, "resize": self.resize, "scale": self.scale, "bgr": self.bgr,
            "channels_last": self.channels_last,
        }  # fmt: skip
        return ", ".join(f"{name}={value}" for name, value in given.items() if value not in (None, 1.0, False))


def _extent(size: int | Sequence[int] | None) -> tuple[int, int] | None:
    if size is None or isinstance(size, int):
        return None if size is None else (size, size)
    found = tuple(map(int, size))
    if len(found) != 2:
        raise BadInput(f"size is a height and a width, or one number for both; found {size}. Give for example 224.")
    return found[0], found[1]


def _values(name: str, given: ArrayLike | Tensor | None, default: float) -> tuple[float, ...]:
    """The numbers of a mean or std, from a number, a sequence, an array or a tensor."""
    try:
        values = np.asarray(default if given is None else given, dtype=np.float64).ravel().tolist()
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name} is one number for each channel; found {given!r} ({first_line(error)}).") from error
    if not values or not all(map(math.isfinite, values)):
        raise BadInput(f"{name} is one finite number for each channel; found {given!r}. Give for example (0.5,).")
    return tuple(values)


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


class OnArrays(nn.Module):
    """A function on float32 arrays [N, C, H, W], which may write into them. It passes no gradients.

    `digest` is part of its identity.
    """

    def __init__(self, function: Callable[[np.ndarray[Any, Any]], Any], digest: bytes = b"") -> None:
        super().__init__()
        self._function = function
        self.register_buffer("digest", torch.frombuffer(bytearray(digest or b"\0"), dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        images = np.array(x.detach().float().cpu().numpy(), order="C")  # a copy: the function may write into it
        answer = self._function(images)
        try:
            scores = np.asarray(answer, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise BadInput(
                f"the function must return an array of scores [N, K]; found {type(answer).__name__}. Return the scores."
            ) from error
        return torch.from_numpy(scores).to(x.device)


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
        taken = session.get_inputs()[0]
    except Exception as error:  # its errors derive from Exception alone
        raise BadInput(f"{path} cannot be read as ONNX ({first_line(error)}). Export the network again.") from error

    def run(images: np.ndarray[Any, Any]) -> Any:
        try:
            return session.run(None, {taken.name: images})[0]
        except Exception as error:
            raise BadInput(
                f"{path} takes images of shape {taken.shape}; found {images.shape}, and ONNX Runtime fails "
                f"({first_line(error)}). Give others, or set size or channels_last."
            ) from error

    fixed = taken.shape[0] if taken.shape else None
    function = partial(_in_batches, run, fixed) if isinstance(fixed, int) else run
    return wrap_module(OnArrays(function, _digest_of_onnx(at)), mean, std, size, scale, bgr, channels_last, output)


def _in_batches(run: Callable[[np.ndarray[Any, Any]], Any], n: int, images: np.ndarray[Any, Any]) -> Any:
    """The answers of a network that was exported for exactly n images. The last ones are filled up with zeros."""
    rest = np.zeros((-len(images) % n, *images.shape[1:]), images.dtype)
    full = np.concatenate([images, rest])
    return np.concatenate([run(full[i : i + n]) for i in range(0, len(full), n)])[: len(images)]


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
    """A folder of transformers with an image classifier. Its images are prepared as its processor says."""
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
    return _wrapped(inner, settings, False, "auto") if (settings := of_folder(folder)) else wrap(inner)


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


def wrap_module(inner: nn.Module, *settings: Any) -> nn.Module:
    return Wrapped(inner, *settings).eval()


def _file(path: str) -> Path:
    at = Path(path).expanduser()
    if not at.is_file():
        raise BadInput(f"{path} is not a file; give the path of a model.")
    return at
