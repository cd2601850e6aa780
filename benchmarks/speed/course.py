"""Run the sides of one race: theirs on the authors' layer, ours through the engine, both judged alike."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from antiadv import AntiAdversary, data, models
from antiadv.attacks.cascade import Cascade
from antiadv.attacks.white_box.autoattack import Autoattack
from antiadv.core.attack import Attack
from antiadv.core.confirm import samples_to_rerun
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager, Engine
from antiadv.core.errors import BadInput
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Threat
from antiadv.engine.meter import Meter, aside
from antiadv.engine.switches import switched
from antiadv.evaluation.judge import predict_repeated, records, tidy
from antiadv.reporting.measures import standing
from benchmarks import timing
from benchmarks.authors import Authors
from benchmarks.files import ROOT
from benchmarks.parity.compare import choose_samples, over_the_edge, require_right, require_samples
from benchmarks.parity.jobs import BATCH, DATA
from benchmarks.parity.sides import Side, beginning_at, full_budget_of_theirs, seeded
from benchmarks.parity.verdict import verdict as parity_verdict
from benchmarks.peers import Task
from benchmarks.speed.jobs import STEPS, Race
from benchmarks.speed.setting import Facts

SHARES = tuple(k / 24 for k in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16))  # of their queries, tried in `least` jobs


class Course:
    """Everything that a race runs on.

    That is the network alone (`net`), with our layer (`layer`) and with the authors' structure of it
    (`their_task.net`), and the samples. `rows` are the samples that the network gets right, which are attacked.
    """

    def __init__(self, race: Race, samples: int, device: torch.device, seed: int) -> None:
        self.race, self.pair, self.peer, self.attack = race, race.pair, race.peer(), race.attack()
        self.net, self.dataset = load_network(race.pair.model).to(device), data.load(DATA)
        require_samples(samples, self.dataset)
        self.layer = self.net if race.step is None else AntiAdversary(self.net, STEPS, race.step)
        authors = self.net if race.step is None else Authors(self.net, STEPS, race.step)
        with switched("float32", device):
            self.ids, self.start = choose_samples(race.pair, self.net, self.dataset, samples, seed, device)
            self.x, self.y = self.dataset.images(self.ids).to(device), self.dataset.labels(self.ids).to(device)
            self.draws = Draws.of(seed, torch.tensor(self.ids, device=device))
            self.clean = predict_repeated(self.layer, self.x, Eager(BATCH), self.draws)
        self.right = self.clean.majority(self.y)
        self.rows = self.right.nonzero().squeeze(1)
        require_right(self.pair, len(self.rows), len(self.ids))
        x, y, classes = self.x[self.rows], self.y[self.rows], self.clean.scores.shape[2]
        self.their_task = Task(authors, x, y, classes, self.pair.ball, seed, self.start)
        self.task = replace(self.their_task, net=self.layer)

    def theirs(self, repeat: int = 0, short: bool = False) -> Side:
        """Run and time their attack with the random numbers of that repeat. `short` is for warming up."""
        task, size = self.their_task, 1 if self.peer.alone else len(self.rows)
        task = replace(task, seed=task.seed + repeat)
        parts = torch.arange(len(self.rows)).split(size)[: 1 if short else None]
        with seeded(task.seed), Meter(self.net) as meter, timing.clock(task.x.device) as timed:
            z = torch.cat([self.peer.run(task[rows], short).z for rows in parts])
        return Side(z, meter.forwards, meter.backwards, timed.seconds)

    def ours(self, engine: Engine, budget: int | None, repeat: int = 0) -> Side:
        """Run and time our attack with the random numbers of that repeat and that many queries per sample."""
        draws = Draws.of(self.task.seed + repeat, torch.tensor(self.ids, device=self.x.device))
        return self._timed(self.attack, self.task, draws[self.rows], engine, budget)

    def _timed(self, attack: Attack, task: Task, draws: Draws, engine: Engine, budget: int | None) -> Side:
        with Meter(self.net) as meter, timing.clock(task.x.device) as timed:
            z = search_and_confirm(attack, task, draws, engine, budget)
        return Side(z, meter.forwards, meter.backwards, timed.seconds)

    def warm_up(self, engine: Engine) -> float:
        """Make a short run and return its seconds.

        It uses all images and one image, for which the network may be compiled separately. On a GPU it also uses
        smaller batches, and each size has its own CUDA graph.
        """
        short, before, n = shortened(self.attack), timing.now(self.x.device), len(self.rows)
        for count in (n, n * 3 // 4, n // 2, 1) if self.x.is_cuda else (n, 1):
            some = torch.arange(max(1, count))
            self._timed(short, self.task[some], self.draws[self.rows[some]], engine, None)
        return timing.now(self.x.device) - before

    def budget(self, theirs: Side, engine: Engine) -> int | None:
        """Return the queries per sample that ours may send; None if the race sets no limit."""
        if not self.pair.equal:
            return None
        if self.pair.kind == "standing":
            return full_budget_of_theirs(self.pair, self.their_task)
        most = theirs.forwards // len(self.rows)
        return self.least_budget(theirs, engine, most) if self.race.least else most

    def least_budget(self, theirs: Side, engine: Engine, most: int) -> int:
        """Return the smallest share of their queries with which ours comes as close as theirs.

        The rule would allow 1.05 times the distance, but slow attacks hardly gain more than that between two shares.
        """
        mark = {"kind": self.pair.kind, "theirs": self.judged(theirs, self.peer.said)}
        for share in SHARES:
            side = self.judged(self.ours(engine, math.ceil(share * most)), self.pair.ours)
            (check,) = parity_verdict({**mark, "ours": side})["checks"]
            if check["ours"] <= check["theirs"]:
                return math.ceil(share * most)
        return most

    def judged(self, side: Side, text: str) -> Facts:
        """Judge a side in float32: whether each sample is robust, and the distance of its image.

        A robust sample has the distance of the noise at which the attack began.
        """
        x, y, ball, z = self.x, self.y, self.pair.ball, self.x.clone()
        with switched("float32", x.device):
            z[self.rows] = tidy(x[self.rows], side.z.detach().to(x), self.rows)
            if self.start is not None:
                z = over_the_edge(self.layer, x, y, z)
            attacked = predict_repeated(self.layer, z, Eager(BATCH), self.draws)
        every = records(self.ids, y, x, z, self.clean, attacked, ball, Ledger(len(x)))
        stands = [standing(record, ball) for record in every]
        found: Facts = {"attack": text, "standing": [int(s) for s in stands]}
        if self.start is not None:
            far = ball.distance(x, self.start).tolist()
            found["distance"] = [f if s else r.distance for s, r, f in zip(stands, every, far, strict=True)]
        return found | {"forwards": side.forwards, "backwards": side.backwards}

    def layers_agree(self, side: Side) -> float:
        """Return the share of these images that both structures of the layer classify alike."""
        with switched("float32", self.x.device), torch.no_grad():
            z = side.z.to(self.x)
            same = self.layer(z).argmax(1) == self.their_task.net(z).argmax(1)
        return round(float(same.double().mean()), 4)


def search_and_confirm(attack: Attack, task: Task, draws: Draws, engine: Engine, budget: int | None) -> Tensor:
    """Search, and rerun in float32 the samples that `antiadv.evaluation` would rerun.

    So a race is timed as an evaluation runs.
    """
    z, rejected = search(attack, task, draws, engine, budget)
    if (judge := engine.judge(task.net)) is engine:
        return z
    with aside():
        by_search, by_judge = (passes.scores(task.net, z).argmax(1) != task.y for passes in (engine, judge))
    rerun = samples_to_rerun(task.x, z, task.ball, attack.minimal, by_search, by_judge, rejected)
    if len(rerun):
        z[rerun], _ = search(attack, task[rerun], draws[rerun], judge, budget)
    return z


def search(attack: Attack, task: Task, draws: Draws, engine: Engine, budget: int | None) -> tuple[Tensor, Tensor]:
    """Return the images, and for which samples the search learned that the judge rejects its image."""
    threat, ledger = Threat(task.ball, attack.access, budget), Ledger(len(task.x), budget)
    oracle = Oracle(task.net, threat, ledger, engine)
    with beginning_at(task.start):
        z = attack(oracle, task.x, task.y, task.ball, draws)
    return z, oracle.was_rejected(z).to(z.device)


def shortened(attack: Attack) -> Attack:
    """Return the same attack with two steps, for warming up."""
    if isinstance(attack, Autoattack):
        return shortened(attack.cascade)
    if isinstance(attack, Cascade):
        return Cascade(tuple(map(shortened, attack.stages)))
    return replace(attack, steps=2)  # type: ignore[type-var]


def load_network(text: str) -> nn.Module:
    """Load a network of the zoo, or `file:PATH` with a path from the root of the repository."""
    path = ROOT / text.removeprefix("file:")
    if not text.startswith("file:"):
        return models.load(text)
    if not path.is_file():
        raise BadInput(
            f"{text} is too large to come with the project, and is not here. "
            f"Train it: python -m tools.train_zoo --jobs {path.stem}, and put the file there."
        )
    return models.load(f"file:{path}")
