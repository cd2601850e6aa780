"""`antiadv attack IMAGE`: attack one image; write the attacked image and a comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiadv.cli import options, show
from antiadv.core.errors import AntiadvError, BadInput, first_line

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image
    from torch import Tensor, nn

    from antiadv.evaluation import Outcome

GREY = ("1", "L", "LA")  # modes of Pillow without colour
GAP, TALL = 4, 256  # pixels: space between the panels of a comparison, and its least height
LARGEST = 8192  # pixels for each side


def command(
    image: Annotated[Path, typer.Argument(help="The image file. Use --size if the network needs another size.")],
    model: options.Model,
    attack: options.Attack = "pgd",
    threat: options.Threat = "linf:8/255",
    defence: options.Defence = "none",
    label: Annotated[int | None, typer.Option("--label", help="True class. Default: the predicted class.")] = None,
    target: Annotated[int | None, typer.Option("--target", help="Class to reach, for a targeted attack.")] = None,
    size: Annotated[
        int | None, typer.Option("--size", min=1, max=LARGEST, help="Resize and crop to SIZE x SIZE pixels first.")
    ] = None,
    data: options.Data = "cifar10",
    out: Annotated[Path, typer.Option("--out", help="Folder for the pictures.")] = Path(),
    seed: options.Seed = 0,
    precision: options.Precision = options.AUTO,
    compiled: options.Compiled = options.AUTO,
    device: options.Device = None,
    authorised: options.Authorised = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Attack one image.

    Prints the prediction before and after. Writes NAME.attacked.png, and NAME.compared.png with both images.
    """
    from antiadv import attacks, defences, evaluation, models
    from antiadv.core.validation import check_base
    from antiadv.data.pictures import to_bytes
    from antiadv.evaluation.cell import make_threat
    from antiadv.evaluation.resources import find_device

    model = options.authorised(model, authorised)
    place = find_device(device)
    net = defences.wrap(defence, models.load(model).to(place))
    chosen = attacks.parse(attack)
    limits = make_threat(threat, chosen)
    if limits.targeted and target is None:
        raise BadInput(f"the threat {limits} is targeted; name the class to reach with --target.")
    check_base(net)
    x, before = _fitted(net, read_image(image, size).to(place))
    y = _goal(before, label, target)
    how: dict[str, Any] = {"queries": limits.queries, "access": limits.access, "targeted": target is not None}
    how |= {"precision": precision, "compiled": options.compiled(compiled)}
    outcome = evaluation.attack(net, x, y, chosen, limits.ball, seed=seed, **how)
    z = to_bytes(outcome.images[0])
    after = _probabilities(net, from_bytes(z)[None].to(place))
    files = _write(out, image.stem, to_bytes(x[0]), z)
    result = _result(outcome, before, after, _class_names(data, len(before))) | files
    if json:
        show.print_json(result)
    else:
        show.out().print(_sentence(outcome, result), soft_wrap=True)


def _goal(before: Tensor, label: int | None, target: int | None) -> Tensor:
    """Return the class to leave, or the class to reach, as a batch of one."""
    import torch

    predicted = int(before.argmax())
    for option, number in (("--label", label), ("--target", target)):
        if number is not None and not 0 <= number < len(before):
            raise BadInput(f"{option} must be a class of the network, 0 … {len(before) - 1}; found {number}.")
    if target is not None and target in (label, predicted):
        raise BadInput(f"--target {target} is already the true or the predicted class; give another class.")
    goal = target if target is not None else label if label is not None else predicted
    return torch.tensor([goal], device=before.device)


def _write(folder: Path, stem: str, x: np.ndarray, z: np.ndarray) -> dict[str, str]:
    from PIL import Image

    files = {kind: folder / f"{stem}.{kind}.png" for kind in ("attacked", "compared")}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(z).save(files["attacked"])
        side_by_side(x, z).save(files["compared"])
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror or error}; choose a folder with --out.") from error
    return {kind: str(path) for kind, path in files.items()}


def _result(outcome: Outcome, before: Tensor, after: Tensor, name: Callable[[int], str]) -> dict[str, Any]:
    def top(p: Tensor) -> dict[str, Any]:
        label = int(p.argmax())
        return {"class": label, "name": name(label), "confidence": p.max().item()}

    return {
        "before": top(before),
        "after": top(after),
        "fooled": bool(outcome.fooled[0]),
        "not_attacked": bool(outcome.not_attacked[0]),
        "least_queries": outcome.least_queries,
        "distance": outcome.records[0].distance,
        "queries": outcome.records[0].queries,
        "judge_queries": outcome.judge_queries,
    }


