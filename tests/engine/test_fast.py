"""The fast engine gives the answers of the plain one, for any batch size and precision, and without memory."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException

import antiadv
from antiadv import Linf, defences, models
from antiadv.core.defence import base_of
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.losses import ce, dlr_to, negated
from antiadv.core.threat import Access
from antiadv.engine.cuda_graphs import LEAST_IMAGES, REPEATS_FOR_OWN_SIZE, static_size
from antiadv.engine.fast import Fast, engine
from antiadv.engine.half import Half
from antiadv.engine.meter import Meter, aside, bill
from antiadv.engine.optimise import channels_last, gains
from antiadv.engine.precision import HALF_DTYPES
from antiadv.engine.switches import switched
from antiadv.evaluation.resources import Resources
from antiadv.models.noise import GaussianNoise
from tests.engine.probes import Odd
from tests.toys import spec_for

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=cuda)]


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)
    return nn.Sequential(*layers).eval()


def images(count: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    dice = Draws.of(3, torch.arange(count))
    return dice.uniform(3, 8, 8).to(device), dice.fold(1).below(5).to(device)


def close(found: Any, asked: Any, device: str, plain: bool = False) -> None:
    """Bit for bit on a CPU without a copy of the network; else up to rounding. On a GPU kernels differ by batch."""
    found, asked = (t if isinstance(t, tuple) else (t,) for t in (found, asked))
    for f, a in zip(found, asked, strict=True):
        if device == "cpu" and plain:
            assert torch.equal(f, a)
        elif device == "cpu":
            torch.testing.assert_close(f, a, rtol=1e-5, atol=1e-6)
        else:
            torch.testing.assert_close(f, a, rtol=1e-3, atol=1e-5)
        assert f.dtype == a.dtype
        assert f.is_contiguous()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 7, 40])
@pytest.mark.parametrize("as_it_stands", [True, False])
def test_answers_are_those_of_the_plain_engine(net: nn.Module, device: str, count: int, as_it_stands: bool) -> None:
    net = net.to(device)
    x, y = images(count, device)
    t = (y + 1) % 5
    fast, plain, how = Fast(batch=16, plain=as_it_stands), Eager(batch=16), (device, as_it_stands)
    for _ in range(2):  # captured, then replayed
        close(fast.scores(net, x), plain.scores(net, x), *how)
        close(fast.gradient(net, x, ce, y), plain.gradient(net, x, ce, y), *how)
        close(fast.gradient(net, x, negated(dlr_to), y, t), plain.gradient(net, x, negated(dlr_to), y, t), *how)
        close(fast.jacobian(net, x), plain.jacobian(net, x), *how)


def defended(name: str, net: nn.Module, device: str) -> nn.Module:
    noisy = nn.Sequential(GaussianNoise(0.1), net).eval()
    return defences.wrap(spec_for(name, net), noisy if name == "self_ensemble" else net).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(defences.DEFENCES))
def test_every_defence_answers_alike(net: nn.Module, device: str, name: str) -> None:
    g = defended(name, net, device)
    x, y = images(21, device)
    draws = Draws.of(5, torch.arange(21, device=device)) if getattr(g, "randomised", False) else None
    fast, plain = Fast(batch=16), Eager(batch=16)
    for _ in range(2):
        close(fast.scores(g, x, draws=draws), plain.scores(g, x, draws=draws), device)
        close(fast.gradient(g, x, ce, y, draws=draws), plain.gradient(g, x, ce, y, draws=draws), device)


@cuda
@pytest.mark.parametrize("name", sorted(defences.DEFENCES))
def test_every_defence_is_captured(net: nn.Module, name: str) -> None:
    g = defended(name, net, "cuda")
    x, y = images(16, "cuda")
    draws = Draws.of(5, torch.arange(16, device="cuda")) if getattr(g, "randomised", False) else None
    fast = Fast(batch=16)
    fast.scores(g, x, draws=draws)
    fast.gradient(g, x, ce, y, draws=draws)
    assert all(graph is not None for graph in fast._graphs.by_model[g].values())


@pytest.mark.parametrize("device", DEVICES)
def test_passes_are_counted_as_the_module_sees_them(net: nn.Module, device: str) -> None:
    g = antiadv.AntiAdversary(net, steps=2).to(device)
    x, y = images(21, device)
    fast = Fast(batch=16)
    for _ in range(2):
        with Meter(net) as meter:
            fast.scores(g, x)
            assert (meter.forwards, meter.backwards) == (21 * 3, 21 * 2)
            fast.gradient(g, x, ce, y)
            assert (meter.forwards, meter.backwards) == (21 * 6, 21 * 5)


def test_passes_run_aside_are_returned_and_not_counted(net: nn.Module) -> None:
    x, _ = images(4)
    with Meter(net) as meter:
        with aside() as seen:
            net(x)
        assert meter.forwards == 0
        assert seen == {net: (4, 0)}
        bill(seen, images=10)
        assert meter.forwards == 40


class Hungry(nn.Module):
    """A network whose device has memory for a few images at a time."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.seen = most, list[int]()
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        if len(x) > self.most:
            raise torch.OutOfMemoryError("no more memory")
        return x.flatten(1)[:, :3]


