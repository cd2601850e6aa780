"""The layer: Algorithm 1, K+1 forward and K backward passes, no side effects."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import antiadv
from antiadv import AntiAdversary
from antiadv.core.errors import AntiadvError, BadInput
from antiadv.defences.resize_pad import ResizePad
from antiadv.defences.rounded_scores import RoundedScores
from antiadv.defences.small_noise import SmallNoise
from tests.toys import halfspace, small_net


def images(n: int = 5, channels: int = 3) -> Tensor:
    return torch.rand((n, channels, 8, 8), generator=torch.Generator().manual_seed(1))


def algorithm_1(f: nn.Module, x: Tensor, steps: int, alpha: float) -> Tensor:
    """A plain transcription of the paper's Algorithm 1."""
    gamma = torch.zeros_like(x)
    y = f(x).argmax(1)
    for _ in range(steps):
        gamma = gamma.detach().requires_grad_()
        loss = F.cross_entropy(f(x + gamma), y, reduction="sum")
        loss.backward()
        assert gamma.grad is not None
        gamma = gamma - alpha * gamma.grad.sign()
    s: Tensor = f(x + gamma)
    return s


class Passes:
    """Hooks that count the images a network passes, forward and backward."""

    def __init__(self, net: nn.Module) -> None:
        self.forwards = self.backwards = 0
        net.register_forward_hook(self._forward)

    def _forward(self, net: nn.Module, args: object, s: Tensor) -> None:
        self.forwards += 1
        if s.requires_grad:
            s.register_hook(self._backward)

    def _backward(self, g: Tensor) -> None:
        self.backwards += 1


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_equals_algorithm_1_bit_for_bit(steps: int) -> None:
    net, x = small_net(), images()
    expected = algorithm_1(copy.deepcopy(net), x, steps, 0.15)
    assert torch.equal(AntiAdversary(net, steps=steps, step_size=0.15)(x), expected)


def test_the_label_is_that_of_x_though_a_long_step_may_change_it() -> None:
    net, x = small_net(seed=2), images(64)
    expected = algorithm_1(copy.deepcopy(net), x, 3, 4.0)
    layer = AntiAdversary(net, steps=1, step_size=4.0)
    assert (layer(x).argmax(1) != net(x).argmax(1)).any(), "else this would tell nothing"
    assert torch.equal(AntiAdversary(net, steps=3, step_size=4.0)(x), expected)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_margin_of_a_linear_model_rises_by_exactly_the_closed_form(steps: int) -> None:
    toy = halfspace(p=2, shape=(2, 4, 4))
    w = toy.model.w.double()
    before = toy.model(toy.x.double())
    after = AntiAdversary(toy.model, steps=steps, step_size=0.07)(toy.x.double())
    rise = (after[:, 0] - after[:, 1]).abs() - (before[:, 0] - before[:, 1]).abs()
    torch.testing.assert_close(rise, torch.full_like(rise, steps * 0.07 * w.abs().sum().item()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_spends_k_plus_1_forwards_and_k_backwards(steps: int) -> None:
    net = small_net()
    passes = Passes(net)
    with torch.no_grad():
        AntiAdversary(net, steps=steps)(images())
    assert (passes.forwards, passes.backwards) == (steps + 1, steps)


def test_zero_steps_is_the_base_bit_for_bit() -> None:
    net, x = small_net(), images()
    layer = AntiAdversary(net, steps=0)
    assert torch.equal(layer(x), net(x))
    assert torch.equal(layer.correction(x), torch.zeros_like(x))


def test_one_step_size_per_channel_equals_the_normalised_step_of_the_authors() -> None:
    net, x, std, mean = small_net(), images(), torch.tensor([0.2, 0.25, 0.3]), torch.tensor([0.4, 0.5, 0.6])

    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            s: Tensor = self.net((x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1))
            return s

    ours = AntiAdversary(Normalised(), step_size=tuple((0.1 * std).tolist()))(x)
    theirs = algorithm_1(net, (x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1), 2, 0.1)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_clip_keeps_the_corrected_image_in_the_box() -> None:
    net = small_net()
    seen: list[Tensor] = []
    net.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    AntiAdversary(net, steps=3, step_size=0.4, clip=True)(images())
    assert all(z.min() >= 0 and z.max() <= 1 for z in seen)
    seen.clear()
    AntiAdversary(net, steps=3, step_size=0.4)(images())
    assert any(z.min() < 0 or z.max() > 1 for z in seen)


def test_clip_holds_at_every_step() -> None:
    """A pixel held at 0 or 1 leaves it with the first step back."""
    net, x = small_net(), images()
    z, y = x, net(x).argmax(1)
    for _ in range(4):
        z = z.detach().requires_grad_()
        (g,) = torch.autograd.grad(F.cross_entropy(net(z), y, reduction="sum"), z)
        z = (z - 0.4 * g.sign()).clamp(0, 1)
    torch.testing.assert_close(AntiAdversary(net, steps=4, step_size=0.4, clip=True)(x), net(z))


def test_a_step_size_that_is_changed_is_used_and_checked() -> None:
    net, x = small_net(), images()
    layer = AntiAdversary(net, step_size=(0.1, 0.2, 0.3))
    layer.step_size = 0.05
    assert torch.equal(layer(x), AntiAdversary(net, step_size=0.05)(x))
    layer.step_size = (0.3, 0.2, 0.1)
    assert torch.equal(layer(x), AntiAdversary(net, step_size=(0.3, 0.2, 0.1))(x))
    with pytest.raises(BadInput, match=r"step size.*-1"):
        layer.step_size = -1.0


def test_the_derivative_is_that_of_the_base_at_the_corrected_image() -> None:
    net = small_net()
    layer = AntiAdversary(net)
    x = images().requires_grad_()
    (ours,) = torch.autograd.grad(layer(x)[:, 3].sum(), x)
    z = (x + layer.correction(x)).detach().requires_grad_()
    (theirs,) = torch.autograd.grad(net(z)[:, 3].sum(), z)
    assert torch.equal(ours, theirs)
    assert ours.abs().sum() > 0


def test_every_context_gives_the_same_scores() -> None:
    layer, x = AntiAdversary(small_net()), images()
    plain = layer(x)
    with torch.no_grad():
        assert torch.equal(layer(x), plain)
    with torch.inference_mode():
        assert torch.equal(layer(x), plain)
        assert torch.equal(layer(x.clone()), plain)  # an inference tensor


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-5), (torch.bfloat16, 0.2)])
def test_other_precisions(dtype: torch.dtype, near: float) -> None:
    x = images()
    plain = AntiAdversary(small_net())(x)
    other = AntiAdversary(small_net().to(dtype))(x.to(dtype))
    assert other.dtype == dtype
    torch.testing.assert_close(other.float(), plain, rtol=near, atol=near)


