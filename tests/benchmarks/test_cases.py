from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from benchmarks.cost.cases import CASES, losses


@pytest.mark.parametrize("key", CASES)
def test_a_case_gives_one_loss_per_sample(key: str) -> None:
    case = replace(CASES[key], batch=2)
    data = case.data(case.batch, torch.Generator().manual_seed(0))
    found = losses(case.build()(data.x), data.y)
    assert found.shape == (2,)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize(
    ("key", "parameters"),
    [
        ("a", 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10),
        ("b", 3072 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10),
        ("c", 9 * (4 * 32 + 32 * 64 + 64 * 64) + 160 + 4096 * 128 + 128 + 128 * 7 + 7),
    ],
)
def test_the_models_have_the_sizes_that_their_titles_say(key: str, parameters: int) -> None:
    assert sum(p.numel() for p in CASES[key].build().parameters()) == parameters


def test_a_sequence_has_the_mean_loss_of_its_positions() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 7, generator=generator)
    labels = torch.randint(7, (3, 5), generator=generator)
    expected = torch.stack([F.cross_entropy(logits[i], labels[i]) for i in range(3)])
    torch.testing.assert_close(losses(logits, labels), expected)


def test_the_transformer_does_not_look_ahead() -> None:
    case = CASES["e"]
    model = case.build()
    x, _ = case.data(1, torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[0, 100] = (changed[0, 100] + 1) % 128
    before, after = model(x), model(changed)
    torch.testing.assert_close(before[:, :100], after[:, :100])
    assert not torch.allclose(before[:, 100:], after[:, 100:])


def test_weights_come_from_the_seed_and_leave_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    one, same, other = (CASES["a"].build(seed)[0].weight for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)
