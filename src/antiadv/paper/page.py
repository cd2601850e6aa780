"""What the stored runs say of the paper, in words and tables: docs/reproduction.md and the README's headline.

    page(store)        the whole page: claim by claim, then table by table
    headline(store)    the few numbers that matter most, a line per network

Everything that depends on numbers is a function of the store; the rest is what was decided beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from antiadv import defences
from antiadv.evaluation.store import Store
from antiadv.paper import behind, noise, table_3
from antiadv.paper.claims import Claim, claims
from antiadv.paper.fill import Filled, StoreIndex, fill, labels
from antiadv.paper.networks import Source
from antiadv.reporting.measures import Difference
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.select import searched
from antiadv.reporting.table import Number, text_table
from antiadv.reporting.wording import count, join

PAGE = """# The paper, reproduced

Every table and figure of *Combating Adversaries with Anti-Adversaries* (Alfarra et al., AAAI 2022) that holds numbers,
run on this project's own networks ([zoo.md](zoo.md)). This page is generated from the store (`make docs`): each number
is a function of the records in `results/`, and `antiadv reproduce NAME` runs what is missing and prints the same.

- **The networks are ours.** The authors' checkpoints are WideResNet-28-10 and -34-10, some trained with 500,000 extra
  images; ours are smaller and trained for fewer epochs on CIFAR alone, so accuracies are lower from the start. What can
  be compared is what the layer *changes*. Whoever has the checkpoints runs `--networks official:DIR`.
- **The images** are the first of the test set, in its order; n says how many.
- **Numbers** are in per cent, with 95 % intervals (Wilson's; Newcombe's for differences of paired samples), and the
  paper's in round brackets behind them. A sample that the network gets wrong from the start counts as fallen.