def test_a_batch_that_does_not_fit_is_halved_and_the_request_goes_on() -> None:
    x, y = images(50)
    net, fast = Hungry(most=5), Fast(batch=32)
    assert torch.equal(fast.scores(net, x), x.flatten(1)[:, :3])
    assert net.seen == [32, 16, 8, *[4] * 12, 2]
    assert fast.batch == 4
    assert torch.equal(fast.gradient(net, x, ce, y % 3)[0], x.flatten(1)[:, :3])
    assert max(net.seen[16:]) == 4


def test_no_memory_for_one_image_is_a_bad_input() -> None:
    with pytest.raises(BadInput, match="memory"):
        Fast(batch=4).scores(Hungry(most=0), images(3)[0])


@cuda
def test_real_shortage_of_memory_is_survived() -> None:
    net = models.load("compact:trades").cuda()
    x = torch.rand(4096, 3, 32, 32, device="cuda")
    asked = Eager(batch=64).scores(net, x)
    _, total = torch.cuda.mem_get_info()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 300 * 2**20) / total)
    try:
        fast = Fast(batch=4096)
        torch.testing.assert_close(fast.scores(net, x), asked, rtol=1e-3, atol=1e-3)
        assert fast.batch < 4096
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


class Asking(nn.Module):
    """A network that needs the host in the middle, so that it cannot be captured."""

    def __init__(self) -> None:
        super().__init__()
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        s = x.flatten(1)[:, :3]
        return s * 2 if s.max().item() > 0.5 else s * 3


@pytest.mark.parametrize("device", DEVICES)
def test_a_network_that_cannot_be_captured_runs_as_it_stands(net: nn.Module, device: str) -> None:
    x, y = images(9, device)
    fast = Fast(batch=16)
    for _ in range(2):
        assert torch.equal(fast.scores(Asking(), x), Asking()(x))
    close(fast.gradient(net.to(device), x, ce, y), Eager().gradient(net.to(device), x, ce, y), device)


@pytest.mark.parametrize("device", DEVICES)
def test_mixed_searches_in_bfloat16_and_answers_in_float32(net: nn.Module, device: str) -> None:
    net = net.to(device)
    x, y = images(16, device)
    s, g = Fast(batch=16, precision="mixed").gradient(net, x, ce, y)
    exact, slope = Eager().gradient(net, x, ce, y)
    assert s.dtype == g.dtype == torch.float32
    assert not torch.equal(s, exact)
    torch.testing.assert_close(s, exact, rtol=0.05, atol=0.02)
    assert torch.nn.functional.cosine_similarity(g.flatten(1), slope.flatten(1)).min() > 0.95


