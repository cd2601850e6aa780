"""The playground's application in this process: choices, uploads, a live attack, step, stop, share, and who may ask."""

from __future__ import annotations

import base64
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from antiadv import data
from antiadv.attacks import parse
from antiadv.core.ball import Linf
from antiadv.core.threat import Threat
from antiadv.evaluation import Resources
from antiadv.evaluation.shard import attack_and_judge
from antiadv.serving.playground import session as sessions
from antiadv.serving.playground.app import make_app
from antiadv.serving.playground.choices import ATTACKS, NUMBERS, PLAIN, Choices
from antiadv.serving.playground.pictures import uploaded
from antiadv.serving.playground.session import MOST, Sessions
from antiadv.serving.playground.share import share
from antiadv.serving.playground.story import GOING, Frame, Story, Track

PATIENCE = 60.0  # a watchdog: on a busy machine everything takes longer
HERE = "http://127.0.0.1:8001"
BUDGET = 12  # queries: enough for each attack to begin


@pytest.fixture(scope="module")
def choices() -> Choices:
    return Choices()


@pytest.fixture
def client(choices: Choices) -> Iterator[TestClient]:
    with TestClient(make_app(Sessions(choices, "cpu")), base_url=HERE) as client:
        yield client


def opened(client: TestClient) -> str:
    return "/api/sessions/" + str(client.post("/api/sessions").json()["session"])


def asked(**other: Any) -> dict[str, Any]:
    first = {name: number.first for name, number in NUMBERS.items()}
    names = {"network": "compact:trades", "defence": "anti_adversary", "attack": "square", "sample": 0}
    return {**first, **names, **other}


def start(client: TestClient, session: str, **other: Any) -> None:
    answer = client.post(session + "/start", json=asked(**other))
    assert answer.status_code == 200, answer.text


