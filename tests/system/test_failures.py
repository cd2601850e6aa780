"""A network that raises, exits or returns NaN on one sample costs the shard that holds it: the others are stored, and
the run ends with one sentence that names the shard, the sample and what to do. Mended, the same call does the rest."""

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
    "raises": (Raises(23), "ValueError: too dark; shown alone, sample 23 raised too. Mend the network"),
    "leaves": (Leaves(23), "SystemExit: 0; shown alone, sample 23 raised too. Mend the network"),
    "NaN": (NotANumber(23), "NaN or infinity for 1 of 10 images, first for sample 23. Check the weights"),
}


@pytest.mark.parametrize("what", BAD)
def test_one_bad_sample_costs_one_shard(tmp_path: Path, what: str):
    network, sentence = BAD[what]
    told: list[Progress] = []
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=10, resources=resources_of(network), progress=told.append)
    said = str(error.value)
    assert "\n" not in said
    which = f"pgd:steps=3 on {MODEL} in linf:4/255,access=gradients, samples 20 … 29 of cifar10:test"
    assert said.startswith(f"1 of 6 shards could not be done; the others are stored. {which}: ")
    assert said.endswith(" Then run the same command, or call, again: it does what is missing.")
    assert sentence in said
    assert Store(tmp_path).done(ASKED) == set(SAMPLES) - set(range(20, 30))
    assert (told[-1].overall.done, told[-1].overall.failed, told[-1].overall.over) == (50, 10, True)

    jobs: list[Job] = []
    evaluate([ASKED], tmp_path, shard=10, resources=resources(), runner=spy(jobs))
    assert [job.ids for job in jobs] == [tuple(range(20, 30))], "mended, only the rest is run"
    evaluate([ASKED], tmp_path / "unbroken", shard=60, resources=resources())
    assert Store(tmp_path).read(ASKED) == Store(tmp_path / "unbroken").read(ASKED)


@pytest.mark.parametrize("defence", ["none", "anti_adversary:steps=1"])
def test_where_memory_runs_out_the_batch_is_halved_and_the_run_goes_on(tmp_path: Path, defence: str):
    asked, hungry = cell("pgd:steps=3", SAMPLES, threat="linf:4/255", defence=defence), Hungry(most=5)
    evaluate([asked], tmp_path / "short", shard=30, batch=32, resources=resources_of(hungry))
    assert max(hungry.seen) > 5, "or it would say nothing"
    assert sum(n > 5 for n in hungry.seen) < 10, "what did not fit is not tried again and again"
    evaluate([asked], tmp_path / "unbroken", shard=60, resources=resources())
    assert Store(tmp_path / "short").read(asked) == Store(tmp_path / "unbroken").read(asked)


def test_where_one_image_does_not_fit_it_is_said_plainly(tmp_path: Path):
    with pytest.raises(Unfinished, match=r"2 of 2 shards could not be done.*no memory for one image"):
        evaluate([ASKED], tmp_path, shard=30, resources=resources_of(Hungry(most=0)))


def test_where_no_sample_is_to_blame_none_is_blamed(tmp_path: Path):
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=30, resources=resources_of(Touchy().eval()))
    assert "2 of 2 shards" in str(error.value)
    assert "RuntimeError: no message. Mend what raised it" in str(error.value)
    assert "alone" not in str(error.value)


def test_each_reason_is_told_once(tmp_path: Path):
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=30, resources=resources_of(Touchy().eval()))
    assert str(error.value).count("RuntimeError") == 1
    assert "samples 0 … 29" in str(error.value), "with the first shard it came with"
    job = Job(ASKED, (1, 2))
    said = str(unfinished([Failure(job, f"reason {k}.") for k in range(5)], 9))
    assert "reason 2. And 2 other reasons." in said
    assert "reason 3" not in said
    four = str(unfinished([Failure(job, f"reason {k}.") for k in range(4)], 9))
    assert "And 1 other reason" in four, "none is passed over in silence"
    assert "other reason" not in str(unfinished([Failure(job, f"reason {k}.") for k in range(3)], 9))


