"""Shares that follow scores."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from headway import ranks
from headway.errors import SelectionError, StateError
from headway.selection import Mixture, MultiplicativeWeights, PolicyGradient
from tests.ranks import join_pair, leaving_together, run_ranks


def test_scores_are_smoothed_for_the_sources_that_a_batch_has() -> None:
    mixture = Mixture(["a", "b", "c"], smoothing=0.75)
    mixture.update([0, 0, 1], [1.0, 3.0, 8.0])
    assert mixture.scores == {"a": 2.0, "b": 8.0, "c": None}
    mixture.update(torch.tensor([0]), torch.tensor([6.0]))
    assert mixture.scores == {"a": pytest.approx(3.0), "b": 8.0, "c": None}


def test_batches_without_scores_count_as_if_they_had_the_next_ones() -> None:
    rule = MultiplicativeWeights(strength=2.0, rate=0.25)
    mixture = Mixture(["a", "b"], rule, smoothing=0.5)
    mixture.update([0, 1], [8.0, 8.0])
    for scores in (None, None, [0.0, 16.0]):
        mixture.update([0, 1], scores)
    kept = 0.5**3
    a, b = kept * 8, kept * 8 + (1 - kept) * 16
    assert mixture.scores == {"a": pytest.approx(a), "b": pytest.approx(b)}
    first, moved = 0.25 * 2, 1 - 0.75**3
    logs = [first + moved * (2 * score / b - first) for score in (a, b)]
    assert mixture.weights["a"] == pytest.approx(1 / (1 + math.exp(logs[1] - logs[0])))


def test_unscored_batches_are_part_of_the_state() -> None:
    one, two = Mixture(["a", "b"]), Mixture(["a", "b"])
    one.update([0, 1], [1.0, 2.0])
    one.update([0, 1], None)
    two.load_state_dict(one.state_dict())
    for mixture in (one, two):
        mixture.update([0, 1], [1.0, 5.0])
    assert one.weights == two.weights
    old = {key: value for key, value in one.state_dict().items() if key != "unscored"}
    two.load_state_dict(old)
    assert one.weights == two.weights


def test_a_source_that_was_never_seen_counts_as_the_mean_of_the_others() -> None:
    mixture = Mixture(["a", "b", "c"], MultiplicativeWeights(strength=2.0, rate=1.0))
    mixture.update(["a", "b"], [1.0, 3.0])  # so c has 2
    weights = [math.exp(2 * score / 3) for score in (1, 3, 2)]
    assert list(mixture.weights.values()) == pytest.approx([weight / sum(weights) for weight in weights])


def test_zeros_before_the_first_score_say_nothing() -> None:
    mixture = Mixture(["a", "b", "c"])
    mixture.update(["a", "a", "b"], [0.0] * 3)  # GMC's first batch, without a sample of c
    assert mixture.scores == {"a": None, "b": None, "c": None}
    for _ in range(20):
        mixture.update(["a", "b", "c"], [1.0] * 3)
        assert list(mixture.weights.values()) == pytest.approx([1 / 3] * 3)
    mixture.update(["a", "b"], [0.0] * 2)
    assert mixture.weights["c"] > 1 / 3  # later a zero is a score like any other


def test_bounds_hold_whatever_the_scores() -> None:
    mixture = Mixture(["a", "b", "c"], MultiplicativeWeights(strength=50, rate=1.0), floor={"b": 0.2}, ceiling=0.7)
    assert list(mixture.weights.values()) == pytest.approx([1 / 3] * 3)
    mixture.update([0, 1, 2], [1.0, 0.0, 0.0])
    assert list(mixture.weights.values()) == pytest.approx([0.7, 0.2, 0.1])


def test_choices_follow_the_shares() -> None:
    mixture = Mixture(["a", "b", "c"], MultiplicativeWeights(rate=1.0), floor={"a": 0.5})
    mixture.update([0, 1, 2], [0.0, 1.0, 0.0])
    uniforms = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    shares = torch.bincount(mixture.choose(uniforms), minlength=3) / 10_000
    assert shares.tolist() == pytest.approx(list(mixture.weights.values()), abs=1e-4)


def test_a_source_without_a_share_is_never_chosen() -> None:
    mixture = Mixture(["a", "b", "c"], ceiling={"a": 0.0, "c": 0.0})
    assert mixture.weights == {"a": 0.0, "b": 1.0, "c": 0.0}
    uniforms = torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64)
    assert mixture.choose(uniforms).tolist() == [1, 1, 1]


def test_scores_that_are_not_finite_are_left_out_and_counted() -> None:
    mixture = Mixture(["a", "b"])
    with pytest.warns(UserWarning, match="2 of 4 scores are NaN or infinite"):
        mixture.update([0, 0, 1, 1], [math.nan, 2.0, 4.0, math.inf])
    mixture.update([0, 1], [math.nan, 4.0])  # told once
    assert mixture.scores == {"a": 2.0, "b": 4.0}
    assert mixture.skipped == 3
    before = mixture.weights
    mixture.update([0], [math.nan])
    mixture.update([], [])
    assert mixture.weights == before


def test_any_shape_and_precision_of_scores_will_do() -> None:
    mixture = Mixture(["a", "b"])
    losses = torch.ones(2, 2, dtype=torch.bfloat16, requires_grad=True)
    mixture.update(torch.tensor([[0, 0], [1, 1]], dtype=torch.int32), losses * 2)
    assert mixture.scores == {"a": 2.0, "b": 2.0}


@pytest.mark.parametrize("rule", [MultiplicativeWeights(), PolicyGradient()])
def test_saved_and_loaded_continues_identically(rule) -> None:
    one, two = Mixture(["a", "b"], rule), Mixture(["a", "b"], rule, seed=5)
    one.update([0, 1], [1.0, 2.0])
    two.load_state_dict(one.state_dict())
    for mixture in (one, two):
        mixture.update([0, 1, 1], [3.0, 2.0, 1.0])
    assert torch.equal(one.shares, two.shares)
    assert one.scores == two.scores


def test_what_makes_no_sense_is_refused() -> None:
    mixture = Mixture(["a", "b"])
    for ids, scores, message in (
        ([0, 1], [1.0], "expected 2 scores, .* got 1"),
        ([0, 2], [1.0, 1.0], "from 0 to 1 .*got 0 to 2"),
        ([-1], [1.0], "got -1 to -1"),
        (["a", "bb"], [1.0, 1.0], "one of a, b, got 'bb'"),
        ([0.5], [1.0], "numbers or names, got torch.float32"),
    ):
        with pytest.raises(SelectionError, match=message):
            mixture.update(ids, scores)
    with pytest.raises(SelectionError, match="at least one name"):
        Mixture([])
    with pytest.raises(SelectionError, match=r"smoothing.*got 1"):
        Mixture(["a"], smoothing=1.0)
    with pytest.raises(SelectionError, match="a rule such as"):
        Mixture(["a"], "softmax")
    with pytest.raises(StateError, match="a state of a, b, got one of a, c"):
        mixture.load_state_dict(Mixture(["a", "c"]).state_dict())
    with pytest.raises(StateError, match="log_weights"):
        mixture.load_state_dict(Mixture(["a", "b"], PolicyGradient()).state_dict())


@leaving_together
def _work(rank: int, folder: str) -> None:
    join_pair(rank, folder)
    synced, alone = Mixture(["a", "b"]), Mixture(["a", "b"], sync=False)
    for mixture in (synced, alone):
        mixture.update([0, 0, 1], [1.0, 3.0, 8.0]) if rank == 0 else mixture.update([1], [2.0])
    torch.save((synced.state_dict(), alone.state_dict()), Path(folder) / f"rank{rank}.pt")


@pytest.mark.slow
def test_processes_share_their_scores(tmp_path: Path) -> None:
    run_ranks(_work, str(tmp_path))
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    joined = Mixture(["a", "b"])
    joined.update([0, 0, 1, 1], [1.0, 3.0, 8.0, 2.0])
    for synced, _ in ranks:
        assert synced["scores"].tolist() == [2.0, 5.0]
        assert torch.equal(synced["rule"]["log_weights"], joined.state_dict()["rule"]["log_weights"])
    assert ranks[0][1]["scores"].tolist() == [2.0, 8.0]
    assert ranks[1][1]["scores"].tolist() == [0.0, 2.0]


def test_scores_go_to_where_the_processes_can_add_them_up(monkeypatch) -> None:
    """NCCL takes no tensors of the host; "meta" stands in for a GPU."""
    monkeypatch.setattr(ranks.distributed, "is_initialized", lambda: True)
    for backend, device in (("nccl", "cuda"), ("gloo", "cpu")):
        monkeypatch.setattr(ranks.distributed, "get_backend", lambda backend=backend: backend)
        assert ranks.collective_device().type == device

    def all_reduce(values: torch.Tensor) -> None:
        raise RuntimeError(f"added up on {values.device}")

    monkeypatch.setattr(ranks.distributed, "all_reduce", all_reduce)
    monkeypatch.setattr(ranks, "collective_device", lambda: "meta")
    with pytest.raises(RuntimeError, match="added up on meta"):
        Mixture(["a", "b"]).update([0, 1], [1.0, 2.0])


def test_a_batch_that_was_not_scored_changes_nothing() -> None:
    mixture = Mixture(["a", "b"])
    mixture.update([0, 1], [1.0, 2.0])
    before, version = mixture.weights, mixture.version
    mixture.update([0, 1], None)
    assert (mixture.weights, mixture.version) == (before, version)


def test_scores_by_signal_and_a_name_for_a_batch_are_refused_with_the_way_out() -> None:
    mixture = Mixture(["web", "books"])
    scores = torch.ones(2)
    with pytest.raises(SelectionError, match=r"got those of gmc, norm_all by name; pass scores\['gmc'\]"):
        mixture.update([0, 1], {"gmc": scores, "norm_all": scores})
    with pytest.raises(SelectionError, match=r"got 'web'; pass \['web'\]"):
        mixture.update("web", 1.0)
    with pytest.raises(SelectionError, match="got 'web'"):
        Mixture("web")


def test_the_default_rule_is_held_to_the_prior_and_a_given_one_is_not() -> None:
    prior = {"a": 3.0, "b": 1.0}
    default, own, free = (
        Mixture(list(prior), prior=prior),
        Mixture(list(prior), MultiplicativeWeights(), prior=prior),
        Mixture(list(prior), prior=prior, hold=0.0),
    )
    for mixture in (default, own, free):
        mixture.update(["a", "b"], [1.0, 4.0])
    assert own.weights == free.weights
    assert default.weights["a"] == pytest.approx(0.2 * 0.75 + 0.8 * free.weights["a"])


def test_a_state_brings_its_hold_unless_one_is_given() -> None:
    old, new = Mixture(["a", "b"], hold=0.0), Mixture(["a", "b"])
    for mixture in (old, new):
        mixture.update(["a", "b"], [1.0, 9.0])
    earlier = {key: value for key, value in old.state_dict().items() if key != "hold"}  # of a version without it
    for state, wanted in ((old.state_dict(), old), (earlier, old), (new.state_dict(), new)):
        resumed = Mixture(["a", "b"])
        resumed.load_state_dict(state)
        assert resumed.weights == wanted.weights
    given = Mixture(["a", "b"], hold=0.5)
    given.load_state_dict(old.state_dict())
    assert given.weights["a"] == pytest.approx(0.25 + 0.5 * old.weights["a"])
