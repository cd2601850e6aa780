"""Images for a report: what an attack changed, and what the bare and the defended classifier say before and after.

    kept(store)    from attacked images that a store holds (`antiadv evaluate --keep-images`), where their network and
                   their clean images are at hand
    made(n)        of a small run, here and now, on the images and a network that come with the package

Nothing is chosen for its looks: the first samples of a cell that both classifiers get right, in their order.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from antiadv import attacks, defences
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import AntiadvError, BadInput
from antiadv.data.dataset import Dataset
from antiadv.evaluate import attack as confront
from antiadv.evaluate.cell import LOOKS, Cell, make_threat
from antiadv.evaluate.judge import look
from antiadv.evaluate.shard import JUDGE
from antiadv.evaluate.store import Store
from antiadv.evaluate.world import World
from antiadv.report.document import Answer, Exhibit, Gallery
from antiadv.report.table import Row

MODEL, DEFENCE, DATA = "compact:trades", "anti_adversary", "cifar10:test"
TRIED = (("apgd:steps=20", "linf:8/255"), ("transfer:attack=(apgd:steps=20)", "linf:8/255"))
MOST = 100  # images: more than anybody looks at, on a page that still opens
EACH, AMONG = 4, 32  # so many of a cell with kept images, among so many


def kept(store: Store, world: World | None = None, rows: Sequence[Row] = ()) -> Gallery:
    """From the cells behind a defence whose images are kept; empty, and without a word, where there are none.

    `rows` know what their networks, data and defences are called, where that is not what their cells say.
    """
    held = {cell: path for cell in store.cells() if (path := _images(store, cell)) is not None}
    names = {row.cell.key: row for row in rows}
    world = World("cpu") if world is None else world
    found, reasons = list[Exhibit](), list[str]()
    for cell, path in held.items():
        said = names.get(cell.key, cell)
        dice = f", seed {cell.seed}" if cell.seed else ""
        how = f", searched in {cell.precision}" if cell.precision != "float32" else ""
        on = f"{said.model} behind {said.defence}, {said.data}{dice}{how}"
        try:
            found += _of_cell(cell, path, world, on)
        except AntiadvError as error:
            reasons.append(f"{cell.attack} on {on}: {str(error).removesuffix('.')}.")
    about = (
        f"The first {EACH} images of each cell that keeps its images, of those that the bare network (f) and the "
        "defence (g) get right untouched."
    )
    lost = "".join(f" Not shown, {reason}" for reason in reasons)
    return Gallery(f"{about}{lost}" if held else "", tuple(found[:MOST]))


def _images(store: Store, cell: Cell) -> Path | None:
    """The first file of attacked images, of a cell that has a defence."""
    return None if cell.defence == defences.BARE else min(store.folder(cell).glob("*.safetensors"), default=None)


def _of_cell(cell: Cell, path: Path, world: World, on: str) -> list[Exhibit]:
    if world.weights(cell.model) != cell.weights:
        raise BadInput(f"{cell.model} has other weights here than those that were attacked; put the old ones back.")
    try:
        read = load_file(path)
        ids, z = read["samples"][:AMONG], read["images"][:AMONG].float()
    except (OSError, LookupError, SafetensorError) as error:
        raise BadInput(f"{path.name} cannot be read as images ({error}); delete it and run again.") from None
    try:
        data = world.data(cell.data)
    except BadInput as error:
        raise BadInput(f"its images are not at hand ({error}); make the report where they lie.") from error
    if data.digest != cell.images:
        raise BadInput(f"{cell.data} has other images here than those that were attacked; import the same set.")
    return list(_exhibits(world, cell, on, data, ids, z, EACH))


def made(n: int, world: World | None = None) -> Gallery:
    """n images, each attacked with the layer's gradients and then by going round it."""
    if not 1 <= n <= MOST:
        raise BadInput(f"a gallery shows 1 to {MOST} images; found {n}.")
    world = World("cpu") if world is None else world
    data = world.data(DATA)
    ids = _right(world, data, n)
    found = []
    for text, threat in TRIED:
        asked = make_threat(threat, attacks.parse(text))
        cell = Cell(DATA, data.digest, MODEL, world.weights(MODEL), DEFENCE, text, asked, range(n))
        defended = world.defended(MODEL, DEFENCE)
        z = confront(defended, data.images(ids), data.labels(ids), text, asked.ball, ids=ids).images
        found.append(list(_exhibits(world, cell, f"{MODEL} behind {DEFENCE}, {DATA}", data, ids, z, n)))
    about = (
        f"The first {n} images of {DATA} that `{MODEL}` (f) and the same behind `{DEFENCE}` (g) get right, each "
        f"attacked twice through g in {TRIED[0][1]}: by `{TRIED[0][0]}`, which follows the gradients of g, and by "
        f"`{TRIED[1][0]}`, which follows those of f. Run for this page, and no part of the numbers above."
    )
    return Gallery(about, tuple(exhibit for pair in zip(*found, strict=True) for exhibit in pair))


