"""Requests of the Open Inference Protocol are read as they are written; all others are refused in a sentence."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from antiadv.serving.backend import Answer
from antiadv.serving.limits import Refused
from antiadv.serving.protocol import MOST_LISTS, Asked, read, write
from tests.serving.nets import SHAPE, binary_request, binary_scores, json_request, pictures

X = pictures(2)


def asked(request: object, rows: int = 4) -> Asked:
    return read(json.dumps(request).encode(), None, SHAPE, rows)


def changed(**entry: object) -> dict[str, Any]:
    """A valid request with other values in its input; None leaves one out."""
    request = json_request(X)
    merged = {**request["inputs"][0], **entry}
    request["inputs"] = [{name: value for name, value in merged.items() if value is not None}]
    return request


def test_flat_nested_and_binary_data_are_the_same_images() -> None:
    body, headers = binary_request(X, id="seven")
    binary = read(body, headers["Inference-Header-Content-Length"], SHAPE, 4)
    flat, nested = asked(json_request(X)), asked(changed(data=X.tolist()))
    for found in (binary, flat, nested):
        assert found.images.dtype == np.float32
        assert np.array_equal(found.images, X)
    assert binary.id == "seven"
    assert binary.outputs == {"scores": True, "label": True}
    assert flat.outputs == {"scores": False, "label": False}


def test_answers_in_json_and_in_binary_are_the_same_numbers() -> None:
    scores = np.array([[0.1, 0.9], [2.0, -1.0]], np.float32)
    text, headers = write(Asked(X, "seven", {"scores": False, "label": False}), Answer(scores), "net", "1")
    found = json.loads(text)
    assert headers == {"Content-Type": "application/json"}
    assert (found["id"], found["model_name"], found["model_version"]) == ("seven", "net", "1")
    assert [output["name"] for output in found["outputs"]] == ["scores", "label"]
    assert np.array_equal(np.float32(found["outputs"][0]["data"]).reshape(2, 2), scores)
    assert found["outputs"][1]["data"] == [1, 0]
    raw, headers = write(Asked(X, None, {"scores": True, "label": True}), Answer(scores), "net", "1")
    length = headers["Inference-Header-Content-Length"]
    assert np.array_equal(binary_scores(raw, length), scores)
    assert raw[-16:] == np.array([1, 0], "<i8").tobytes()
    assert "id" not in json.loads(raw[: int(length)])


def test_wanted_outputs_are_given_alone_and_each_in_its_form() -> None:
    wanted: list[dict[str, Any]] = [{"name": "label", "parameters": {"binary_data": True}}]
    assert asked(json_request(X, outputs=wanted)).outputs == {"label": True}
    assert asked(json_request(X, outputs=[{"name": "scores"}])).outputs == {"scores": False}
    assert asked(json_request(X, outputs=[])).outputs == {"scores": False, "label": False}


DEEP: Any = 0.5
for _ in range(80):
    DEEP = [DEEP]

BAD: dict[str, object] = {
    "a list": [],
    "no inputs": {},
    "two inputs": {"inputs": json_request(X)["inputs"] * 2},
    "input is a number": {"inputs": [3]},
    "wrong name": changed(name="pixels"),
    "wrong type": changed(datatype="UINT8"),
    "no shape": changed(shape=None),
    "shape is a text": changed(shape="2,3,8,8"),
    "shape of floats": changed(shape=[2.0, 3, 8, 8]),
    "shape with true": changed(shape=[True, 3, 8, 8]),
    "no rows": changed(shape=[0, *SHAPE]),
    "negative rows": changed(shape=[-1, *SHAPE]),
    "empty shape": changed(shape=[]),
    "other image": changed(shape=[2, 3, 8, 9]),
    "no data": changed(data=None),
    "few data": changed(data=[0.5]),
    "texts": changed(data=["0.5"] * X.size),
    "nulls": changed(data=[None] * X.size),
    "truths": changed(data=[True] * X.size),
    "ragged": changed(data=[[0.5], [0.5, 0.5]]),
    "deep": changed(data=DEEP),
    "huge integers": changed(data=[10**300] * X.size),
    "overflow": changed(data=[1e300] * X.size),
    "below 0": changed(data=[-0.1] * X.size),
    "above 1": changed(data=[255] * X.size),
    "id is a number": json_request(X, id=3),
    "long id": json_request(X, id="x" * 5000),
    "unknown output": json_request(X, outputs=[{"name": "gradient"}]),
    "name of output is a list": json_request(X, outputs=[{"name": ["scores"]}]),
    "outputs are a text": json_request(X, outputs="scores"),
    "many outputs": json_request(X, outputs=[{"name": "scores"}] * 100),
    "classification": json_request(X, outputs=[{"name": "scores", "parameters": {"classification": 3}}]),
    "parameters are a list": json_request(X, parameters=[]),
    "binary is a number": json_request(X, parameters={"binary_data_output": 1}),
    "no tensor bytes": changed(data=None, parameters={"binary_data_size": X.nbytes}),
    "size is a float": changed(data=None, parameters={"binary_data_size": 1.5}),
    "shared memory": changed(data=None, parameters={"shared_memory_region": "x"}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_refused_with_400_and_one_sentence(name: str) -> None:
    with pytest.raises(Refused) as caught:
        asked(BAD[name])
    assert caught.value.status == 400
    assert "\n" not in caught.value.sentence


def test_too_many_rows_are_refused_before_their_data_is_read() -> None:
    with pytest.raises(Refused) as caught:
        asked(changed(shape=[5, *SHAPE], data="not read"))
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"\xff\xfe", b"nul", b"[" * 100_000, b'{"a":' * 1000, b"1" * 10_000,
        json.dumps(changed(data=[float("nan")] * X.size)).encode(),
        json.dumps(changed(data=[float("inf")] * X.size)).encode(),
        b'{"inputs": [{"name": "images", "datatype": "FP32", "shape": [' + b"9" * 5000 + b", 3, 8, 8]}]}",
    ],
    ids=range(10),
)  # fmt: skip
def test_bad_texts_are_refused(text: bytes) -> None:
    with pytest.raises(Refused) as caught:
        read(text, None, SHAPE, 4)
    assert caught.value.status == 400


def test_brackets_inside_strings_are_no_nesting_and_hide_none() -> None:
    assert asked(json_request(X, id="[{" * 100)).id == "[{" * 100
    assert asked(json_request(X, id='"]' + "\\" + '"[[' * 50)).id is not None
    with pytest.raises(Refused, match="nested"):
        read(b'["]",' * 1000, None, SHAPE, 4)


@pytest.mark.parametrize("text", [b'"\\' * 40_000, b'"' + b"a" * 2**20, b'"' + b"\\\\" * 2**19], ids=range(3))
def test_strings_that_do_not_end_are_refused_in_little_time_and_memory(text: bytes) -> None:
    body = b"[" * 40 + text
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(Refused) as caught:
            read(body, None, (3, 512, 512), 4)  # so large that the number of strings is no reason to refuse
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.status == 400
    assert peak < 20 * len(body)
    assert time.process_time() - start < 10  # a watchdog: a search that begins again at each quote takes minutes


def test_what_follows_a_backslash_is_part_of_the_string() -> None:
    assert asked(json_request(X, id='\\"[' + "[" * 100)).id is not None
    with pytest.raises(Refused, match="nested"):
        read(rb'["\\",' + b"[" * 40 + b"]" * 40 + b"]", None, SHAPE, 4)


@pytest.mark.parametrize("each", [b"0.1,", b'"a",', b'""', rb"\"", b'{"a":'])
def test_more_json_than_the_rows_allow_is_refused_before_it_is_read(
    each: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(json, "loads", parse)
    with pytest.raises(Refused) as caught:
        read(b'{"inputs":[{"data":[' + each * (4 * X[0].size + 5000) + b"0]}]}", None, SHAPE, 4)
    assert caught.value.status == 413


def test_json_has_room_for_all_rows_of_a_small_model_and_for_one_row_of_any() -> None:
    full = pictures(4)
    assert np.array_equal(read(json.dumps(json_request(full)).encode(), None, SHAPE, 4).images, full)
    one = json.dumps(json_request(np.zeros((1, 1, 1100, 1000), np.float32))).encode()
    assert read(one, None, (1, 1100, 1000), 4).images.shape == (1, 1, 1100, 1000)
    with pytest.raises(Refused) as caught:
        read(one.replace(b"[0.0,", b"[" + b"0," * 1_100_000, 1), None, (1, 1100, 1000), 4)
    assert caught.value.status == 413


@pytest.mark.parametrize("pixel", [np.nan, np.inf, -np.inf, -1e-3, 1.5])
def test_one_bad_pixel_in_bytes_is_found_and_its_row_named(pixel: float) -> None:
    images = X.copy()
    images[1, 2, 3, 4] = pixel
    body, headers = binary_request(images)
    with pytest.raises(Refused, match="row 1") as caught:
        read(body, headers["Inference-Header-Content-Length"], SHAPE, 4)
    assert caught.value.status == 400


@pytest.mark.parametrize("length", ["-1", "1e3", "", "9" * 30, "100000", "٣", "0", "12"])
def test_a_wrong_length_of_the_header_is_refused(length: str) -> None:
    body, _ = binary_request(X)
    with pytest.raises(Refused) as caught:
        read(body, length, SHAPE, 4)
    assert caught.value.status == 400


@pytest.mark.parametrize("cut", [-1, -X.nbytes, 1])
def test_missing_and_extra_bytes_are_refused(cut: int) -> None:
    body, headers = binary_request(X)
    body = body[:cut] if cut < 0 else body + b"x"
    with pytest.raises(Refused) as caught:
        read(body, headers["Inference-Header-Content-Length"], SHAPE, 4)
    assert caught.value.status == 400


def test_bytes_behind_the_json_that_no_input_claims_are_refused() -> None:
    text = json.dumps(json_request(X)).encode()
    with pytest.raises(Refused):
        read(text + b"more", str(len(text)), SHAPE, 4)
    both = changed(parameters={"binary_data_size": X.nbytes})
    with pytest.raises(Refused):
        read(json.dumps(both).encode(), None, SHAPE, 4)


@pytest.mark.parametrize("each", [b"[],", b"{},"])
def test_more_lists_than_any_request_needs_are_refused_before_they_are_read(each: bytes) -> None:
    with pytest.raises(Refused, match="more than"):
        read(b'{"inputs": [' + each * (MOST_LISTS + 1) + b"0]}", None, SHAPE, 4)
