"""Ways to be silently wrong, each of which must be right or an error."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway import GMC, Cosine, Curiosity, DeltaLoss, Meter, NormAll, register_rule, unregister_rule
from headway.errors import (
    LayoutError,
    LossError,
    ModelError,
    RuleError,
    SignalError,
    StateError,
    VerificationError,
)

from ..models import batch, losses, mlp
from .zoo import AttentionByHand, AttentionPooling, conv_and_instance_norm

AMBIGUOUS = (VerificationError, LayoutError)


class Positions(nn.Module):
    """Adds a table of positions, looked up in a way that the subclass chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(12, 6), nn.Linear(6, 4)
        self.register_buffer("tokens", torch.randn(5, 6))
        self.encoder = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x + self.look(x))).flatten(1)


class Shifted(Positions):
    def look(self, x: Tensor) -> Tensor:
        return self.table(torch.arange(x.shape[1]) + 2)


class ClassIds(Positions):
    def look(self, x: Tensor) -> Tensor:
        return self.table(torch.tensor([3, 1, 4, 8, 5])[: x.shape[1]])


class BufferTokens(Positions):
    def look(self, x: Tensor) -> Tensor:
        return self.encoder(self.tokens)[: x.shape[1]]


class SequenceFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1)).tanh().transpose(0, 1).flatten(1)


@pytest.mark.parametrize("kind", [Shifted, ClassIds, BufferTokens, SequenceFirst])
def test_as_many_positions_as_samples_is_never_silently_wrong(kind: type[nn.Module]) -> None:
    model = kind()
    meter = Meter(model, NormAll())
    with pytest.raises(AMBIGUOUS, match="layout="):
        meter.backward(model(torch.randn(5, 5, 6)).square().sum(1))
    assert all(p.grad is None for p in model.parameters())