class Steps(nn.Module):
    """A network whose last layer is known only by the order of its parts, with a head of the user's own class."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), Named(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
        return s


class Named(nn.Linear):
    """A linear layer by another name."""


@pytest.mark.parametrize(
    ("device", "precision"), [("cpu", "mixed"), *(pytest.param("cuda", p, marks=cuda) for p in ("mixed", "half"))]
)
def test_sixteen_bits_end_in_float32_so_that_scores_lie_on_no_steps(device: str, precision: str) -> None:
    torch.manual_seed(0)
    net, (x, y) = Steps().eval().to(device), images(64, device)
    with switched(precision, x.device), torch.no_grad():
        stepped = net(x).float()
    exact = net(x).detach()
    fast = Fast(batch=64, precision=precision)
    s, g = fast.gradient(net, x, ce, y)
    for found in (s, fast.scores(net, x)):
        assert not torch.equal(found, found.to(HALF_DTYPES[precision]).float())
        assert (found - exact).abs().mean() < 0.7 * (stepped - exact).abs().mean()
    assert (
        torch.nn.functional.cosine_similarity(g.flatten(1), Eager().gradient(net, x, ce, y)[1].flatten(1)).min() > 0.95
    )
    assert torch.equal(net(x), exact), "the network itself is left as it was"
    assert not {"forward"} & set(vars(net.head)) | set(net.norm._forward_hooks)
    headless = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval().to(device)
    assert Fast(precision=precision).scores(headless, x).shape == (64, 5)


class ByName(Steps):
    """It passes arguments to its parts by name."""

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.head(input=torch.relu(self.norm(input=self.conv(x))).mean((2, 3)))
        return s


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize(
    ("device", "precision"), [("cpu", "mixed"), *(pytest.param("cuda", p, marks=cuda) for p in ("mixed", "half"))]
)
def test_a_head_of_any_bits_is_asked_in_any_way(device: str, precision: str, short: bool) -> None:
    """A head with 16-bit weights is left alone: it could not multiply with float32."""
    torch.manual_seed(0)
    net, (x, _), dtype = (
        ByName().eval().to(device),
        images(8, device),
        HALF_DTYPES[precision] if short else torch.float32,
    )
    exact = net(x).detach()
    for z in (x, x.to(dtype)):
        found = Fast(batch=8, precision=precision).scores(net.to(dtype), z)
        assert found.dtype == z.dtype
        torch.testing.assert_close(found.float(), exact, rtol=0.05, atol=0.02)


@cuda
def test_half_is_as_fine_as_tf32(net: nn.Module) -> None:
    net = net.cuda()
    x, y = images(64, "cuda")
    for model in (net, antiadv.AntiAdversary(net, steps=2, step_size=0.01)):
        s, g = Fast(batch=64, precision="half").gradient(model, x, ce, y)
        exact, slope = Eager().gradient(model, x, ce, y)
        assert s.dtype == g.dtype == torch.float32
        torch.testing.assert_close(s, exact, rtol=0.01, atol=0.005)
        alike = torch.nn.functional.cosine_similarity(g.flatten(1), slope.flatten(1))
        assert (alike > 0.999).double().mean() > 0.9
        assert alike.min() > 0.95  # a unit at its kink, or a step of the layer, may go either way


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_in_float16_gradients_of_any_size_come_back(net: nn.Module, scale: float) -> None:
    """Without scaling, a confident sample would have zero gradients, and a steep loss infinite ones."""
    x, y = images(8)
    scales = torch.logspace(0, 3, 8) * scale  # every sample has its own

    def loss(s: Tensor, y: Tensor) -> Tensor:
        return scales * ce(s, y)

    inside = copy.deepcopy(net).half()
    half = Half(nn.Sequential(Cast(torch.float16), inside)).eval()
    s, g = Eager().gradient(half, x, loss, y)
    exact, slope = Eager().gradient(net, x, loss, y)
    assert s.dtype == g.dtype == torch.float32
    torch.testing.assert_close(s, exact, rtol=0.01, atol=0.005)
    largest = slope.flatten(1).abs().amax(1).view(-1, 1, 1, 1)
    torch.testing.assert_close(g / largest, slope / largest, rtol=0.02, atol=0.01)
    _, j = Eager().jacobian(half, x)  # several ways back through one pass
    torch.testing.assert_close(j, Eager().jacobian(net, x)[1], rtol=0.02, atol=0.01)


class Cast(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype)


class Kept:
    """A hook that stores on which object it was called: a copy of it would store for itself."""

    def __init__(self) -> None:
        self.seen = 0

    def count(self, module: nn.Module, args: object, out: Tensor) -> None:
        self.seen += len(out)


def test_a_copy_calls_the_hooks_of_the_network_itself_and_computes_the_same(net: nn.Module) -> None:
    x, _ = images(4)
    early, late = Kept(), Kept()
    net[0].register_forward_hook(early.count)  # type: ignore[index]
    with Meter(net) as meter:
        twin = channels_last(net)
        torch.testing.assert_close(twin(x), net(x))
        assert meter.forwards == 8
    with Meter(net) as meter:  # opened later
        net.register_forward_hook(late.count)
        twin(x)
        assert meter.forwards == 4
    assert (early.seen, late.seen) == (12, 4)
    weights = [p for p in twin.parameters() if p.ndim == 4]
    assert all(p.is_contiguous(memory_format=torch.channels_last) and not p.requires_grad for p in weights)
    assert all(p.requires_grad for p in net.parameters()), "the network itself is left as it was"
    net.lock = threading.Lock()  # type: ignore[assignment]
    assert channels_last(net) is net, "what cannot be copied serves as it stands"


def test_a_copy_is_asked_where_that_is_faster_and_the_judge_asks_the_network_itself(net: nn.Module) -> None:
    x, _ = images(8)
    fast = engine(torch.device("cpu"))
    g = antiadv.AntiAdversary(net, steps=1)
    for model in (net, g):
        fast.scores(model, x)
        twin = fast._copies.by_model[model]
        assert base_of(twin) is not net
        assert base_of(twin)[0].weight.is_contiguous(memory_format=torch.channels_last)  # type: ignore[index]
        assert fast.judge(model) is not fast
        close(fast.judge(model).scores(model, x), Eager().scores(model, x), "cpu", plain=True)
    assert base_of(fast._copies.by_model[g]) is fast._copies.by_model[net], "one for every defence in front"
    assert fast.judge(net) is fast.judge(g)
    assert fast.judge(net).judge(net) is fast.judge(net)
    for flat in (nn.Sequential(nn.Flatten(), nn.Linear(192, 5)).eval(), copy.deepcopy(net).double()):
        assert fast.judge(flat) is fast, "nothing is gained by a copy"
        exact = x.to(next(flat.parameters()).dtype)
        assert torch.equal(fast.scores(flat, exact), Eager().scores(flat, exact))
        assert fast._copies.by_model[flat] is flat
    assert gains(net, "float32")


class Viewing(nn.Module):
    """A network that depends on the layout of its activations: it fails with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 5)

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.head(self.conv(x).view(len(x), -1))
        return s


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_a_network_that_fails_with_channels_last_is_asked_itself(precision: str) -> None:
    torch.manual_seed(0)
    net, (x, y) = Viewing().eval(), images(7)
    with pytest.raises(RuntimeError, match="view"):
        channels_last(net)(x)
    fast = Fast(batch=4, precision=precision)
    with Meter(net) as meter:
        s, g = fast.gradient(net, x, ce, y)
    assert (meter.forwards, meter.backwards) == (7, 7), "what was tried is not billed"
    asked = Eager(batch=4).gradient(net, x, ce, y)
    rtol, atol = (0.0, 0.0) if precision == "float32" else (0.05, 0.02)
    torch.testing.assert_close((s, g), asked, rtol=rtol, atol=atol)


