"""Each command prints tables or one JSON object on stdout and progress on stderr; bad input gives one line and exit
code 2. The tests run in this process, on a toy network and the images in the package."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from antiadv import __version__, data
from antiadv.attacks import ATTACKS
from antiadv.cli import demo
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadSpec
from antiadv.data import DATASETS
from antiadv.defences import DEFENCES
from antiadv.evaluation import Store

MODEL = "tests.toys:make_rule"
EVALUATE = ["evaluate", "--model", MODEL, "--attack", "square:steps=8", "--threat", "linf:4/255,queries=20"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(w) for w in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def run_json(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    code, out, err = run(capsys, *words, "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert isinstance(said, dict), "one object"
    return said


def files(root: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


# ---------------------------------------------------------------- evaluate


def test_evaluate_stores_and_shows_a_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, *EVALUATE, "--samples", "0:120", "--shard", 50, "--store", tmp_path)
    assert code == 0
    (cell,) = Store(tmp_path).cells()
    records = Store(tmp_path).read(cell)
    assert [r.sample for r in records] == list(range(120))
    assert (cell.model, cell.attack, cell.defence) == (MODEL, "square:steps=8", "none")
    for part in (MODEL, "square:steps=8", "linf:4/255", "budget 20", "n 120", "clean %", "robust %", cell.key):
        assert part in out
    fooled = sum(r.clean == r.label != r.attacked for r in records)
    standing = sum(r.clean == r.label == r.attacked for r in records)
    queries = sum(r.queries for r in records)
    said = f"square:steps=8 on {MODEL}: 120 of 120 samples, {fooled} fooled, {standing} robust, {queries} queries, "
    assert err.splitlines()[-1].startswith(said)
    assert re.search(r", [\d,.]+ samples a second, in 0:0\d$", err.splitlines()[-1])
    assert len(list(tmp_path.glob("*/*.json.?z"))) == 3


def test_evaluate_again_is_a_resume(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = run_json(capsys, *EVALUATE, "--samples", "0:60", "--shard", 25, "--store", tmp_path)
    before = files(tmp_path)
    again = run_json(capsys, *EVALUATE, "--samples", "0:60", "--shard", 10, "--store", tmp_path)
    assert again == first
    assert files(tmp_path) == before
    more = run_json(capsys, *EVALUATE, "--samples", "0:90", "--store", tmp_path)
    assert more["rows"][0]["robust"]["n"] == 90
    assert files(tmp_path).items() > before.items()


def test_evaluate_of_a_defence_stands_beside_the_bare_classifier(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = (*EVALUATE, "--samples", "0:60", "--store", tmp_path)
    run_json(capsys, *words)
    said = run_json(capsys, *words, "--defence", "anti_adversary:steps=1")
    assert [r["defence"] for r in said["rows"]] == ["none", "anti_adversary:steps=1"]
    assert said["rows"][1]["gain"]["n"] == 60
    (sentence,) = said["verdict"]
    assert sentence.startswith(f"On {MODEL}, anti_adversary:steps=1 ")
    assert said["store"] == str(tmp_path)
    code, out, _ = run(capsys, *words, "--defence", "anti_adversary:steps=1")
    assert code == 0
    assert sentence in out


def test_evaluate_looks_as_often_as_it_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = (*EVALUATE, "--samples", "0:12", "--store", tmp_path)
    run_json(capsys, *words, "--looks", 3)
    noisy = (*words, "--defence", "small_noise:std=0.1")
    first = run_json(capsys, *noisy, "--looks", 3)
    assert first["rows"][1]["gain"]["n"] == 12, "it stands beside the bare classifier, looked at once"
    run_json(capsys, *noisy)
    store = Store(tmp_path)
    found = {(c.defence, c.looks): {r.draws for r in store.read(c)} for c in store.cells()}
    assert found == {("none", 10): {1}, ("small_noise:std=0.1", 3): {3}, ("small_noise:std=0.1", 10): {10}}
    before = files(tmp_path)
    command = shlex.split(first["rows"][1]["command"])
    assert run_json(capsys, *command[1:], "--store", tmp_path) == first
    assert files(tmp_path) == before


def test_a_rows_command_makes_it_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["evaluate", "--model", MODEL, "--attack", "transfer:attack=(pgd:steps=2)", "--threat", "l2:0.5"]
    first = run_json(capsys, *words, "--samples", "3:20", "--seed", 4, "--precision", "mixed", "--store", tmp_path)
    before = files(tmp_path)
    command = shlex.split(first["rows"][0]["command"])
    assert command[0] == "antiadv"
    assert run_json(capsys, *command[1:], "--store", tmp_path) == first
    assert files(tmp_path) == before


def test_evaluate_keeps_images_on_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_json(capsys, *EVALUATE, "--samples", "0:8", "--store", tmp_path, "--keep-images")
    (path,) = tmp_path.glob("*/*.safetensors")
    assert load_file(path)["images"].shape == (8, 3, 32, 32)


# ---------------------------------------------------------------- report and list


def test_report_shows_what_a_store_holds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for defence in ("none", "anti_adversary"):
        run_json(capsys, *EVALUATE, "--samples", "0:60", "--store", tmp_path, "--defence", defence)
    said = run_json(capsys, "report", "--store", tmp_path)
    assert [r["defence"] for r in said["rows"]] == ["none", "anti_adversary"]
    code, out, err = run(capsys, "report", "--store", tmp_path)
    assert (code, err) == (0, "")
    assert said["verdict"][0] in out
    robust = said["rows"][0]["robust"]
    assert f"{100 * robust['value']:.1f} [{100 * robust['low']:.1f}, {100 * robust['high']:.1f}]" in out


@pytest.mark.parametrize(("kind", "known"), [("attacks", ATTACKS), ("defences", DEFENCES), ("datasets", DATASETS)])
def test_list_names_every_entry(capsys: pytest.CaptureFixture[str], kind: str, known: dict[str, object]) -> None:
    said = run_json(capsys, "list", kind)
    assert [line["name"] for line in said[kind]] == list(known)
    assert all(line["about"] for line in said[kind])
    code, out, err = run(capsys, "list", kind)
    assert (code, err) == (0, "")
    for name in known:
        assert name in out


def test_list_shows_options_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    lines = {line["name"]: line for line in run_json(capsys, "list", "attacks")["attacks"]}
    assert lines["pgd"]["options"].startswith("steps=20, step_size=0.25")
    assert lines["pgd"]["access"] == "gradients"
    assert "linf" in lines["square"]["norms"]


def test_list_models_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run_json(capsys, "list", "models")["models"]
    assert lines
    assert all(line["name"] for line in lines)


def test_without_a_verb_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"]):
        code, out, _ = run(capsys, *words)
        assert code == 0
        assert len(out.splitlines()) > 5
        for verb in ("demo", "attack", "evaluate", "report", "list"):
            assert f"  {verb} " in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"{__version__}\n", "")


# ---------------------------------------------------------------- attack


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Write an image that the toy network classifies correctly by a small margin."""
    x = data.load("cifar10").pixels[np.array([0])][0]
    path = tmp_path / "cat.png"
    Image.fromarray(x).save(path)
    return path


