"""Images for a report: the perturbation, and the predictions of both classifiers before and after the attack.

    kept(store)    from attacked images that a store holds (`antiadv evaluate --keep-images`)
    made(n)        from a small run made now, on images and a network that come with the package

A store may come from a stranger. So `kept` loads no network and opens no file that a cell names. Predictions come from
the records. Clean images come from data sets that the caller names, or from published sets imported on this machine
whose digest is the cell's. The images are not selected by their looks: they are the first samples of a cell that both
classifiers get right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from antiadv import attacks, data, defences
from antiadv.core import spec
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import AntiadvError, BadInput, reason
from antiadv.data.dataset import Dataset
from antiadv.data.pictures import magnified, png
from antiadv.evaluation import attack as attack_and_judge
from antiadv.evaluation.cell import LOOKS, Cell, Record, make_threat
from antiadv.evaluation.judge import predict_repeated
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.shard import JUDGE
from antiadv.evaluation.store import Store
from antiadv.reporting.document import Answer, Exhibit, Gallery
from antiadv.reporting.rows import Row

MODEL, DEFENCE, DATA = "compact:trades", "anti_adversary", "cifar10:test"
TRIED = (("apgd:steps=20", "linf:8/255"), ("transfer:attack=(apgd:steps=20)", "linf:8/255"))
MOST = 100  # images on a page, so that it still opens quickly
EACH, AMONG = 4, 32  # images shown of a cell, from its first images


def kept(store: Store, rows: Sequence[Row] = (), sets: Sequence[Dataset] = ()) -> Gallery:
    """Make the gallery of the defended cells whose images are stored. It is empty if there are none.

    `rows` have the names of networks, data and defences, where they differ from the cells'. `sets` are data sets that
    the caller chose to open.
    """
    defended = [cell for cell in store.cells() if cell.defence != defences.BARE]
    held = {cell: path for cell in defended if (path := images_of(store, cell)) is not None}
    names = {row.cell.key: row for row in rows}
    opened = {known.digest: known for known in sets}
    found, reasons = list[Exhibit](), list[str]()
    for cell, path in held.items():
        row = names.get(cell.key, cell)
        seed = f", seed {cell.seed}" if cell.seed else ""
        precision = f", searched in {cell.precision}" if cell.precision != "float32" else ""
        on = f"{row.model} with {row.defence}, {row.data}{seed}{precision}"
        try:
            if cell.images not in opened:
                opened[cell.images] = published(cell)
            found += _of_records(cell, path, opened[cell.images], store.read(cell), on)
        except AntiadvError as error:
            reasons.append(f"{cell.attack} on {on}: {str(error).removesuffix('.')}.")
    about = (
        f"The first {EACH} images of each cell with stored images that both the bare network (f) and the defence (g) "
        "get right without an attack. The predictions are the stored ones; for f only the class is stored."
    )
    lost = "".join(f" Not shown, {reason}" for reason in reasons)
    return Gallery(f"{about}{lost}" if held else "", tuple(found[:MOST]))


def images_of(store: Store, cell: Cell) -> Path | None:
    """The first file of attacked images of a cell."""
    return min(store.folder(cell).glob("*.safetensors"), default=None)


def published(cell: Cell) -> Dataset:
    """The published data set of a cell, as imported here. A path that the cell names is not opened."""
    if "path" in spec.read(cell.data, data.DATASETS, "data set").options:
        raise BadInput("files that a store names are not opened; name its images with --data, if you trust them")
    try:
        found = data.load(data.canonical(cell.data))
    except BadInput as error:
        raise BadInput(f"its images are not at hand ({error}); name them with --data") from error
    if found.digest != cell.images:
        raise BadInput(
            f"{found.name} has other images here than those that were attacked; name the right ones with --data"
        )
    return found


def _of_records(cell: Cell, path: Path, clean: Dataset, records: Sequence[Record], on: str) -> list[Exhibit]:
    ids, z = kept_images(path, AMONG)
    by_sample = {r.sample: r for r in records}
    x = clean.images(ids)
    if x.shape != z.shape:
        size, due = (" x ".join(map(str, images.shape[1:])) for images in (z, x))
        raise BadInput(f"{path.name} holds images of {size}, and those of {clean.name} are {due}; delete it")
    found = list[Exhibit]()
    for i, sample in enumerate(ids.tolist()):
        r = by_sample.get(sample)
        if r is not None and r.clean == r.base_clean == r.label and len(found) < EACH:
            answers = {"f": (_stored(clean, r, r.base_clean), _stored(clean, r, r.base_attacked))}
            answers["g"] = (
                _stored(clean, r, r.clean, r.clean_confidence),
                _stored(clean, r, r.attacked, r.attacked_confidence),
            )
            found.append(_exhibit(cell, on, sample, clean.called(r.label), x[i], z[i], answers))
    return found


def kept_images(path: Path, most: int) -> tuple[Tensor, Tensor]:
    """Read the first samples of a file and their attacked images, and check what can be checked without clean ones."""
    try:
        read = load_file(path)
        ids, z = read["samples"][:most], read["images"][:most]
    except Exception as error:  # a damaged file fails in many ways
        raise BadInput(f"{path.name} cannot be read as images ({reason(error)}); delete it and run again") from None
    fits = ids.dtype == torch.int64 and ids.dim() == 1 and z.dim() == 4 and len(z) == len(ids) and z.is_floating_point()
    if not fits or not z.float().isfinite().all():
        raise BadInput(f"{path.name} holds no images with their samples; delete it and run again")
    return ids, z.float()


def _stored(clean: Dataset, record: Record, label: int, confidence: float | None = None) -> Answer:
    return Answer(clean.called(label), confidence, label == record.label)


def made(n: int, resources: Resources | None = None) -> Gallery:
    """Attack n images, each with the layer's gradients and with those of the bare network."""
    if not 1 <= n <= MOST:
        raise BadInput(f"a gallery shows 1 to {MOST} images; found {n}.")
    resources = Resources("cpu") if resources is None else resources
    images = resources.data(DATA)
    ids = _right(resources, images, n)
    found = []
    for text, threat in TRIED:
        asked = make_threat(threat, attacks.parse(text))
        cell = Cell(DATA, images.digest, MODEL, resources.weights(MODEL), DEFENCE, text, asked, range(n))
        defended = resources.defended(MODEL, DEFENCE)
        z = attack_and_judge(defended, images.images(ids), images.labels(ids), text, asked.ball, ids=ids).images
        found.append(list(_exhibits(resources, cell, f"{MODEL} with {DEFENCE}, {DATA}", images, ids, z)))
    about = (
        f"The first {n} images of {DATA} that `{MODEL}` (f) and the same with `{DEFENCE}` (g) get right. Each is "
        f"attacked twice in {TRIED[0][1]}: by `{TRIED[0][0]}`, which follows the gradients of g, and by "
        f"`{TRIED[1][0]}`, which follows those of f. They were run for this page and are not in the numbers above."
    )
    return Gallery(about, tuple(exhibit for pair in zip(*found, strict=True) for exhibit in pair))


