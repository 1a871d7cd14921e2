"""The controlled study, end to end on the digits."""

from __future__ import annotations

import dataclasses
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headway.data import load
from headway.errors import DataError, SpecError
from headway.runs import RunSpec, RunStore, State
from headway.runs.experiments import Context, Stopped
from headway.study import controlled
from headway.study.protocols.classification import Protocol
from headway.study.signals import SIGNALS

ROOT = Path(__file__).parent.parent.parent
TINY = dataclasses.replace(Protocol.demo(), hidden=8, actor_hidden=8, batch_size=256, test_batches=1)


def one(
    signal: str = "gmc", condition: str = "noise", protocol: Protocol = TINY, epochs: int = 4, seed: int = 0
) -> RunSpec:
    return controlled.specs(["digits"], [condition], [signal], [seed], protocol, epochs)[0]


def carry_out(folder: Path, spec: RunSpec, context: Context | None = None) -> dict[str, list]:
    store = RunStore(folder)
    with store.lock(spec) as run:
        controlled.run(run, context or Context())
    return dict(store.metrics(spec.run_id))


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["noise", "curriculum"])
@pytest.mark.parametrize("signal", SIGNALS.names())
def test_every_signal_runs_and_logs(tmp_path: Path, signal: str, condition: str) -> None:
    rows = carry_out(tmp_path / "runs", one(signal, condition, epochs=3))
    arms = 4 if condition == "noise" else 10
    assert rows["epoch"] == [1, 2, 3]
    for key in ("train_count", "draw_share", "score_mean", "train_loss", "test_loss", "test_count"):
        assert all(len(row) == arms for row in rows[key]), key
    assert all(sum(row) == 5 * 256 for row in rows["train_count"])  # floor(1442 / 256) batches
    assert all(sum(row) == pytest.approx(1) for row in rows["draw_share"])
    assert all(0 < value < 5 for value in rows["test_loss_mean"])
    assert ("under_floor" in rows) == (signal in ("gmc", "gmc_hard", "gmc_soft", "dot", "cosine", "projection"))


def test_the_same_spec_gives_the_same_numbers(tmp_path: Path) -> None:
    first, second = (carry_out(tmp_path / name, one()) for name in ("a", "b"))
    assert repr(first) == repr(second)
    other = carry_out(tmp_path / "c", one(seed=1))
    assert other["test_loss_mean"] != first["test_loss_mean"]


def weights(folder: Path, spec: RunSpec) -> dict[str, torch.Tensor]:
    return torch.load(io.BytesIO(RunStore(folder).read_file(spec.run_id, "final.pt")), weights_only=True)


@pytest.mark.parametrize("signal", ["gmc", "delta_loss"])
def test_stopped_in_mid_epoch_and_resumed_equals_uninterrupted(tmp_path: Path, signal: str) -> None:
    spec = one(signal)
    whole = carry_out(tmp_path / "whole", spec, Context(keep_weights=True))
    store = RunStore(tmp_path / "parts")
    attempts = 0
    for _ in range(50):
        asked = iter(range(100))
        with store.lock(spec) as run:
            try:
                controlled.run(run, Context(keep_weights=True, should_stop=lambda asked=asked: next(asked) >= 7))
            except Stopped as stopped:
                run.interrupt(str(stopped))
        attempts += 1
        if store.record(spec.run_id).state is State.DONE:
            break
        assert store.record(spec.run_id).state is State.INTERRUPTED
    assert attempts >= 3
    assert repr(dict(store.metrics(spec.run_id))) == repr(whole)
    for name, tensor in weights(tmp_path / "whole", spec).items():
        assert torch.equal(weights(tmp_path / "parts", spec)[name], tensor)


def test_what_was_saved_on_a_gpu_goes_on_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = one("gmc")
    whole = carry_out(tmp_path / "whole", spec)
    store = RunStore(tmp_path / "parts")
    asked = iter(range(100_000))
    with monkeypatch.context() as patch, store.lock(spec) as run:
        patch.setattr("torch.serialization.location_tag", lambda storage: "cuda:0")  # as for tensors on a GPU
        with pytest.raises(Stopped):
            controlled.run(run, Context(should_stop=lambda: next(asked) >= 7))
        run.interrupt("asked to")
    assert repr(carry_out(tmp_path / "parts", spec)) == repr(whole)


