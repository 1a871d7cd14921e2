"""The form of experts' gradients, against the gradients themselves."""

from __future__ import annotations

import pytest
import torch

from headway.grads.persample import Reduction
from headway.grads.routed import Routed, Routing
from headway.grads.scratch import Scratch

EXPERTS, SAMPLES, D, P = 4, 5, 3, 2


def routed(rows: int) -> tuple[Routed, torch.Tensor]:
    """Tokens of five samples, six for each, at two experts of the first three; with the gradients [B, E, p, d]."""
    generator = torch.Generator().manual_seed(rows)
    tokens = SAMPLES * rows
    chosen = torch.rand(tokens, EXPERTS - 1, generator=generator).topk(2).indices
    chosen[:rows] = torch.tensor([0, 2])  # the first sample never sees the second expert
    experts, order = chosen.reshape(-1).sort(stable=True)
    a, b = (torch.randn(2 * tokens, width, generator=generator).double() for width in (D, P))
    dense = torch.zeros(SAMPLES, EXPERTS, P, D).double()
    for row, (expert, pair) in enumerate(zip(experts.tolist(), order.tolist(), strict=True)):
        dense[pair // 2 // rows, expert] += torch.outer(b[row], a[row])
    return Routed(a, b, Routing(experts, order // 2, tokens, EXPERTS)).folded(rows), dense


@pytest.mark.parametrize("rows", [1, 6])
def test_the_form_of_experts_reduces_as_their_gradients_do(rows: int) -> None:
    form, dense = routed(rows)
    weight = torch.rand(EXPERTS, P, D).double()
    assert torch.allclose(form.dense(), dense.flatten(1))
    expected = {
        "l1": (dense * weight).abs().flatten(1).sum(1),
        "dot": (dense * weight).flatten(1).sum(1),
        "sq": dense.square().flatten(1).sum(1),
        "plain": dense.abs().flatten(1).sum(1),
    }
    reductions = [Reduction("l1", weight), Reduction("dot", weight), Reduction("sq"), Reduction("l1")]
    for total in (None, torch.zeros(dense[0].numel()).double()):
        for found, wanted in zip(form.reduce(reductions, Scratch(), total), expected.values(), strict=True):
            assert torch.allclose(found, wanted)
        if total is not None:
            assert torch.allclose(total, dense.sum(0).flatten())
    shares = torch.rand(SAMPLES).double()
    assert torch.allclose(form.total(shares), torch.einsum("b,b...->...", shares, dense).flatten())