class OverFrames(nn.Module):
    """Applies a part to every frame of a sample."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        out = self.part(x.flatten(0, 1))
        return (out[0] if isinstance(out, tuple) else out).unflatten(0, (len(x), -1))


class Across(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x.sin(), x.cos())[0]


class Token(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.token = nn.Linear(4, 4), nn.Parameter(torch.randn(1, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.expand(len(x), -1, -1), self.layer(x)], dim=1).tanh()


class Unknown(nn.Linear):
    pass


FRAMED = {
    "convolution": lambda: nn.Sequential(nn.Conv1d(6, 4, 2), nn.GroupNorm(2, 4)),
    "batch norm": lambda: nn.BatchNorm1d(6).eval(),
    "recurrence": lambda: nn.GRU(4, 3, batch_first=True),
    "attention": Across,
    "parameter": Token,
    "module without a rule": lambda: Unknown(4, 3),
}


@pytest.mark.parametrize("kind", FRAMED)
def test_the_error_about_flattened_frames_says_what_helps(kind: str) -> None:
    torch.manual_seed(0)
    model, x = OverFrames(FRAMED[kind]()).double(), torch.randn(5, 3, 6, 4, dtype=torch.float64)
    single = [
        torch.autograd.grad(one.square().sum(), list(model.parameters()))
        for one in (model(x[i : i + 1]) for i in range(5))
    ]
    want = torch.stack([sum(grad.abs().sum() for grad in grads) for grads in single])
    layout: dict[str, str] = {}
    for _ in range(3):
        with Meter(model, NormAll(), layout=layout, check="never") as meter:  # with a check, most are found
            try:
                scores = meter.backward(model(x).flatten(1).square().sum(1))
            except LayoutError as error:
                advice = re.search(r"layout={'([^']*)': 'flat'}", str(error))
                assert advice is not None
                assert advice[1] not in layout
                layout[advice[1]] = "flat"
    assert layout
    torch.testing.assert_close(scores, want, rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", FRAMED)
def test_frames_that_do_not_share_out_over_the_samples_are_an_error(kind: str) -> None:
    model = OverFrames(FRAMED[kind]())
    meter = Meter(model, NormAll(), layout="flat")
    loss = model(torch.randn(5, 3, 6, 4)).flatten(1).square().sum(1)
    with pytest.raises(LayoutError, match="expected 4 samples"):
        meter.backward(loss[:4])


def test_it_is_noticed_in_a_later_batch_too() -> None:
    model = SequenceFirst()
    meter = Meter(model, NormAll())
    meter.backward(model(torch.randn(4, 5, 6)).square().sum(1))
    with pytest.raises(AMBIGUOUS, match="layout="):
        meter.backward(model(torch.randn(5, 5, 6)).square().sum(1))


def test_losses_that_couple_samples_are_an_error() -> None:
    model = mlp()
    meter = Meter(model, NormAll())
    z = F.normalize(model(batch()[0]), dim=1)
    with pytest.raises(VerificationError, match="depend on each other"):
        meter.backward(F.cross_entropy(z @ z.T, torch.arange(10), reduction="none"))


def test_what_appears_later_is_checked_too() -> None:
    model = mlp()
    meter = Meter(model, NormAll())
    meter.backward(losses(model, *batch()))
    model.train(False)
    penalty = model[0].weight.square().sum()
    with pytest.raises(VerificationError, match=r"0\.weight.* penalty on the parameters"):
        meter.backward(losses(model, *batch()) + penalty)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))


class Writes(nn.Module):
    """Writes a parameter into a tensor that the samples share, or the samples into one made of parameters."""

    def __init__(self, samples: bool) -> None:
        super().__init__()
        self.layer, self.table = nn.Linear(6, 6), nn.Parameter(torch.randn(4, 6))
        self.samples = samples

    def forward(self, x: Tensor) -> Tensor:
        if self.samples:
            mixed = self.table.expand(len(x), -1, -1).clone()
            mixed[:, 0] = self.layer(x)[:, 0]
            return mixed
        shared = x.new_zeros(4, 6)
        shared[1] = self.table[1]
        return self.layer(x) + shared


@pytest.mark.parametrize("samples", [True, False])
def test_assignments_that_cannot_be_followed_name_the_way_out(samples: bool) -> None:
    model = Writes(samples)
    meter = Meter(model, NormAll())
    with pytest.raises((RuleError, LayoutError), match=r"table in .*torch\.cat or torch\.where instead"):
        meter.backward(model(torch.randn(5, 4, 6)).square().sum((1, 2)))


def test_an_input_that_is_changed_in_place_is_named() -> None:
    class Shift(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.randn(6))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.shift

    class Changes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.shift = nn.Linear(6, 6), Shift()

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            shifted = self.shift(x)
            x += 1
            return x * shifted

    model = Changes()
    meter = Meter(model, NormAll())
    with pytest.raises(RuleError, match="shift: expected inputs that stay as they are"):
        meter.backward(losses(model, *batch()))


def slopes(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """A model's outputs and their squared slopes, one of each per sample."""
    x = x.clone().requires_grad_()
    outputs = model(x).flatten(1).square().sum(1)
    (gradient,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
    return outputs, gradient.flatten(1).square().sum(1)


SLOPING = {
    "one position": (Net, (5, 6)),
    "one layer": (lambda: nn.Linear(6, 4), (5, 6)),
    "several positions": (Net, (5, 3, 6)),
    "convolution": (lambda: nn.Sequential(nn.Conv1d(6, 4, 2), nn.Tanh()), (5, 6, 3)),
    "parameter": (Token, (5, 3, 4)),
}


@pytest.mark.parametrize("simultaneous", [True, False])
@pytest.mark.parametrize("kind", SLOPING)
def test_losses_with_gradients_in_them_are_refused(kind: str, simultaneous: bool) -> None:
    make, shape = SLOPING[kind]
    model = make()
    meter = Meter(model, NormAll(), simultaneous=simultaneous)
    outputs, penalties = slopes(model, torch.randn(shape))
    with pytest.raises(LossError, match="contain its gradients"):
        meter.backward(outputs + penalties)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("kind", SLOPING)
def test_a_penalty_on_gradients_can_have_a_pass_of_its_own(kind: str) -> None:
    make, shape = SLOPING[kind]
    model, x = make(), torch.randn(shape)
    outputs, penalties = slopes(model, x)
    want = torch.autograd.grad((outputs + penalties).mean(), list(model.parameters()))
    meter = Meter(model, NormAll(), simultaneous=False)
    outputs, penalties = slopes(model, x)
    meter.backward(outputs, retain_graph=True)
    penalties.mean().backward()
    for parameter, gradient in zip(model.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_gradient_that_was_summed_outside_of_autograd_is_not_differentiated() -> None:
    model = Net()
    with Meter(model, NormAll()), pytest.raises(RuleError, match="simultaneous=False"):
        slopes(model, torch.randn(5, 3, 6))[1].mean().backward()


def test_an_empty_mask_leaves_a_token_without_gradient() -> None:
    class Masked(Net):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(6))

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.a(x)
            hidden[x[:, 0] > 1e9] = self.token
            return self.b(hidden)

    model = Masked()
    scores = Meter(model, NormAll(where="token")).backward(losses(model, *batch()))
    assert torch.equal(scores, torch.zeros(10))


def test_a_replaced_parameter_stays_replaced_and_is_reported() -> None:
    model = Net()
    meter = Meter(model, GMC())
    meter.backward(losses(model, *batch()))
    new = model.b.weight = nn.Parameter(torch.zeros(4, 6))
    out = losses(model, *batch())
    assert model.b.weight is new
    with pytest.raises(ModelError, match=r"b\.weight"):
        meter.backward(out)


@pytest.mark.parametrize("make", [Net, lambda: nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4))])
@pytest.mark.parametrize("shape", [(5, 6), (5, 3, 6)])
def test_functional_call_uses_the_tensors_that_it_is_given(make, shape) -> None:
    model = make()
    other = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    x = torch.randn(shape)
    want = torch.func.functional_call(model, other, x)
    with Meter(model, GMC()):
        torch.testing.assert_close(torch.func.functional_call(model, other, x), want)


