"""`league`: attack a network bare and behind every defence, within a number of minutes, and say which one to deploy.

    league("mine:make", "arrays:mine.npz", store, minutes=30)   →  League: table, Pareto front, recommendation
    collect(network, entrants, columns, cells, store, traffic)   →  League, from what is stored; nothing is run

First every entrant answers a few images. If the score attack on all of them, on the images that a recommendation
needs, would take longer than the minutes, the dearest are postponed, until the others fit; the result names them.
Then clean traffic is measured. Then samples are taken in rounds, as in a trial (`rounds.py`): first the score attack
on the images that a recommendation needs, then all columns, the cheap ones first, so that every number rests on the
same samples. If the time is over within a round, the rest is left for the next call; the first round of score attacks
is always run. Every number of an attack is an ordinary cell in the store, so the same call continues where it stopped.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from antiadv import attacks, defences, models
from antiadv.attacks import needs_gradients
from antiadv.core.ball import Ball, Linf
from antiadv.core.errors import AntiadvError, BadInput
from antiadv.core.threat import Threat
from antiadv.core.validation import check_scores, fitting
from antiadv.engine.precision import AUTO
from antiadv.evaluation import Cell, Resources, Store, evaluate, make_cell
from antiadv.evaluation.cell import parse_samples
from antiadv.evaluation.early import told, warn_early
from antiadv.evaluation.preflight import passes_gradients
from antiadv.evaluation.progress import Progress
from antiadv.reporting.league_entrants import KINDS, QUERIES, SCORES, columns, entrants, kind_of, named
from antiadv.reporting.league_stored import TRAFFIC, certified, folders, on_the_same_samples, put_traffic
from antiadv.reporting.league_table import FEW, League, Line, described
from antiadv.reporting.league_traffic import BATCH, Traffic, measure, pace
from antiadv.reporting.rounds import check_minutes, rounds

SAMPLES = 500  # by default at most so many; as many of them as fit into the minutes
BARE = "bare"
CLEAN = 256  # images of the clean traffic
PACED = 32  # images for the first guess of what an entrant costs
SENT = 0.6  # of the queries: an image that falls sends no more; on the league's three networks it is 0.46 to 0.61
ANSWERS = 4 * CLEAN  # images that an entrant answers while its clean traffic is measured, about

Cells = Mapping[tuple[str, str], Cell]  # by entrant and column
Columns = Mapping[str, tuple[str, Threat]]
T = TypeVar("T")


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
    names the defences instead, as specs. A defence that does not fit the network or the time is left out, and the
    result says why.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = league("compact:trades", store=folder, samples=range(2), queries=5, only=["rounded_scores"])
    >>> [line.name for line in made.lines], list(made.columns)
    (['bare', 'rounded_scores'], ['scores', 'labels', 'gradients', 'adaptive'])
    """
    if not isinstance(model, str):
        raise BadInput(
            f"a league needs a network as text, such as MODULE:FUNCTION; found a {type(model).__name__}. "
            "Write a function that returns it, and name that."
        )
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
    under, left_out = _possible(columns(Linf(8 / 255) if ball is None else ball, queries), passes_gradients(net, x, y))
    make = partial(
        make_cell, model=model, data=data, samples=asked, seed=seed, precision=precision, resources=resources
    )
    nets = _accepted(specs, lambda name: resources.defended(model, specs[name]), left_out)
    paces = _accepted(nets, lambda name: pace(nets[name], x[:PACED]), left_out)
    cells = make_cells(make, {name: specs[name] for name in paces}, under)
    needs = _needs(paces, cells, asked[:FEW], facts, queries)
    late = postponed(needs, end - time.monotonic())
    enough = minutes + (sum(needs.values()) - (end - time.monotonic())) / 60
    on_time = [name for name in paces if name not in late]
    traffic = _accepted(on_time, lambda name: measure(net, nets[name], x, y, clean, seed), left_out)
    specs = {name: specs[name] for name in traffic}
    cells = {key: cell for key, cell in cells.items() if key[0] in specs}
    with told():
        _run(cells, asked, end - time.monotonic(), facts, resources, batch, progress)
    made = collect(models.label(model), specs, under, cells, facts, traffic, resources.weights(model))
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
    late = {name: need / 60 for name, need in late.items()}
    return dataclasses.replace(made, left_out=left_out, settings=kind, postponed=late, enough=math.ceil(enough))


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


