"""The states of sources, by hand."""

from __future__ import annotations

import math
import random

import pytest

from headway.errors import SignalError
from headway.telemetry.states import Reading, State, Thresholds, has_stalled, name_states

FALLING = [2.0, 1.9, 1.8, 1.7, 1.6, 1.5]
FLAT = [2.0, 1.9, 2.1, 2.0, 1.9, 2.1]


def states(thresholds: Thresholds | None = None, **readings: Reading) -> dict[str, str]:
    return {name: str(state) for name, state in name_states(readings, thresholds or Thresholds()).items()}


def test_small_gradients_are_saturated() -> None:
    found = states(
        learned=Reading(norm=20, coupling=1, peak=100),
        large=Reading(norm=90, coupling=1, peak=100),
        always_small=Reading(norm=7, coupling=1, peak=7),  # beside a mean of 29.25
        gone=Reading(norm=0, coupling=0, peak=0),
    )
    assert found == {"learned": "saturated", "large": "learning", "always_small": "saturated", "gone": "saturated"}


def test_large_gradients_that_do_not_couple_are_incoherent() -> None:
    found = states(
        one=Reading(norm=100, coupling=1.0, peak=100),
        two=Reading(norm=100, coupling=0.8, peak=100),
        noise=Reading(norm=100, coupling=0.4, peak=100),  # beside a mean of 0.9
        learned=Reading(norm=1, coupling=50.0, peak=100),  # saturated, so it does not count
    )
    assert found == {"one": "learning", "two": "learning", "noise": "incoherent", "learned": "saturated"}


def test_large_gradients_under_which_the_loss_does_not_fall_are_incoherent() -> None:
    found = states(
        progress=Reading(100, 1.0, 100, FALLING),
        noise=Reading(100, 1.0, 100, FLAT),
        young=Reading(100, 1.0, 100, FLAT[:5]),
        learned=Reading(10, 1.0, 100, FLAT, highest_loss=5.0),
    )
    assert found == {"progress": "learning", "noise": "incoherent", "young": "learning", "learned": "saturated"}


def test_small_gradients_beside_louder_sources_say_nothing_where_the_loss_is_known() -> None:
    twenty = [2.0 - 0.01 * row for row in range(20)]
    found = states(
        quiet=Reading(5, 1.0, 5, twenty, highest_loss=2.0),
        noise=Reading(100, 1.0, 100, FLAT, highest_loss=2.2),
    )
    assert found == {"quiet": "learning", "noise": "incoherent"}
    assert states(quiet=Reading(5, 1.0, 5), noise=Reading(100, 1.0, 100))["quiet"] == "saturated"


def test_gradients_that_became_small_without_the_loss_coming_down_are_not_saturated() -> None:
    found = states(
        noise=Reading(10, 1.0, 100, FLAT, highest_loss=2.4),  # a mean of 2, down by a sixth
        slow=Reading(10, 1.0, 100, FALLING, highest_loss=2.1),
        tail=Reading(10, 1.0, 100, FALLING, highest_loss=5.0),  # learned, and falls on by less and less
    )
    assert found == {"noise": "incoherent", "slow": "learning", "tail": "saturated"}


def test_sources_that_diverged_are_named_and_do_not_judge_others() -> None:
    found = states(
        lost=Reading(1000, 90.0, 1000, FALLING, is_finite=False),
        one=Reading(10, 1.0, 10),
        two=Reading(10, 0.9, 10),
    )
    assert found == {"lost": "diverged", "one": "learning", "two": "learning"}


def test_the_loss_is_a_better_witness_than_the_coupling() -> None:
    found = states(
        progress=Reading(100, 0.1, 100, FALLING),
        noise=Reading(100, 1.0, 100, FLAT),
        young=Reading(100, 0.1, 100, FALLING[:5]),  # beside a mean of 0.55
    )
    assert found == {"progress": "learning", "noise": "incoherent", "young": "incoherent"}


def test_one_source_and_none() -> None:
    assert states() == {}
    assert states(only=Reading(5, 0.1, 5)) == {"only": "learning"}