def test_a_second_meter_takes_over() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(12, 4))
    x, y = torch.randn(5, 2, 5), torch.randint(0, 4, (5,))
    first = Meter(model, GMC())
    with pytest.warns(UserWarning, match="another meter is attached"):
        second = Meter(model, GMC())
    loss = losses(model, x, y)
    with pytest.raises(ModelError, match="replaced by another meter"):
        first.backward(loss)
    second.backward(loss)
    got = model[0].weight.grad.clone()
    second.detach()
    model.zero_grad()
    losses(model, x, y).mean().backward()
    torch.testing.assert_close(got, model[0].weight.grad)


def test_an_interrupted_forward_leaves_the_model_whole() -> None:
    class Interrupted(Net):
        stop = False

        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            if self.stop:
                raise KeyboardInterrupt
            return out

    model = Interrupted()
    parameters = dict(model.named_parameters())
    meter = Meter(model, GMC())
    meter.backward(losses(model, *batch()))
    model.stop = True
    with pytest.raises(KeyboardInterrupt):
        model(batch()[0])
    model.stop = False
    meter.backward(losses(model, *batch()))
    meter.detach()
    assert all(p is parameters[name] for name, p in model.named_parameters())


def test_a_signal_without_gradients_takes_any_model() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    loss = losses(model, *batch())
    with Meter(model, Curiosity()) as meter:
        loss = losses(model, *batch())
        torch.testing.assert_close(meter.backward(loss), loss.detach())


def test_groups_out_of_range_are_refused_before_anything_happens() -> None:
    model = mlp()
    meter = Meter(model, DeltaLoss(groups=3), every=2)
    for groups in ([-1] * 10, [3] * 10):
        with pytest.raises(SignalError, match="from 0 to 2, got"):
            meter.backward(losses(model, *batch()), groups=torch.tensor(groups))
        assert model[0].weight.grad is None


def test_states_of_other_decays_are_not_mixed_up() -> None:
    signals = [GMC(beta=0.5, name="a"), GMC(beta=0.9, name="b")]
    model = mlp()
    meter = Meter(model, signals)
    meter.backward(losses(model, *batch()))
    other = mlp()
    swapped = Meter(other, signals[::-1])
    swapped.load_state_dict(meter.state_dict())
    for name in ("a", "b"):
        assert torch.equal(swapped.moments(name).m["0.weight"], meter.moments(name).m["0.weight"])
    with pytest.raises(StateError, match="decay"):
        Meter(mlp(), [GMC(beta=0.5, name="a"), GMC(beta=0.8, name="b")]).load_state_dict(meter.state_dict())


def test_no_state_in_the_middle_of_an_accumulation() -> None:
    model = mlp()
    meter = Meter(model, GMC(), accumulate=2)
    meter.backward(losses(model, *batch()))
    with pytest.raises(StateError, match="1 of 2"):
        meter.state_dict()


