"""A network that raises, exits or returns NaN on one sample loses the shard of that sample. All others are stored,
and the error names the shard and the sample. Once the network is fixed, the same call runs the rest."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest
from torch import nn

from antiadv.cli.__main__ import main
from antiadv.core.errors import Unfinished
from antiadv.evaluation import Progress, Resources, Store, evaluate
from antiadv.evaluation.cell import Job
from antiadv.evaluation.runners.work import Failure, Work, name_samples, unfinished
from tests.engine.probes import MODEL, cell, resources
from tests.system.misfits import Hungry, Leaves, Near, NotANumber, Raises, Touchy, resources_of
from tests.system.test_invariance import spy

SAMPLES = range(60)
ASKED = cell("pgd:steps=3", SAMPLES, threat="linf:4/255")

BAD = {
    "raises": (Raises(23), ("ValueError: too dark", "sample 23 raised")),
    "leaves": (Leaves(23), ("SystemExit: 0", "sample 23 raised")),
    "NaN": (NotANumber(23), ("NaN", "1 of 10", "sample 23")),
}


@pytest.mark.parametrize("what", BAD)
def test_one_bad_sample_costs_one_shard(tmp_path: Path, what: str) -> None:
    network, parts = BAD[what]
    told: list[Progress] = []
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=10, resources=resources_of(network), progress=told.append)
    said = str(error.value)
    assert "\n" not in said
    which = f"pgd:steps=3 on {MODEL} in linf:4/255,access=gradients, samples 20 … 29 of cifar10:test"
    assert said.startswith("1 of 6 shards")
    assert f"{which}: " in said
    assert all(part in said for part in parts)
    assert Store(tmp_path).done(ASKED) == set(SAMPLES) - set(range(20, 30))
    assert (told[-1].overall.done, told[-1].overall.failed, told[-1].overall.over) == (50, 10, True)

    jobs: list[Job] = []
    evaluate([ASKED], tmp_path, shard=10, resources=resources(), runner=spy(jobs))
    assert [job.ids for job in jobs] == [tuple(range(20, 30))], "only the rest is run"
    evaluate([ASKED], tmp_path / "unbroken", shard=60, resources=resources())
    assert Store(tmp_path).read(ASKED) == Store(tmp_path / "unbroken").read(ASKED)


@pytest.mark.parametrize("defence", ["none", "anti_adversary:steps=1"])
def test_where_memory_runs_out_the_batch_is_halved_and_the_run_goes_on(tmp_path: Path, defence: str) -> None:
    asked, hungry = cell("pgd:steps=3", SAMPLES, threat="linf:4/255", defence=defence), Hungry(most=5)
    evaluate([asked], tmp_path / "short", shard=30, batch=32, resources=resources_of(hungry))
    assert max(hungry.seen) > 5, "otherwise the test shows nothing"
    assert sum(n > 5 for n in hungry.seen) < 10, "a size that did not fit is not tried again and again"
    evaluate([asked], tmp_path / "unbroken", shard=60, resources=resources())
    assert Store(tmp_path / "short").read(asked) == Store(tmp_path / "unbroken").read(asked)


def test_an_image_that_does_not_fit_in_memory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Unfinished, match=r"2 of 2 shards.*memory"):
        evaluate([ASKED], tmp_path, shard=30, resources=resources_of(Hungry(most=0)))


def test_no_sample_is_named_if_none_raises_alone(tmp_path: Path) -> None:
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=30, resources=resources_of(Touchy().eval()))
    assert "2 of 2 shards" in str(error.value)
    assert "RuntimeError: no message." in str(error.value)
    assert "alone" not in str(error.value)


def test_each_reason_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=30, resources=resources_of(Touchy().eval()))
    assert str(error.value).count("RuntimeError") == 1
    assert "samples 0 … 29" in str(error.value), "with the first shard that had it"
    job = Job(ASKED, (1, 2))
    said = str(unfinished([Failure(job, f"reason {k}.") for k in range(5)], 9))
    assert "reason 2. And 2 other reasons." in said
    assert "reason 3" not in said
    four = str(unfinished([Failure(job, f"reason {k}.") for k in range(4)], 9))
    assert "And 1 other reason" in four, "no reason is left out silently"
    assert "other reason" not in str(unfinished([Failure(job, f"reason {k}.") for k in range(3)], 9))


def test_cells_that_differ_in_their_defence_are_distinguished() -> None:
    defended = cell("pgd:steps=3", SAMPLES, threat="linf:4/255", defence="anti_adversary:steps=1")
    said = str(unfinished([Failure(Job(c, (1, 2)), "A reason.") for c in (defended, ASKED)], 2))
    assert said.startswith("2 of 2 shards, of 2 cells,")
    assert f"pgd:steps=3 on {MODEL} with anti_adversary" in said
    assert "stored" not in said, "there are no others"


def test_the_traceback_is_kept(tmp_path: Path) -> None:
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=60, resources=resources_of(Raises(23)))
    (note,) = error.value.__notes__
    assert "in meet" in note
    assert note.endswith("ValueError: too dark.\nAnd more of it\n")


def test_work_on_a_cell_that_cannot_be_loaded_is_a_failure() -> None:
    class Broken(nn.Module):
        def to(self, *args: object, **words: object) -> nn.Module:  # type: ignore[override]
            raise RuntimeError("no such device")

    done = Work(resources_of(Broken().eval()))(Job(ASKED, (4,)))
    assert isinstance(done, Failure)
    assert done.sentence.startswith("RuntimeError: no such device.")
    lost = Work(Resources("cpu"))(Job(dataclasses.replace(ASKED, model="nobody"), (4,)))
    assert isinstance(lost, Failure)
    assert lost.sentence.startswith("unknown model 'nobody'")
    assert lost.sentence.endswith(f"{Path.cwd()}."), "another sentence follows"


def test_samples_are_sent_alone_with_the_defence() -> None:
    """The network accepts every image of the data set, but not what the defence makes of one of them."""
    defended = cell("pgd:steps=3", SAMPLES, threat="linf:4/255", defence="anti_adversary:steps=1")
    done = Work(resources_of(Near(23)))(Job(defended, tuple(range(20, 30))))
    assert isinstance(done, Failure)
    assert "ValueError: too near" in done.sentence
    assert "sample 23 raised" in done.sentence


@pytest.mark.parametrize(("network", "foreign"), [(Raises(4), True), (Leaves(4), True), (NotANumber(4), False)])
def test_an_error_of_the_library_does_not_replace_the_worker(network: nn.Module, foreign: bool) -> None:
    """A new worker for each such shard would load everything again."""
    done = Work(resources_of(network))(Job(ASKED, (3, 4, 5)))
    assert isinstance(done, Failure)
    assert done.foreign == foreign


def test_the_command_line_reports_it_in_one_line_and_keeps_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", "--model", "tests.system.misfits:make_raising", "--attack", "pgd:steps=3"]
    words += ["--threat", "linf:4/255", "--samples", "0:30", "--shard", "10", "--store", str(tmp_path)]
    assert main([*words, "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("antiadv: 1 of 3 shards")
    assert "sample 23" in said.err
    (kept,) = Store(tmp_path).cells()
    assert Store(tmp_path).done(kept) == set(range(20))
    with pytest.raises(Unfinished):
        main([*words, "--debug"])


@pytest.mark.parametrize("model", ["compact:awp,data=cifar100", "tests.system.misfits:make_four"])
def test_a_network_with_other_classes_than_the_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    """Even if every label is one of its classes. Otherwise a clean accuracy near 0 would be shown."""
    words = ["evaluate", "--model", model, "--data", "cifar10", "--attack", "pgd:steps=2", "--threat", "linf:4/255"]
    assert main([*words, "--samples", "9:10", "--store", str(tmp_path), "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"10 classes; found {100 if 'cifar100' in model else 4}." in said.err
    assert not list(tmp_path.rglob("*.xz"))


def test_samples_have_short_names() -> None:
    assert name_samples([3, 9]) == "samples 3, 9"
    assert name_samples(range(5, 8)) == "samples 5 … 7"
    assert name_samples([3, 5]) == "samples 3, 5", "4 is not among them"
    assert name_samples([9, 8, 7, 6]) == "samples 9, 8, 7 and 1 more"


def test_the_networks_own_error_is_the_cause_and_is_not_pickled(tmp_path: Path) -> None:
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=10, resources=resources_of(Raises(23)))
    cause = error.value.__cause__
    assert isinstance(cause, ValueError)
    assert cause.__traceback__ is None, "its frames hold images"
    failed = Work(resources_of(Raises(23)))(Job(ASKED, (23,)))
    assert isinstance(failed, Failure)
    assert isinstance(failed.error, ValueError)
    sent = pickle.loads(pickle.dumps(failed))
    assert (sent, sent.error) == (failed, None)
