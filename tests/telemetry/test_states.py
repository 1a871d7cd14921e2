"""The states of sources, by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import pytest

from headway.errors import SignalError
from headway.telemetry.states import History, State, Thresholds, advise, entropy, error_of, fall_of, judge, scatter_of

FLAT = [2.0, 1.9, 2.1, 2.0, 1.9, 2.1]


def follow(losses: Sequence[float], chance: float | None = None, thresholds: Thresholds | None = None) -> list[str]:
    """The state after every row of one source."""
    history, found = History(chance), []
    for loss in losses:
        add(history, loss=loss, thresholds=thresholds)
        judge({"a": history}, thresholds or Thresholds(), ["a"])
        found.append(str(history.state))
    return found


def add(
    history: History,
    norm: float = 100.0,
    coupling: float = 1.0,
    loss: float | None = None,
    samples: int = 1,
    thresholds: Thresholds | None = None,
) -> None:
    row = {"samples": samples, "gradient_norm": norm, "coupling": coupling, "loss": loss}
    history.add(row, thresholds or Thresholds())


def without_losses(**rows: list[tuple[float, float]]) -> dict[str, str]:
    """The states of sources with these norms and couplings, one after the other."""
    histories = {name: History() for name in rows}
    for name, own in rows.items():
        for norm, coupling in own:
            add(histories[name], norm, coupling)
    judge(histories, Thresholds(), list(rows))
    return {name: str(history.state) for name, history in histories.items()}


def scattered(level: float, many: int, by: float = 0.01, seed: int = 0) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss(level, by * abs(level)) for _ in range(many)]


def test_small_gradients_are_saturated_where_losses_are_not_known() -> None:
    found = without_losses(
        learned=[(100, 1), (20, 1)],
        large=[(100, 1), (90, 1)],
        always_small=[(7, 1)],  # beside a mean of 29.25
        gone=[(0, 0)],
    )
    assert found == {"learned": "saturated", "large": "learning", "always_small": "saturated", "gone": "saturated"}


def test_large_gradients_that_do_not_couple_are_incoherent_where_losses_are_not_known() -> None:
    found = without_losses(
        one=[(100, 1.0)],
        two=[(100, 0.8)],
        noise=[(100, 0.4)],  # beside a mean of 0.9
        learned=[(100, 1.0), (1, 50.0)],  # saturated, so it does not count
    )
    assert found == {"one": "learning", "two": "learning", "noise": "incoherent", "learned": "saturated"}
    assert without_losses() == {}
    assert without_losses(only=[(5, 0.1)]) == {"only": "learning"}


def test_a_loss_that_falls_and_stays_low_is_learning_and_then_saturated() -> None:
    losses = [2.0 * 0.9**row + 0.3 for row in range(80)]
    for chance in (None, 2.2):
        found = follow(losses, chance)
        assert found[20] == "learning"
        assert found[-1] == "saturated"
        assert sum(before != after for before, after in itertools.pairwise(found)) == 1


def test_a_loss_that_stays_is_hard_and_after_long_incoherent() -> None:
    found = follow(scattered(2.0, 150), thresholds=Thresholds(patience=60))
    assert set(found[20:60]) == {"hard"}  # it is from row 8 on at the earliest
    assert set(found[85:]) == {"incoherent"}


def test_a_plateau_at_chance_is_hard_until_it_is_left() -> None:
    """From log 8 to log 2, which is chance, and after 60 rows to nothing."""
    down = [math.log(2) * (1 + 2 * 0.5**row) for row in range(15)]
    losses = [*down, *scattered(math.log(2), 45), *(math.log(2) * 0.85**row for row in range(40))]
    found = follow(losses, math.log(2))
    assert set(found[20:60]) == {"hard"}
    assert "learning" in found[60:75]
    assert found[-1] == "saturated"
    assert follow(losses)[59] == "saturated", "who does not know chance takes the plateau for the end"


def test_a_loss_that_returns_to_chance_from_above_is_not_learning() -> None:
    losses = [*scattered(2.3, 30), *scattered(2.5, 5), *(2.3 + 0.2 * 0.8**row for row in range(30))]
    assert "learning" not in follow(losses, 2.3)[10:]


def test_a_slow_fall_through_chance_is_learning_and_one_that_ends_there_is_hard() -> None:
    """Down to chance, and on by 2.5% of it in 10 rows, as what is learned by heart; or not on, as noise."""
    down = [1.0 + 0.8**row for row in range(25)]
    assert set(follow([*down, *(1.0 - 0.0025 * row for row in range(100))], 1.0)) == {"learning"}
    found = follow([*down, *[1.0] * 30], 1.0)
    assert found[15] == "learning"
    assert set(found[35:]) == {"hard"}


def test_what_is_learned_is_learning_again_only_by_a_clear_fall() -> None:
    """A plateau at 0.5 that drifts by 4% of chance in 20 rows, and then a fall by a fifth, as of a smaller step."""
    down = [0.5 + 0.8**row for row in range(30)]
    drift = [0.5 - 0.002 * row for row in range(40)]
    found = follow([*down, *[0.5] * 40, *drift], 1.0)
    assert set(found[40:]) == {"saturated"}
    found = follow([*down, *[0.5] * 40, *[0.3] * 60], 1.0)
    assert set(found[40:70]) == {"saturated"}
    assert "learning" in found[70:85]
    assert found[-1] == "saturated"


@pytest.mark.parametrize("level", [1.5, -1.5, -0.01])
def test_a_loss_that_stays_is_not_learned_whatever_its_sign(level: float) -> None:
    assert follow([level + 0.05 * (-1) ** row for row in range(40)])[-1] == "hard"


def test_negative_losses_that_came_down_and_stay_are_learned() -> None:
    falling = [0.5 - 0.1 * row for row in range(20)]
    found = follow([*falling, *scattered(-1.5, 40)])
    assert (found[15], found[-1]) == ("learning", "saturated")


def test_one_row_does_not_change_a_state() -> None:
    history = History(state=State.HARD)
    history.settle(State.LEARNING, Thresholds(hold=2))
    assert history.state is State.HARD
    history.settle(State.LEARNING, Thresholds(hold=2))
    assert history.state is State.LEARNING
    history.settle(State.DIVERGED, Thresholds(hold=2))
    assert history.state is State.DIVERGED, "this one is no matter of degree"


def test_sources_that_diverged_are_named_and_do_not_judge_others() -> None:
    histories = {name: History() for name in ("lost", "one", "two")}
    add(histories["lost"], norm=1000, coupling=90.0)
    add(histories["lost"], samples=0)
    add(histories["one"], norm=10, coupling=1.0)
    add(histories["two"], norm=10, coupling=0.9)
    judge(histories, Thresholds(), list(histories))
    assert [str(history.state) for history in histories.values()] == ["diverged", "learning", "learning"]


def test_advice_names_the_way_out_and_hedges() -> None:
    assert advise(History(state=State.SATURATED)) == "learned: keep 5%"
    assert "or a plateau" in advise(History(state=State.HARD))
    noise = History(state=State.INCOHERENT, losses=FLAT, waited=120)
    assert advise(noise).startswith("pure noise so far (120 rows): lower its share, unless")
    forgotten = History(state=State.SATURATED, losses=[1.0] * 6, highest=4.0, lowest=0.1)
    assert "raise its share" in advise(forgotten)
    assert len({advise(History(state=state)) for state in State}) == len(State)


def test_the_fall_by_hand() -> None:
    """The line nearest to 3, 2, 2, 1 falls by 0.6 a row; the squares of -1.5, -0.5, 0.5, 1.5 add up to 5."""
    assert fall_of([3.0, 2.0, 2.0, 1.0], rows=10) == pytest.approx(6.0)
    assert error_of(4, rows=10) == pytest.approx(10 / math.sqrt(5))
    assert scatter_of([1.0, 2.0, 0.0]) == pytest.approx(math.sqrt(5 / 4))  # (1 + 4) / 2 / 2


def test_the_fall_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = random.Random(0)
    for n in (6, 9, 20):
        losses = [generator.gauss(-0.05 * i, 0.2) for i in range(n)]
        line = stats.linregress(range(n), losses)
        assert fall_of(losses, rows=20) == pytest.approx(-20 * line.slope)
        residuals = [loss - line.intercept - line.slope * i for i, loss in enumerate(losses)]
        scatter = math.sqrt(sum(own**2 for own in residuals) / (n - 2))
        assert scatter * error_of(n, rows=20) == pytest.approx(20 * line.stderr)


def test_the_entropy_of_labels() -> None:
    assert entropy([5, 5, 0]) == pytest.approx(math.log(2))
    assert entropy([7]) == 0


@pytest.mark.parametrize(
    "arguments",
    [{"saturated": 1.5}, {"incoherent": -1.0}, {"rows": 5}, {"errors": -0.5}, {"learned": 2}, {"hold": 0}],
)
def test_what_makes_no_sense_is_refused(arguments) -> None:
    with pytest.raises(SignalError, match=str(next(iter(arguments.values())))):
        Thresholds(**arguments)


def test_states_are_words() -> None:
    assert State.LEARNING == "learning"
    assert f"{State.INCOHERENT}" == "incoherent"