def test_moments_follow_a_model_that_is_moved() -> None:
    model = mlp()
    meter = Meter(model, GMC())
    meter.backward(losses(model, *batch()))
    model.zero_grad()
    model.double()
    scores = meter.backward(losses(model, *batch(dtype=torch.float64)))
    assert scores.dtype == torch.float64
    assert meter.moments().m["0.weight"].dtype == torch.float64


def test_bfloat16_losses_give_float32_scores() -> None:
    model = mlp(torch.bfloat16)
    assert Meter(model, Curiosity()).backward(losses(model, *batch(dtype=torch.bfloat16))).dtype == torch.float32


@pytest.mark.parametrize("kind", [Shifted, SequenceFirst])
def test_the_check_does_not_need_moments(kind: type[nn.Module]) -> None:
    """On the first batch GMC's own weights are zero; the check must see a difference all the same."""
    model = kind()
    meter = Meter(model, GMC())
    with pytest.raises(AMBIGUOUS, match="layout="):
        meter.backward(model(torch.randn(5, 5, 6)).square().sum(1))


class Prototypes(nn.Module):
    """Likeness of samples to learned prototypes; softmax takes away what all prototypes have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.prototypes = nn.Linear(6, 8), nn.Linear(5, 8)
        self.register_buffer("texts", torch.randn(9, 5))

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.encoder(x) @ self.prototypes(self.texts).T, dim=1)[:, :2]


ZERO = {
    "attention": (AttentionByHand, (6, 8), "key.bias"),
    "pooling": (AttentionPooling, (9, 8), "score.bias"),
    "instance norm": (conv_and_instance_norm, (3, 6, 6), "0.bias"),
    "prototypes": (Prototypes, (6,), "prototypes.bias"),
}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"simultaneous": False}, {"verify": True}], ids=str)
@pytest.mark.parametrize("samples", [4, 10, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ZERO)
def test_rounding_of_a_gradient_that_is_zero_is_no_alarm(kind: str, dtype: torch.dtype, samples: int, options) -> None:
    torch.manual_seed(0)
    make, shape, zero = ZERO[kind]
    model = make().to(dtype)
    meter = Meter(model, [GMC(), Cosine()], **options)
    for _ in range(2):
        model.zero_grad()
        meter.backward(model(torch.randn(samples, *shape, dtype=dtype)).flatten(1).square().sum(1))
    gradients = {name: float(p.grad.norm()) for name, p in model.named_parameters()}
    assert gradients[zero] < 1e-2 * max(gradients.values())


class Faint(nn.Module):
    """A parameter with a small part in the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        return x + 1e-2 * self.shift


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wrong", [lambda grads: grads.roll(2, 0), lambda grads: grads * 1.1], ids=["samples", "sum"])
def test_a_faint_gradient_that_is_wrong_is_found(wrong, dtype: torch.dtype, verify: bool) -> None:
    register_rule(Faint)(lambda module, inputs, grad_output: {"shift": wrong(1e-2 * grad_output)})
    try:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), Faint(), nn.Linear(6, 4)).to(dtype)
        with pytest.raises(VerificationError, match=r"1\.shift.*\(1\) the rule that was registered for Faint is wrong"):
            Meter(model, NormAll(), verify=verify).backward(losses(model, *batch(dtype=dtype)))
    finally:
        unregister_rule(Faint)


def test_samples_that_cancel_are_no_alarm() -> None:
    """Where the samples' gradients cancel in the batch's, its size says nothing about rounding."""
    torch.manual_seed(0)
    model = AttentionByHand()
    meter = Meter(model, GMC())
    half = torch.randn(5, 6, 8)
    loss = model(torch.cat([half, half])).flatten(1).square().sum(1)
    assert meter.backward(loss * torch.tensor([1.0, -1.0]).repeat_interleave(5)).shape == (10,)


def test_one_loss_per_position_is_explained() -> None:
    model = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 11))
    meter = Meter(model, GMC())
    ids = torch.randint(0, 11, (4, 7))
    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten(), reduction="none")
    with pytest.raises(LayoutError, match=r"losses\.view\(4, 7\)\.mean\(1\)"):
        meter.backward(loss)


def test_verification_says_something_on_the_first_batch() -> None:
    model = mlp()
    meter = Meter(model, GMC(), verify=True)
    meter.backward(losses(model, *batch()))
    assert meter.verification is not None
    assert meter.verification.parameter
