"""`league`: attack a network bare and behind every defence, within a number of minutes, and say which one to deploy.

    league("mine:make", "arrays:mine.npz", store, minutes=30)   →  League: table, Pareto front, recommendation
    collect(network, entrants, columns, cells, store, traffic)   →  League, from what is stored; nothing is run

Clean traffic is measured first. Then samples are taken in rounds, as in a trial (`rounds.py`): each round runs all
columns for all entrants, the cheap columns first, so that every number rests on the same samples. If the time is over
within a round, the rest of its columns is left for the next call; the column of score attacks is always run. Every
number of an attack is an ordinary cell in the store, so the same call continues where it stopped.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from antiadv import defences, models
from antiadv.core.ball import Ball, Linf
from antiadv.core.errors import AntiadvError, BadInput
from antiadv.core.threat import Threat
from antiadv.core.validation import check_scores, fitting
from antiadv.engine.precision import AUTO
from antiadv.evaluation import Cell, Resources, Store, evaluate, make_cell
from antiadv.evaluation.cell import parse_samples
from antiadv.evaluation.early import told, warn_early
from antiadv.evaluation.progress import Progress
from antiadv.reporting.league_entrants import KINDS, QUERIES, SCORES, columns, entrants, kind_of, named
from antiadv.reporting.league_stored import TRAFFIC, put_traffic
from antiadv.reporting.league_table import League, Line, described
from antiadv.reporting.league_traffic import BATCH, Traffic, measure
from antiadv.reporting.rounds import check_minutes, rounds

SAMPLES = 500  # by default at most so many; as many of them as fit into the minutes
CLEAN = 256  # images of the clean traffic

Cells = Mapping[tuple[str, str], Cell]  # by entrant and column
Columns = Mapping[str, tuple[str, Threat]]


def league(
    model: str,
    data: str = "cifar10",
    store: Store | str | Path = "store/league",
    *,
    minutes: float = 30,
    samples: range | str | None = None,
    ball: Ball | None = None,
    queries: int = QUERIES,
    settings: str = AUTO,
    only: Sequence[str] = (),
    seed: int = 0,
    batch: int | None = None,
    precision: str = AUTO,
    resources: Resources | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> League:
    """Compare the defences on a network: clean traffic, robust accuracy at four levels of access, and what to deploy.

    `settings` are those for "standard" or "robust" networks; "auto" chooses by the confidence on clean images. `only`
    names the defences instead, as specs. A defence that does not fit the network is left out, and the result says why.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = league("compact:trades", store=folder, samples=range(2), queries=5, only=["rounded_scores"])
    >>> [line.name for line in made.lines], list(made.columns)
    (['bare', 'rounded_scores'], ['scores', 'labels', 'gradients', 'adaptive'])
    """
    check_minutes(minutes)
    end = time.monotonic() + 60 * minutes
    resources, facts = Resources() if resources is None else resources, Store.of(store)
    if models.is_remote(model):
        raise BadInput("a league wraps the network in defences; an endpoint cannot be wrapped. Use antiadv verdict.")
    asked = _asked(resources, data, samples)
    net = resources.model(model)
    dataset = resources.data(data)
    clean = tuple(asked[:CLEAN])
    x, y = dataset.images(clean).to(resources.device), dataset.labels(clean).to(resources.device)
    _warn(net, x, y)
    kind, specs = _specs(settings, only, partial(kind_of, net, x))
    under = columns(Linf(8 / 255) if ball is None else ball, queries)
    traffic, left_out = _traffic(
        net, specs, lambda text: measure(net, resources.defended(model, text), x, y, clean, seed)
    )
    specs = {name: text for name, text in specs.items() if name in traffic}
    make = partial(
        make_cell, model=model, data=data, samples=asked, seed=seed, precision=precision, resources=resources
    )
    cells = make_cells(make, specs, under)
    with told():
        _run(cells, asked, end - time.monotonic(), facts, resources, batch, progress)
    made = collect(models.label(model), specs, under, cells, facts, traffic)
    put_traffic(
        facts.root / TRAFFIC,
        models.canonical(model),
        {
            "weights": resources.weights(model),
            "images": dataset.digest,
            "samples": len(clean),
            "settings": kind,
            "defences": {name: defences.full_text(text) for name, text in specs.items()},
            "found": {name: seen.json() for name, seen in traffic.items()},
            "refused": left_out,
        },
    )
    return dataclasses.replace(made, left_out=left_out, settings=kind)


@torch.no_grad()
def _warn(net: nn.Module, x: Tensor, y: Tensor) -> None:
    with fitting(net, x):
        s = torch.cat([net(part) for part in x.split(BATCH)])
    check_scores(s, x, y)
    warn_early(x, s.argmax(1), y, s.shape[1])


def _asked(resources: Resources, data: str, samples: range | str | None) -> range:
    if samples is None:
        return resources.data(data).ids[:SAMPLES]
    asked = parse_samples(samples) if isinstance(samples, str) else samples
    if len(asked) == 0:
        raise BadInput(f"a league needs at least one sample; found {samples}. Give for example 0:100.")
    return asked


def _specs(settings: str, only: Sequence[str], kind: Callable[[], str]) -> tuple[str, dict[str, str]]:
    """Which settings, in words, and the specs of the entrants by name."""
    if only:
        return "as named", named(only)
    chosen = kind() if settings == AUTO else settings
    for known in KINDS:
        if chosen == known:
            return known, entrants(known)
    raise BadInput(f"settings are {AUTO}, {' or '.join(KINDS)}; found {settings!r}. Use {AUTO}.")


def _traffic(
    net: nn.Module, specs: Mapping[str, str], measured: Callable[[str], Traffic]
) -> tuple[dict[str, Traffic], dict[str, str]]:
    """Clean traffic of every entrant that this network accepts, and why the others are left out."""
    seen: dict[str, Traffic] = {}
    refused: dict[str, str] = {}
    for name, text in specs.items():
        try:
            seen[name] = measured(text)
        except AntiadvError as error:
            if not seen:  # the bare network itself
                raise
            refused[name] = str(error)
    return seen, refused


def make_cells(make: Callable[..., Cell], specs: Mapping[str, str], under: Columns) -> dict[tuple[str, str], Cell]:
    """The cells by entrant and column, in the order to run them: a column for all entrants, then the next."""
    return {
        (name, column): make(defence=text, attack=attack, threat=threat)
        for column, (attack, threat) in under.items()
        for name, text in specs.items()
    }


def _run(
    cells: Cells,
    asked: range,
    seconds: float,
    store: Store,
    resources: Resources,
    batch: int | None,
    progress: Callable[[Progress], None] | None,
) -> None:
    """Run the samples that are not stored in all columns, in rounds while there is time."""
    done = set.intersection(*(store.done(cell) for cell in cells.values()))
    stored = next((n for n, i in enumerate(asked) if i not in done), len(asked))

    end = time.monotonic() + seconds

    def run(ids: Sequence[int]) -> None:
        part = range(ids[0], ids[-1] + 1) if ids else range(0)
        for (_, column), cell in cells.items():
            if column == SCORES or time.monotonic() < end:
                some = dataclasses.replace(cell, samples=part)
                evaluate([some], store, shard=max(1, len(ids)), batch=batch, resources=resources, progress=progress)

    run(asked[:stored])  # attacks nothing: it checks that the network still predicts as it did when these were stored
    rounds(asked[stored:], max(seconds, 1.0), run)


def collect(
    network: str,
    specs: Mapping[str, str],
    under: Columns,
    cells: Cells,
    store: Store,
    traffic: Mapping[str, Traffic],
) -> League:
    """The league of what is stored. Cells without records are left out."""
    read = {key: (cell, records) for key, cell in cells.items() if (records := store.read(cell))}

    def line(name: str, text: str) -> Line:
        return Line(name, text, traffic.get(name), {c: read[name, c] for c in under if (name, c) in read})

    words = {c: described(attack, threat) for c, (attack, threat) in under.items()}
    return League(network, tuple(line(*item) for item in specs.items()), words)
