"""The monitor against sums by hand, and on a model that learns."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import headway
from headway.errors import SignalError, StateError
from headway.selection import Mixture
from headway.telemetry import CsvWriter, SourceMonitor, State, chance_losses
from tests.ranks import join_pair, leaving_together, run_ranks


def scores(norms: list[float], gmc: list[float]) -> dict[str, torch.Tensor]:
    return {"norm_all": torch.tensor(norms), "gmc": torch.tensor(gmc)}


def test_rows_are_means_over_the_batches_since_the_last() -> None:
    monitor = SourceMonitor(["a", "b", "c"], every=2)
    monitor.update([0, 0, 1], scores([2.0, 4.0, 8.0], [1.0, 2.0, 2.0]), torch.tensor([1.0, 3.0, 5.0]))
    assert monitor.rows == []
    assert set(monitor.states.values()) == {State.UNSEEN}
    monitor.update(torch.tensor([0]), scores([9.0], [6.0]), torch.tensor([2.0]))
    first, second = monitor.rows
    quantiles = [first.pop(f"gmc_q{percent}") for percent in (10, 50, 90)]
    assert quantiles == pytest.approx([1.0, 2.0, 6.0], rel=0.05)
    assert first == {
        "step": 2, "source": "a", "samples": 3, "share": 0.75, "loss": 2.0, "target": None,
        "gradient_norm": 5.0, "gmc": 3.0, "coupling": 0.6, "state": "learning", "advice": "learning: keep its share",
    }  # fmt: skip
    assert (second["source"], second["samples"], second["coupling"]) == ("b", 1, 0.25)
    assert second["state"] == "incoherent"  # 0.25 beside 0.6
    assert monitor.states["c"] is State.UNSEEN


def test_batches_without_scores_count_as_steps_and_losses_may_be_missing() -> None:
    monitor = SourceMonitor(["a"], every=2)
    monitor.update([0], None)
    monitor.update([0], scores([2.0], [1.0]))
    assert [(row["step"], row["loss"]) for row in monitor.rows] == [(2, None)]
    monitor.update([0], None)
    monitor.update([0], None)
    assert len(monitor.rows) == 1  # nothing was scored
    monitor.update([0], scores([4.0], [1.0]))
    monitor.close()
    assert [row["step"] for row in monitor.rows] == [2, 5]


def test_a_mean_loss_is_that_of_the_samples_with_a_loss() -> None:
    monitor = SourceMonitor(["a"], every=2)
    for losses in (torch.tensor([3.0]), None, None, None, torch.tensor([4.0]), torch.tensor([2.0])):
        monitor.update([0], scores([2.0], [1.0]), losses)
    assert [row["loss"] for row in monitor.rows] == [3.0, None, 3.0]


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    monitor = SourceMonitor(["a"], every=1)
    with pytest.warns(UserWarning, match="1 of 2 samples have a loss, norm or GMC that is NaN or infinite"):
        monitor.update([0, 0], scores([2.0, float("inf")], [1.0, 1.0]))
    monitor.update([0, 0], scores([1.0, 1.0], [1.0, 1.0]), torch.tensor([math.nan, 5.0]))  # told once
    assert [(row["samples"], row["gradient_norm"], row["loss"]) for row in monitor.rows] == [
        (1, 2.0, None),
        (1, 1.0, 5.0),
    ]
    assert monitor.skipped == 2
    assert monitor.states["a"] is State.LEARNING


def test_a_source_that_diverges_has_rows_that_say_so(tmp_path: Path) -> None:
    monitor = SourceMonitor(["a", "b"], every=1, writers=[CsvWriter(tmp_path / "sources.csv")])
    monitor.update([0, 1], scores([2.0, 3.0], [1.0, 1.0]))
    with pytest.warns(UserWarning, match="1 of 2"):
        monitor.update([0, 1], scores([2.0, math.nan], [1.0, 1.0]))
    known = {name: value for name, value in monitor.rows[3].items() if value is not None and name != "advice"}
    assert known == {"step": 2, "source": "b", "state": "diverged", "samples": 0, "share": 0.0}
    assert monitor.rows[2]["share"] == 1.0
    assert monitor.states == {"a": State.LEARNING, "b": State.DIVERGED}
    assert (tmp_path / "sources.csv").read_text("utf-8").splitlines()[-1].startswith("2,b,,0.0,,0,,,,,,,diverged,")
    again = SourceMonitor(["a", "b"], every=1)
    again.load_state_dict(monitor.state_dict())
    assert (again.states, again.skipped) == (monitor.states, 1)
    again.update([1], scores([3.0], [1.0]))
    assert again.states["b"] is State.LEARNING


def test_sources_may_be_given_by_name() -> None:
    monitor = SourceMonitor(["a", "b"], every=1)
    monitor.update(["b", "a", "b"], scores([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]))
    assert [(row["source"], row["gradient_norm"]) for row in monitor.rows] == [("a", 2.0), ("b", 2.0)]


def test_on_a_model_a_source_that_is_learned_becomes_saturated_and_noise_hard() -> None:
    """One source is learned within moments, one never: its labels are drawn anew each time, on inputs of its own."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    meter = headway.Meter(model, [headway.GMC(beta=0.99), headway.NormAll()])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    monitor = headway.SourceMonitor(["easy", "noise"], every=10)
    source = torch.arange(32) % 2
    for _ in range(300):
        x = torch.randn(32, 8, generator=generator)
        side = torch.randint(2, (32,), generator=generator)
        x[:, 0], x[:, 1] = 3.0 * (2 * source - 1), 2.0 * side
        y = torch.where(source == 0, side, torch.randint(4, (32,), generator=generator))
        losses = F.cross_entropy(model(x), y, reduction="none")
        monitor.update(source, meter.backward(losses), losses)
        optimizer.step()
        optimizer.zero_grad()
    easy, noise = ([row["state"] for row in monitor.rows if row["source"] == name] for name in monitor.names)
    assert easy[0] == noise[0] == "learning"
    assert easy[-1] == "saturated"
    assert noise[-1] == "hard"
    assert {"incoherent", "hard"}.isdisjoint(easy)


