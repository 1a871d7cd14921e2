"""Property-based tests: any shape agrees with the definition on materialised gradients."""

from __future__ import annotations

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from headway import Meter, NormAll
from headway.grads import passes
from headway.grads.compound import Stacked, join
from headway.grads.persample import Dense, Outer, PerSample, RankOne, Reduction, Rows
from headway.grads.scratch import Scratch

small = st.integers(1, 5)
FEW = settings(max_examples=40)


def reductions(shape: tuple[int, ...], generator: torch.Generator) -> list[Reduction]:
    weight = torch.rand(shape, generator=generator, dtype=torch.float64)
    return [
        Reduction("l1", weight),
        Reduction("l1"),
        Reduction("dot", weight - 0.5),
        Reduction("dot"),
        Reduction("sq"),
    ]


def check(form: PerSample, grads: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> None:
    """All reductions, together and apart, the total and the gradients themselves."""
    flat = grads.reshape(len(grads), -1)
    wanted = reductions(shape, generator)
    w = wanted[0].weight.flatten()
    expected = [
        (flat * w).abs().sum(1),
        flat.abs().sum(1),
        flat @ (w - 0.5),
        flat.sum(1),
        flat.square().sum(1),
    ]
    total = torch.zeros(flat.shape[1], dtype=torch.float64)
    for got, want in zip(form.reduce(wanted, Scratch(), total), expected, strict=True):
        torch.testing.assert_close(got, want)
    torch.testing.assert_close(total, flat.sum(0))
    for reduction, want in zip(wanted, expected, strict=True):
        torch.testing.assert_close(form.reduce([reduction], Scratch(), None)[0], want)
    torch.testing.assert_close(form.total(), flat.sum(0))
    torch.testing.assert_close(form.dense(), flat)


@FEW
@given(small, small, small, st.integers(0, 99))
def test_rank_one(c: int, d: int, p: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(c, n, generator=g, dtype=torch.float64) for n in (d, p))
    check(RankOne(a, b), torch.einsum("cp,cd->cpd", b, a), (p, d), g)


@FEW
@given(small, small, st.integers(1, 9), small, small, st.integers(0, 99))
def test_outer(c: int, groups: int, positions: int, d: int, p: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(c * groups, positions, n, generator=g, dtype=torch.float64) for n in (d, p))
    grads = torch.einsum("ntp,ntd->npd", b, a).view(c, groups * p, d)
    check(Outer(a, b, groups), grads, (groups * p, d), g)


@FEW
@given(small, st.integers(1, 8), small, small, st.integers(0, 99))
def test_rows(c: int, positions: int, d: int, rows: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, rows, (c, positions), generator=g)
    values = torch.randn(c, positions, d, generator=g, dtype=torch.float64)
    grads = torch.zeros(c, rows, d, dtype=torch.float64)
    for i in range(c):
        for t in range(positions):
            grads[i, ids[i, t]] += values[i, t]
    check(Rows(ids, values, rows), grads, (rows, d), g)


@FEW
@given(small, small, st.lists(small, min_size=1, max_size=3), st.integers(0, 99))
def test_stacked(c: int, d: int, rows: list[int], seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    pairs = [[torch.randn(c, n, generator=g, dtype=torch.float64) for n in (d, p)] for p in rows]
    grads = torch.cat([torch.einsum("cp,cd->cpd", b, a) for a, b in pairs], 1)
    check(Stacked([RankOne(a, b) for a, b in pairs], rows), grads, (sum(rows), d), g)


@FEW
@given(small, small, small, st.integers(0, 99))
def test_join_adds_before_abs(c: int, d: int, p: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    a, b, e, f = (torch.randn(c, n, generator=g, dtype=torch.float64) for n in (d, p, d, p))
    dense = torch.randn(c, p, d, generator=g, dtype=torch.float64)
    both = torch.einsum("cp,cd->cpd", b, a) + torch.einsum("cp,cd->cpd", f, e)
    check(join([RankOne(a, b), RankOne(e, f)]), both, (p, d), g)
    check(join([RankOne(a, b), Dense(dense)]), torch.einsum("cp,cd->cpd", b, a) + dense, (p, d), g)


def oracle(model: nn.Module, x: Tensor) -> Tensor:
    """L1 norm of every sample's gradient."""
    norms = []
    for row in x:
        model.zero_grad()
        model(row.unsqueeze(0)).square().sum().backward()
        norms.append(sum(p.grad.abs().sum() for p in model.parameters()))
    model.zero_grad()
    return torch.stack(norms)


@FEW
@given(
    st.integers(1, 4),
    st.integers(1, 2),
    st.tuples(small, small),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.booleans(),
)
def test_any_convolution(samples, groups, channels, kernel, stride, padding, dilation, transposed) -> None:
    torch.manual_seed(0)
    wide = [groups * n for n in channels]
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    model = kind(*wide, kernel, stride, padding, groups=groups, dilation=dilation).double()
    x = torch.randn(samples, wide[0], 6, 5, dtype=torch.float64)
    try:
        output = model(x)
    except RuntimeError:
        output = None  # this kernel does not fit this image
    assume(output is not None and output.numel() > 0)
    want = oracle(model, x)
    with Meter(model, NormAll()) as meter:
        got = meter.backward(model(x).square().flatten(1).sum(1))
    torch.testing.assert_close(got, want)


@FEW
@given(st.integers(1, 9), st.lists(small, max_size=3), small, small, st.integers(1, 64))
def test_any_linear_in_any_block(samples: int, positions: list[int], d: int, p: int, block: int) -> None:
    """Blocks of every size, down to one sample, give the same scores."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(d, p), nn.Tanh(), nn.Linear(p, d)).double()
    x = torch.randn(samples, *positions, d, dtype=torch.float64)
    want = oracle(model, x)
    before, passes.BLOCK = passes.BLOCK, block
    try:
        with Meter(model, NormAll(), layout="samples-first") as meter:
            got = meter.backward(model(x).square().reshape(samples, -1).sum(1))
    finally:
        passes.BLOCK = before
    torch.testing.assert_close(got, want)