def test_stopped_before_its_first_batch_it_starts_again(tmp_path: Path) -> None:
    spec = one(epochs=1)
    store = RunStore(tmp_path)
    for _ in range(2):
        with store.lock(spec) as run, pytest.raises(Stopped):
            controlled.run(run, Context(should_stop=lambda: True))
    assert carry_out(tmp_path, spec)["epoch"] == [1]


@pytest.mark.slow
def test_killed_at_random_instants_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """SIGKILL, many times; metrics and final weights come out bit for bit."""
    command = [sys.executable, "-m", "tests.runs.kills", str(tmp_path), "8", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert int(done.stdout) >= 3, "expected the run to be killed a few times"
    spec = one("gmc", epochs=12)
    whole, killed = RunStore(tmp_path / "whole"), RunStore(tmp_path / "killed")
    assert killed.record(spec.run_id).state is State.DONE
    assert repr(dict(killed.metrics(spec.run_id))) == repr(dict(whole.metrics(spec.run_id)))
    for name, tensor in weights(tmp_path / "whole", spec).items():
        assert torch.equal(weights(tmp_path / "killed", spec)[name], tensor)


def test_provenance_stands_beside_the_run(tmp_path: Path) -> None:
    spec = one(epochs=1)
    carry_out(tmp_path, spec)
    provenance = json.loads(RunStore(tmp_path).read_file(spec.run_id, "provenance.json"))
    assert provenance["dataset"] == "digits"
    assert provenance["torch"] == torch.__version__


def test_threads_do_not_change_the_numbers(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = carry_out(tmp_path / "two", one(epochs=2))
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert repr(carry_out(tmp_path / "one", one(epochs=2))) == repr(two)
    finally:
        torch.set_num_threads(before)


def test_specs_are_all_combinations_and_unknown_names_are_refused() -> None:
    made = controlled.specs(["digits", "mnist"], ["noise", "curriculum"], ["gmc", "uniform"], range(3), TINY)
    assert len({spec.run_id for spec in made}) == 24
    for bad, message in (
        ({"datasets": ["svhn"]}, "dataset out of .*digits"),
        ({"conditions": ["fog"]}, "condition out of curriculum, noise, got 'fog'"),
        ({"signals": ["luck"]}, "signal out of uniform, .*got 'luck'"),
        ({"epochs": 0}, "at least one epoch"),
    ):
        options = {"datasets": ["digits"], "conditions": ["noise"], "signals": ["gmc"], "seeds": [0], "protocol": TINY}
        with pytest.raises(SpecError, match=message):
            controlled.specs(**{**options, **bad})


def test_the_estimate_is_positive() -> None:
    assert controlled.estimate(one(), Context()) > 0


@pytest.mark.slow
def test_noise_sends_curiosity_to_the_noisiest_group_and_gmc_not(tmp_path: Path) -> None:
    """What the study is about, in small: the last tenth of the draws."""
    shares = {}
    for signal in ("uniform", "curiosity", "gmc"):
        rows = carry_out(tmp_path, one(signal, protocol=Protocol.demo(), epochs=50))
        shares[signal] = torch.tensor(rows["draw_share"][-5:]).mean(0)
    assert shares["curiosity"][3] > 0.6
    assert (shares["gmc"] - 0.25).abs().max() < 0.1
    assert (shares["uniform"] - 0.25).abs().max() < 0.03


def test_a_run_does_not_go_on_with_another_copy_of_the_data(tmp_path: Path) -> None:
    store, spec = RunStore(tmp_path / "runs"), one()
    answers = iter([False] * 7 + [True])
    run = store.lock(spec)
    with pytest.raises(Stopped):
        controlled.run(run, Context(should_stop=lambda: next(answers)))
    run.interrupt("stopped on request")
    other = dataclasses.replace(load("digits"), fingerprint="f" * 64)
    again = store.lock(spec)
    with pytest.raises(DataError, match="expected the digits that the run began with"):
        controlled.run(again, Context(datasets={"digits": other}))
    again.interrupt("other data")
    last = store.lock(spec)
    controlled.run(last, Context())
    (record,) = store.status()
    assert (record.state, record.status.step, record.status.total) == (State.DONE, 4, 4)