@pytest.mark.parametrize("level", [1.5, -1.5, 0.0])
def test_a_loss_that_stays_is_not_learned_whatever_its_sign(level: float) -> None:
    monitor = SourceMonitor(["a"], every=1)
    for step in range(30):
        monitor.update([0], scores([1.0], [1.0]), torch.tensor([level + 0.05 * (-1) ** step]))
    assert monitor.states["a"] == "hard"


def test_training_without_sources_has_quantiles_of_its_scores() -> None:
    monitor = SourceMonitor(every=2)
    given = torch.linspace(1, 100, 100)
    monitor.update(None, given, given)  # one signal
    monitor.update(None, {"gmc": given, "norm_all": given * 2})  # several
    (row,) = monitor.rows
    assert [row[f"gmc_q{percent}"] for percent in (10, 50, 90)] == pytest.approx([10, 50, 90], rel=0.05)
    assert (row["source"], row["samples"], row["share"], row["loss"]) == ("all", 200, 1.0, 50.5)
    monitor = SourceMonitor(every=1)
    monitor.update(None, torch.zeros(3))
    assert (monitor.rows[0]["gmc_q50"], monitor.rows[0]["gradient_norm"]) == (0.0, None)
    assert monitor.states == {"all": State.LEARNING}
    with pytest.raises(SignalError, match="None for the sources"):
        monitor.update([0], torch.ones(1))
    with pytest.raises(SignalError, match="the source of each sample"):
        SourceMonitor(["a"]).update(None, scores([1.0], [1.0]))


def test_the_shares_of_a_sampler_stand_beside_those_that_were_drawn() -> None:
    mixture = Mixture(["a", "b"], prior=[3.0, 1.0])
    monitor = SourceMonitor(["a", "b"], every=1, sampler=mixture)
    monitor.update([0, 1], scores([1.0, 1.0], [1.0, 1.0]))
    assert [(row["share"], row["target"]) for row in monitor.rows] == [(0.5, 0.75), (0.5, 0.25)]