def _right(resources: Resources, data: Dataset, n: int) -> Tensor:
    """The first n samples that both classifiers get right."""
    found = list[int]()
    for start in range(0, len(data), 2 * n):
        ids = torch.arange(start, min(start + 2 * n, len(data)))
        x, y = data.images(ids), data.labels(ids)
        f, g = (_odds(resources, MODEL, side, x, ids).argmax(1) == y for side in (defences.BARE, DEFENCE))
        found += ids[f & g].tolist()
        if len(found) >= n:
            break
    return torch.tensor(found[:n])


def _odds(
    resources: Resources, model: str, defence: str, x: Tensor, ids: Tensor, seed: int = 0, looks: int = LOOKS
) -> Tensor:
    """The judge's probabilities, averaged over several draws if the defence is randomised."""
    device = resources.device
    draws = Draws.of(seed, ids.to(device)).fold(JUDGE)
    predicted = predict_repeated(resources.defended(model, defence), x.to(device), Eager(), draws, looks)
    return predicted.scores.double().softmax(2).mean(0).cpu()


def _exhibits(resources: Resources, cell: Cell, on: str, data: Dataset, ids: Tensor, z: Tensor) -> Iterator[Exhibit]:
    x, y = data.images(ids), data.labels(ids)

    def asked(side: str) -> list[Tensor]:
        return [_odds(resources, cell.model, side, images, ids, cell.seed, cell.looks) for images in (x, z)]

    odds = {"f": asked(defences.BARE), "g": asked(cell.defence)}
    for i, label in enumerate(y.tolist()):
        answers = {
            who: (_answer(data, before[i], label), _answer(data, after[i], label))
            for who, (before, after) in odds.items()
        }
        yield _exhibit(cell, on, int(ids[i]), data.called(label), x[i], z[i], answers)


def _exhibit(
    cell: Cell, on: str, sample: int, truth: str, x: Tensor, z: Tensor, answers: dict[str, tuple[Answer, Answer]]
) -> Exhibit:
    ball, (change, factor) = cell.threat.ball, magnified(z - x)
    return Exhibit(
        sample=sample,
        truth=truth,
        attack=cell.attack,
        on=on,
        before=png(x),
        change=png(change),
        after=png(z),
        factor=factor,
        distance=str(Ball(ball.p, float(f"{ball.distance(x[None], z[None])[0]:.3g}"))),
        answers=answers,
    )


def _answer(data: Dataset, odds: Tensor, truth: int) -> Answer:
    k = int(odds.argmax())
    return Answer(data.called(k), float(odds[k]), k == truth)