def _right(world: World, data: Dataset, n: int) -> Tensor:
    """The first n samples that both classifiers get right."""
    found = list[int]()
    for start in range(0, len(data), 2 * n):
        ids = torch.arange(start, min(start + 2 * n, len(data)))
        x, y = data.images(ids), data.labels(ids)
        f, g = (_odds(world, MODEL, side, x, ids).argmax(1) == y for side in (defences.BARE, DEFENCE))
        found += ids[f & g].tolist()
        if len(found) >= n:
            break
    return torch.tensor(found[:n])


def _odds(world: World, model: str, defence: str, x: Tensor, ids: Tensor, seed: int = 0, looks: int = LOOKS) -> Tensor:
    """Probabilities as the judge sees them: over several looks where the defence rolls dice."""
    here = world.device
    dice = Draws.of(seed, ids.to(here)).fold(JUDGE)
    seen = look(world.defended(model, defence), x.to(here), Eager(), dice, looks)
    return seen.scores.double().softmax(2).mean(0).cpu()


def _exhibits(world: World, cell: Cell, on: str, data: Dataset, ids: Tensor, z: Tensor, most: int) -> Iterator[Exhibit]:
    x, y, ball = data.images(ids), data.labels(ids), cell.threat.ball

    def asked(side: str) -> list[Tensor]:
        return [_odds(world, cell.model, side, images, ids, cell.seed, cell.looks) for images in (x, z)]

    odds = {"f": asked(defences.BARE), "g": asked(cell.defence)}
    good = torch.stack([before.argmax(1) == y for before, _ in odds.values()]).all(0)
    distance = ball.distance(x, z)
    for i in good.nonzero().squeeze(1)[:most].tolist():
        d = z[i] - x[i]
        most_moved = d.abs().max().item()
        factor = 0.5 / most_moved if most_moved > 0 else 1.0
        said = {who: tuple(_answer(data, p[i], int(y[i])) for p in both) for who, both in odds.items()}
        yield Exhibit(
            sample=int(ids[i]),
            truth=data.called(int(y[i])),
            attack=cell.attack,
            on=on,
            before=_png(x[i]),
            change=_png(0.5 + factor * d),
            after=_png(z[i]),
            factor=factor,
            distance=str(Ball(ball.p, float(f"{distance[i]:.3g}"))),
            answers={who: (before, after) for who, (before, after) in said.items()},
        )


def _answer(data: Dataset, odds: Tensor, truth: int) -> Answer:
    k = int(odds.argmax())
    return Answer(data.called(k), float(odds[k]), k == truth)


def _png(x: Tensor) -> bytes:
    """As it is, pixel for pixel; one channel is grey."""
    pixels = (x.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    out = io.BytesIO()
    Image.fromarray(np.squeeze(pixels, 2) if pixels.shape[2] == 1 else pixels).save(out, "png", optimize=True)
    return out.getvalue()
