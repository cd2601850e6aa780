"""docs/gate.md: what a gate on the layer gains and costs, from the cells and `traffic.json` in `results/gate`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv import attacks, defences, models
from antiadv.core import spec
from antiadv.evaluation import Cell, Store
from antiadv.evaluation.cell import Record
from antiadv.reporting.flags import LEVEL
from antiadv.reporting.measures import Difference, paired, robust_accuracy
from antiadv.reporting.wording import join
from tools.docs.markdown import render, table, wrap
from tools.run_gate import ATTACKS, TRAFFIC, Plan, plans, read_traffic

TITLES = {"square": "Square", "nes": "NES", "bandits": "Bandits"}
NOTHING = "**Nothing is stored yet.** Run the command at the end of this page, then `make docs`."


@dataclass(frozen=True)
class Network:
    """One network of the page: its plan, the clean traffic, and the stored records by defence and attack."""

    plan: Plan
    traffic: dict[str, dict[str, Any]]
    cells: dict[tuple[str, str], tuple[Cell, list[Record]]]

    @property
    def name(self) -> str:
        return self.plan.network.name

    @cached_property
    def measured(self) -> list[str]:
        """The rows that have something to show, by name."""
        kept = {d for d, _ in self.cells}
        return [n for n, text in self.plan.defences.items() if n in self.traffic or defences.full_text(text) in kept]

    def records(self, row: str, attack: str) -> tuple[Cell, list[Record]] | None:
        return self.cells.get((defences.full_text(self.plan.defences[row]), attack))

    def gain(self, row: str, attack: str, over: str = "none") -> Difference | None:
        """Robust accuracy of a row minus that of another, on the same samples."""
        first, second = self.records(over, attack), self.records(row, attack)
        if first is None or second is None:
            return None
        return paired(first[1], second[1], second[0].threat.ball)


def page(root: Path) -> str:
    networks = [n for n in found(root / "results" / "gate") if n.measured]
    return render(
        "gate",
        use=use(networks) if networks else NOTHING,
        adaptive=wrap(adaptive(networks)),
        tables="\n".join(f"### `{n.name}`\n\n{about(n)}\n\n{table(rows(n))}" for n in networks) or NOTHING + "\n",
        commands="\n".join(commands(networks)),
    )


def found(folder: Path) -> list[Network]:
    """The networks with what is stored about them. Cells of other weights than the network's card are left out.

    A gain is between cells of one edition of an attack: that of the most defences, and of these the newest.
    """
    store, traffic = Store(folder), read_traffic(folder / TRAFFIC)
    weights = {models.canonical(card.spec): card.weights for card in models.cards()}
    editions: dict[tuple[str, str], dict[int, dict[str, Cell]]] = {}
    for cell in store.cells() if folder.is_dir() else []:
        name = models.canonical(cell.model)
        if weights.get(name) == cell.weights:
            attack, edition = edition_of(cell)
            at = editions.setdefault((name, attack), {}).setdefault(edition, {})
            at[defences.full_text(cell.defence)] = cell
    cells: dict[str, dict[tuple[str, str], tuple[Cell, list[Record]]]] = {}
    for (name, attack), by_edition in editions.items():
        for edition in sorted(by_edition, key=lambda e: (len(by_edition[e]), e)):  # later ones replace earlier ones
            for defence, cell in by_edition[edition].items():
                cells.setdefault(name, {})[defence, attack] = cell, store.read(cell)
    networks = []
    for plan in plans():
        name = plan.network.name
        facts = traffic.get(name, {})
        seen = facts.get("found", {}) if facts.get("weights") == weights.get(name) else {}
        networks.append(Network(plan, seen, cells.get(name, {})))
    return networks


def edition_of(cell: Cell) -> tuple[str, int]:
    """The name and the edition of a cell's attack."""
    text, _, edition = (cell.earlier or attacks.full_text(attacks.parse(cell.attack))).rpartition("@")
    return text.partition(":")[0], int(edition)


def about(n: Network) -> str:
    alpha = spec.read(n.plan.layer, defences.DEFENCES, "defence").options["step_size"]
    sizes = {len(records) for _, records in n.cells.values()}
    images = (
        f"{min(sizes)} images" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)} images" if sizes else "no images"
    )
    clean = next((facts["n"] for facts in n.traffic.values()), 0)
    return wrap(f"K = 2, α = {alpha:g}, `{n.plan.radius}`. Attacked: {images}. Clean traffic: {clean or 'no'} images.")


