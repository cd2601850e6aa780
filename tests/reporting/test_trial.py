"""A trial takes samples in rounds that fit its time, gives every row the same ones, and shows itself."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks import parse
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.threat import Access, Threat
from antiadv.defences.rounded_scores import RoundedScores
from antiadv.defences.scaled_scores import ScaledScores
from antiadv.defences.small_noise import SmallNoise
from antiadv.reporting import trial
from antiadv.reporting.cost import cost
from antiadv.reporting.rounds import FIRST, rounds
from antiadv.reporting.temperature import scaled, temperature
from antiadv.reporting.trial import QUERIES, Verdict, battery
from antiadv.reporting.verdict import ADAPTIVE, short_budgets
from tests.said import in_order
from tests.toys import Spy, halfspace, small_net


class Clock:
    """A clock that goes `fixed` seconds for every round and `pace` for every sample run."""

    def __init__(self, pace: float, fixed: float = 0.0) -> None:
        self.now, self.pace, self.fixed = 100.0, pace, fixed
        self.sizes: list[int] = []
        self.seen: list[int] = []

    def run(self, ids: Sequence[int]) -> None:
        self.sizes.append(len(ids))
        self.seen += ids
        self.now += self.fixed + self.pace * len(ids)


def timed(n: int, seconds: float, pace: float, fixed: float = 0.0) -> Clock:
    clock = Clock(pace, fixed)
    assert rounds(range(n), seconds, clock.run, lambda: clock.now) == len(clock.seen)
    assert clock.seen == list(range(len(clock.seen)))
    return clock


def test_rounds_grow_and_end_with_the_samples() -> None:
    assert timed(50, 1000, 1).sizes == [8, 16, 26]
    assert timed(5, 1000, 1).sizes == [5]
    assert timed(50, 1000, 0).sizes == [8, 16, 26]  # a clock too coarse to tell
    assert timed(0, 1000, 1).sizes == []
    assert timed(50, float("inf"), 1).sizes == [8, 16, 26]


def test_a_round_that_will_not_fit_is_cut_or_left() -> None:
    assert timed(500, 60, 1).sizes == [8, 16, 31]  # 36 s are left: 31 samples at 1.15 s
    assert timed(500, 30, 1).sizes == [8, 16]  # 6 s are left: not worth a start
    assert timed(500, 3, 1).sizes == [FIRST]  # the first always runs
    assert timed(12, 12.5, 1).sizes == [8]  # 4.5 s are left for 4 samples: they fit only without slack


def test_a_round_smaller_than_the_last_is_not_taken_for_as_quick_a_sample() -> None:
    """10 s a round and 2 a sample: 26 s and 42 s; of 90 s 22 are left, in which 4 samples could run, but not 8."""
    assert timed(500, 90, 2, fixed=10).sizes == [8, 16]
    assert timed(500, 110, 2, fixed=10).sizes == [8, 16, 13]  # 42 s are left: 13 samples take 36


@pytest.mark.parametrize("pace", [0.01, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("fixed", [0.0, 3.0, 10.0, 40.0])
@pytest.mark.parametrize("seconds", [30, 60, 97, 150, 300])
def test_a_steady_machine_is_never_late(pace: float, fixed: float, seconds: float) -> None:
    clock = timed(100_000, seconds, pace, fixed)
    assert clock.now - 100 <= max(seconds, fixed + FIRST * pace) + 1e-9


def test_a_trial_needs_time() -> None:
    for seconds in (0, -1, float("nan")):
        with pytest.raises(BadInput, match="needs some time"):
            rounds(range(3), seconds, lambda ids: None)


def test_the_first_round_takes_what_its_caller_expects_to_fit() -> None:
    clock = Clock(1.0)
    assert rounds(range(50), 1000, clock.run, lambda: clock.now, size=40) == 50
    assert clock.sizes == [40, 10]


class Twice(Spy):
    """A defence that says how it is undone, once for each norm."""

    adaptive = ("transfer:attack=fast", "bpda:attack=fab", "rays:steps=7")


LAYERED = (
    "cascade:stages=(transfer:attack=fast)+(bpda:attack=(apgd:steps=20))"
    "+(straight_through:attack=(probability_margin:steps=20))+(pseudo_label:steps=20)"
)


def test_the_battery_climbs_the_levels_of_access() -> None:
    layer = antiadv.AntiAdversary(small_net())
    found = battery(antiadv.Linf(0.5), layer)
    assert [a for a, _ in found] == ["rays", "square", "apgd:steps=20", LAYERED]
    assert [t.access for _, t in found] == [Access.LABELS, Access.SCORES, Access.GRADIENTS, Access.INTERNALS]
    assert [t.queries for _, t in found] == [QUERIES["rays"], QUERIES["square"], None, None]
    assert [t.queries for _, t in battery(antiadv.Linf(0.5), layer, 50)[:2]] == [50, 50]
    assert [a for a, _ in battery(antiadv.L2(0.5), layer)] == ["square", "apgd:steps=20", LAYERED], "rays has no L2"


def test_the_battery_runs_what_a_defence_names_in_its_norm_and_shortens_it() -> None:
    layer, first = Twice(small_net()), "cascade:stages=(transfer:attack=fast)+(bpda:attack=(fab:steps=20))"
    assert battery(antiadv.Linf(0.5), layer)[-1][0] == f"{first}+(rays:steps=7)"
    assert battery(antiadv.L2(0.5), layer)[-1][0] == first


def test_the_battery_averages_dice_out() -> None:
    noise = SmallNoise(small_net())
    named = battery(antiadv.L2(0.5), noise)[-1][0]
    steps = "(transfer:attack=go_on)+go_on+(apgd:steps=20)+(apgd:loss=dlr,steps=20)"
    assert named == f"eot:attack=(cascade:stages=(transfer:attack=fast)+{steps}),samples=10"
    noise.adaptive = ("pgd:steps=3",)  # type: ignore[misc]
    assert battery(antiadv.L2(0.5), noise)[-1][0].endswith("+(pgd:steps=3)),samples=10")


def test_few_queries_are_named_beside_the_gains_and_fast_is_the_first_thing_to_run() -> None:
    toy = halfspace(math.inf, n=4)
    made = antiadv.verdict(toy.model, toy.x, toy.y, ball=antiadv.Linf(1.2 * toy.distance))
    budgets = {part.access: part.budgets for part in made.report.levels}
    assert budgets == {
        Access.LABELS: (QUERIES["rays"],),
        Access.SCORES: (QUERIES["square"],),
        Access.GRADIENTS: (),
        Access.INTERNALS: (),
    }
    assert in_order(made.sentence, "few queries", f"{QUERIES['rays']} if they see labels", f"{QUERIES['square']} if")
    assert in_order(made.ran, "such as", "fast", "autoattack", "adaptive")
    many = [dataclasses.replace(part, budgets=(2000,)) for part in made.report.levels]
    assert list(short_budgets(many)) == []


def test_without_gradients_the_battery_has_no_attack_that_needs_them() -> None:
    found = battery(antiadv.Linf(0.5), RoundedScores(small_net()), gradients=False)
    assert [a for a, _ in found] == ["rays", "square"]
    scaled = battery(antiadv.Linf(0.5), ScaledScores(small_net()), gradients=False)
    eot = "eot:attack=(cascade:stages=(square:steps=1000,loss=dlr)+),samples=10"
    assert scaled[-1] == (eot, Threat(antiadv.Linf(0.5), parse(eot).access))


def test_how_often_a_battery_asks() -> None:
    layer = antiadv.AntiAdversary(small_net())
    assert trial.asks([("square", Threat(antiadv.Linf(0.5), Access.SCORES, 70))]) == 70
    parts = LAYERED.count(")+(") + 1
    gradient = trial.asks([("apgd", Threat(antiadv.Linf(0.5), Access.GRADIENTS))])
    assert trial.asks([(LAYERED, Threat(antiadv.Linf(0.5), Access.INTERNALS))]) == parts * gradient
    assert trial.asks([("eot:attack=apgd,samples=7", Threat(antiadv.Linf(0.5), Access.INTERNALS))]) == 7 * gradient
    assert trial.asks(battery(antiadv.Linf(0.5), layer)) == sum(QUERIES.values()) + (1 + parts) * gradient


@pytest.mark.parametrize(
    ("labels", "minutes", "sizes"), [("right", 600, [24]), ("right", 1e-9, [8]), ("wrong", 600, [8, 16])]
)
def test_one_round_takes_all_that_surely_fits_unless_there_is_a_warning_sign(
    labels: str, minutes: float, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def spy(samples: Sequence[int], seconds: float, run: Callable[[Sequence[int]], None], **more: Any) -> int:
        def counted(ids: Sequence[int]) -> None:
            made.append(len(ids))
            run(ids)

        return rounds(samples, seconds, counted, **more)

    monkeypatch.setattr(trial, "rounds", spy)
    net, x = small_net(), images()
    y = (net(x).argmax(1) + (labels == "wrong")) % 10  # a network that is always wrong is a warning sign
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        antiadv.verdict(net, x, y, ball=antiadv.Linf(1 / 255), queries=3, minutes=minutes)
    assert made == sizes


def images(n: int = 24) -> Tensor:
    return torch.rand((n, 3, 8, 8), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def found() -> Verdict:
    net, x = small_net(), images()
    return antiadv.verdict(net, x, net(x).argmax(1), ball=antiadv.Linf(1 / 255), queries=20, minutes=600)


def test_a_verdict_on_a_model_in_hand(found: Verdict) -> None:
    assert [(r.cell.attack.split(":")[0], r.cell.defence) for r in found.rows] == [
        (a, d) for a in ("rays", "square", "apgd", "cascade") for d in ("none", "anti_adversary")
    ]
    assert {r.robust.n if r.robust else 0 for r in found.rows} == {found.samples} == {24}
    assert [r.sample for r in found.rows[-1].records] == list(range(24))
    assert in_order(found.sentence, "Sequential", "anti_adversary", "judged", " 0.0 %", "24 samples"), "nothing fell"
    assert (found.cost.forwards, found.cost.backwards) == (3, 2)
    assert found.cost.bare_ms > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.samples = 3  # type: ignore[misc]


def test_a_verdict_on_a_function_leaves_gradients_out_and_says_so() -> None:
    net, x = small_net(), images()
    function = antiadv.wrap(lambda images: net(torch.from_numpy(images)).detach().numpy())
    y = net(x).argmax(1)
    found = antiadv.verdict(function, x, y, "rounded_scores", ball=antiadv.Linf(0.1), queries=20, minutes=600)
    assert [row.cell.attack for row in found.rows[::2]] == ["rays", "square"]
    assert "gradients" in found.ran
    assert "rounded_scores" in found.sentence
    assert found.samples == len(x)
    with pytest.raises(BadInput, match="anti_adversary"):
        antiadv.verdict(function, x, y, minutes=600)


def test_a_verdict_on_what_falls() -> None:
    toy = halfspace(math.inf, n=4)
    found = antiadv.verdict(toy.model, toy.x, toy.y, ball=antiadv.Linf(1.2 * toy.distance), queries=5)
    assert in_order(found.sentence, "Halfspace", "anti_adversary", ADAPTIVE)


def test_a_verdict_says_at_once_that_the_network_guesses_or_that_images_are_dark() -> None:
    net, x = small_net(), images()
    y = (net(x).argmax(1) + 1) % 10
    with pytest.warns(UserWarning, match="near_chance"):
        made = antiadv.verdict(net, x, y, ball=antiadv.Linf(1 / 255), queries=5)
    assert [flag.name for flag in made.flags][:1] == ["near_chance"]
    assert [flag.name for flag in made.flags].count("near_chance") == 1
    assert "guessing" in made.sentence
    with pytest.warns(UserWarning, match="narrow_range"):
        made = antiadv.verdict(net, x / 255, net(x / 255).argmax(1), ball=antiadv.Linf(1 / 255), queries=5)
    assert "narrow_range" in [flag.name for flag in made.flags]


class Colour(nn.Module):
    """Names the strongest channel."""

    def forward(self, x: Tensor) -> Tensor:
        return 10 * x.mean((2, 3))


def test_a_verdict_runs_the_pre_flight_and_says_what_to_write() -> None:
    x = torch.rand(40, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    net = Colour().eval()
    y = net(x.flip(1)).argmax(1)  # as it would be with the channels in the other order
    with pytest.warns(UserWarning, match="Flag (preflight|near_chance)") as told:
        made = antiadv.verdict(net, x, y, minutes=1e-9, queries=3)
    assert any("bgr=True" in str(one.message) for one in told)
    assert [flag.name for flag in made.flags].count("preflight") == 1


def test_a_verdict_equals_the_attacks_it_is_made_of(found: Verdict) -> None:
    net, x = small_net(), images()
    alone = antiadv.attack(net, x, net(x).argmax(1), "apgd:steps=20", antiadv.Linf(1 / 255))
    assert list(found.rows[4].records) == alone.records


def test_a_verdict_shows_itself(found: Verdict) -> None:
    text = str(found)
    assert text.startswith("| model | defence |")
    assert text.rstrip().endswith(found.sentence)
    assert str(found.cost) in text
    assert f"has {found.scaled}." in text
    html = found._repr_html_()
    assert html.count("<tr>") == 9
    (ran,) = (line for line in text.splitlines() if "autoattack" in line)  # which was not run
    assert in_order(ran, "rays", "20 queries", "square", "20 queries", "apgd:steps=20", "cascade")
    said = json.loads(json.dumps(found.json()))
    assert said["verdict"] == [found.sentence]
    assert (said["samples"], said["cost"]["forwards"]) == (24, 3)
    assert "command" not in said["rows"][0]


def test_names_are_escaped_in_html(found: Verdict) -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)[:, :4]

    Plain.__name__ = "<script>"
    net = Plain().eval()
    x = images(2)
    made = antiadv.verdict(net, x, net(x).argmax(1), queries=5, minutes=600)
    assert "<script>" not in made._repr_html_()
    assert "&lt;script&gt;" in made._repr_html_()


def test_a_defence_in_hand() -> None:
    net, x = small_net(), images(4)
    made = antiadv.verdict(net, x, net(x).argmax(1), Spy(net), ball=antiadv.Linf(1 / 255), queries=10)
    assert {r.cell.defence for r in made.rows} == {"none", "Spy"}
    assert [r.gain.value for r in made.rows if r.gain] == [0, 0, 0, 0]
    assert (made.cost.forwards, made.cost.backwards) == (1, 0)
    assert made.flags == []
    assert made.scaled is None
    assert made.json()["scaled"] is None
    assert "fitted temperature" not in str(made)
    with pytest.raises(BadInput, match=r"defence.*\bwrap\b.*model"):
        antiadv.verdict(net, x, net(x).argmax(1), Spy(small_net()))


def test_a_randomised_defence_meets_the_mean_of_its_dice() -> None:
    toy = halfspace(math.inf, n=3)
    ball = antiadv.Linf(1.2 * toy.distance)
    made = antiadv.verdict(toy.model, toy.x, toy.y, "small_noise", ball=ball, queries=5)
    assert made.rows[-1].cell.attack.startswith("eot")
    assert made.report.levels[-1].access == Access.INTERNALS
    assert any(attack.startswith("eot") for attack in made.report.levels[-1].attacks)


class Pair(nn.Module):
    """Returns its scores and its images."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.net(x), x


