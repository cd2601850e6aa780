"""Planning: words to cells, and cells minus what is stored to jobs.

    make_cell(model=…, attack=…, threat=…, …)    →  Cell, its specs in normal form and its digests found
    plan(cells, done, shard)                     →  jobs of at most `shard` samples each, in order

A shard is not a batch: it is what is stored at once, and lost at most if the machine dies. Batches are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from antiadv import attacks, defences
from antiadv.core import spec
from antiadv.core.attack import Attack, check_kind
from antiadv.core.bounds import RECORDS
from antiadv.core.defence import Randomised
from antiadv.core.deprecated import renamed
from antiadv.core.errors import BadInput
from antiadv.core.threat import Threat
from antiadv.core.validation import check_whole
from antiadv.engine.precision import check_precision
from antiadv.evaluation.cell import LOOKS, Cell, Job, make_threat, normal_attack, parse_samples
from antiadv.evaluation.judge import check_looks
from antiadv.evaluation.resources import Resources

SAMPLES = 1000  # the first, unless told otherwise


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
    precision: str = "float32",
    looks: int = LOOKS,
    resources: Resources | None = None,
) -> Cell:
    """A cell, checked as far as can be without running it: names, options, access, norm, weights, samples.

    Without `samples`, the first thousand, or all there are. `looks` is how often a randomised defence is judged: any
    other model is looked at once, so that its cell is the same however many were asked for.

    >>> cell = make_cell(model="compact:trades", attack="pgd:steps=40", threat="linf:8/255", samples="0:100")
    >>> str(cell.threat), cell.samples, cell.defence
    ('linf:8/255,access=gradients', range(0, 100), 'none')
    """
    for name, said in (("model", model), ("defence", defence), ("data", data)):
        if not isinstance(said, str):
            raise BadInput(
                f"a cell names its {name} in text; found {type(said).__name__}. Use antiadv.attack or antiadv.verdict "
                "for what is in hand, or give it a name in an antiadv.Resources."
            )
    resources = Resources() if resources is None else resources
    resources.check_name(model)
    attack = attacks.parse(attack) if isinstance(attack, str) else attack
    check_kind(attack)
    threat = make_threat(threat, attack)
    if threat.targeted:
        raise BadInput(
            "a cell's threat cannot be targeted, for a data set names no targets; use antiadv.attack instead."
        )
    dataset = resources.data(data)
    if samples is None:
        samples = dataset.ids[:SAMPLES]
    samples = parse_samples(samples) if isinstance(samples, str) else samples
    if not isinstance(samples, range):
        raise BadInput(f"a cell's samples are a range, or a text such as 0:100; found {samples!r}. Give range(100).")
    check_whole(seed=seed)
    if not samples:
        raise BadInput(f"a cell needs at least one sample; found {samples}. Give for example range(100).")
    dataset.labels((samples[0], samples[-1]))  # says what is missing, if anything is
    normal = defence if defence == defences.BARE else spec.read(defence, defences.DEFENCES, "defence").text()
    rolls = isinstance(resources.defended(model, normal), Randomised)
    weights, said = resources.weights(model), normal_attack(attack)
    check_precision(precision)
    check_looks(looks)
    looks = looks if rolls else LOOKS
    files = attacks.files_digest(attack)
    return Cell(data, dataset.digest, model, weights, normal, said, threat, samples, int(seed), precision, looks, files)


def plan(cells: Iterable[Cell], done: Callable[[Cell], Set[int]], shard: int) -> list[Job]:
    """What is missing, cut into jobs. Cells that ask for the same samples twice are planned once."""
    check_whole(shard=shard)
    if shard < 1:
        raise BadInput(f"a shard needs at least one sample; found {shard}. Give for example --shard 250.")
    shard = min(shard, RECORDS)  # what a reader of the store takes
    planned: dict[str, set[int]] = {}
    jobs: list[Job] = []
    for cell in cells:
        have = planned.setdefault(cell.key, set(done(cell)))
        todo = [i for i in cell.samples if i not in have]
        have.update(todo)
        jobs += [Job(cell, tuple(todo[i : i + shard])) for i in range(0, len(todo), shard)]
    return jobs
