"""`antiadv attack IMAGE`: one image in; the attacked image and a side-by-side picture out."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiadv.cli import options, show
from antiadv.core.errors import AntiadvError, BadInput, first_line

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image
    from torch import Tensor, nn

GREY = ("1", "L", "LA")  # modes of Pillow without colour
GAP, TALL = 4, 256  # pixels between the panels, and the least height of the side-by-side picture
LARGEST = 8192  # pixels a side; what a network takes is far smaller


def command(
    image: Annotated[Path, typer.Argument(help="A picture of the size the network takes; see --size.")],
    model: options.Model,
    attack: options.Attack = "pgd",
    threat: options.Threat = "linf:8/255",
    defence: options.Defence = "none",
    label: Annotated[
        int | None, typer.Option("--label", help="The true class; by default what the network says.")
    ] = None,
    target: Annotated[int | None, typer.Option("--target", help="The class to reach, for a targeted attack.")] = None,
    size: Annotated[
        int | None, typer.Option("--size", min=1, max=LARGEST, help="Resize and crop to this many pixels first.")
    ] = None,
    data: options.Data = "cifar10",
    out: Annotated[Path, typer.Option("--out", help="The folder for the pictures.")] = Path(),
    seed: options.Seed = 0,
    device: options.Device = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Attack one image: writes NAME.attacked.png and NAME.compared.png, and says what changed."""
    import torch
    from PIL import Image

    from antiadv import attacks, defences, models
    from antiadv.core.attack import never_ran
    from antiadv.core.validation import check_base
    from antiadv.evaluation import attack as attack_and_judge
    from antiadv.evaluation.cell import make_threat
    from antiadv.evaluation.resources import find_device
    from antiadv.reporting.flags import narrow_range

    where = find_device(device)
    net = defences.wrap(defence, models.load(model).to(where))
    chosen = attacks.parse(attack)
    asked = make_threat(threat, chosen)
    if asked.targeted and target is None:
        raise BadInput(f"the threat {asked} is targeted; say which class to reach with --target.")
    check_base(net)
    x, before = _fitted(net, read_image(image, size).to(where))
    for flag in narrow_range(x):
        typer.echo(f"Flag {flag}", err=True)
    for option, asked_for in (("--label", label), ("--target", target)):
        if asked_for is not None and not 0 <= asked_for < len(before):
            raise BadInput(f"{option} must be a class of the network, 0 … {len(before) - 1}; found {asked_for}.")
    if target is not None and target in (label, int(before.argmax())):
        raise BadInput(f"class {target} is what the picture is, or is taken for, already; give another --target.")
    goal = target if target is not None else label if label is not None else int(before.argmax())
    y = torch.tensor([goal], device=where)
    outcome = attack_and_judge(
        net,
        x,
        y,
        chosen,
        asked.ball,
        queries=asked.queries,
        access=asked.access,
        targeted=target is not None,
        seed=seed,
    )
    z = to_bytes(outcome.images[0])
    after = _probabilities(net, from_bytes(z)[None].to(where))
    attacked, compared = (out / f"{image.stem}.{kind}.png" for kind in ("attacked", "compared"))
    try:
        out.mkdir(parents=True, exist_ok=True)
        Image.fromarray(z).save(attacked)
        side_by_side(to_bytes(x[0]), z).save(compared)
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror or error}); choose a folder with --out.") from error
    names = _names(data, len(before))
    said = {
        "before": {"class": int(before.argmax()), "name": names(before), "confidence": before.max().item()},
        "after": {"class": int(after.argmax()), "name": names(after), "confidence": after.max().item()},
        "fooled": bool(outcome.fooled[0]),
        "not_attacked": bool(outcome.not_attacked[0]),
        "least_queries": outcome.least_queries,
        "distance": outcome.records[0].distance,
        "queries": outcome.records[0].queries,
        "judge_queries": outcome.judge_queries,
        "attacked": str(attacked),
        "compared": str(compared),
    }
    if json:
        show.print_json(said)
        return
    if said["not_attacked"]:
        verb = f"not attacked: {never_ran(chosen, asked)}"
    else:
        verb = "fooled" if outcome.fooled[0] else "not fooled"
        verb += f" after {said['queries']} queries at distance {said['distance']:.4g}"
    show.out().print(
        f"{verb}: "
        f"{names(before)} ({before.max():.1%}) → {names(after)} ({after.max():.1%}) as saved in 8 bits\n"
        f"{attacked}\n{compared}",
        soft_wrap=True,
    )


