"""A classifier behind an address, with a real server in this process: answers, access, counts, repeats, bad answers."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import antiadv
from antiadv import models
from antiadv.core.errors import AccessDenied, AntiadvError, BadInput, BadSpec, EndpointFailed, Interrupted
from antiadv.core.threat import Access
from antiadv.models.connection import LARGEST, is_this_machine
from antiadv.models.remote import Remote
from tests.models.endpoint import LENGTH, Endpoint, Raw
from tests.toys import halfspace

TOY = halfspace(math.inf)
BALL = antiadv.Linf(0.12)
QUICK: dict[str, Any] = {"backoff": 0.001, "timeout": 20.0}


@pytest.fixture
def server() -> Iterator[Endpoint]:
    with Endpoint(TOY.model) as made:
        yield made


def refuse(*numbers: int, status: int = 503) -> Callable[[int], Raw | None]:
    return lambda number: Raw(status, b'{"error": "busy"}') if number in numbers else None


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("images", ["binary", "lists"])
def test_scores_are_those_of_the_network_behind(binary: bool, images: Any) -> None:
    with Endpoint(TOY.model, binary=binary) as server:
        net = Remote(server.url, images=images, batch=4)
        assert torch.equal(net(TOY.x), TOY.model(TOY.x))
        assert (net.sent, server.rows, server.posts) == (6, 6, 2)
        assert net(TOY.x[:0]).shape == (0, 2)
        assert net(TOY.x.double()).dtype == torch.float64


def test_probabilities_become_their_logarithms() -> None:
    with Endpoint(TOY.model, "probabilities") as server:
        want = TOY.model(TOY.x).log_softmax(1)
        outputs: list[Any] = ["auto", "probabilities"]
        for output in outputs:
            s = Remote(server.url, output=output)(TOY.x)
            torch.testing.assert_close(s, want, rtol=1e-4, atol=1e-4)
        net = Remote(server.url)
        net(TOY.x)
        server.trouble = lambda number: server.v2(np.full((6, 4), 0.255, np.float32), "scores")
        with pytest.raises(EndpointFailed):  # 1.02 is no sum of probabilities, in an answer after others that were
            net(TOY.x)


def test_labels_alone_are_for_attacks_on_labels() -> None:
    with Endpoint(TOY.model, "labels") as server:
        net = Remote(server.url, output="labels", classes=4)
        assert net.grants == Access.LABELS
        assert net(TOY.x).argmax(1).tolist() == TOY.y.tolist()
        with pytest.raises(AccessDenied):
            antiadv.attack(net, TOY.x, TOY.y, "square", BALL, queries=5)
        before = server.rows
        outcome = antiadv.attack(net, TOY.x, TOY.y, "rays", BALL, queries=200)
        assert outcome.robust_accuracy == 0
        assert server.rows - before == sum(r.queries for r in outcome.records) + outcome.judge_queries == outcome.sent
        with pytest.raises(EndpointFailed, match="output=labels"):
            Remote(server.url, output_name="labels")(TOY.x)
    with pytest.raises(BadInput, match="classes"):
        Remote(server.url, output="labels")


@pytest.mark.parametrize("images", ["lists", "png"])
def test_another_json_api(images: Any, server: Endpoint) -> None:
    url = server.url.replace("/v2/models/net", "/predict")
    net = Remote(url, api="json", images=images, answer="predictions.*.p", batch=4)
    x = (TOY.x * 255).round() / 255
    torch.testing.assert_close(net(x), TOY.model(x))
    assert server.posts == 2


def test_a_json_api_of_single_images() -> None:
    class One(Endpoint):
        def read(self, handler: Any, body: bytes) -> Any:
            image = json.loads(body)["data"]["image"]
            return torch.tensor(image)[None], lambda s: Raw(body=json.dumps({"out": s[0].tolist()}).encode())

    with One(TOY.model) as server:
        net = Remote(server.url, api="json", request="data.image", answer="out", single=True)
        assert torch.equal(net(TOY.x), TOY.model(TOY.x))
        assert server.posts == len(TOY.x)


# ---------------------------------------------------------------- attacks


def test_an_attack_finds_what_it_finds_on_the_network_itself(server: Endpoint) -> None:
    near = antiadv.attack(TOY.model, TOY.x, TOY.y, "square", BALL, queries=100)
    far = antiadv.attack(Remote(server.url, batch=2), TOY.x, TOY.y, "square", BALL, queries=100)
    assert far.records == near.records
    assert torch.equal(far.images, near.images)
    assert (near.sent, far.sent) == (None, server.rows)
    assert far.sent == sum(r.queries for r in far.records) + far.judge_queries


@pytest.mark.parametrize("attack", ["pgd", "transfer", "apgd"])
def test_attacks_with_gradients_are_refused_before_anything_is_sent(attack: str, server: Endpoint) -> None:
    with pytest.raises(AccessDenied):
        antiadv.attack(Remote(server.url), TOY.x, TOY.y, attack, BALL)
    assert server.received == 0
    net = antiadv.AntiAdversary(Remote(server.url))
    with pytest.raises(BadInput, match="gradient"):
        net(TOY.x)


@pytest.mark.parametrize("how", [{"precision": "mixed"}, {"compiled": True}])
def test_an_endpoint_is_asked_in_float32_as_it_is(how: dict[str, Any], server: Endpoint) -> None:
    with pytest.raises(BadInput, match="float32"):
        antiadv.attack(Remote(server.url), TOY.x, TOY.y, "square", BALL, queries=5, **how)
    assert server.received == 0


def test_connections_are_used_at_once_and_no_more(server: Endpoint) -> None:
    together = threading.Barrier(3, timeout=300)

    def when_three_have_come(number: int) -> None:
        together.wait()

    server.trouble = when_three_have_come
    net = Remote(server.url, batch=2, connections=3)
    assert torch.equal(net(TOY.x), TOY.model(TOY.x))
    assert server.most_busy == 3
    server.trouble = lambda number: None
    server.most_busy = 0
    assert torch.equal(Remote(server.url, batch=1, connections=1)(TOY.x), TOY.model(TOY.x))
    assert server.most_busy == 1


def test_the_rate_is_kept(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that only sleeping moves, six requests at two a second take two and a half seconds."""
    now = [100.0]
    monkeypatch.setattr("antiadv.models.connection.time.monotonic", lambda: now[0])
    monkeypatch.setattr("antiadv.models.connection.time.sleep", lambda s: now.__setitem__(0, now[0] + s))
    net = Remote(server.url, input="images", output_name="scores", rate=2, batch=1, connections=1)
    net(TOY.x)
    assert now[0] - 100 == pytest.approx(2.5)


