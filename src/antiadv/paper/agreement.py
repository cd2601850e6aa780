"""Compare our changes with the paper's, in sentences: which way a defence moves a number, and the mean gain."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from antiadv import defences
from antiadv.paper.filled_table import FilledTable, labels
from antiadv.reporting.measures import Difference
from antiadv.reporting.table import Number
from antiadv.reporting.wording import count, join

MOVED = 2.0  # points; smaller differences of the paper may be chance


def agreement(filled: FilledTable) -> list[str]:
    """Sentences for below a table: mean gain under AutoAttack here and in the paper, and signs that agree."""
    data_sets = dict.fromkeys(labels(line)[0] for line in filled.layout.lines)
    sentences = [sentence for data in data_sets if (sentence := _mean_gain(filled, data))]
    moves = list(_moves(filled))
    if moves:
        differ = [name for name, same in moves if not same]
        sentences.append(
            f"Where the defence changes the paper's number by {MOVED:.0f} points or more, ours changes in the same "
            f"direction in {len(moves) - len(differ)} of {count(len(moves), 'number')}"
            + (f"; not for {join(differ)}." if differ else ".")
        )
    return sentences


def _mean_gain(filled: FilledTable, data: str) -> str:
    """The sentence for one data set, or nothing if no line has both numbers."""
    pairs = [
        (number.ours.value, (line.network.title, line.label), number.paper)
        for line, numbers in zip(filled.layout.lines, filled.numbers, strict=True)
        if labels(line)[0] == data and (number := numbers.get("AA gain")) is not None
        if isinstance(number.ours, Difference) and number.paper is not None
    ]
    if not pairs:
        return ""
    published = {line: paper for _, line, paper in pairs}  # two of our networks may represent one of the paper's
    return (
        f"Mean gain under AutoAttack on {data}: {100 * fmean(ours for ours, _, _ in pairs):+.1f} points over "
        f"{count(len(pairs), 'line')} here, {fmean(published.values()):+.1f} over {len(published)} in the paper."
    )


def _moves(filled: FilledTable) -> Iterator[tuple[str, bool]]:
    """For each number that the defence moves in the paper, whether ours moves the same way.

    Ours is the change on the samples that both lines have. The difference of the two numbers shown may be of
    different samples.
    """
    bare: dict[str, dict[str, Number]] = {}
    for line, numbers, changes in zip(filled.layout.lines, filled.numbers, filled.changes, strict=True):
        if line.defence == defences.BARE:
            bare[line.network.model] = dict(numbers)
            continue
        for heading, number in numbers.items():
            before, ours = bare.get(line.network.model, {}).get(heading), changes.get(heading)
            if before is None or ours is None or before.paper is None or number.paper is None:
                continue
            published = number.paper - before.paper
            if abs(published) >= MOVED:
                yield f"{heading} of {line.network.name} {line.label}", ours.value * published > 0