def test_a_loss_that_came_down_and_stays_is_learned() -> None:
    found = states(
        learned=Reading(100, 1.0, 100, FLAT, highest_loss=2.6),
        noise=Reading(100, 1.0, 100, FLAT, highest_loss=2.4),  # a mean of 2, down by a sixth
        falling=Reading(100, 1.0, 100, FALLING, highest_loss=5.0),
    )
    assert found == {"learned": "saturated", "noise": "incoherent", "falling": "learning"}


def test_negative_losses_that_stay_are_not_learned() -> None:
    """Flat around -1.5, 0 and -0.01: losses of densities have no zero to measure a share from."""
    below = [loss - 3.5 for loss in FLAT]
    around = [loss - 2.0 for loss in FLAT]
    found = states(
        below=Reading(100, 1.0, 100, below, highest_loss=-1.4),  # a mean of -1.5, down by 0.1 of 1.4
        around=Reading(100, 1.0, 100, around, highest_loss=0.1),  # down by 0.1, and they scatter by 0.2
        near=Reading(100, 1.0, 100, [loss - 0.01 for loss in around], highest_loss=0.09),
        small=Reading(10, 1.0, 100, below, highest_loss=-1.4),
    )
    assert set(found.values()) == {"incoherent"}


def test_negative_losses_that_came_down_and_stay_are_learned() -> None:
    below = [loss - 3.5 for loss in FLAT]  # a mean of -1.5
    found = states(
        from_above=Reading(100, 1.0, 100, below, highest_loss=0.5),
        from_zero=Reading(100, 1.0, 100, below, highest_loss=0.0),
        from_below=Reading(100, 1.0, 100, below, highest_loss=-1.2),  # down by 0.3, a quarter of 1.2
        by_less=Reading(100, 1.0, 100, below, highest_loss=-1.26),  # down by 0.24, less than a fifth
        falling=Reading(100, 1.0, 100, [loss - 3.0 for loss in FALLING], highest_loss=-1.0),  # the mean is -1.25
        tail=Reading(10, 1.0, 100, [loss - 3.0 for loss in FALLING], highest_loss=0.5),
    )
    learned = {name for name, state in found.items() if state == "saturated"}
    assert learned == {"from_above", "from_zero", "from_below", "tail"}
    assert (found["by_less"], found["falling"]) == ("incoherent", "learning")


def test_the_trend_by_hand() -> None:
    """In 3, 1, 2, 2, 0, 1 the later is lower in 10 pairs, higher in 3: S = 7, and 7 / sqrt(6 * 5 * 17 / 18) = 1.315."""
    losses = [3.0, 1.0, 2.0, 2.0, 0.0, 1.0]
    assert has_stalled(losses, Thresholds(errors=1.32))
    assert not has_stalled(losses, Thresholds(errors=1.31))
    assert not has_stalled(losses[:5], Thresholds(errors=9))  # five rows say nothing
    assert has_stalled([9.0] * 20 + FLAT, Thresholds(rows=6))  # older rows do not count
    assert not has_stalled([math.nan, *FALLING], Thresholds())
    assert has_stalled([1.0] * 6, Thresholds())


def test_the_trend_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = random.Random(0)
    for n in (6, 9, 20):
        losses = [generator.gauss(-0.05 * i, 0.2) for i in range(n)]
        tau = stats.kendalltau(range(n), losses).statistic  # S = -tau n (n - 1) / 2 without ties
        z = -tau * n * (n - 1) / 2 / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
        assert has_stalled(losses, Thresholds(errors=z + 1e-9))
        assert not has_stalled(losses, Thresholds(errors=max(0.0, z - 1e-9)))


@pytest.mark.parametrize(
    "arguments", [{"saturated": 1.5}, {"incoherent": -1.0}, {"rows": 5}, {"errors": -0.5}, {"learned": 2}]
)
def test_what_makes_no_sense_is_refused(arguments) -> None:
    with pytest.raises(SignalError, match=str(next(iter(arguments.values())))):
        Thresholds(**arguments)


def test_states_are_words() -> None:
    assert State.LEARNING == "learning"
    assert f"{State.INCOHERENT}" == "incoherent"