def wait(client: TestClient, session: str, *until: str, points: int = 0) -> dict[str, Any]:
    """The story, once its status is one of these and it has so many points."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        story: dict[str, Any] = client.get(session + "/story").json()
        enough = sum(len(track["points"]) for track in story["tracks"]) >= points
        if story["status"] in until and enough:
            return story
        assert story["status"] in GOING, story["sentence"]
        time.sleep(0.01)
    raise AssertionError("the attack did not come so far")


def picture(width: int = 60, height: int = 40, kind: str = "png", mode: str = "RGB") -> bytes:
    pixels = np.arange(width * height * 3, dtype=np.uint32).reshape(height, width, 3) % 251
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(out, kind)
    return out.getvalue()


# ---------------------------------------------------------------- choices and uploads


def test_the_page_and_what_can_be_picked(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", page.text), "no address outside"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    found = client.get("/api/choices").json()
    assert "compact:trades" in found["networks"]
    assert all("cifar100" not in name for name in found["networks"])
    assert set(found["attacks"]) == {"square", "pgd", "apgd", "fast", "rays", "transfer"}
    sample = client.get("/api/samples/3")
    assert Image.open(io.BytesIO(sample.content)).size == (32, 32)
    assert client.get("/api/samples/100000").status_code == 404


@pytest.mark.parametrize(("kind", "mode"), [("png", "RGB"), ("jpeg", "RGB"), ("png", "L"), ("png", "RGBA")])
def test_an_upload_is_cut_to_the_networks_size(kind: str, mode: str, client: TestClient) -> None:
    answer = client.post(opened(client) + "/image", content=picture(kind=kind, mode=mode))
    assert answer.status_code == 200
    content = base64.b64decode(answer.json()["image"].partition(",")[2])
    shown = Image.open(io.BytesIO(content))
    assert (shown.size, shown.mode) == ((32, 32), "RGB")


def test_a_picture_taken_sideways_is_turned_upright() -> None:
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32] = 255
    out, held = io.BytesIO(), Image.Exif()
    held[0x0112] = 6  # the top of the picture is on the right
    Image.fromarray(pixels).save(out, "JPEG", exif=held)
    shown = uploaded(out.getvalue(), (3, 32, 32))
    assert shown[..., 16:].mean() > 0.95
    assert shown[..., :16].mean() < 0.05


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"GIF89a", 400),
        (b"<svg onload=alert(1)>", 400),
        (picture()[:-40], 400),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 500, 400),
        (b"\0" * (8 * 2**20 + 1), 413),
    ],
    ids=["empty", "gif", "svg", "cut", "zeros", "large"],
)
def test_a_bad_upload_gets_one_sentence(content: bytes, status: int, client: TestClient) -> None:
    session = opened(client)
    answer = client.post(session + "/image", content=content)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert "\n" not in answer.json()["error"]
    assert client.post(session + "/start", json=asked(sample=None)).status_code == 400  # nothing was kept


WRONG = [
    {"network": "os:system"},
    {"network": ["compact:trades"]},
    {"defence": "self_ensemble"},
    {"attack": "pgd:steps=99"},
    {"sample": -1},
    {"sample": True},
    {"sample": "0"},
    {"alpha": 0.31},
    {"alpha": "0.1"},
    {"alpha": float("nan")},
    {"steps": 1.5},
    {"steps": True},
    {"gate": 0},
    {"radius": 1e9},
    {"queries": 10**9},
    *({name: 10**400} for name in ("alpha", "steps", "queries", "sample")),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_was_not_offered_is_refused(wrong: dict[str, Any], client: TestClient) -> None:
    session = opened(client)
    answer = client.post(session + "/start", content=json.dumps(asked(**wrong)))
    assert answer.status_code == 400
    assert client.get(session + "/story").json()["status"] == "idle"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 50_000])
def test_a_body_that_is_no_object_is_refused(body: bytes, client: TestClient) -> None:
    assert client.post(opened(client) + "/start", content=body).status_code == 400


# ---------------------------------------------------------------- an attack


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ("jpeg", "stateful") else pytest.mark.slow) for n in PLAIN]
)
def test_every_defence_that_is_offered_can_be_attacked(name: str, client: TestClient) -> None:
    assert name in client.get("/api/choices").json()["defences"]
    session = opened(client)
    start(client, session, defence=name, queries=BUDGET)
    story = wait(client, session, "ended")
    assert name in story["title"]
    assert len(story["tracks"]) == 2


def test_a_network_and_images_of_ones_own(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 12, 16, 1), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", images=pixels, labels=np.arange(5) % 2)
    mine = Choices(("tests.toys:make_grey_net",), data.load(f"arrays:{tmp_path / 'mine.npz'}"))
    with TestClient(make_app(Sessions(mine, "cpu")), base_url=HERE) as client:
        found = client.get("/api/choices").json()
        assert (found["networks"], found["samples"]) == (["tests.toys:make_grey_net"], 5)
        session = opened(client)
        content = client.post(session + "/image", content=picture()).json()["image"].partition(",")[2]
        shown = Image.open(io.BytesIO(base64.b64decode(content)))
        assert (shown.size, shown.mode) == ((16, 12), "L")
        for sample in (4, None):
            start(client, session, network="tests.toys:make_grey_net", sample=sample, queries=BUDGET, alpha=0.01)
            assert "class " in wait(client, session, "ended")["sentence"]
        assert "class " in client.get(session + "/share").text


FEW = ("square", "pgd", "transfer")


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in ATTACKS])
def test_every_attack_ends_as_it_does_without_the_page(name: str, client: TestClient, choices: Choices) -> None:
    session = opened(client)
    start(client, session, attack=name, queries=BUDGET, steps=1)
    story = wait(client, session, "ended")
    picked = story["tracks"][0]
    sent = [n for n, _ in picked["points"]]
    assert sent == sorted(sent)
    assert sent[-1] == picked["sent"]
    assert [t["attack"] for t in story["tracks"]] == [name] + ["transfer"] * (name != "transfer")
    resources, images = Resources("cpu"), choices.images
    g = resources.defended("compact:trades", "anti_adversary:steps=1")
    x, y, attack = images.images([0]), images.labels([0]), parse(name)
    threat = Threat(Linf(asked()["radius"] / 255), attack.access, BUDGET)
    z, (record,), _ = attack_and_judge(g, attack, threat, x, y, torch.tensor([0]), 0)
    assert picked["fooled"] == (record.attacked != record.label and record.distance <= threat.ball.reach)
    assert picked["frame"]["queries"] == record.queries
    with torch.no_grad():
        odds = g(z).softmax(1)[0].tolist()
    assert picked["frame"]["g"] == pytest.approx(odds, abs=2e-4)
    if name != "transfer":
        assert picked["sent"] == record.queries <= BUDGET


def test_the_page_gets_only_the_points_that_it_lacks(client: TestClient) -> None:
    session = opened(client)
    start(client, session, attack="pgd", defence="none", sample=3)
    story = wait(client, session, "ended")
    every = story["tracks"][0]["points"]
    later = client.get(session + "/story?after=2,1").json()["tracks"]
    assert later[0]["points"] == every[2:]
    assert (later[0]["first"], later[1]["first"]) == (2, 1)
    assert client.get(session + "/story?after=x,-1").json()["tracks"][0]["points"] == every


def test_an_upload_is_attacked_with_the_label_that_g_gives(client: TestClient) -> None:
    session = opened(client)
    client.post(session + "/image", content=picture(kind="jpeg"))
    start(client, session, sample=None, attack="pgd", defence="none")
    story = wait(client, session, "ended")
    clean = story["clean"]
    assert clean["f"] == clean["g"]
    assert story["label"] == int(np.argmax(clean["g"]))


def test_a_step_is_one_query_and_continue_goes_on(client: TestClient) -> None:
    session = opened(client)
    start(client, session, attack="pgd", defence="none", sample=0, paused=True)
    for count in (1, 2, 3):
        story = wait(client, session, "paused", points=count)
        assert story["tracks"][0]["frame"]["queries"] == story["tracks"][0]["sent"] == count
        client.post(session + "/step")
    wait(client, session, "paused", points=4)
    client.post(session + "/continue")
    assert len(wait(client, session, "ended")["tracks"][0]["points"]) > 4


@pytest.mark.parametrize("paused", [False, True])
def test_stop_ends_the_attack_and_another_may_begin(paused: bool, client: TestClient) -> None:
    session = opened(client)
    start(client, session, defence="none", queries=5000, radius=0.5, paused=paused)
    wait(client, session, *GOING, points=1)
    refused = client.post(session + "/start", json=asked())
    assert refused.status_code == 409
    client.post(session + "/stop")
    story = wait(client, session, "stopped")
    assert story["tracks"][0]["sent"] < 5000
    assert story["tracks"][0]["fooled"] is None
    assert client.get(session + "/share").status_code == 200
    start(client, session, attack="pgd", defence="none")
    wait(client, session, "ended")


def test_an_image_that_is_wrong_without_an_attack_is_not_attacked(client: TestClient, choices: Choices) -> None:
    net = Resources("cpu").model("compact:trades")
    with torch.no_grad():
        wrong = net(choices.images.images(range(32))).argmax(1) != choices.images.labels(range(32))
    session = opened(client)
    start(client, session, sample=int(wrong.nonzero()[0]), defence="none")
    story = wait(client, session, "ended")
    assert [len(track["points"]) for track in story["tracks"]] == [0, 0]
    assert client.get(session + "/share").status_code == 200


def test_sessions_are_bounded(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(client)
    others = [opened(client) for _ in range(MOST - 1)]
    for session in others:
        start(client, session, paused=True)
    newest = opened(client)  # the idle one makes room
    assert client.get(first + "/story").status_code == 404
    start(client, newest, paused=True)
    assert client.post("/api/sessions").status_code == 503
    monkeypatch.setattr(sessions, "ABANDONED", -1.0)  # now each counts as left by its visitor
    assert client.post("/api/sessions").status_code == 200
    assert [client.get(session + "/story").status_code for session in others] == [404, 200, 200]


# ---------------------------------------------------------------- share


def test_the_shared_file_needs_nothing_else(client: TestClient) -> None:
    session = opened(client)
    assert client.get(session + "/share").status_code == 409
    start(client, session, attack="pgd", defence="none", sample=3)
    story = wait(client, session, "ended")
    shared = client.get(session + "/share")
    assert "attachment" in shared.headers["content-disposition"]
    assert "<script" not in shared.text
    assert set(re.findall(r'src="([a-z]+:)', shared.text)) == {"data:"}
    assert "http://" not in shared.text
    assert shared.text.count("<img") == 1 + 2 * len(story["tracks"])
    assert shared.text.count("<polyline") == 2 * sum(len(t["points"]) > 1 for t in story["tracks"])
    assert all(track["sentence"] in shared.text for track in story["tracks"])


def test_names_in_the_shared_file_are_escaped() -> None:
    odd = "<script>alert(1)</script>\"'&"
    frame = Frame("data:,", "data:,", 1.0, 1.0, (0.4, 0.6), (0.4, 0.6))
    story = Story((odd, odd), odd)
    story.set("ended", odd)
    story.clean, story.label = frame, 0
    story.tracks.append(Track(odd, odd, [(n, 1.0 - n) for n in range(1, 5000)], frame, sentence=odd))
    text = share(story.json())
    assert "<script" not in text
    assert len(text) < 100_000


# ---------------------------------------------------------------- who may ask


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8001"},
        {"Host": "127.0.0.1.evil.example:8001"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:8001"},
        {"Origin": "http://127.0.0.1:9999"},
    ],
    ids=str,
)
def test_other_hosts_and_other_pages_are_refused(headers: dict[str, str], client: TestClient) -> None:
    for method, path in (("GET", "/"), ("GET", "/api/choices"), ("POST", "/api/sessions")):
        assert client.request(method, path, headers=headers).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8001", "localhost:8001"])
def test_the_page_itself_may_ask(host: str, client: TestClient) -> None:
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert client.post("/api/sessions", headers=headers).status_code == 200


@pytest.mark.parametrize("number", ["1000", "-1", "1.5", "9" * 5000, "\u0663"])
def test_a_sample_that_does_not_exist_gets_a_sentence(number: str, client: TestClient) -> None:
    answer = client.get(f"/api/samples/{number}")
    assert answer.status_code == 404
    assert "pick one" in answer.json()["error"]


def test_unknown_paths_and_sessions_get_a_sentence(client: TestClient) -> None:
    for path, status in (("/nothing", 404), ("/api/sessions/nobody/story", 404), ("/api/sessions", 405)):
        answer = client.get(path)
        assert answer.status_code == status
        assert list(answer.json()) == ["error"]