# ---------------------------------------------------------------- repeats


@pytest.mark.parametrize("trouble", [Raw(503), Raw(429, headers={"Retry-After": "0"}), Raw(drop=True), Raw(cut=5)])
def test_a_request_is_repeated_and_every_sent_row_is_counted(trouble: Raw, server: Endpoint) -> None:
    server.trouble = lambda number: trouble if number in (0, 1) else None
    net = Remote(server.url, **QUICK)
    assert torch.equal(net(TOY.x), TOY.model(TOY.x))
    assert (net.sent, server.received, server.rows) == (18, 18, 6)


def test_repeats_are_charged_to_their_samples(server: Endpoint) -> None:
    plain = antiadv.attack(Remote(server.url), TOY.x, TOY.y, "square", antiadv.Linf(0.01), queries=20)
    assert {r.queries for r in plain.records} == {20}
    server.rows = server.received = server.posts = 0
    server.trouble = refuse(3, 9)
    net = Remote(server.url, connections=1, **QUICK)
    outcome = antiadv.attack(net, TOY.x, TOY.y, "square", antiadv.Linf(0.01), queries=20)
    assert {r.queries for r in outcome.records} == {20}, "two of them were repeats"
    assert server.received == outcome.sent == 6 * 20 + outcome.judge_queries
    assert server.rows == 6 * 18 + outcome.judge_queries
    server.posts = 0
    free = antiadv.attack(
        Remote(server.url, charge="answered", connections=1, **QUICK),
        TOY.x, TOY.y, "square", antiadv.Linf(0.01), queries=20,
    )  # fmt: skip
    assert free.records == plain.records, "the server refused them, so they cost nothing"
    assert free.sent == 6 * 22 + free.judge_queries