def sure(gap: float) -> nn.Module:
    """Two classes whose scores differ by `gap` at the corner (1, 0, 1, 0, 1, 0)."""
    net = nn.Linear(6, 2, bias=False).eval()
    net.load_state_dict({"weight": gap / 6 * torch.tensor([[1.0, -1, 1, -1, 1, -1], [-1.0, 1, -1, 1, -1, 1]])})
    return net


@pytest.mark.parametrize("gap", [1.0, 30.0, 200.0])
@pytest.mark.parametrize("how", ["half", "autocast", "compiled"])
def test_float16_moves_the_images_that_it_is_sure_of(gap: float, how: str) -> None:
    net, x = sure(gap), torch.tensor([[1.0, 0, 1, 0, 1, 0], [0.0, 1, 0, 1, 0, 1]])
    way = torch.tensor([1.0, -1, 1, -1, 1, -1])
    layer = AntiAdversary(net if how == "autocast" else net.half(), steps=2, step_size=0.125)
    found = torch.compile(layer.correction, backend="aot_eager") if how == "compiled" else layer.correction
    with torch.autocast("cpu", torch.float16, enabled=how == "autocast"):
        gamma = found(x if how == "autocast" else x.half())
    assert torch.equal(gamma.float(), 0.25 * torch.stack([way, -way]))


def test_float16_takes_the_steps_of_float32() -> None:
    x = images(64)
    near = AntiAdversary(small_net().half(), steps=1).correction(x.half()).sign()
    exact = AntiAdversary(small_net(), steps=1).correction(x).sign()
    assert (near == exact).float().mean() > 0.98


