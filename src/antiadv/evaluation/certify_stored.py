"""Certify the samples of a data set and store each certificate. Stopped and called again, it continues.

    certify_stored(resources, model=…, data=…, samples=…, setting=…, store=…)   →  Stored
    stored_runs(folder)                                                         →  what is stored, and how it was made

The key of a run covers the names and digests of network and images, and the setting. The samples are not part of it.
Stored certificates are used only if the network still gives the answers that it gave then (`probe.py`).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from antiadv import data as datasets
from antiadv import models
from antiadv.core.errors import AntiadvError, StoreMismatch, StoreUnwritable, first_line
from antiadv.core.spec import number, show_number
from antiadv.data.dataset import Dataset
from antiadv.evaluation.cell import FORMAT, Identity, key_of
from antiadv.evaluation.certify import Certificate, Certified, Setting, certificates, check_bare
from antiadv.evaluation.probe import Asked
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.store.certificates import MOST, read_certificates, read_run, write_certificates, write_run
from antiadv.evaluation.store.files import list_folder
from antiadv.evaluation.store.probe_file import read_probe, write_probe

LOADED = 100  # images at a time
EDITION = 1  # raised with every intended change of certificates


@dataclass(frozen=True)
class Stored:
    """The certificates of the samples asked for, and the folder that holds them."""

    certified: Certified
    folder: Path


def certify_stored(
    resources: Resources,
    *,
    model: str,
    data: str,
    samples: range,
    setting: Setting,
    store: Path,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Stored:
    """Certify the samples that are missing in the store. `progress` is told how many samples of how many are done."""
    resources.check_name(model)
    dataset = resources.data(data)
    dataset.labels((samples[0], samples[-1]))  # raises if the data set has no such samples
    net = resources.model(model)
    check_bare(net)
    identity = _identity(resources, model, data, setting)
    folder = store / key_of(identity)
    done = read_certificates(folder)
    try:
        write_run(folder, identity, _command(model, data, samples, setting))
        dataset.check([i for i in samples if i in done])
        _check_fresh(folder, Asked(resources, model, data), model, bool(done))
        new: list[Certificate] = []
        todo = [i for i in samples if i not in done]
        for record in _certificates(net, dataset, todo, setting, resources, batch):
            new = [*new, record] if len(new) < MOST else [record]
            write_certificates(folder, new)
            done[record.sample] = record
            if progress is not None:
                progress(sum(i in done for i in samples), len(samples))
    except StoreUnwritable:
        raise
    except OSError as error:
        raise StoreUnwritable(
            f"the store {store} cannot be written ({error.strerror or error}). Finished samples are kept; make it "
            "writable, or choose another folder with --store, and run again."
        ) from error
    return Stored(Certified(setting, [done[i] for i in samples]), folder)


def stored_runs(folder: Path) -> Iterator[tuple[Identity, Certified]]:
    """The runs in this folder: what can change their certificates, and the certificates by sample."""
    for name in list_folder(folder) if folder.is_dir() else []:
        identity = read_run(folder / name)
        records = read_certificates(folder / name) if identity is not None else {}
        if identity is not None and records:
            yield identity, Certified(_setting(identity, folder / name), [records[i] for i in sorted(records)])


def _setting(identity: Identity, folder: Path) -> Setting:
    try:
        std, alpha = (number(str(identity[name])) for name in ("std", "alpha"))
        n0, n, seed = (int(identity[name]) for name in ("n0", "n", "seed"))
        return Setting(std, n0, n, alpha, seed)
    except (AntiadvError, LookupError, TypeError, ValueError) as error:
        raise StoreMismatch(f"{folder} has no setting ({first_line(error)}). Delete it and run again.") from None


def _certificates(
    net: nn.Module, dataset: Dataset, todo: Sequence[int], setting: Setting, resources: Resources, batch: int | None
) -> Iterator[Certificate]:
    """The certificates of these samples, whose images are loaded a few at a time."""
    classes = len(dataset.classes) or None
    with torch.inference_mode(False):
        passes = resources.engine("float32", batch)
        for start in range(0, len(todo), LOADED):
            ids = todo[start : start + LOADED]
            x, y = dataset.images(ids).to(resources.device), dataset.labels(ids)
            yield from certificates(net, x, y, ids, setting, passes, classes)


def _identity(resources: Resources, model: str, data: str, setting: Setting) -> Identity:
    numbers = {key: show_number(value) if isinstance(value, float) else value for key, value in asdict(setting).items()}
    return {
        "format": FORMAT,
        "certify": EDITION,
        "data": datasets.canonical(data),
        "images": resources.data(data).digest,
        "model": models.canonical(model),
        "weights": resources.weights(model),
        **numbers,
    }


def _command(model: str, data: str, samples: range, setting: Setting) -> str | None:
    """The command that makes these certificates again; None for a network or images in hand."""
    if not models.is_known(model) or data.partition(":")[0].strip() not in datasets.DATASETS:
        return None
    words = ["--data", datasets.canonical(data), "--model", models.label(model)]
    words += ["--samples", f"{samples.start}:{samples.stop}"]
    for name, value in asdict(setting).items():
        words += [f"--{name}", show_number(value) if isinstance(value, float) else str(value)]
    return shlex.join(["antiadv", "certify", *words])


def _check_fresh(folder: Path, now: Asked, model: str, stored: bool) -> None:
    """Refuse stored certificates of a network that has changed; keep the answers of a new one."""
    now.check_alive()
    probe = read_probe(folder) if stored else None
    if probe is None or probe.images != now.images:
        write_probe(folder, now.probe)
    elif not probe.empty and (difference := now.compare(probe)) is not None:
        raise StoreMismatch(
            f"the network {model} has changed since the samples in {folder} were certified: {difference}. They are "
            "kept, and not shown as its own. Name another folder with --store, and run again."
        )