def test_a_copy_made_in_inference_mode_has_gradients_too(net: nn.Module) -> None:
    """The first request may be in inference mode; the layer and an attack need gradients of the same copy."""
    (x, y), fast = images(6), Fast(batch=8)
    g = antiadv.AntiAdversary(net, steps=2, step_size=0.01)
    with torch.inference_mode():
        fast.scores(net, x)
        found = fast.gradient(net, x, ce, y), fast.scores(g, x)
    assert fast._copies.by_model[g] is not g
    close(found[0], Eager().gradient(net, x, ce, y), "cpu")
    close(found[1], Eager().scores(g, x), "cpu")
    with torch.inference_mode():
        alone = Fast(batch=8)
        close(alone.scores(g, x), found[1], "cpu")
    assert alone._copies.by_model[g] is not g


def test_weights_that_change_between_two_attacks_are_seen(net: nn.Module) -> None:
    """Each call makes a new engine, so no copy of an older network is used."""
    x, _ = images(16)
    asked: list[Tensor] = []

    def attack(oracle: Any, x: Tensor, y: Tensor, ball: Any, draws: Draws) -> Tensor:
        asked.append(oracle.scores(x))
        return x

    for _ in range(2):
        antiadv.attack(net, x, net(x).argmax(1), Odd(attack), Linf(0.01), access=Access.SCORES)
        torch.testing.assert_close(asked[-1], net(x), rtol=1e-5, atol=1e-6)
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(-1.5)
    assert (asked[0] - asked[1]).abs().max() > 0.01