@pytest.mark.parametrize("attack", ["square", "rays", "hop_skip_jump", "nes", "simba", "bandits", "boundary"])
def test_no_sample_sends_more_than_its_budget_whatever_fails(attack: str, server: Endpoint) -> None:
    server.trouble = lambda number: Raw(503) if number % 7 == 6 else None
    net = Remote(server.url, batch=3, connections=2, retries=3, **QUICK)
    ball = antiadv.L2(0.1) if attack in ("simba", "boundary") else antiadv.Linf(0.01)
    budget = 25
    try:
        outcome = antiadv.attack(net, TOY.x, TOY.y, attack, ball, queries=budget)
        judged = outcome.judge_queries
    except Interrupted:  # a sample had no query left for a repeat
        judged = 4 * len(TOY.x)  # before and after, and again for the rescue
    repeats_of_the_judge = 3 * judged
    assert server.received <= budget * len(TOY.x) + judged + repeats_of_the_judge


def test_a_sample_without_a_query_left_is_not_sent_again(server: Endpoint) -> None:
    server.trouble = lambda number: Raw(503) if number == 4 else None  # clean images, then three of square's queries
    net = Remote(server.url, connections=1, **QUICK)
    with pytest.raises(Interrupted, match="charge=answered"):
        antiadv.attack(net, TOY.x, TOY.y, "square", antiadv.Linf(0.01), queries=4)
    judged = 3 * len(TOY.x)  # the clean images, and the rescue's two looks
    assert server.received == 4 * len(TOY.x) + judged


# ---------------------------------------------------------------- bad answers


def v2(head: object, raw: bytes = b"", **more: Any) -> Raw:
    said = json.dumps(head).encode()
    headers = {"Content-Type": "application/octet-stream", LENGTH: str(len(said))}
    return Raw(body=said + raw, headers=headers | more)


def tensor(shape: list[int], kind: str = "FP32", size: int | None = None, name: str = "scores") -> dict[str, Any]:
    size = 4 * math.prod(shape) if size is None else size
    return {"outputs": [{"name": name, "shape": shape, "datatype": kind, "parameters": {"binary_data_size": size}}]}


BAD = {
    "shape": v2(tensor([6, 4, 1]), bytes(96)),
    "rows": v2(tensor([5, 4]), bytes(80)),
    "one class": v2(tensor([6, 1]), bytes(24)),
    "nan": v2(tensor([6, 4]), np.full(24, np.nan, "<f4").tobytes()),
    "infinity": v2(tensor([6, 4]), np.full(24, np.inf, "<f4").tobytes()),
    "truncated": v2(tensor([6, 4]), bytes(50)),
    "negative size": v2(tensor([6, 4], size=-4), bytes(96)),
    "type": v2(tensor([6, 4], "BYTES"), bytes(96)),
    "name": v2(tensor([6, 4], name="other"), bytes(96)),
    "huge shape": v2(tensor([6, 2**62]), bytes(96)),
    "no outputs": v2({"outputs": 3}),
    "no JSON": Raw(body=b"{", headers={"Content-Type": "application/json"}),
    "deep JSON": Raw(body=b"[" * 200_000, headers={"Content-Type": "application/json"}),
    "texts": v2({"outputs": [{"name": "scores", "shape": [2], "datatype": "FP32", "data": ["a", "b"]}]}),
    "html": Raw(body=b"<html>", headers={"Content-Type": "text/html"}),
    "length": Raw(body=b"{}", headers={"Content-Type": "application/octet-stream", LENGTH: "99"}),
    "redirect": Raw(302, headers={"Location": "http://192.0.2.1/"}),
    "400": Raw(400, b'{"error": "no"}'),
    "401": Raw(401),
    "403": Raw(403),
    "404": Raw(404),
    "500": Raw(500, b"\x1b[31m" + b"x" * 10_000),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_answer_is_one_sentence_and_is_not_asked_again(name: str, server: Endpoint) -> None:
    net = Remote(server.url, **QUICK)
    server.trouble = lambda number: BAD[name]
    with pytest.raises(EndpointFailed) as caught:
        net(TOY.x)
    said = str(caught.value)
    assert len(said) < 600
    assert "\n" not in said
    assert "\x1b" not in said
    assert server.posts == 1


def test_a_body_without_end_is_not_read(server: Endpoint) -> None:
    net = Remote(server.url, **QUICK)
    server.trouble = lambda number: Raw(body=bytes(LARGEST + 1), headers={"Content-Type": "application/octet-stream"})
    with pytest.raises(EndpointFailed, match="bytes"):
        net(TOY.x)


def test_nothing_found_is_lost_when_the_endpoint_fails_in_the_middle(server: Endpoint) -> None:
    whole = antiadv.attack(Remote(server.url), TOY.x, TOY.y, "square", BALL, queries=100)
    ends = sorted(r.queries for r in whole.records)
    assert ends[0] < ends[-1]
    server.posts = 0
    server.trouble = lambda number: BAD["nan"] if number == 1 + ends[0] else None  # after the clean images
    with pytest.raises(Interrupted) as caught:
        antiadv.attack(Remote(server.url, connections=1), TOY.x, TOY.y, "square", BALL, queries=100)
    kept = caught.value.outcome
    assert kept is not None
    assert [r.sample for r in kept.records] == [r.sample for r in whole.records if r.queries <= ends[0]]
    assert isinstance(caught.value.__cause__, EndpointFailed)


def test_a_server_that_is_gone_is_one_sentence() -> None:
    with Endpoint(TOY.model) as server:
        net = Remote(server.url, retries=2, **QUICK)
    net._line.close()
    for _ in range(2):
        with pytest.raises(EndpointFailed, match="without an answer"):
            net(TOY.x)
    assert net.sent == 0, "nothing arrived"
    with pytest.raises(EndpointFailed):
        Remote(server.url, retries=0)


# ---------------------------------------------------------------- addresses and names


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/v2/models/net",
        "https://10.0.0.1/x",
        "http://127.0.0.1.example.org/x",
        "http://[2001:db8::1]/",
    ],
)
def test_another_machine_needs_its_owners_permission(url: str) -> None:
    with pytest.raises(BadInput, match="authorised"):
        Remote(url, api="json")
    assert Remote(url, api="json", authorised=True).url == url.rstrip("/"), "nothing is sent before it is asked"
    with pytest.raises(BadInput, match="authorised"):
        models.load(f"{url},api=json")
    models.load(f"{url},api=json,authorised=true")