def test_bad_input_is_refused_before_the_run() -> None:
    net, x = small_net(), images(3)
    y = net(x).argmax(1)
    with pytest.raises(BadInput, match=r"found tuple\. Write antiadv\.wrap\(net\)"):
        antiadv.verdict(Pair(), x, y)
    assert antiadv.verdict(antiadv.wrap(Pair()), x, y, queries=5).samples == 3
    with pytest.raises(BadInput, match=r"anti_adversary .* passes no gradients"):
        antiadv.verdict(antiadv.wrap(lambda images: images.mean((2, 3))), x, y)
    with pytest.raises(BadInput, match=r"float32.*found torch\.bfloat16"):
        antiadv.verdict(net, x.bfloat16(), y)
    with pytest.raises(BadInput, match="Pass at least one"):
        antiadv.verdict(net, x[:0], y[:0])
    with pytest.raises(BadInput, match=r"\(3\).*\(2,\)"):
        antiadv.verdict(net, x, y[:2])
    with pytest.raises(BadInput, match="in a tensor"):
        antiadv.verdict(net, x, y.tolist())
    with pytest.raises(BadInput, match=r"in a tensor.*found NoneType"):
        antiadv.verdict(net, x, None)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"\bmeta\b.*\bcpu\b"):
        antiadv.verdict(small_net().to("meta"), x, y)
    with pytest.raises(BadSpec, match="found 'linf:8/255'"):
        antiadv.verdict(net, x, y, ball="linf:8/255")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="name one"):
        antiadv.verdict(net, x, y, "none")
    with pytest.raises(BadInput, match="needs some time"):
        antiadv.verdict(net, x, y, minutes=0)
    with pytest.raises(BadInput, match=r"minutes.*'5'"):
        antiadv.verdict(net, x, y, minutes="5")  # type: ignore[arg-type]


