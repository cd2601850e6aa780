"""Export a classifier, with or without a defence, to a file that runs without this library.

    export(model, example, "folder")   →  Bundle: the model file and its card, after a check against PyTorch

    onnx    ONNX Runtime on CPUs and GPUs, and other engines; standard operators only
    pt2     torch.export: loads in PyTorch, with the Python code of the network gone
    aoti    AOTInductor: native code for this kind of machine; needs a C++ compiler and some minutes

The layer computes gradients inside its forward pass, which no exporter supports. So the network is traced to the single
operators of PyTorch, gradients included (`torch_private.trace`), and that list of operators is exported. For ONNX the
backward operators are written as forward ones (`gradients.py`). Batch norms are folded into convolutions first.

The file takes any number of images, in float32. It is not done before its answers are compared (`check.py`): the bundle
is written under another name, opened again as a server would, compared, and then renamed.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import re
import shutil
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from antiadv import __version__, defences, models
from antiadv.core import spec, torch_private
from antiadv.core.defence import Defence, base_of
from antiadv.core.errors import AntiadvError, BadInput, first_line
from antiadv.core.validation import check_base, check_images, check_scores, fitting
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.engine.rewrites.fold_norms import fold_norms
from antiadv.serving.backend import check_no_memory, copied
from antiadv.serving.bundle import FILES, LARGEST_MODEL, Bundle, open_bundle, write_card
from antiadv.serving.check import compare
from antiadv.serving.gradients import onnx_table
from antiadv.serving.onnx_backend import package
from antiadv.serving.trace import is_gated, traceable

TRACED = 13  # images in the trace: a size that no other axis has, so that the tracer cannot take one for the other
MOST = 2**16  # images in one request
NOTE = "images as float32 [N, C, H, W] in [0, 1]; normalisation, if any, is inside the model"


def export(
    model: nn.Module,
    example: Tensor,
    path: str | Path,
    format: str = "onnx",
    *,
    name: str | None = None,
    class_names: Sequence[str] = (),
    verdict: str | None = None,
    league: Mapping[str, Any] | None = None,
) -> Bundle:
    """Write a bundle: the exported classifier and its card. Returns it, opened; `card["check"]` has the comparison.

    `example` are images that the classifier is made for, at least two, better a hundred or more: the file is compared
    with the classifier on all of them. `path` is a folder that does not exist yet. `name` is the text of the network,
    such as compact:trades. `verdict` and `league` are kept in the card as they are.

    >>> import tempfile
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    >>> folder = Path(tempfile.mkdtemp()) / "bundle"
    >>> made = export(net, torch.linspace(0, 1, 48).view(4, 3, 2, 2), folder, "pt2")
    >>> made.card["check"]["same_labels"], made.shape, made.classes
    (4, (3, 2, 2), 3)
    """
    target = _check_arguments(model, example, path, format)
    images = example.detach().to("cpu", torch.float32)
    check_no_memory(model)
    traceable(model)  # refuses what is random, before any work
    reference = _copied(model)
    with torch.no_grad(), fitting(reference, images):
        scores = reference(images[:2])
    check_scores(scores, images[:2])
    entries = {
        "kind": format,
        "model": name or type(base_of(model)).__name__,
        "defence": _defence_text(model),
        "cost": _cost(model),
        "input": {"name": "images", "shape": list(images.shape[1:]), "range": [0, 1], "note": NOTE},
        "classes": scores.shape[1],
        "class_names": list(class_names) if len(class_names) == scores.shape[1] else [],
        "weights": models.digest(base_of(model)),
        "versions": _versions(format),
        "verdict": verdict,
        "league": None if league is None else dict(league),
    }
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    part.mkdir(parents=True)
    try:
        _write(_folded(model, images), images, part / FILES[format], format)
        write_card(part, {**entries, "check": {}})
        check = compare(open_bundle(part, trust=True).backend(), reference, images)
        write_card(part, {**entries, "check": check.json()})
        part.rename(target)  # replaces an empty folder
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return open_bundle(target, trust=True)


def _check_arguments(model: nn.Module, example: Tensor, path: str | Path, format: str) -> Path:
    check_base(model)
    check_images(example)
    if len(example) < 2:
        raise BadInput(f"an export needs at least two images to check the file with; found {len(example)}. Give more.")
    if format not in FILES:
        raise BadInput(f"a model is exported as {', '.join(FILES)}; found {format!r}. Use onnx.")
    target = Path(path).expanduser()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"{target} exists already. Remove it, or name a new folder.")
    if format == "onnx":
        for needed in ("onnx", "onnxscript", "onnxruntime"):
            package(needed)
    return target


def _copied(model: nn.Module) -> nn.Module:
    """A copy on the CPU in float32, whose weights need no gradients."""
    return copied(model).cpu().float().requires_grad_(False)


def _folded(model: nn.Module, images: Tensor) -> nn.Module:
    """A copy with batch norms folded into convolutions."""
    made = _copied(model)
    fold_norms(base_of(made), images[:1])
    plain: nn.Module = made.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return plain


# ---------------------------------------------------------------- files


def _write(model: nn.Module, images: Tensor, path: Path, format: str) -> None:
    try:
        with _quiet():
            program = _program(model, images, format)
            if format == "onnx":
                path.write_bytes(_onnx(program))
            elif format == "pt2":
                torch.export.save(program, path)
            else:
                torch_private.compile_ahead(program, str(path))
    except (AntiadvError, OSError, MemoryError):
        raise
    except Exception as error:  # the exporters raise errors of many kinds
        raise BadInput(_sentence(error, format)) from error
    if path.stat().st_size > LARGEST_MODEL:
        raise BadInput(
            f"an exported file has at most {LARGEST_MODEL:,} bytes; this one is larger. Use a smaller network."
        )


def _program(model: nn.Module, images: Tensor, format: str) -> torch.export.ExportedProgram:
    x = images[:1].repeat(TRACED, *[1] * (images.ndim - 1))
    # fused attention has no gradient in operators of ONNX; the two other formats know the backward operators
    with sdpa_kernel(SDPBackend.MATH):
        traced = torch_private.trace(traceable(model), x, onnx_table() if format == "onnx" else {})
    batch = torch.export.Dim("batch", min=1, max=MOST)
    return torch.export.export(traced, (x,), strict=False, dynamic_shapes=({0: batch},))


def _onnx(program: torch.export.ExportedProgram) -> bytes:
    names = ["scores", "base_scores"][: len(program.graph_signature.user_outputs)]
    made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=["images"], output_names=names)
    assert made is not None
    model = made.model_proto
    model.graph.name = "antiadv"
    size = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param  # the tracer's name of the number of images
    # ONNX Runtime keeps its blocks of channels (gradients.py) only where it sees that shapes are equal
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    for value in values:
        for length in value.type.tensor_type.shape.dim:
            if length.dim_param == size:
                length.dim_param = "batch"
    # source lines of this machine
    for part in (model, model.graph, *model.graph.node, *values):
        del part.metadata_props[:]
        part.doc_string = ""
    content: bytes = model.SerializeToString()
    return content


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn about their own code, and log what they skip. Errors still reach us as errors."""
    fast = torch.backends.mha.get_fastpath_enabled()  # a single operator, which has no gradient
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        torch.backends.mha.set_fastpath_enabled(fast)