def pixels(path: str | Path) -> np.ndarray:
    with Image.open(path) as file:
        return np.asarray(file.convert("RGB")).astype(int)


def test_attack_writes_both_pictures(capsys: pytest.CaptureFixture[str], picture: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    said = run_json(capsys, "attack", picture, "--model", MODEL, "--threat", "linf:16/255", "--out", out)
    assert said["attacked"] == str(out / "cat.attacked.png")
    assert said["compared"] == str(out / "cat.compared.png")
    x, z, side = pixels(picture), pixels(said["attacked"]), pixels(said["compared"])
    assert z.shape == (32, 32, 3)
    assert 0 < np.abs(z - x).max() <= 16
    assert side.shape == (256, 3 * 256 + 2 * 4, 3)
    assert (side[::8, :256:8] == x).all(), "left: the image, eight times as large"
    assert (side[::8, 520::8] == z).all(), "right: the attacked image"
    middle = side[::8, 260:516:8]
    assert (np.sign(middle - 127.5) == np.sign(z - x))[z != x].all(), "between: the change, around grey"
    assert said["fooled"] is True
    assert said["before"]["class"] != said["after"]["class"]
    assert said["before"]["name"] in data.load("cifar10").classes
    assert said["queries"] > 0
    assert said["distance"] <= 16 / 255 + 1e-6


def test_attack_says_what_changed(capsys: pytest.CaptureFixture[str], picture: Path, tmp_path: Path) -> None:
    words = ("attack", picture, "--model", MODEL, "--threat", "linf:16/255", "--out", tmp_path)
    before = run_json(capsys, *words)
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith(f"fooled after {before['queries']} queries at distance ")
    assert f"{before['before']['name']} (" in out
    assert f"→ {before['after']['name']} (" in out
    assert str(tmp_path / "cat.attacked.png") in out


def test_attack_that_fails_says_so(capsys: pytest.CaptureFixture[str], picture: Path, tmp_path: Path) -> None:
    words = ("attack", picture, "--model", MODEL, "--threat", "linf:0.0001", "--out", tmp_path)
    assert run_json(capsys, *words)["fooled"] is False
    assert run(capsys, *words)[1].startswith("not fooled after")
    assert (tmp_path / "cat.compared.png").exists()


def test_attack_reaches_a_target_behind_a_defence(
    capsys: pytest.CaptureFixture[str], picture: Path, tmp_path: Path
) -> None:
    words = ("attack", picture, "--model", MODEL, "--defence", "anti_adversary", "--out", tmp_path)
    said = run_json(capsys, *words, "--threat", "linf:64/255", "--target", 4)
    assert said["fooled"] is True
    assert said["after"]["class"] == 4


def test_attack_resizes_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Image.new("L", (50, 70), 90).save(tmp_path / "grey.jpeg")
    run_json(capsys, "attack", tmp_path / "grey.jpeg", "--model", MODEL, "--size", 40, "--out", tmp_path)
    assert pixels(tmp_path / "grey.attacked.png").shape == (40, 40, 3)
    assert pixels(tmp_path / "grey.compared.png").shape == (280, 3 * 280 + 8, 3)


# ---------------------------------------------------------------- bad input


GOOD = {"--model": MODEL, "--attack": "pgd", "--threat": "linf:8/255", "--samples": "0:4"}
BAD = {
    "unknown attack": ({"--attack": "pdg"}, "unknown attack 'pdg'; did you mean pgd?"),
    "misspelt option": ({"--attack": "pgd:stesp=3"}, "no option 'stesp'; did you mean steps?"),
    "bad value": ({"--attack": "pgd:steps=many"}, "'many'"),
    "unknown defence": ({"--defence": "anti"}, "unknown defence 'anti'"),
    "unknown model": ({"--model": "resnet19"}, "resnet18"),
    "missing module": ({"--model": "no.such:thing"}, "no"),
    "unknown data": ({"--data": "cifar11"}, "unknown data set 'cifar11'; did you mean cifar10?"),
    "bad threat": ({"--threat": "8/255"}, "a norm and a radius; found '8/255'. Write linf:8/255."),
    "bad number": ({"--threat": "linf:8/0"}, "'8/0'"),
    "no budget": ({"--threat": "linf:8/255,queries=0"}, "quer"),
    "a budget beyond counting": ({"--threat": f"linf:8/255,queries={2**63}"}, "2^63"),
    "too little access": ({"--threat": "linf:8/255,access=labels"}, "gradients"),
    "bad samples": ({"--samples": "many"}, "START:STOP"),
    "no samples": ({"--samples": "5:5"}, "at least one"),
    "too many samples": ({"--samples": "0:5000"}, "0 to 999"),
    "no shard": ({"--shard": "0"}, "found 0"),
    "no batch": ({"--batch": "0"}, "--batch"),
    "no looks": ({"--looks": "0"}, "found 0"),
    "half a look": ({"--looks": "1.5"}, "--looks"),
    "not a number": ({"--seed": "x"}, "--seed"),
    "unknown way to compile": ({"--compile": "maybe"}, "maybe"),
    "unknown precision": ({"--precision": "quarter"}, "'quarter'"),
    "a GPU's precision": ({"--precision": "tf32", "--device": "cpu"}, "tf32"),
    "no workers": ({"--runner": "processes:0"}, "found 0"),
    "workers unsaid": ({"--runner": "processes"}, "processes needs workers"),
    "unknown runner": ({"--runner": "cloud"}, "unknown runner 'cloud'"),
    "a device without numbers": ({"--device": "meta"}, "meta "),
    "bytes for a radius": ({"--threat": "linf:8"}, "linf:8"),
    "no such folder": ({"--data": "cifar10:dir=nowhere"}, "nowhere is not a folder"),
    "unknown device": ({"--device": "abacus"}, "abacus "),
}


def one_line(said: tuple[int, str, str], message: str) -> None:
    code, out, err = said
    assert (code, out) == (2, "")
    assert err.startswith("antiadv: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert message in err


@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, what: str, json_too: list[str]
) -> None:
    words, message = BAD[what]
    options = [w for pair in (GOOD | words).items() for w in pair]
    one_line(run(capsys, "evaluate", *options, "--store", tmp_path / "store", *json_too), message)
    assert not (tmp_path / "store").exists(), "nothing was begun"


OTHER_BAD = {
    "no store": (["report", "--store", "nowhere"], "nowhere "),
    "no such verb": (["evalate"], "No such command 'evalate'"),
    "no such option": (["report", "--stroe", "x"], "--stroe"),
    "option missing": (["evaluate", "--model", MODEL], "--attack"),
    "nothing to list": (["list", "weights"], "'weights' is not one of 'attacks'"),
    "no picture": (["attack", "missing.png", "--model", MODEL], "missing.png"),
    "no class 10": (["attack", "{picture}", "--model", MODEL, "--label", "10"], "0 … 9; found 10"),
    "no target": (["attack", "{picture}", "--model", MODEL, "--threat", "linf:8/255,targeted=true"], "--target"),
    "a target that it is": (
        ["attack", "{picture}", "--model", MODEL, "--label", "3", "--target", "3"],
        "--target 3 is already",
    ),
    "no scores": (["attack", "{picture}", "--model", "tests.cli.test_verbs:make_pair"], "found tuple"),
    "out is a file": (["attack", "{picture}", "--model", MODEL, "--out", "{picture}"], "cannot be written"),
    "not a picture": (["attack", __file__, "--model", MODEL], "cannot be read as a picture"),
    "store is a file": ([*EVALUATE, "--store", "{picture}"], "cannot be written"),
    "no device": (["attack", "{picture}", "--model", MODEL, "--device", "abacus"], "abacus "),
}


@pytest.mark.parametrize("what", OTHER_BAD)
def test_other_bad_input_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, picture: Path, what: str
) -> None:
    monkeypatch.chdir(picture.parent)
    words, message = OTHER_BAD[what]
    one_line(run(capsys, *(w.format(picture=picture) for w in words)), message)