def test_cells_that_differ_in_their_defence_are_told_apart():
    behind = cell("pgd:steps=3", SAMPLES, threat="linf:4/255", defence="anti_adversary:steps=1")
    said = str(unfinished([Failure(Job(c, (1, 2)), "A reason.") for c in (behind, ASKED)], 2))
    assert said.startswith(
        f"2 of 2 shards, of 2 cells, could not be done. pgd:steps=3 on {MODEL} behind anti_adversary"
    )
    assert "stored" not in said, "there are no others"


def test_the_traceback_comes_along(tmp_path: Path):
    with pytest.raises(Unfinished) as error:
        evaluate([ASKED], tmp_path, shard=60, resources=resources_of(Raises(23)))
    (note,) = error.value.__notes__
    assert "in meet" in note
    assert note.endswith("ValueError: too dark.\nAnd more of it\n")


def test_work_on_a_cell_that_cannot_be_loaded_is_a_failure():
    class Broken(nn.Module):
        def to(self, *args: object, **words: object) -> nn.Module:
            raise RuntimeError("no such device")

    done = Work(resources_of(Broken().eval()))(Job(ASKED, (4,)))
    assert isinstance(done, Failure)
    assert done.sentence.startswith("RuntimeError: no such device. Mend what raised it")
    lost = Work(Resources("cpu"))(Job(dataclasses.replace(ASKED, model="nobody"), (4,)))
    assert isinstance(lost, Failure)
    assert lost.sentence.startswith("unknown model 'nobody'")
    assert lost.sentence.endswith("file."), "more is said behind it"


def test_whoever_raises_behind_a_defence_is_shown_alone_behind_it():
    """The network bears every image of the data set; what the defence makes of one of them it does not."""
    behind = cell("pgd:steps=3", SAMPLES, threat="linf:4/255", defence="anti_adversary:steps=1")
    done = Work(resources_of(Near(23)))(Job(behind, tuple(range(20, 30))))
    assert isinstance(done, Failure)
    assert "ValueError: too near; shown alone, sample 23 raised too" in done.sentence


@pytest.mark.parametrize(("network", "foreign"), [(Raises(4), True), (Leaves(4), True), (NotANumber(4), False)])
def test_an_error_of_our_own_hurts_no_process(network: nn.Module, foreign: bool):
    """A worker that said what is wrong with the answers goes on: a new one for each such shard would load it all."""
    done = Work(resources_of(network))(Job(ASKED, (3, 4, 5)))
    assert isinstance(done, Failure)
    assert done.foreign == foreign


def test_the_command_line_says_it_in_one_line_and_keeps_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["evaluate", "--model", "tests.system.misfits:make_raising", "--attack", "pgd:steps=3"]
    words += ["--threat", "linf:4/255", "--samples", "0:30", "--shard", "10", "--store", str(tmp_path)]
    assert main([*words, "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("antiadv: 1 of 3 shards could not be done")
    assert "sample 23" in said.err
    (kept,) = Store(tmp_path).cells()
    assert Store(tmp_path).done(kept) == set(range(20))
    with pytest.raises(Unfinished):
        main([*words, "--debug"])


@pytest.mark.parametrize("model", ["compact:awp,data=cifar100", "tests.system.misfits:make_four"])
def test_a_network_with_other_classes_than_the_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
):
    """Even where every label is one of its classes: what it would show is a clean accuracy near nothing."""
    words = ["evaluate", "--model", model, "--data", "cifar10", "--attack", "pgd:steps=2", "--threat", "linf:4/255"]
    assert main([*words, "--samples", "9:10", "--store", str(tmp_path), "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"the data set's 10 classes; found {100 if 'cifar100' in model else 4}. Name the data" in said.err
    assert not list(tmp_path.rglob("*.xz"))


def test_samples_have_short_names():
    assert name_samples([3, 9]) == "samples 3, 9"
    assert name_samples(range(5, 8)) == "samples 5 … 7"
    assert name_samples([3, 5]) == "samples 3, 5", "4 is not among them"
    assert name_samples([9, 8, 7, 6]) == "samples 9, 8, 7 and 1 more"


def test_the_networks_own_error_is_the_cause_and_travels_nowhere(tmp_path: Path):
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