def _sentence(outcome: Outcome, result: dict[str, Any]) -> str:
    from antiadv.core.attack import never_ran

    if result["not_attacked"]:
        happened = f"not attacked: {never_ran(outcome.attack, outcome.threat)}"
    else:
        happened = "fooled" if result["fooled"] else "not fooled"
        happened += f" after {result['queries']} queries at distance {result['distance']:.4g}"
    before, after = (f"{p['name']} ({p['confidence']:.1%})" for p in (result["before"], result["after"]))
    return f"{happened}: {before} → {after} as saved in 8 bits\n{result['attacked']}\n{result['compared']}"


def _probabilities(net: nn.Module, x: Tensor) -> Tensor:
    """Return the probabilities of the classes for a batch of one image."""
    import torch

    from antiadv.core.validation import CHANNELS_LAST, check_scores, turned

    try:
        with torch.no_grad():
            s: Tensor = net(x)
    except RuntimeError as error:
        height, width = x.shape[2:]
        reason = str(error).partition("\n")[0]
        todo = CHANNELS_LAST if turned(x, reason) else "Give the right size with --size"
        raise BadInput(f"the network cannot take a picture of {width} × {height} pixels ({reason}). {todo}.") from error
    except AntiadvError:
        raise
    except Exception as error:
        raise BadInput(f"the network failed on this picture with {first_line(error)}; correct the network.") from error
    check_scores(s, x)
    return s.softmax(1)[0]


def _fitted(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the picture with the channels that the network takes, and its probabilities.

    Three channels are tried first, then one: a grey picture is repeated, a colour picture made grey.
    """
    import numpy as np
    from PIL import Image

    from antiadv.data.pictures import to_bytes

    colour = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
    try:
        return colour, _probabilities(net, colour)
    except BadInput:
        grey = from_bytes(np.asarray(Image.fromarray(to_bytes(x[0])).convert("L")))[None].to(x)
        with contextlib.suppress(BadInput):
            return grey, _probabilities(net, grey)
        raise


def _class_names(text: str, classes: int) -> Callable[[int], str]:
    """Return the function from class number to name; it gives the number if the data set does not fit."""
    from antiadv import data

    try:
        known = data.load(text).classes
    except BadInput:
        known = ()
    return lambda label: known[label] if len(known) == classes else f"class {label}"


def read_image(path: Path, size: int | None) -> Tensor:
    """Read a picture as `[1, 3, H, W]` in [0, 1], or `[1, 1, H, W]` if it is greyscale."""
    import numpy as np
    from PIL import ImageOps

    from antiadv.data.pictures import open_picture

    try:
        opened = open_picture(path, str(path))
        if opened.mode.startswith(("I", "F")):
            raise BadInput(f"{path} has more than 8 bits per channel (mode {opened.mode}); save it with 8 bits.")
        picture: Image.Image = opened.convert("L" if opened.mode in GREY else "RGB")
    except FileNotFoundError:
        raise BadInput(f"there is no picture at {path}; give the path of a PNG or JPEG file.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}; give a PNG or JPEG file.") from None
    if size is not None:
        picture = ImageOps.fit(picture, (size, size))
    return from_bytes(np.asarray(picture))[None]


def from_bytes(pixels: np.ndarray) -> Tensor:
    """Convert uint8 `[H, W, C]` or `[H, W]` to float32 `[C, H, W]` in [0, 1]."""
    import torch

    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255


def side_by_side(x: np.ndarray, z: np.ndarray) -> Image.Image:
    """Draw the image, the perturbation stretched to the full range around grey, and the attacked image."""
    import numpy as np
    from PIL import Image

    x, z = (p[:, :, None] if p.ndim == 2 else p for p in (x, z))
    change = z.astype(np.float64) - x
    middle = (127.5 + change * (127.5 / max(1.0, np.abs(change).max()))).astype(np.uint8)
    zoom = max(1, -(-TALL // x.shape[0]))
    panels = [np.kron(p, np.ones((zoom, zoom, 1), np.uint8)) for p in (x, middle, z)]
    gap = np.full((panels[0].shape[0], GAP, x.shape[2]), 255, np.uint8)
    row = np.concatenate([panels[0], gap, panels[1], gap, panels[2]], axis=1)
    return Image.fromarray(row[:, :, 0] if row.shape[2] == 1 else row)