- **Every defended line has an adaptive column** (of SND under one look, the line below it), which the paper has not:
  the worst case of the line's other attacks in the same ball and of an attack that knows the defence (`antiadv list
  attacks`, `adaptive`). Its gain is against the bare network under the same attacks.
- **Precision**: attacks may search in a coarser precision than float32, the judge decides in float32 always. Where the
  two part in the end and the search was not told, that sample is searched again from the start, in float32. Of older
  cells those in tf32 had nothing searched again, those in half only what ended inside the radius. Samples may stand
  there that would fall, above all under attacks that see labels alone and walk where rounding decides them; a table
  that holds such cells says how many, and reads none of them at another radius within which such an image lies. It says
  too which attack is known to break less in its precision, and [precision.md](precision.md) by how much. It is Bandits
  in half, on both sides of every gain here: bare, robust networks look stronger for it; behind the layer the two that
  were tried do not. So those accuracies of bare networks are too high, and the gains rather too small. How often
  search and judge gave one label is in each receipt. Where a cell is stored in several precisions, the one with the
  most samples counts, of equals the finest; each table says which it was.
- **Settings** are the paper's where it states them; where it is silent, the choice stands below the table.

## Claim by claim

A rule with a bar (15 points) looks at the value, one without at the interval. *Settled* are the checks whose whole
interval lies on one side of the bar; of the others these images cannot tell, whichever way they went.

The gains below are gains against attackers who do not know the layer. What is left of them against one who does stands
beside each in the tables, and is the last claim.

{claims}
{behind}
## Table by table

{tables}"""


MOVED = 2.0  # points: what the paper prints as a difference, and sampling alone hardly makes


def page(store: Store | str | Path) -> str:
    from antiadv.paper import EXPERIMENTS  # here, since the table of contents offers this page too

    shelf = StoreIndex(_store(store))
    tables = [section(name, fill(module.layout(Source()), shelf)) for name, module in EXPERIMENTS.items()]
    return PAGE.format(claims=claims_table(claims(shelf)), behind=_behind(shelf), tables="\n".join(tables))


def _behind(shelf: StoreIndex) -> str:
    tables = [part.table(shelf)[0] for part in (behind, noise)]
    return "\n".join(
        f"## {table.title}\n\n{table_as_markdown(table)}\n" + "".join(f"- {sentence}\n" for sentence in table.sentences)
        for table in tables
    )


def _store(store: Store | str | Path) -> Store:
    return store if isinstance(store, Store) else Store(store)


# ---------------------------------------------------------------- claims


def claims_table(found: Sequence[Claim]) -> str:
    """A table of verdicts, then the numbers behind each."""
    lines = [
        (
            c.name,
            f"**{c.verdict}**",
            f"{sum(k.passes for k in c.measured)} of {len(c.measured)}",
            f"{c.settled} of {len(c.measured)}",
            f"{len(c.measured)} of {len(c.checks)}",
        )
        for c in found
    ]
    table = text_table(("claim", "verdict", "checks passed", "settled", "measured of"), lines)
    return table_as_markdown(table) + "\n" + "\n".join(map(claim_section, found))


def claim_section(c: Claim) -> str:
    said = [f"### {c.name}: {c.verdict}", "", f"The paper: {c.paper}", "", f"The rule: {c.rule}", ""]
    for title, passes in (("Passed", True), ("Failed", False)):
        some = [str(check) for check in c.measured if check.passes == passes]
        said += [f"- {title}: {'; '.join(some)}."] if some else []
    missing = [str(check) for check in c.checks if check.found is None]
    said += [f"- Not measured yet: {'; '.join(missing)}."] if missing else []
    said += [f"- Why: {c.why}"] if c.why and any(not check.passes for check in c.measured) else []
    return "\n".join(said) + "\n"


# ---------------------------------------------------------------- tables


def section(name: str, filled: Filled) -> str:
    table = filled.table(name)
    notes = "".join(f"- {sentence}\n" for sentence in (*agreement(filled), *table.sentences))
    return f"### {table.title}\n\n`antiadv reproduce {name}`\n\n{table_as_markdown(table)}\n{notes}"


def agreement(filled: Filled) -> list[str]:
    """What of the paper's differences comes out, and what does not: by sign, and by size where both have a gain."""
    said = [_gains(filled, data) for data in dict.fromkeys(labels(line)[0] for line in filled.layout.lines)]
    moves = list(_moves(filled))
    if moves:
        agree = [ok for _, ok in moves]
        odd = [name for name, ok in moves if not ok]
        differ = f"; not for {join(odd)}" if odd else ""
        said.append(
            "Where the paper's number rises or falls by 2 points or more behind the defence, ours moves the same way "
            f"in {sum(agree)} of {count(len(agree), 'number')}{differ}."
        )
    return [sentence for sentence in said if sentence]


def _gains(filled: Filled, data: str) -> str:
    pairs = [
        (number.ours.value, (line.network.title, line.label), number.paper)
        for line, numbers in zip(filled.layout.lines, filled.numbers, strict=True)
        if labels(line)[0] == data and (number := numbers.get("AA gain")) is not None
        if isinstance(number.ours, Difference) and number.paper is not None
    ]
    if not pairs:
        return ""
    theirs = {line: paper for _, line, paper in pairs}  # two of our networks may stand beside one of the paper's
    ours, paper = 100 * fmean(o for o, _, _ in pairs), fmean(theirs.values())
    return (
        f"Gain under AutoAttack on {data}, in the mean: {ours:+.1f} points of {count(len(pairs), 'line')} here, "
        f"{paper:+.1f} of {len(theirs)} in the paper."
    )


def _moves(filled: Filled) -> Iterator[tuple[str, bool]]:
    """For each defended number whose bare one is known on both sides: does ours go where the paper's goes?

    Ours on the samples that both lines have: where one has more, the difference of what they show is another.
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
            if abs(number.paper - before.paper) >= MOVED:
                same = ours.value * (number.paper - before.paper) > 0
                yield f"{heading} of {line.network.name} {line.label}", same


# ---------------------------------------------------------------- headline


def headline(store: Store | str | Path) -> str:
    """Table 3 in short, as Markdown: clean, AutoAttack and the adaptive attack, each bare → behind the layer.

    A line for each network whose cells under AutoAttack are stored, bare and defended; the others are counted.
    """
    filled = fill(table_3.layout(Source()), StoreIndex(_store(store)))
    both = list(zip(filled.layout.lines, filled.numbers, strict=True))
    pairs = [(f, anti, g) for (_, f), (anti, g) in zip(both[::2], both[1::2], strict=True)]
    whole = [(f, anti, g) for f, anti, g in pairs if g["AA gain"].ours is not None]
    stored = f"{len(filled.used)} of {count(len(filled.layout.asks), 'cell')} are stored"
    if not whole:
        return f"No network's cells of table 3 are all stored yet ({stored}); `antiadv reproduce table-3` runs them.\n"
    lines = [
        (
            f"`{anti.network.name}`",
            str(number.n),
            _arrow(f, g, "clean"),
            _arrow(f, g, "AA"),
            str(g["AA gain"]),
            _arrow(f, g, "adaptive"),
            str(g["adaptive gain"]),
        )
        for f, anti, g in whole
        if (number := g["AA gain"].ours) is not None
    ]
    head = ("network", "n", "clean", "AutoAttack", "gain [95 %] (paper)", "adaptive", "gain [95 %]")
    more = "" if len(whole) == len(pairs) else f" {len(whole)} of {count(len(pairs), 'network')} so far: {stored}."
    shown = {anti.network.name for _, anti, _ in whole}
    how = searched(cell for cell in filled.used if cell.model in shown)
    note = f"In per cent and points, bare → behind the layer (K = 2, α = 0.15), Linf 8/255. {how}{more}"
    return f"{table_as_markdown(text_table(head, lines))}\n{note}\n"


def _arrow(bare: Mapping[str, Number], defended: Mapping[str, Number], heading: str) -> str:
    """`44.1 → 68.0`"""
    return " → ".join(numbers[heading].text for numbers in (bare, defended))