def rows(n: Network) -> list[dict[str, str]]:
    """A line per defence: clean traffic, then robust accuracy and gain under each attack."""
    lines = []
    for name in n.measured:
        seen = n.traffic.get(name)
        line = {"defence": name, "above": "", "passes": "1" if name == "none" else "", "in batches": "", "labels": ""}
        if seen is not None:
            above = f"{100 * seen['above'] / seen['n']:.1f} %" if name != "layer" else ""
            line |= {"above": above, "passes": f"{seen['alone']:.2f}", "in batches": f"{seen['mixed']:.2f}"}
            line["labels"] = str(seen["changed"])
        same = seen is not None and name != "layer" and seen["above"] == 0
        line |= {TITLES[a]: _result(n, name, a) or ("as the layer" if same else "–") for a in ATTACKS}
        lines.append(line)
    return lines


def _result(n: Network, row: str, attack: str) -> str:
    kept = n.records(row, attack)
    if kept is None:
        return ""
    cell, records = kept
    robust = f"{100 * robust_accuracy(records, cell.threat.ball).value:.1f}"
    gain = n.gain(row, attack) if row != "none" else None
    return robust if gain is None else f"{robust}, {gain.points}"


def use(networks: list[Network]) -> str:
    """Name for each network the cheapest gate that is not weaker than the layer under any attack that was run."""
    told = [f"- {sentence}" for n in networks if (sentence := _advice(n))]
    return "\n".join(wrap(line, "  ") for line in told) or "No network has gates that are stored under two attacks yet."


def _advice(n: Network) -> str:
    gates = [row for row in n.measured if row.startswith("gate")]
    run = [a for a in ATTACKS if sum(n.gain(row, a, "layer") is not None for row in gates) > 1]  # so they compare
    gates = [row for row in gates if all(n.gain(row, a, "layer") for a in run)]
    if len(run) < 2 or not gates or any(row not in n.traffic for row in ("layer", *gates)):
        return ""
    kept = [row for row in gates if all(_keeps(n.gain(row, a, "layer")) for a in run)]
    kept = [row for row in kept if n.traffic[row]["mixed"] < n.traffic["layer"]["mixed"]]
    if not kept:
        return f"On `{n.name}` every gate loses to the layer under some attack, or costs as much; use none."
    best = min(kept, key=lambda row: float(n.traffic[row]["alone"]))
    alone, mixed = (f"{n.traffic[best][key]:.1f}" for key in ("alone", "mixed"))
    cost = f"{alone} passes per clean image ({mixed} in batches) instead of {n.traffic['layer']['alone']:.0f}"
    stronger = [
        TITLES[a] for a in ATTACKS if (d := n.gain(best, a, "layer")) is not None and d.low > 0 and d.p <= LEVEL
    ]
    more = f", and it is stronger than the layer against {join(stronger)}" if stronger else ""
    others = [TITLES[a] for a in ATTACKS if a not in run]
    not_run = f" {join(others)} was not run." if others else ""
    return f"On `{n.name}` use `{best.replace(' ', '=')}`: {cost}{more}.{_cheaper(n, gates, best, run)}{not_run}"


def _cheaper(n: Network, gates: list[str], best: str, run: list[str]) -> str:
    """Why the next cheaper gate is not the advice, or nothing if there is none."""
    passes = {row: float(n.traffic[row]["alone"]) for row in gates}
    cheaper = [row for row in gates if passes[row] < passes[best]]
    if not cheaper:
        return ""
    row = max(cheaper, key=passes.__getitem__)
    lost = {TITLES[a]: d for a in run if (d := n.gain(row, a, "layer")) is not None and not _keeps(d)}
    told = join([f"{d.points} points against {title}" for title, d in lost.items()])
    return f" `{row.replace(' ', '=')}` costs less, {passes[row]:.1f} passes, but loses to the layer: {told}."


def _keeps(d: Difference | None) -> bool:
    """Whether the gate is not weaker than the layer by more than chance explains."""
    return d is not None and d.high >= 0


def adaptive(networks: list[Network]) -> str:
    told = []
    for n in networks:
        for row in n.measured:
            first, second = n.records("none", "adaptive"), n.records(row, "adaptive")
            if not row.startswith("gate") or first is None or second is None:
                continue
            bare, gated = edition_of(first[0])[1], edition_of(second[0])[1]
            if bare == gated and (gain := n.gain(row, "adaptive")) is not None:
                told.append((f"`{n.name}` with {row} (edition {bare} of the attack)", gain))
    if not told:
        return "The adaptive attack is not stored yet."
    numbers = "; ".join(f"{gain.points} points on {where}" for where, gain in told)
    zero = all(gain.low <= 0 <= gain.high or abs(gain.value) < 0.01 for _, gain in told)
    return f"**The adaptive gain is {'about 0' if zero else 'not 0 everywhere'}:** {numbers}."


def commands(networks: Iterable[Network]) -> Iterable[str]:
    yield "- `python -m tools.run_gate --minutes 8`, until it says that all cells are complete"
    for n in networks:
        yield from sorted({f"- `{cell.command}`" for cell, _ in n.cells.values()})