def test_autocast() -> None:
    layer, x = AntiAdversary(small_net()), images()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        s = layer(x)
    torch.testing.assert_close(s.float(), layer(x), rtol=0.2, atol=0.2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_cuda_agrees_with_cpu() -> None:
    layer, x = AntiAdversary(small_net(), step_size=(0.1, 0.15, 0.2)), images()
    there = copy.deepcopy(layer).cuda()
    torch.testing.assert_close(there(x.cuda()).cpu(), layer(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_any_number_of_images(n: int) -> None:
    assert AntiAdversary(small_net(classes=4))(images(n)).shape == (n, 4)


@pytest.mark.parametrize("shape", [(6,), (1, 6), (2, 3, 5)])
def test_any_shape_of_sample(shape: tuple[int, ...]) -> None:
    size = int(torch.tensor(shape).prod())
    net = nn.Sequential(nn.Flatten(), nn.Linear(size, 3)).eval()
    assert AntiAdversary(net)(torch.rand(4, *shape)).shape == (4, 3)


def test_a_sample_does_not_depend_on_its_neighbours() -> None:
    toy = halfspace(p=2, n=8)
    layer = AntiAdversary(toy.model)
    together = layer(toy.x)
    alone = torch.cat([layer(x[None]) for x in toy.x])
    assert torch.equal(together, alone)
    # a sample with a large gradient must not change those of its neighbours
    far = torch.cat([toy.x[:1], toy.x[:1] * 0 + 0.5])
    assert torch.equal(layer(far)[:1], together[:1])


def test_many_neighbours_do_not_wash_out_what_a_sure_network_says() -> None:
    """Its gradients are the smallest numbers of float32: their mean over a batch would be zero."""
    x = torch.tensor([[1.0, 0, 1, 0, 1, 0]]).expand(500, -1)
    layer = AntiAdversary(sure(100.0), steps=1, step_size=0.125)
    alone, together = layer.correction(x[:1]), layer.correction(x)
    assert alone.abs().min() == 0.125
    assert torch.equal(together, alone.expand_as(together))


def test_leaves_everything_untouched() -> None:
    net = small_net()
    layer, x = AntiAdversary(net), images().requires_grad_()
    before, state = x.detach().clone(), copy.deepcopy(net.state_dict())
    torch.manual_seed(3)
    rng = torch.random.get_rng_state()
    layer(x)
    assert torch.equal(x, before)
    assert x.grad is None
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert all(torch.equal(a, b) for a, b in zip(state.values(), net.state_dict().values(), strict=True))
    assert not any(m.training for m in layer.modules())
    assert torch.equal(torch.random.get_rng_state(), rng)


@pytest.mark.parametrize("clip", [False, True])
def test_a_base_that_writes_into_its_images_has_its_own(clip: bool) -> None:
    """Otherwise the layer and its caller would continue with the changed images."""

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.training = small_net(), False

        def forward(self, x: Tensor) -> Tensor:
            s: Tensor = self.net(x + 0)
            x.detach().zero_()
            return s

    x = images()
    before = x.clone()
    assert torch.equal(AntiAdversary(Writes(), steps=3, clip=clip)(x), AntiAdversary(small_net(), 3, clip=clip)(x))
    assert torch.equal(x, before)


def test_pickles_copies_saves_loads_and_moves() -> None:
    x = images()
    layer = AntiAdversary(small_net(), steps=1, step_size=(0.1, 0.2, 0.3), clip=True)
    plain = layer(x)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), plain)
    assert torch.equal(copy.deepcopy(layer)(x), plain)
    other = AntiAdversary(small_net(seed=9), steps=1, step_size=(0.1, 0.2, 0.3), clip=True)
    assert not torch.equal(other(x), plain)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), plain)
    moved = copy.deepcopy(layer).to(torch.float64)
    torch.testing.assert_close(moved(x.double()).float(), plain, rtol=1e-4, atol=1e-4)
    layer.to("meta")
    assert layer._per_channel is not None
    assert layer._per_channel.device.type == "meta"