def test_the_cost_of_an_answer() -> None:
    net = small_net()
    found = cost(net, antiadv.AntiAdversary(net, steps=4), images(4))
    assert (found.forwards, found.backwards) == (5, 4)
    assert in_order(str(found), " 5 forward", " 4 backward")


def test_the_temperature_is_the_one_the_labels_were_drawn_at() -> None:
    """Scores (a, 0) with a share of right answers of 0.8 everywhere: T = a / log 4."""
    s, y = torch.tensor([[6.0, 0.0]]), torch.tensor([0] * 8 + [1] * 2)
    assert temperature(s.repeat(100_000, 1), y.repeat(10_000)) == pytest.approx(6 / math.log(4), rel=1e-3)
    few = temperature(s.repeat(10, 1), y)  # what ten samples say weighs three times as much as the prior, T = 1
    assert math.log(few) == pytest.approx(0.75 * math.log(6 / math.log(4)), rel=0.1)


@pytest.mark.parametrize("gap", [1.0, 4.0, 20.0])
def test_a_few_right_answers_do_not_ask_for_certainty(gap: float) -> None:
    t = temperature(torch.tensor([[gap, 0.0]]).repeat(20, 1), torch.zeros(20, dtype=torch.int64))
    assert 0.1 < t <= 1


class Sure(nn.Module):
    """Says 6 for class 0 and 0 for class 1, whatever it sees."""

    def forward(self, x: Tensor) -> Tensor:
        return x.new_tensor([6.0, 0.0]).repeat(len(x), 1)


