"""The order of turns and the statistics, on a clock that the steps themselves move; bytes are counted exactly."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import record_function

from benchmarks.cost.cases import Data
from benchmarks.cost.measure import (
    MARK,
    Budget,
    Round,
    measure_memory,
    measure_times,
    rotated,
    settled,
    sitting_out,
    spread,
    summarise,
    traced,
)
from benchmarks.cost.results import CHUNK, Spread
from benchmarks.cost.variants import VARIANTS, Step
from headway.grads.passes import BLOCK
from tests.benchmarks.tiny import CASES, MLP


class Machine:
    """A clock and steps that take a given time each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[str] = []

    def clock(self) -> float:
        return self.now

    def step(self, name: str, seconds: float) -> Step:
        def step(data: Data) -> None:
            self.now += seconds
            self.turns.append(name)

        return step

    def measure(self, steps: dict[str, Step], budget: Budget) -> list[Round]:
        rounds: list[Round] = []
        measure_times(steps, lambda: Data(torch.zeros(1), torch.zeros(1)), budget, rounds, clock=self.clock)
        return rounds


def test_ratios_are_those_of_the_steps() -> None:
    machine = Machine()
    steps = {"plain": machine.step("plain", 1.0), "headway": machine.step("headway", 1.5)}
    timings = {t.variant: t for t in summarise(machine.measure(steps, Budget(rounds=4, seconds=1e9)))}
    assert timings["plain"].seconds == Spread(1.0, 1.0, 1.0)
    assert timings["headway"].ratio == Spread(1.5, 1.5, 1.5)
    assert timings["headway"].ratio_of_medians == 1.5
    assert timings["headway"].rounds == 4


def test_rounds_are_interleaved_and_rotated() -> None:
    machine = Machine()
    steps = {name: machine.step(name, 1.0) for name in ("plain", "x", "y")}
    machine.measure(steps, Budget(rounds=3, seconds=1e9, warmup=1))
    assert machine.turns[:3] == ["plain", "x", "y"]  # warm-up
    assert machine.turns[3:] == ["plain", "x", "y", "x", "y", "plain", "y", "plain", "x"]


def test_a_quick_step_runs_several_times_in_a_turn_after_one_that_does_not_count() -> None:
    machine = Machine()
    steps = {"plain": machine.step("plain", 0.125)}
    (only,) = machine.measure(steps, Budget(rounds=1, warmup=1, turn=0.5))
    assert only == {"plain": 0.125}
    assert len(machine.turns) == 1 + (1 + 4)


def test_a_slow_peer_sits_out_after_the_first_rounds() -> None:
    machine = Machine()
    steps = {"plain": machine.step("plain", 1.0), "x": machine.step("x", 10.0)}
    rounds = machine.measure(steps, Budget(rounds=21, seconds=1e9, least=3))
    assert [number for number, each in enumerate(rounds) if "x" in each] == [0, 1, 2, 10, 20]
    timings = {t.variant: t for t in summarise(rounds)}
    assert (timings["plain"].rounds, timings["x"].rounds) == (21, 5)
    assert timings["x"].ratio.median == 10.0


def test_no_round_begins_after_the_time_is_up_but_the_least_number_is_measured() -> None:
    machine = Machine()
    steps = {"plain": machine.step("plain", 1.0)}
    assert len(machine.measure(steps, Budget(seconds=5.5))) == 6
    assert len(machine.measure(steps, Budget(seconds=0.1, least=3))) == 3


def test_measuring_stops_when_the_ratios_are_known() -> None:
    machine = Machine()
    steps = {"plain": machine.step("plain", 1.0), "headway": machine.step("headway", 1.5)}
    assert len(machine.measure(steps, Budget(rounds=200, seconds=1e9))) == 20


def test_complete_rounds_survive_an_interruption() -> None:
    machine = Machine()
    rounds: list[Round] = []

    def watch(done: int, name: str) -> None:
        if (done, name) == (2, "x"):
            raise KeyboardInterrupt

    steps = {"plain": machine.step("plain", 1.0), "x": machine.step("x", 2.0)}
    with pytest.raises(KeyboardInterrupt):
        measure_times(steps, lambda: Data(torch.zeros(1), torch.zeros(1)), Budget(), rounds, watch, machine.clock)
    assert rounds == [{"plain": 1.0, "x": 2.0}] * 2


def test_the_period_grows_with_the_time_of_a_turn() -> None:
    assert sitting_out({"plain": 1.0, "headway": 1.5, "x": 2.0, "y": 13.0}) == {
        "plain": 1,
        "headway": 1,
        "x": 1,
        "y": 3,
    }


def test_rotation_keeps_the_cyclic_order() -> None:
    assert [rotated("abc", by) for by in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_settled_needs_rounds_and_a_small_spread() -> None:
    steady = [{"plain": 1.0, "headway": 1.5}] * 19
    noisy = [{"plain": 1.0, "headway": 1.0 + 0.1 * (i % 5)} for i in range(30)]
    assert not settled(steady, ["headway"], 0.005)
    assert settled([*steady, steady[0]], ["headway"], 0.005)
    assert not settled(noisy, ["headway"], 0.005)
    assert not settled([*steady, steady[0]], [], 0.005)


def test_the_spread_is_median_and_quartiles() -> None:
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(2.0, 3.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_nothing_measured_gives_no_timings() -> None:
    assert summarise([]) == ()


# Memory


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
