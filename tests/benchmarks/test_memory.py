"""Bytes are counted exactly."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import record_function

from benchmarks.cost.memory import MARK, measure_memory, traced
from benchmarks.cost.results import CHUNK
from benchmarks.cost.steps import VARIANTS
from headway.grads.passes import BLOCK
from tests.benchmarks.tiny import CASES, MLP


def floats(count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.float32)


def test_every_allocation_and_release_is_listed() -> None:
    def work() -> list[torch.Tensor]:
        kept, gone = floats(1000), floats(500)
        with record_function(MARK):
            temporary = floats(3000)
            del gone
            kept = [kept, floats(2000)]
            del temporary
        return kept

    before, during = traced(work)
    assert before == [4000, 2000]
    assert during == [12000, -2000, 8000, -12000]


def test_releases_of_older_memory_are_not_counted() -> None:
    old = [floats(1000)]

    def work() -> None:
        with record_function(MARK):
            old.clear()
            floats(10)

    before, during = traced(work)
    assert (before, sum(during), max(during)) == ([], 0, 40)


@pytest.mark.parametrize("model", CASES)
def test_the_state_of_the_plain_step_is_the_parameters_and_two_moments(model: str) -> None:
    case = CASES[model]
    data = case.data(case.batch, torch.Generator().manual_seed(0))
    found = measure_memory(VARIANTS["plain"], case, data)
    parameters = list(case.build().parameters())
    size = 4 * sum(p.numel() for p in parameters)
    assert found.state == 3 * size + 4 * len(parameters)  # Adam counts the steps of each
    assert found.peak >= size  # the gradients


def test_headway_keeps_moments_and_weights() -> None:
    data = MLP.data(5, torch.Generator().manual_seed(0))
    size = 4 * sum(p.numel() for p in MLP.build().parameters())
    plain, own = (measure_memory(VARIANTS[key], MLP, data) for key in ("plain", "headway"))
    assert (own.variant, own.batch) == ("headway", 5)
    assert own.state - plain.state >= 3 * size


def test_a_chunk_is_what_the_engine_calls_a_block() -> None:
    assert CHUNK == 4 * BLOCK
