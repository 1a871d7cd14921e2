"""The Triton kernel against autograd on single samples, in Triton's interpreter.

`test_triton.py` runs this file in a process of its own, since Triton reads TRITON_INTERPRET when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import headway
from headway import GMC, Meter, NormAll
from headway.grads import passes
from headway.grads.persample import Reduction
from headway.grads.triton_kernels import TritonKernels
from tests.grads.oracle import is_exact, without
from tests.grads.test_segments import LENGTHS, Graph, Packed, packed

SIZES = [(2, 3, 5, 7), (3, 65, 64, 129), (1, 16, 130, 65), (5, 33, 17, 1)]
"""Samples, positions, inputs and outputs; most are no multiple of a tile's sides."""


@pytest.fixture(autouse=True)
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kinds of reductions that the kernel was launched for."""
    kinds: list[str] = []
    launch = TritonKernels._launch

    def counted(self: TritonKernels, a: Tensor, b: Tensor, reduction: Reduction, trains: bool) -> object:
        kinds.append(reduction.kind)
        return launch(self, a, b, reduction, trains)

    monkeypatch.setattr(TritonKernels, "_launch", counted)
    yield kinds
    assert kinds, "the kernel was not used"


def gradients(a: Tensor, b: Tensor) -> Tensor:
    """The gradient of each sample by autograd, in float64: [c, p, d]."""
    found = []
    for inputs, at_outputs in zip(a, b, strict=True):
        weight = torch.zeros(b.shape[2], a.shape[2], dtype=torch.float64, requires_grad=True)
        F.linear(inputs.double(), weight).backward(at_outputs.double())
        found.append(weight.grad)
    return torch.stack(found)


@pytest.mark.parametrize("processors", [1, 7, 500])
@pytest.mark.parametrize(("samples", "positions", "d", "p"), SIZES)
@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
        (torch.float32, torch.bfloat16),
    ],
)
def test_every_reduction_and_the_sum_are_those_of_autograd(
    samples: int, positions: int, d: int, p: int, of_a: torch.dtype, of_b: torch.dtype, processors: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(samples, d, positions, generator=generator).transpose(1, 2)  # strides of its own
    a = a.to(of_b).to(of_a)  # nothing is left to round: the interpreter does not round float32 to nearest, devices do
    b = torch.randn(samples, positions, p, generator=generator).to(of_b)
    weight = torch.rand(p, d, generator=generator)
    wanted = [Reduction("l1", weight), Reduction("dot", weight), Reduction("sq"), Reduction("l1")]
    values, total = TritonKernels(processors).reduce(a, b, wanted, trains=True)
    grads = gradients(a, b)
    size = grads.abs()
    due = [(size * weight).sum((1, 2)), (grads * weight).sum((1, 2)), grads.square().sum((1, 2)), size.sum((1, 2))]
    for got, expected, scale in zip(values, due, (due[0], due[0], due[2], due[3]), strict=True):
        assert (got - expected).abs().max() <= 1e-6 * scale.max()
    assert total is not None
    assert (total.view(p, d) - grads.sum(0)).abs().max() <= 2e-6 * size.sum(0).max()


def of_sequences(model: nn.Module) -> Callable[[], Tensor]:
    tokens = torch.randint(0, 11, (3, 6), generator=torch.Generator().manual_seed(1))
    return lambda: F.cross_entropy(model(tokens).transpose(1, 2), tokens, reduction="none").mean(1)


def chain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 20), nn.GELU(), nn.Linear(20, 11))


def coupling(meter: Meter, losses: Callable[[], Tensor]) -> Tensor:
    """GMC by its formula, from the gradients that autograd gives for one loss at a time."""
    named = dict(meter.model.named_parameters())
    moments = {name: meter.moments().corrected(name) for name in named}
    with meter._engine.paused():
        found = [torch.autograd.grad(loss, list(named.values()), retain_graph=True) for loss in losses()]
    scores = [
        sum((g * m / v.clamp(min=1e-8)).abs().sum() for g, (m, v) in zip(one, moments.values(), strict=True))
        for one in found
    ]
    return torch.stack(scores) / sum(p.numel() for p in named.values()) ** 0.5  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [1, passes.BLOCK])
def test_a_metered_model_trains_and_scores_as_autograd_says(
    block: int, launches: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "BLOCK", block)  # the kernel needs no buffer: it always sees all samples
    model = chain()
    losses = of_sequences(model)
    meter = Meter(model, GMC(beta=0.9), kernels="triton", check="never")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        due = coupling(meter, losses) if step else torch.zeros(3)
        with meter._engine.paused():
            plain = torch.autograd.grad(losses().mean(), list(model.parameters()))
        launches.clear()
        scores = meter.backward(losses())
        assert launches == ["l1", "l1"]  # once for each Linear
        assert torch.allclose(scores, due, rtol=1e-5, atol=1e-7)
        for parameter, grad in zip(model.parameters(), plain, strict=True):
            assert parameter.grad is not None
            assert torch.allclose(parameter.grad, grad, rtol=1e-5, atol=1e-7)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("cast", [False, True], ids=["bf16", "autocast"])
def test_low_precision_passes_the_check_of_every_batch(cast: bool) -> None:
    model = chain() if cast else chain().bfloat16()
    losses = of_sequences(model)
    meter = Meter(model, NormAll(), kernels="triton", check="always")
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            due = without(meter, losses)
            scores = meter.backward(losses())
        assert is_exact(scores, due.to(scores), 2e-2)
        model.zero_grad()


def test_convolutions_use_the_kernel_and_groups_do_not() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 6, 3, groups=2), nn.Flatten())
    x = torch.randn(3, 2, 6, 6)
    meter = Meter(model, NormAll(), kernels="triton", check="always")

    def losses() -> Tensor:
        return model(x).square().mean(1)

    due = without(meter, losses)
    assert is_exact(meter.backward(losses()), due, 1e-5)


def test_float64_is_reduced_without_the_kernel(launches: list[str]) -> None:
    model = chain().double()
    losses = of_sequences(model)
    meter = Meter(model, NormAll(), kernels="triton")
    due = without(meter, losses)
    assert is_exact(meter.backward(losses()), due, 1e-12)
    assert not launches
    launches.append("none, as expected")


def test_packed_sequences() -> None:
    torch.manual_seed(0)
    model = Packed()
    tokens, places, ids = packed()
    meter = Meter(model, NormAll(), kernels="triton", check="always")

    def losses() -> Tensor:
        with (own := headway.segments(position_ids=places)):
            out = model(tokens, places, ids)
        return own.mean(F.cross_entropy(out[0], tokens[0], reduction="none"))

    due = without(meter, losses)
    assert is_exact(meter.backward(losses()), due, 1e-5)


def test_graphs() -> None:
    torch.manual_seed(0)
    model = Graph()
    ids = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    x, edges = torch.randn(len(ids), 5), torch.arange(len(ids)).repeat(2, 1)
    meter = Meter(model, NormAll(), kernels="triton", check="always")

    def losses() -> Tensor:
        with (own := headway.segments(ids)):
            return model(x, edges, own).square().sum(1)

    due = without(meter, losses)
    assert is_exact(meter.backward(losses()), due, 1e-5)