def _possible(under: Columns, gradients: bool) -> tuple[Columns, dict[str, str]]:
    """The columns that a network with or without gradients can have, and why the others are left out."""
    gone = [c for c, (attack, _) in under.items() if not gradients and needs_gradients(attacks.parse(attack))]
    why = {f"the column {column}": "the network passes no gradients" for column in gone}
    return {column: threat for column, threat in under.items() if column not in gone}, why


def _accepted(names: Iterable[str], found: Callable[[str], T], left_out: dict[str, str]) -> dict[str, T]:
    """What is found for each entrant that this network accepts; why the others are not goes into `left_out`."""
    made: dict[str, T] = {}
    for name in names:
        try:
            made[name] = found(name)
        except AntiadvError as error:
            if name == BARE:
                raise
            left_out[name] = str(error)
    return made


def _needs(paces: Mapping[str, float], cells: Cells, few: range, store: Store, queries: int) -> dict[str, float]:
    """The seconds that each entrant takes for its clean traffic and for these samples of the score attack, about."""

    def answers(name: str) -> float:
        cell = cells.get((name, SCORES))
        return ANSWERS + (0 if cell is None else len(set(few) - store.done(cell)) * queries * SENT)

    return {name: pace * answers(name) for name, pace in paces.items()}


def postponed(needs: Mapping[str, float], seconds: float) -> dict[str, float]:
    """The dearest, until the others fit into the seconds; never the bare network.

    >>> postponed({"bare": 10.0, "cheap": 11.0, "layer": 50.0, "hedge": 660.0}, 100)
    {'hedge': 660.0}
    >>> postponed({"bare": 10.0, "cheap": 11.0, "layer": 50.0, "hedge": 660.0}, 1)
    {'hedge': 660.0, 'layer': 50.0, 'cheap': 11.0}
    """
    late: dict[str, float] = {}
    for name, need in sorted(needs.items(), key=lambda pair: -pair[1]):
        if sum(needs.values()) - sum(late.values()) > seconds and name != BARE:
            late[name] = need
    return late


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
    """Run the samples that are not stored, in rounds while there is time: first what a recommendation needs."""
    end = time.monotonic() + seconds
    first = {key: cell for key, cell in cells.items() if key[1] == SCORES}

    def run(some: Cells, ids: Sequence[int]) -> None:
        part = range(ids[0], ids[-1] + 1) if ids else range(0)
        for (_, column), cell in some.items():
            if column == SCORES or time.monotonic() < end:
                few = dataclasses.replace(cell, samples=part)
                evaluate([few], store, shard=max(1, len(ids)), batch=batch, resources=resources, progress=progress)

    begun, needed = _stored(cells, asked, store), asked[:FEW]
    run(cells, asked[:begun])  # attacks nothing: it checks that the network still predicts as when these were stored
    if first:
        rounds(needed[_stored(first, needed, store) :], max(seconds, 1.0), partial(run, first))
    if (left := end - time.monotonic()) > 0:
        rounds(asked[begun:], left, partial(run, cells))


def _stored(cells: Cells, asked: range, store: Store) -> int:
    """How many of the samples, from the first on, all of these cells have."""
    done = set.intersection(*(store.done(cell) for cell in cells.values()))
    return next((n for n, i in enumerate(asked) if i not in done), len(asked))


def collect(
    network: str,
    specs: Mapping[str, str],
    under: Columns,
    cells: Cells,
    store: Store,
    traffic: Mapping[str, Traffic],
    weights: str = "",
) -> League:
    """The league of what is stored. Cells without records are left out."""
    read = {key: (cell, records) for key, cell in cells.items() if (records := store.read(cell))}

    def line(name: str, text: str) -> Line:
        cells = {c: read[name, c] for c in under if (name, c) in read}
        return Line(name, text, traffic.get(name), cells, certified(folders(store.root), weights, text))

    words = {c: described(attack, threat) for c, (attack, threat) in under.items()}
    return League(network, tuple(on_the_same_samples([line(*item) for item in specs.items()], list(under))), words)