def _probabilities(net: nn.Module, x: Tensor) -> Tensor:
    import torch

    from antiadv.core.validation import check_scores

    try:
        with torch.no_grad():
            s: Tensor = net(x)
    except RuntimeError as error:
        height, width = x.shape[2:]
        raise BadInput(
            f"the network cannot take a picture of {width} × {height} pixels ({str(error).partition(chr(10))[0]}); "
            "give the size it takes with --size."
        ) from error
    except AntiadvError:
        raise
    except Exception as error:
        raise BadInput(f"the network cannot take this picture; it raised {first_line(error)}. Mend it.") from error
    check_scores(s, x)
    return s.softmax(1)[0]


def _fitted(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The picture in as many channels as the network takes, and the probabilities it gives: three, a grey picture's
    repeated; where it refuses these, one, a colour picture made grey."""
    import numpy as np
    from PIL import Image

    colour = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x
    try:
        return colour, _probabilities(net, colour)
    except BadInput:
        grey = from_bytes(np.asarray(Image.fromarray(to_bytes(x[0])).convert("L")))[None].to(x)
        with contextlib.suppress(BadInput):
            return grey, _probabilities(net, grey)
        raise


def _names(text: str, classes: int):  # type: ignore[no-untyped-def]
    """The name of the most likely class, or its number where the data set does not fit."""
    from antiadv import data

    try:
        known = data.load(text).classes
    except BadInput:
        known = ()
    return lambda p: known[int(p.argmax())] if len(known) == classes else f"class {int(p.argmax())}"


def read_image(path: Path, size: int | None) -> Tensor:
    """One picture in [0, 1]: `[1, 3, H, W]`, or `[1, 1, H, W]` if it is greyscale."""
    import numpy as np
    from PIL import ImageOps

    from antiadv.data.pictures import open_picture

    try:
        opened = open_picture(path, str(path))
        if opened.mode.startswith(("I", "F")):
            raise BadInput(f"{path} has more than 8 bits a pixel (mode {opened.mode}); save it with 8 bits first.")
        picture: Image.Image = opened.convert("L" if opened.mode in GREY else "RGB")
    except FileNotFoundError:
        raise BadInput(f"no picture at {path}; give the path of a PNG or JPEG file.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror or error}); give a PNG or JPEG file.") from None
    if size is not None:
        picture = ImageOps.fit(picture, (size, size))
    return from_bytes(np.asarray(picture))[None]


def from_bytes(pixels: np.ndarray) -> Tensor:
    import torch

    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255


def to_bytes(x: Tensor) -> np.ndarray:
    """`[H, W, 3]`, or `[H, W]` of one channel, as Pillow has them."""
    import torch

    pixels: np.ndarray = (x.cpu() * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return pixels[:, :, 0] if pixels.shape[2] == 1 else pixels


def side_by_side(x: np.ndarray, z: np.ndarray) -> Image.Image:
    """The image, the change stretched to the full range around grey, and the attacked image."""
    import numpy as np
    from PIL import Image

    x, z = (p[:, :, None] if p.ndim == 2 else p for p in (x, z))
    change = z.astype(np.float64) - x
    middle = (127.5 + change * (127.5 / max(1.0, np.abs(change).max()))).astype(np.uint8)
    zoom = max(1, -(-TALL // x.shape[0]))
    panels = [np.kron(p, np.ones((zoom, zoom, 1), np.uint8)) for p in (x, middle, z)]
    gap = np.full((panels[0].shape[0], GAP, x.shape[2]), 255, np.uint8)
    whole = np.concatenate([panels[0], gap, panels[1], gap, panels[2]], axis=1)
    return Image.fromarray(whole[:, :, 0] if whole.shape[2] == 1 else whole)