def test_a_picture_of_the_wrong_size_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Image.new("RGB", (2, 1)).save(tmp_path / "dot.png")
    model = "tests.cli.test_verbs:make_picky"
    one_line(run(capsys, "attack", tmp_path / "dot.png", "--model", model), "2 × 1 pixels")


def test_what_a_network_prints_is_no_part_of_the_result(capsys: pytest.CaptureFixture[str], picture: Path) -> None:
    words = ["attack", picture, "--model", "tests.cli.test_verbs:make_loud", "--out", picture.parent, "--json"]
    code, out, err = run(capsys, *words)
    assert code == 0
    assert "before" in json.loads(out)
    assert "loading" in err
    assert "answering" in err


def make_loud() -> object:
    """`--model tests.cli.test_verbs:make_loud`: prints when it is made and when it is called."""
    from torch import Tensor, nn

    class Loud(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            print("answering")  # noqa: T201
            return super().forward(x.flatten(1)[:, :192])

    print("loading")  # noqa: T201
    return Loud(192, 10)


def make_pair() -> object:
    """`--model tests.cli.test_verbs:make_pair`: returns its scores and something else."""
    from torch import Tensor, nn

    class Pair(nn.Linear):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            s = super().forward(x.flatten(1)[:, :192])
            return s, x

    return Pair(192, 10)


def make_picky() -> object:
    """`--model tests.cli.test_verbs:make_picky`: takes only 8 × 8 pixels."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10)).eval()


def test_an_edited_store_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_json(capsys, *EVALUATE, "--samples", "0:4", "--store", tmp_path)
    (path,) = tmp_path.glob("*/*.json.?z")
    path.write_bytes(path.read_bytes()[:-9])
    one_line(run(capsys, "report", "--store", tmp_path), str(path))


def test_debug_gives_the_traceback() -> None:
    with pytest.raises(BadSpec, match="unknown attack 'pdg'"):
        main(["evaluate", "--model", MODEL, "--attack", "pdg", "--threat", "linf:8/255", "--debug"])


def test_what_the_demo_says_to_run_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has a space in its name."""
    monkeypatch.setattr(demo, "SAMPLES", range(2))
    monkeypatch.setattr(demo, "ATTACKS", (("pgd:steps=2", "linf:8/255"),))
    code, out, _ = run(capsys, "demo", "--store", tmp_path / "my store")
    said = re.search(r"; antiadv (report .*) shows them again\.", out)
    assert code == 0
    assert said is not None
    assert run(capsys, *shlex.split(said[1]))[0] == 0


def test_a_report_on_images_that_are_one_pixel_high(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (8, 1, 400, 3), dtype=np.uint8)
    np.savez(tmp_path / "flat.npz", images=pixels, labels=np.arange(8))
    data, store = f"arrays:{tmp_path}/flat.npz", tmp_path / "store"
    words = ["evaluate", "--model", "tests.toys:make_small_net", "--attack", "square:steps=2", "--data", data]
    words += ["--threat", "linf:0.01,queries=2", "--defence", "anti_adversary", "--keep-images", "--store", str(store)]
    assert main(words) == 0
    assert main(["report", "--store", str(store), "--out", str(tmp_path / "out"), "--data", data]) == 0
    (sheet,) = (tmp_path / "out").rglob("*-0.png")
    with Image.open(sheet) as picture:
        assert picture.height == 1, "eight images side by side"
    capsys.readouterr()


@pytest.mark.parametrize("name", ["a=b.npz", "a,b.npz"])
def test_a_path_with_signs_of_a_spec_is_told_to_go_into_brackets(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EVALUATE, "--data", f"arrays:{name}"]) == 2
    assert f"arrays:({name})" in capsys.readouterr().err