def test_a_monitor_prints_a_table_of_80_columns() -> None:
    names = ["web", "a source with a name that is far too long for a table"]
    mixture = Mixture([*names, "unseen"])
    monitor = SourceMonitor([*names, "unseen"], every=1, sampler=mixture)
    for _ in range(12):  # both losses stay
        ids, ones = torch.tensor([0, 1, 1]), torch.ones(3)
        monitor.update(ids, {"gmc": ones, "norm_all": ones}, torch.tensor([2.0, 1234.5, 1234.5]))
    lines = str(monitor).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["source", "step", "loss", "share", "target", "state"]
    assert lines[1].split() == ["web", "12", "2", "33.3%", "33.3%", "hard"]
    assert lines[2].startswith("    hard, not yet: noise, or a plateau")
    assert [line.split() for line in lines if line.startswith("unseen")] == [["unseen", "-", "-", "-", "-", "unseen"]]
    assert any(line.startswith("a source with a name ...  ") for line in lines)


def test_chance_is_the_entropy_of_the_labels_of_each_source() -> None:
    labels, source = torch.tensor([0, 1, 2, 2, 5]), torch.tensor([0, 0, 1, 1, 0])
    found = chance_losses(labels, source, ["a", "b", "c"])
    assert found == {"a": pytest.approx(math.log(3)), "b": 0.0}
    SourceMonitor(["a", "b", "c"], chance=found)
    with pytest.raises(SignalError, match="got 'd'"):
        SourceMonitor(["a"], chance={"d": 1.0})


def test_a_state_of_the_schema_before_is_taken() -> None:
    monitor = SourceMonitor(["a", "b"], every=5)
    feed(monitor, 0, 27)
    state = monitor.state_dict()
    later = {"target", "advice", "gmc_q10", "gmc_q50", "gmc_q90"}
    rows = [{name: value for name, value in row.items() if name not in later} for row in state["rows"]]
    again = SourceMonitor(["a", "b"], every=5)
    again.load_state_dict({**state, "schema": 2, "sums": state["sums"][:6], "rows": rows})
    feed(monitor, 27, 30)
    feed(again, 27, 30)
    for one, two in zip(monitor.rows[-2:], again.rows[-2:], strict=True):
        assert {key: value for key, value in one.items() if key not in later} == {
            key: value for key, value in two.items() if key not in later
        }
    assert again.advice == monitor.advice


def feed(monitor: SourceMonitor, start: int, stop: int) -> None:
    generator = torch.Generator().manual_seed(7)
    values = torch.rand(stop, 3, 6, generator=generator)
    for step in range(start, stop):
        norms, gmc, losses = values[step]
        monitor.update(torch.arange(6) % 2, {"norm_all": norms, "gmc": gmc}, losses)


@pytest.mark.parametrize("stop", [1, 30, 47])
def test_saved_and_resumed_equals_uninterrupted(tmp_path: Path, stop: int) -> None:
    whole = SourceMonitor(["a", "b"], every=5, writers=[CsvWriter(tmp_path / "whole.csv")])
    feed(whole, 0, 100)
    path = tmp_path / "resumed.csv"
    first = SourceMonitor(["a", "b"], every=5, writers=[CsvWriter(path)])
    feed(first, 0, stop)
    state = first.state_dict()
    kept = copy.deepcopy(state)
    feed(first, stop, 60)  # lost when it was killed, but already in the file
    assert str(state) == str(kept)
    torch.save(state, tmp_path / "state.pt")
    second = SourceMonitor(["a", "b"], every=5, writers=[CsvWriter(path)])
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    feed(second, stop, 100)
    whole.close()
    second.close()
    assert second.rows == whole.rows
    assert second.states == whole.states
    assert path.read_text("utf-8") == (tmp_path / "whole.csv").read_text("utf-8")