def _sentence(error: Exception, format: str) -> str:
    """Why a network cannot be exported, with the operator if it is known."""
    text = str(error)
    operators = re.findall(r"(?:torch\.ops\.|op=')([a-z]\w*\.\w+)", text)
    if "specialized it to be a constant" in text or "Constraints violated" in text:
        return (
            "an exported network must take any number of images; this one turns their number into a constant, as "
            "len(x) does. Use x.shape[0], or -1 where it reshapes."
        )
    if operators:
        return (
            f"this network cannot be exported as {format}: the operator {operators[-1]} has no form there. "
            "Replace it, or use another format."
        )
    return f"this network cannot be exported as {format} ({first_line(error)}). Use another format, or change it."


# ---------------------------------------------------------------- the card


def _defence_text(model: nn.Module) -> str:
    """The specs of the defences, the outermost first; `none` for a bare network."""
    texts = []
    while isinstance(model, Defence):
        known = type(model) in defences.DEFENCES.values()
        texts.append(f"{spec.full(model)}@{model.edition}" if known else type(model).__name__)
        model = model.base
    return " of ".join(texts) or defences.BARE


def _cost(model: nn.Module) -> str:
    """What one image costs, with all defences around the bare network."""
    forwards, backwards = _passes(model)
    if not backwards:
        return "one forward pass"
    gated = "; the gate saves nothing here, because the graph has no branches" if is_gated(model) else ""
    return f"{forwards} forward and {backwards} backward passes for every image{gated}"


def _passes(model: nn.Module) -> tuple[int, int]:
    """Forward and backward passes of the bare network. A layer asks its base K + 1 times, and goes back K times."""
    if not isinstance(model, Defence):
        return 1, 0
    forwards, backwards = _passes(model.base)
    steps = model.steps if isinstance(model, AntiAdversary) else 0
    return (steps + 1) * forwards, (steps + 1) * backwards + steps


def _versions(format: str) -> dict[str, str]:
    found = {"antiadv": __version__, "torch": torch.__version__, "python": platform.python_version()}
    if format == "onnx":
        found |= {name: str(package(name).__version__) for name in ("onnx", "onnxscript", "onnxruntime")}
    return found