@cuda
@pytest.mark.parametrize("precision", ["float32", "tf32", "half", "mixed"])
def test_precision_holds_inside_and_is_left_as_it_was(precision: str) -> None:
    conv = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = conv.fp32_precision
    with switched(precision, torch.device("cuda")):
        assert conv.fp32_precision == ("ieee" if precision == "float32" else "tf32")
        assert torch.is_autocast_enabled("cuda") == (precision in ("half", "mixed"))
    assert conv.fp32_precision == before


def test_the_judge_decides_in_float32_and_the_receipt_says_how_far_they_agree(net: nn.Module) -> None:
    x, _ = images(32)
    y = net(x).argmax(1)
    plain = antiadv.attack(net, x, y, "square:steps=3", Linf(1e-6))
    mixed = antiadv.attack(net, x, y, "square:steps=3", Linf(1e-6), precision="mixed")
    assert [r.clean_confidence for r in mixed.records] == [r.clean_confidence for r in plain.records]
    assert plain.receipt.agreement == 1
    coarse = Fast(precision="mixed").scores(net, x).argmax(1)
    share = (coarse == y).double().mean().item()
    assert mixed.receipt.agreement == pytest.approx(share, abs=1 / 64)
    assert mixed.receipt.forwards == plain.receipt.forwards  # what agreement costs is not the defender's bill


@pytest.mark.parametrize("batch", [1, 15, 16, 100, 512])
def test_static_sizes_hold_what_they_must_and_waste_little(batch: int) -> None:
    for images in range(1, batch + 1):
        size = static_size(images, batch)
        assert images <= size <= batch
        assert size <= max(LEAST_IMAGES * 2, images * 1.3)
    assert len({static_size(n, batch) for n in range(1, batch + 1)}) <= 24


