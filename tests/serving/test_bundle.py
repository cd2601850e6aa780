"""Bundles: what is written is read back, and a damaged or hostile one gets one sentence and runs nothing."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from antiadv.core.errors import BadInput
from antiadv.serving.bundle import CARD, FILES, LARGEST_CARD, open_bundle, write_card
from antiadv.serving.onnx_backend import OnnxBackend, check_graph

SHAPE, CLASSES = (3, 4, 4), 3
ENTRIES: dict[str, Any] = {
    "kind": "onnx",
    "model": "mine",
    "defence": "none",
    "input": {"name": "images", "shape": list(SHAPE)},
    "classes": CLASSES,
    "class_names": ["cat", "dog", "bee"],
    "weights": "sha256:0",
    "versions": {},
    "check": {},
}


def graph(*extra: onnx.NodeProto) -> onnx.ModelProto:
    """scores = the means of the three channels."""
    mean = helper.make_node("ReduceMean", ["images"], ["scores"], axes=[2, 3], keepdims=0)
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", *SHAPE])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", CLASSES])
    made = helper.make_graph([mean, *extra], "g", [images], [scores])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def write(folder: Path, content: bytes | None = None, **entries: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILES["onnx"]).write_bytes(graph().SerializeToString() if content is None else content)
    write_card(folder, ENTRIES | entries)
    return folder


def ask(folder: Path) -> np.ndarray[Any, Any]:
    """Open a bundle as a server does, and ask for two images."""
    return open_bundle(folder).backend(threads=1).run(np.ones((2, *SHAPE), np.float32)).scores


def test_a_bundle_is_read_back(tmp_path: Path) -> None:
    bundle = open_bundle(write(tmp_path / "b", verdict="fine"))
    assert (bundle.shape, bundle.classes, bundle.class_names) == (SHAPE, CLASSES, ("cat", "dog", "bee"))
    assert bundle.card["verdict"] == "fine"
    assert ask(tmp_path / "b").tolist() == [[1.0] * 3] * 2
    backend = bundle.backend()
    assert (backend.kind, backend.shape, backend.classes) == ("onnx", SHAPE, CLASSES)
    assert backend.run(np.zeros((0, *SHAPE), np.float32)).scores.shape == (0, CLASSES)


def test_an_unknown_provider_or_no_thread_gets_a_sentence(tmp_path: Path) -> None:
    bundle = open_bundle(write(tmp_path / "b"))
    with pytest.raises(BadInput, match="tpu"):
        bundle.backend(provider="tpu")
    with pytest.raises(BadInput, match="thread"):
        bundle.backend(threads=0)


IMAGES = np.full((2, *SHAPE), 0.5, np.float32)
UNFIT: dict[str, tuple[Any, str]] = {
    "bytes": (IMAGES * 255, r"row 0 has pixels outside \[0, 1\]"),
    "NaN": (IMAGES * np.array([1, np.nan], np.float32)[:, None, None, None], "row 1 has pixels that are not finite"),
    "float64": (IMAGES.astype(np.float64), "found float64"),
    "uint8": (IMAGES.astype(np.uint8), "found uint8"),
    "one image": (IMAGES[0], r"\[n, 3, 4, 4\].*found float32 \(3, 4, 4\)"),
    "channels last": (IMAGES.transpose(0, 2, 3, 1), r"found float32 \(2, 4, 4, 3\)"),
    "a list": (IMAGES.tolist(), "found list"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_images_that_the_server_refuses_get_a_sentence_in_python(case: str, tmp_path: Path) -> None:
    images, said = UNFIT[case]
    with pytest.raises(BadInput, match=said):
        open_bundle(write(tmp_path / "b")).backend(threads=1).run(images)


@pytest.mark.parametrize("kind", ["pt2", "aoti"])
def test_a_format_that_can_run_code_is_not_even_opened_without_trust(kind: str, tmp_path: Path) -> None:
    (tmp_path / FILES[kind]).write_bytes(b"PK not read at all")
    write_card(tmp_path, ENTRIES | {"kind": kind})
    (tmp_path / FILES[kind]).unlink()
    with pytest.raises(BadInput, match="--trust"):
        open_bundle(tmp_path).backend()


# ---------------------------------------------------------------- cards


CARDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no format": lambda c: c.pop("format"),
    "later format": lambda c: c.update(format=2),
    "unknown kind": lambda c: c.update(kind="pickle"),
    "kind is a list": lambda c: c.update(kind=["onnx"]),
    "no shape": lambda c: c.update(input={}),
    "shape of texts": lambda c: c["input"].update(shape=["3", "4", "4"]),
    "shape of a bomb": lambda c: c["input"].update(shape=[2**30, 2**30, 2**30]),
    "negative shape": lambda c: c["input"].update(shape=[3, -4, -4]),
    "true classes": lambda c: c.update(classes=True),
    "too many classes": lambda c: c.update(classes=2**40, class_names=[]),
    "too few names": lambda c: c.update(class_names=["cat"]),
    "names are numbers": lambda c: c.update(class_names=[1, 2, 3]),
    "no files": lambda c: c.update(files={}),
    "files elsewhere": lambda c: c.update(files={"../model.onnx": c["files"]["model.onnx"]}),
    "huge file": lambda c: c["files"]["model.onnx"].update(bytes=2**60),
    "size is a text": lambda c: c["files"]["model.onnx"].update(bytes="9"),
    "other digest": lambda c: c["files"]["model.onnx"].update(digest="sha256:00"),
    "smaller size": lambda c: c["files"]["model.onnx"].update(bytes=9),
    "other shape": lambda c: c["input"].update(shape=[1, 4, 4]),
    "other classes": lambda c: c.update(classes=4, class_names=[]),
}


@pytest.mark.parametrize("case", CARDS)
def test_an_edited_card_gets_a_sentence(case: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "b")
    card = json.loads((folder / CARD).read_text())
    CARDS[case](card)
    (folder / CARD).write_text(json.dumps(card))
    with pytest.raises(BadInput) as caught:
        ask(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 200_000, b'{"format": NaN}', b" " * (LARGEST_CARD + 1)]
)
def test_a_file_that_is_no_card_gets_a_sentence(content: bytes, tmp_path: Path) -> None:
    folder = write(tmp_path / "b")
    (folder / CARD).write_bytes(content)
    with pytest.raises(BadInput, match=CARD):
        open_bundle(folder)


def test_a_folder_without_a_card_or_model_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no bundle"):
        open_bundle(tmp_path)
    folder = write(tmp_path / "b")
    outside = shutil.move(folder / FILES["onnx"], tmp_path / "elsewhere.onnx")
    with pytest.raises(BadInput, match="plain file"):
        ask(folder)
    (folder / FILES["onnx"]).symlink_to(outside)
    with pytest.raises(BadInput, match="plain file"):
        ask(folder)


# ---------------------------------------------------------------- model files


def _outside() -> onnx.ModelProto:
    made = graph()
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="../../../etc/passwd")
    made.graph.initializer.append(weights)
    return made


def _inner() -> onnx.GraphProto:
    flag = helper.make_tensor("v", TensorProto.BOOL, [], [True])
    out = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return helper.make_graph([helper.make_node("Constant", [], ["c"], value=flag)], "body", [], [out])


def _constant_outside() -> onnx.ModelProto:
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    return graph(helper.make_node("Constant", [], ["w"], value=weights))


def _functions() -> onnx.ModelProto:
    """Each function calls the next one twice: forty of them are 2^40 operators."""
    made, opset = graph(helper.make_node("f0", ["images"], ["out"], domain="own")), [helper.make_opsetid("", 13)]
    made.opset_import.append(helper.make_opsetid("own", 1))
    own = [*opset, helper.make_opsetid("own", 1)]
    for k in range(40):
        inner = [helper.make_node(f"f{k + 1}", [a], [b], domain="own") for a, b in (("x", "y"), ("y", "z"))]
        made.functions.append(helper.make_function("own", f"f{k}", ["x"], ["z"], inner, own))
    last = [helper.make_node("Relu", ["x"], ["z"])]
    made.functions.append(helper.make_function("own", "f40", ["x"], ["z"], last, opset))
    return made


def _sparse_outside() -> onnx.ModelProto:
    """The indices of a sparse constant are in another file."""
    made = graph(helper.make_node("Constant", [], ["w"]))
    attribute = made.graph.node[-1].attribute.add(name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR)
    attribute.sparse_tensor.values.CopyFrom(helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0]))
    attribute.sparse_tensor.indices.data_location = TensorProto.EXTERNAL
    return made


HOSTILE: dict[str, Callable[[], onnx.ModelProto]] = {
    "weights outside": _outside,
    "a constant outside": _constant_outside,
    "sparse indices outside": _sparse_outside,
    "functions without end": _functions,
    "endless loop": lambda: graph(helper.make_node("Loop", ["", ""], [], body=_inner())),
    "branch": lambda: graph(helper.make_node("If", ["images"], ["c"], then_branch=_inner(), else_branch=_inner())),
    "foreign operator": lambda: graph(helper.make_node("Run", ["images"], ["out"], domain="evil")),
    "contrib operator": lambda: graph(helper.make_node("Inverse", ["images"], ["out"], domain="com.microsoft")),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_graph_is_refused_before_it_is_loaded(case: str, tmp_path: Path) -> None:
    content = HOSTILE[case]().SerializeToString()
    with pytest.raises(BadInput):
        check_graph(content)
    with pytest.raises(BadInput):
        ask(write(tmp_path / "b", content))


def test_a_graph_with_other_inputs_or_outputs_is_refused() -> None:
    made = graph()
    made.graph.output[0].name = made.graph.node[0].output[0] = "other"
    with pytest.raises(BadInput, match="other"):
        OnnxBackend(made.SerializeToString(), SHAPE, CLASSES)


def test_damaged_model_files_get_a_sentence(tmp_path: Path) -> None:
    """Cut and edited files, with the old digest and with a new one: a hostile bundle has right digests."""
    whole, draw = graph().SerializeToString(), random.Random(0)
    refused = 0
    for _ in range(60):
        content = bytearray(whole[: draw.randrange(len(whole))]) if draw.random() < 0.3 else bytearray(whole)
        for _ in range(draw.randrange(4)):
            content[draw.randrange(len(content)) : draw.randrange(len(content))] = draw.randbytes(draw.randrange(8))
            content = content or bytearray(b"x")
        folder = write(tmp_path / "b", bytes(content) or b"x")
        try:
            assert ask(folder).shape == (2, CLASSES)
        except BadInput as error:
            refused += "\n" not in str(error)
        write(folder)
        (folder / FILES["onnx"]).write_bytes(bytes(content))
        if bytes(content) != whole:
            with pytest.raises(BadInput, match="cut or edited"):
                ask(folder)
    assert refused > 20