def test_scaling_mends_a_classifier_that_is_too_sure() -> None:
    y = torch.tensor([0] * 1600 + [1] * 400)  # as many of each kind at even as at odd places
    found = scaled(Sure().eval(), images(2000), y, batch=700)
    assert found is not None
    assert found.error == pytest.approx(0, abs=2e-3)
    assert found.loss == pytest.approx(-(0.8 * math.log(0.8) + 0.2 * math.log(0.2)), rel=1e-4)
    assert (found.accuracy, found.n) == (0.8, 2000)
    assert scaled(Sure().eval(), images(19), y[:19]) is None


def test_one_wrong_answer_that_the_other_half_never_saw_is_no_catastrophe() -> None:
    """The half without it would fit T = 0 by itself, and be infinitely wrong about the other."""
    y = torch.zeros(40, dtype=torch.int64)
    y[7] = 1
    found = scaled(Sure().eval(), images(40), y)
    assert found is not None
    assert found.loss < 2 * (39 * math.log1p(math.exp(-6)) + 6) / 40  # twice what it is unscaled


def test_a_temperature_is_fitted_on_other_samples() -> None:
    """Right at all even places and wrong at all odd ones: what each half learns is false of the other."""
    y = torch.arange(20) % 2
    found = scaled(Sure().eval(), images(20), y)
    assert found is not None
    assert found.error > 0.4


def test_a_temperature_is_of_the_samples_that_the_verdict_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight, to which none is fitted, where there was no time for the others."""
    net, x = small_net(), images(24)
    monkeypatch.setattr(trial, "rounds", lambda todo, seconds, run, **_: run(todo[:8]) or 8)
    found = antiadv.verdict(net, x, net(x).argmax(1), queries=5)
    assert (found.samples, found.scaled) == (8, None)
