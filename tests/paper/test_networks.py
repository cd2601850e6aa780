"""The networks of the zoo, of the authors, and ResNet-50."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiadv import defences, models, paper
from antiadv.core.errors import BadInput, BadSpec
from antiadv.paper import settings
from antiadv.paper.networks import Source, imagenet, of_method


def test_the_authors_checkpoints_are_found_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "model_cifar_wrn.pt").touch()
    (tmp_path / "cifar10-mart.pth").touch()
    (tmp_path / "cifar10wrn_baseline_epoch_4.pt").touch()
    source = Source(f"official:{tmp_path}")
    (trades,), (mart,), (pre,), (awp,) = (
        of_method(source, "cifar10", m) for m in ("trades", "mart", "pretraining", "awp")
    )
    assert trades.model == f"wrn34-10:trades,path={tmp_path / 'model_cifar_wrn.pt'}"
    assert mart.model == f"wrn28-10:mart,path={tmp_path / 'cifar10-mart.pth'}"
    assert (trades.name, mart.name, trades.absent, mart.absent) == ("wrn34-10:trades", "wrn28-10:mart", "", "")
    assert settings.layer(trades) == "anti_adversary"
    assert settings.layer(pre) == "anti_adversary:step_size=0.075"  # the authors step after 2x − 1
    assert "RST-AWP" in awp.absent
    (hundred,) = of_method(source, "cifar100", "awp")
    layer = defences.wrap(settings.layer(hundred), models.load("compact:trades"))
    assert layer.step_size == pytest.approx((0.15 * 0.26733, 0.15 * 0.25644, 0.15 * 0.27615))


@pytest.mark.parametrize(
    ("text", "error"), [("mine", BadSpec), ("official:", BadSpec), ("official:/no/such", BadInput)]
)
def test_networks_are_zoo_or_official(text: str, error: type[Exception]) -> None:
    with pytest.raises(error, match="official:DIR"):
        paper.layout("table-3", networks=text)


def test_resnet_50_is_found_in_the_folder_of_data_sets(tmp_path: Path) -> None:
    assert "resnet50.pt" in imagenet(Source()).absent
    assert str(tmp_path) in imagenet(Source(directory=str(tmp_path))).absent
    (tmp_path / "resnet50.pt").touch()
    assert imagenet(Source(directory=str(tmp_path))).name == "resnet50:v1.5"
    (tmp_path / "resnet50-v1.pt").touch()
    network = imagenet(Source(directory=str(tmp_path)))
    assert (network.absent, network.model) == ("", f"resnet50:v1,path={tmp_path / 'resnet50-v1.pt'}")
    assert network.data == f"nips2017:dir={tmp_path}"
