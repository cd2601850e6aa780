"""Write the pages that are made of facts: the zoo from its cards, the catalogue from the registries.

make_docs.py            write what differs
make_docs.py --check    say what differs, and fail
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from antiadv import models
from antiadv.cli import catalogue
from antiadv.models import Card
from antiadv.train import interval

ROOT = Path(__file__).resolve().parents[1]

ZOO = """# The zoo

The networks that come with the project, trained with its own recipes (`antiadv train`), since the authors' weights
cannot be shipped; `--model wrn28-10:mart,path=FILE` and its kin load those for whoever has them. This page is generated
from the cards beside the weights (`make docs`).

- `compact:…` lies in the package and loads right after installation; `resnet18:…` and `wrn16-4:…` lie in `weights/` of
  the repository.
- Accuracies are on the full test set, in per cent with 95 % Wilson intervals, of the rounded weights as a user loads
  them. PGD-20: Linf 8/255, 20 steps of 2/255 from one uniform start, the last iterate judged. It is a yardstick, not a
  verdict: stronger attacks go lower.
- Seconds are those of the training steps on the hardware named, with up to four trainings sharing the GPU at a time.
- Where we differ from the paper: its five robust networks are WideResNet-28-10 and -34-10, some with 500,000 extra
  images; ours are smaller, trained for fewer epochs on CIFAR alone.

| load it as | architecture | recipe | epochs | clean | PGD-20 | seconds | hardware | weights |
|---|---|---|---|---|---|---|---|---|
{rows}

## How each was made

{commands}
"""


def row(card: Card) -> str:
    def said(share: float, low: float, high: float) -> str:
        return f"{100 * share:.2f} [{100 * low:.1f}, {100 * high:.1f}]"

    clean, pgd = (said(a.share, *interval(a)) for a in (card.clean, card.pgd20))
    digest = (card.weights or "").removeprefix("sha256:")[:12]
    return (
        f"| `{card.spec}` | `{card.architecture}` | `{card.more['recipe']}` | {card.epochs} | {clean} | {pgd} "
        f"| {card.seconds:.0f} | {card.hardware} | `{digest}` |"
    )


def made(card: Card) -> str:
    note = NOTES.get(card.name, "")
    return f"- `{card.spec}`: `{card.command}`{' ' + note if note else ''}"


NOTES = {
    "compact-cifar10-self_ensemble": "The accuracies are those of ten noisy passes averaged; as loaded, without the "
    "`self_ensemble` defence, the network is silent and deterministic.",
    "compact-cifar10-hydra": "90 % of the weights of every layer are zero.",
}


def zoo() -> str:
    cards = models.cards()
    return ZOO.format(rows="\n".join(map(row, cards)), commands="\n".join(map(made, cards)))


CATALOGUE = """# The catalogue

What there is, with the text to write for it; `antiadv list attacks` and its kin show the same. Generated from the
registries (`make docs`). The options are shown with their defaults.

## Attacks

{attacks}
## Defences

{defences}
## Recipes

{recipes}
## Data sets

{datasets}"""


def table(lines: list[dict[str, str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"

    names = list(lines[0])
    return line(names) + line("---" for _ in names) + "".join(line(_code(n, row[n]) for n in names) for row in lines)


def _code(name: str, text: str) -> str:
    return f"`{text}`" if name in ("name", "options") and text else text


def lists() -> str:
    kinds = {str(kind): catalogue.lines(kind) for kind in catalogue.Kind if kind != catalogue.Kind.models}
    return CATALOGUE.format(**{kind: table(found) for kind, found in kinds.items()})


PAGES = {"docs/zoo.md": zoo, "docs/catalogue.md": lists}


def main() -> int:
    stale = [name for name, make in PAGES.items() if not (ROOT / name).exists() or (ROOT / name).read_text() != make()]
    if "--check" in sys.argv:
        print("\n".join(f"{name} is not what the facts say; run make docs" for name in stale) or "up to date")
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(PAGES[name]())
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