STRANGE = ("127.0.0.1:80", "ftp://127.0.0.1/", "http://", "http://a b/", "http://127.0.0.1:99999/")


@pytest.mark.parametrize("url", [*STRANGE, "http://u:p@127.0.0.1/", "http://127.0.0.1/#x"])
def test_a_strange_address_is_refused(url: str) -> None:
    with pytest.raises(AntiadvError):
        Remote(url, api="json")


def test_only_loopback_is_this_machine() -> None:
    assert is_this_machine("127.8.9.1")
    assert not is_this_machine("0.0.0.0")
    assert not is_this_machine("localhost.example.org")


def test_an_address_is_the_name_of_a_model(server: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    text = f"{server.url},rate=1000,connections=2,key_env=MY_KEY,charge=answered"
    net = models.load(text)
    assert isinstance(net, Remote)
    assert torch.equal(net(TOY.x), TOY.model(TOY.x))
    assert server.keys == ["Bearer secret"]
    short = models.canonical(text)
    assert short == f"{server.url},charge=answered"
    assert models.canonical(short) == short
    assert models.canonical("http:(//127.0.0.1/a?b=c),rate=2") == "http:(//127.0.0.1/a?b=c)"
    assert models.is_elsewhere("http://example.org/x")
    assert not models.is_elsewhere(text)
    assert not models.is_elsewhere("compact:trades")
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(BadInput, match="MY_KEY"):
        models.load(text)
    with pytest.raises(BadSpec, match="speed"):
        models.load(f"{server.url},speed=3")


@pytest.mark.parametrize(
    ("name", "value"),
    [("batch", 0), ("connections", 0), ("rate", 0.0), ("timeout", -1.0), ("retries", -1), ("classes", 1)],
)
def test_bad_options_are_refused(name: str, value: float) -> None:
    how: dict[str, Any] = {name: value}
    with pytest.raises(AntiadvError):
        Remote("http://127.0.0.1:1/", api="json", **how)


def test_a_server_of_another_protocol_is_refused_when_it_is_loaded(server: Endpoint) -> None:
    with pytest.raises(EndpointFailed, match="404"):
        Remote(server.url + "x")
    assert isinstance(Remote(server.url + "x", input="a", output_name="b"), nn.Module)
