"""Planning: specs become cells, and the missing samples of cells become jobs.

    make_cell(model=…, attack=…, threat=…, …)    →  Cell, with its specs in normal form and its digests
    plan(cells, done, shard)                     →  jobs of at most `shard` samples each, in order

A shard is what is stored together, and the most that is lost if the machine dies. A batch is what passes through the
network together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from functools import partial

from antiadv import attacks, defences
from antiadv.core import spec
from antiadv.core.attack import Attack, check_granted, check_kind
from antiadv.core.bounds import RECORDS
from antiadv.core.defence import Randomised
from antiadv.core.deprecated import renamed
from antiadv.core.errors import BadInput
from antiadv.core.threat import Threat
from antiadv.core.validation import check_whole
from antiadv.data.dataset import Dataset
from antiadv.engine.precision import AUTO
from antiadv.evaluation.automatic import resolve_precision
from antiadv.evaluation.cell import LOOKS, Cell, Job, make_threat, normal_attack, parse_samples
from antiadv.evaluation.judge import check_looks
from antiadv.evaluation.resources import Resources

SAMPLES = 1000  # default: the first thousand


@renamed(world="resources")
def make_cell(
    *,
    model: str,
    attack: Attack | str,
    threat: Threat | str,
    defence: str = defences.BARE,
    samples: range | str | None = None,
    data: str = "cifar10:test",
    seed: int = 0,
    precision: str = AUTO,
    looks: int = LOOKS,
    resources: Resources | None = None,
) -> Cell:
    """Make a cell and check all that can be checked without running it: names, options, access, norm, weights, samples.

    By default the first thousand samples, or all if there are fewer. `looks` is how often the judge asks a randomised
    defence about an image; it has no effect for other models. `precision="auto"` becomes the fastest that is known to
    lose nothing with this attack on the device of `resources`, and is stated in the cell.

    >>> cell = make_cell(model="compact:trades", attack="pgd:steps=40", threat="linf:8/255", samples="0:100")
    >>> str(cell.threat), cell.samples, cell.defence
    ('linf:8/255,access=gradients', range(0, 100), 'none')
    """
    _check_texts(model=model, defence=defence, data=data)
    resources = Resources() if resources is None else resources
    resources.check_name(model)
    attack = attacks.parse(attack) if isinstance(attack, str) else attack
    check_kind(attack)
    threat = make_threat(threat, attack)
    if threat.targeted:
        raise BadInput(
            "a cell's threat cannot be targeted, because a data set has no target classes; use antiadv.attack instead."
        )
    dataset = resources.data(data)
    samples = _checked_samples(samples, dataset)
    check_whole(seed=seed)
    defence = defence if defence == defences.BARE else spec.read(defence, defences.DEFENCES, "defence").text()
    defended = resources.defended(model, defence)
    check_granted(defended, threat)
    randomised = isinstance(defended, Randomised)
    weights, attack_text = resources.weights(model), normal_attack(attack)
    survives = partial(resources.survives, model, defence, data)
    precision = resolve_precision(precision, attack, defended, threat.ball, resources.device, survives)
    check_looks(looks)
    looks = looks if randomised else LOOKS
    files = attacks.files_digest(attack, defences.files(defence))
    images = dataset.digest
    return Cell(data, images, model, weights, defence, attack_text, threat, samples, int(seed), precision, looks, files)


def _check_texts(**texts: object) -> None:
    for name, value in texts.items():
        if not isinstance(value, str):
            raise BadInput(
                f"a cell names its {name} in text; found {type(value).__name__}. Use antiadv.attack or antiadv.verdict "
                "for objects in hand, or give it a name in an antiadv.Resources."
            )


def _checked_samples(samples: range | str | None, dataset: Dataset) -> range:
    if samples is None:
        samples = dataset.ids[:SAMPLES]
    samples = parse_samples(samples) if isinstance(samples, str) else samples
    if not isinstance(samples, range):
        raise BadInput(f"a cell's samples are a range, or a text such as 0:100; found {samples!r}. Give range(100).")
    if not samples:
        raise BadInput(f"a cell needs at least one sample; found {samples}. Give for example range(100).")
    dataset.labels((samples[0], samples[-1]))  # raises if the data set has no such samples
    return samples


def plan(cells: Iterable[Cell], done: Callable[[Cell], Set[int]], shard: int) -> list[Job]:
    """The missing samples, cut into jobs. A sample that several cells with one key ask for is planned once."""
    check_whole(shard=shard)
    if shard < 1:
        raise BadInput(f"a shard needs at least one sample; found {shard}. Give for example --shard 250.")
    shard = min(shard, RECORDS)  # the store reads no longer shards
    planned: dict[str, set[int]] = {}
    jobs: list[Job] = []
    for cell in cells:
        have = planned.setdefault(cell.key, set(done(cell)))
        todo = [i for i in cell.samples if i not in have]
        have.update(todo)
        jobs += [Job(cell, tuple(todo[i : i + shard])) for i in range(0, len(todo), shard)]
    return jobs
