"""The benchmark of steady steps: a plain step and one with scores train alike, and both are timed."""

from __future__ import annotations

import torch

from benchmarks.cost.cases import Case, images, mlp
from benchmarks.steady import GOALS, measure, steps

TINY = Case("a", "tiny", 4, lambda: mlp(6, 5, 3), images(6, classes=3), 1.7, (4,))


def test_both_steps_train_alike() -> None:
    plain, scored = steps(TINY)
    data = TINY.data(4, torch.Generator().manual_seed(0))
    models = [step.__defaults__[0] for step in (plain, scored)]  # type: ignore[attr-defined]
    for step in (plain, scored):
        step(data)
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_measured_has_a_ratio_within_its_quartiles() -> None:
    found = measure(TINY, rounds=4)
    low, high = found["quartiles"]
    assert low <= found["ratio"] <= high
    assert set(GOALS) == {"a", "b", "c", "d", "e", "g"}