@pytest.mark.parametrize("frozen", [True, False])
def test_torch_compile_traces_the_layer_whole(frozen: bool) -> None:
    layer, x = AntiAdversary(small_net().requires_grad_(not frozen)), images()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: AntiAdversary(small_net().train()), "training mode"),
        (lambda: AntiAdversary(small_net()).train()(images()), "training mode"),
        (lambda: AntiAdversary(nn.Sequential(nn.Flatten(), nn.Linear(192, 1)).eval())(images()), "single column"),
        (lambda: AntiAdversary(nn.Conv2d(3, 2, 3).eval())(images()), "scores [N, K]"),
        (lambda: AntiAdversary(small_net())((images() * 255).to(torch.uint8)), "Divide bytes by 255"),
        (lambda: AntiAdversary(small_net(), steps=-1), "steps ≥ 0"),
        (lambda: AntiAdversary(small_net(), step_size=float("nan")), "step size"),
        (lambda: AntiAdversary(small_net(), step_size=(0.1, 0.2))(images()), "3 channels"),
        (lambda: AntiAdversary(lambda x: x), "torch.nn.Module"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_says_what_was_found_and_what_to_do(make: object, says: str) -> None:
    with pytest.raises(BadInput, match=says.replace("[", r"\[").replace("]", r"\]")):
        make()  # type: ignore[operator]


class InPlace(nn.Module):
    """Normalises its images in place."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.net(x.sub_(0.1))
        return s


@pytest.mark.parametrize(
    "make",
    [
        lambda net: AntiAdversary(net, steps=0),
        lambda net: AntiAdversary(net, steps=0, clip=True),
        RoundedScores,
        lambda net: SmallNoise(net, std=0),
    ],
    ids=["steps=0", "clipped", "rounded", "no noise"],
)
def test_a_base_that_works_in_place_does_not_change_the_images(make: Callable[[nn.Module], nn.Module]) -> None:
    x = images()
    given = x.clone()
    with torch.no_grad():
        s = make(InPlace())(given)
        assert torch.equal(s.argmax(1), InPlace()(x.clone()).argmax(1))
    assert torch.equal(given, x)


@pytest.mark.parametrize("size", [1e39, 10**400, float("inf"), float("nan"), -0.1, True, "0.1", (0.1, 1e39), ()])
def test_a_step_size_that_overflows_or_is_no_number_is_refused(size: object) -> None:
    with pytest.raises(BadInput):
        AntiAdversary(small_net(), step_size=size)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"clip": "no"}, {"clip": 1}, {"clip": None}, {"steps": True}])
def test_a_flag_is_true_or_false_and_a_count_is_a_number(options: dict[str, Any]) -> None:
    with pytest.raises(AntiadvError):
        AntiAdversary(small_net(), **options)


class Answers(nn.Module):
    """A small network whose scores are changed before they leave."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.change = small_net(), change
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.net(x))


ODD_ANSWERS: dict[str, Callable[[Tensor], Tensor]] = {
    "scalar": Tensor.sum,
    "complex": lambda s: torch.complex(s, s),
    "sparse": Tensor.to_sparse,
    "meta": lambda s: s.to("meta"),
    "nested": lambda s: torch.nested.as_nested_tensor(list(s)),
    "bool": lambda s: s > 0,
    "float8": lambda s: s.to(torch.float8_e4m3fn),
}
LAYERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "steps=0": lambda net: AntiAdversary(net, steps=0),
    "steps=2": AntiAdversary,
    "small_noise": SmallNoise,
    "resize_pad": ResizePad,
    "rounded_scores": RoundedScores,
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("answer", ODD_ANSWERS)
def test_an_answer_that_is_no_plain_tensor_of_scores_is_refused(answer: str) -> None:
    net, x = Answers(ODD_ANSWERS[answer]), images()
    for make in LAYERS.values():
        with pytest.raises(BadInput):
            make(net)(x)
    for attack in ("pgd:steps=2", "square:steps=2"):
        with pytest.raises(BadInput):
            antiadv.attack(net, x, torch.zeros(len(x), dtype=torch.int64), attack, antiadv.Linf(0.1))


ODD_IMAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "nested": lambda x: torch.nested.as_nested_tensor(list(x)),
    "sparse": Tensor.to_sparse,
    "complex": lambda x: torch.complex(x, x),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", ODD_IMAGES)
def test_images_in_no_plain_tensor_of_floats_are_refused(kind: str) -> None:
    x, net = ODD_IMAGES[kind](images()), small_net()
    for make in LAYERS.values():
        with pytest.raises(BadInput):
            make(net)(x)
    with pytest.raises(BadInput):
        antiadv.attack(net, x, torch.zeros(5, dtype=torch.int64), "pgd:steps=2", antiadv.Linf(0.1))


@pytest.mark.filterwarnings("ignore")
def test_torchscript_serves_behind_the_layer_and_is_attacked_from_a_module() -> None:
    """Passes are counted by hooks, which a scripted module does not accept."""
    net, x = small_net(), images()
    y = net(x).argmax(1)
    scripted = torch.jit.script(net)
    for base in (scripted, torch.jit.freeze(scripted)):
        torch.testing.assert_close(AntiAdversary(base)(x), AntiAdversary(net)(x))
        with pytest.raises(BadInput, match="TorchScript"):
            antiadv.attack(base, x, y, "square:steps=2", antiadv.Linf(0.1))
    inside = nn.Sequential(scripted).eval()
    outcome = antiadv.attack(inside, x, y, "square:steps=9", antiadv.Linf(0.1))
    assert outcome.robust_accuracy == antiadv.attack(net, x, y, "square:steps=9", antiadv.Linf(0.1)).robust_accuracy