def test_requests_that_stay_at_one_size_lose_their_padding() -> None:
    """After that many in a row, of one kind. `forget` makes an engine choose sizes as a new one does."""

    def size(engine: Fast, kind: str, images: int) -> int:
        return engine._graphs.size((kind,), images, engine.batch)

    fast, often = Fast(batch=512), REPEATS_FOR_OWN_SIZE
    assert {size(fast, "scores", 289 + k % 16) for k in range(often)} == {320}
    assert {size(fast, "gradient", 300) for _ in range(often)} == {320}  # of another kind
    assert [size(fast, "scores", n) for n in (304, 290, 288, 304)] == [304, 304, 320, 320]
    assert [size(fast, "scores", 304) for _ in range(often)][-2:] == [320, 304]
    assert size(fast, "scores", 512) == 512
    assert [size(fast, "gradient", 300) for _ in range(2)] == [304, 304]
    fast.forget()
    assert size(fast, "gradient", 300) == 320

    service = Fast(batch=512, tuned=True)
    assert {size(service, "scores", 300) for _ in range(2 * often)} == {320}  # later requests find a graph

    resources = Resources("cpu")
    used = resources.engine(batch=512)
    assert [size(used, "scores", 300) for _ in range(often + 1)][-1] == 304
    assert resources.engine(batch=512) is used
    assert size(used, "scores", 300) == 320


def test_bad_precisions_are_named() -> None:
    with pytest.raises(BadSpec, match="float32, tf32, half, mixed"):
        engine(torch.device("cpu"), precision="fp8")
    for precision in ("tf32", "half"):
        with pytest.raises(BadInput, match=f"{precision}.*CUDA"):
            engine(torch.device("cpu"), precision=precision)
    with pytest.raises(BadInput, match="at least one image"):
        engine(torch.device("cpu"), batch=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler
@pytest.mark.parametrize("device", DEVICES)
def test_a_compiled_network_answers_alike_and_is_billed_alike(net: nn.Module, device: str) -> None:
    net = net.to(device)
    x, y = images(21, device)
    fast, plain = Fast(batch=16, compiled=True), Eager(batch=16)
    for model in (net, antiadv.AntiAdversary(net, steps=2)):
        for _ in range(2):
            with Meter(net) as meter:
                s, g = fast.gradient(model, x, ce, y)
                found = meter.forwards, meter.backwards
            with Meter(net) as meter:
                asked, slope = plain.gradient(model, x, ce, y)
            assert found == (meter.forwards, meter.backwards)
            torch.testing.assert_close(s, asked, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(g, slope, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(fast.scores(model, x), asked, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(fast.jacobian(model, x), plain.jacobian(model, x), rtol=1e-3, atol=1e-5)
    assert model.base is net, "the defence itself is left as it was"
    assert not fast.judge(net).compiled


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_receipt_says_whether_the_network_was_compiled(compiled: bool) -> None:
    net, x = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval(), torch.rand(4, 3, 2, 2)
    outcome = antiadv.attack(net, x, net(x).argmax(1), "pgd:steps=2", Linf(0.1), compiled=compiled)
    assert outcome.receipt.compiled is compiled


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler
def test_code_is_compiled_for_few_sizes_and_one_layout() -> None:
    """Torch stops compiling after eight variants of one function, and runs it uncompiled from then on."""
    from torch._dynamo import config
    from torch._dynamo.utils import counters
    from torch._functorch import config as functorch

    torch.compiler.reset()
    before = config.recompile_limit, functorch.donated_buffer
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5)).eval()
    fast, made = Fast(batch=64, compiled=True), counters["stats"]["unique_graphs"]
    for images in (20, 33, 64, 5, 9):
        x = torch.rand((images, 3, 8, 8), generator=torch.Generator().manual_seed(images))
        for z in (x, x.contiguous(memory_format=torch.channels_last)):
            close(fast.scores(net, z), Eager().scores(net, z), "cpu")
    assert 1 <= counters["stats"]["unique_graphs"] - made <= 2  # a convolution asks whether there are 16 images
    assert (config.recompile_limit, functorch.donated_buffer) == before, "put back after each request"


def test_what_cannot_be_compiled_runs_as_it_stands(net: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: object, **options: object) -> object:
        def fail(x: Tensor) -> Tensor:
            raise TorchDynamoException("no compiler here")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    x, _ = images(5)
    close(Fast(compiled=True).scores(net, x), Eager().scores(net, x), "cpu")