@pytest.mark.parametrize(
    ("ids", "given", "message"),
    [
        ([0], torch.ones(1), "got Tensor; make the meter with"),
        ([0], {"gmc": torch.ones(1)}, r"'norm_all' and 'gmc' by name, got \['gmc'\]"),
        ([0, 1], scores([1.0], [1.0]), r"each of 2 samples, got shapes \[\[1\], \[1\], \[2\]\]"),
        (["bb"], scores([1.0], [1.0]), "one of a, b, got 'bb'"),
        ([0.5], scores([1.0], [1.0]), "numbers or names, got torch.float32"),
        ([2], scores([1.0], [1.0]), "from 0 to 1 .*, got 2 to 2"),
    ],
)
def test_what_makes_no_sense_is_refused(ids, given, message) -> None:
    with pytest.raises(SignalError, match=message):
        SourceMonitor(["a", "b"]).update(ids, given)


def test_arguments_and_states_are_checked() -> None:
    for names in ([], ["a", "a"]):
        with pytest.raises(SignalError, match="different names"):
            SourceMonitor(names)
    with pytest.raises(SignalError, match="got 'web'"):
        SourceMonitor("web")
    with pytest.raises(SignalError, match=r"got 'web'; pass \['web'\]"):
        SourceMonitor(["web"]).update("web", scores([1.0], [1.0]))
    for writers in (["x.csv"], "x.csv", CsvWriter("x.csv"), [CsvWriter]):
        with pytest.raises(SignalError, match="writers: expected"):
            SourceMonitor(["a"], writers=writers)
    with pytest.raises(SignalError, match="every=0"):
        SourceMonitor(["a"], every=0)
    with pytest.raises(StateError, match=r"\['a'\], got 3 with \['b'\]"):
        SourceMonitor(["a"]).load_state_dict(SourceMonitor(["b"]).state_dict())


@leaving_together
def _work(rank: int, folder: str) -> None:
    join_pair(rank, folder)
    monitor = SourceMonitor(["a", "b"], every=1, writers=[CsvWriter(Path(folder) / f"{rank}.csv")])
    given = scores([2.0, 4.0], [1.0, 1.0]) if rank == 0 else scores([6.0], [3.0])
    monitor.update([0, 1] if rank == 0 else [0], given)
    torch.save(monitor.rows, Path(folder) / f"rank{rank}.pt")


@leaving_together
def _resume(rank: int, folder: str) -> None:
    """Two rows of four batches each, saved after two, six and eight of them."""
    join_pair(rank, folder)

    def feed(monitor: SourceMonitor, start: int, stop: int) -> SourceMonitor:
        for step in range(start, stop):
            monitor.update([0, rank], scores([step + 1.0, 10.0 * rank], [1.0, 2.0]), torch.tensor([1.0, 2.0]))
        return monitor

    def make() -> SourceMonitor:
        return SourceMonitor(["a", "b"], every=4)

    whole, results = feed(make(), 0, 8), []
    for stop in (2, 6, 8):
        first = feed(make(), 0, stop)
        own = first.state_dict()
        if rank == 0:
            first.state_dict()  # alone: it waits for nobody
        shared = [first.state_dict(together=True)]
        dist.broadcast_object_list(shared)  # as a checkpoint of the first process
        for state in (own, shared[0]):
            second = make()
            second.load_state_dict(state)
            results.append(feed(second, stop, 8).rows)
    torch.save((whole.rows, results), Path(folder) / f"rank{rank}.pt")


@pytest.mark.slow
def test_processes_resume_from_the_state_of_all_or_each_from_its_own(tmp_path: Path) -> None:
    run_ranks(_resume, str(tmp_path))
    for rank in range(2):
        whole, results = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        assert [row["samples"] for row in whole] == [12, 4, 12, 4]
        assert len(results) == 6
        for rows in results:
            assert rows == whole


@pytest.mark.slow
def test_processes_add_up_and_the_first_writes(tmp_path: Path) -> None:
    run_ranks(_work, str(tmp_path))
    rows = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    assert rows[0] == rows[1]
    assert [(row["source"], row["samples"], row["gradient_norm"]) for row in rows[0]] == [("a", 2, 4.0), ("b", 1, 4.0)]
    assert (tmp_path / "0.csv").exists()
    assert not (tmp_path / "1.csv").exists()
