"""The controlled study: which signal leads to which curriculum, and which falls for noise."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from headway.data import DATASETS, Dataset, load
from headway.errors import DataError, SpecError, check_known
from headway.runs import Run, RunSpec
from headway.runs.experiments import Context
from headway.study.controlled_trial import Trial
from headway.study.image_environment import CONDITIONS
from headway.study.protocols.classification import Protocol
from headway.study.resumable import ResumableRun, one_thread, planned_length, seconds_of
from headway.study.signals import SIGNALS

EXPERIMENT = "controlled"
CALIBRATION_BATCHES = 40


def specs(
    datasets: Iterable[str],
    conditions: Iterable[str],
    signals: Iterable[str],
    seeds: Iterable[int],
    protocol: Protocol,
    epochs: int | None = None,
) -> list[RunSpec]:
    """All combinations, as runs."""
    datasets, conditions, signals = list(datasets), list(conditions), list(signals)
    check_known("a dataset", datasets, DATASETS, SpecError)
    check_known("a condition", conditions, CONDITIONS, SpecError)
    check_known("a signal", signals, SIGNALS.names(), SpecError)
    if epochs is not None and epochs < 1:
        raise SpecError(f"expected at least one epoch, got {epochs}")
    found = []
    common: dict[str, Any] = {"experiment": EXPERIMENT, "protocol": protocol.to_dict()}
    for dataset, condition, seed, signal in product(datasets, conditions, seeds, signals):
        params: dict[str, Any] = {"dataset": dataset, "epochs": epochs or protocol.epochs_for(dataset, condition)}
        found.append(RunSpec(condition=condition, method=signal, seed=seed, params=params, **common))
    return found


def run(run: Run, context: Context) -> None:
    """Carry out a locked run, from its last checkpoint if it has one."""
    resumable = ResumableRun(run, context)
    with one_thread():
        dataset = _dataset(run.spec, context)
        trial = _make(run.spec, context)
        state = resumable.restored()
        if state is not None:
            first = state.pop("dataset")
            if first != dataset.fingerprint:  # the curve would be of neither
                raise DataError(
                    f"expected the {dataset.name} that the run began with ({first[:12]}), got another copy "
                    f"({dataset.fingerprint[:12]}) from {dataset.source}; use the first one, or another --out"
                )
            trial.load_state_dict(state)
        epochs = planned_length(run.spec, "epochs")
        resumable.begin(trial.epoch, epochs, trial.step)  # progress counts epochs; a checkpoint counts batches

        def state_dict() -> dict[str, Any]:
            return {**trial.state_dict(), "dataset": dataset.fingerprint}

        while trial.epoch < epochs:
            row = trial.run_epoch(context.should_stop)
            if row is None:
                resumable.stop(trial.step, state_dict)
            run.log(row)
            resumable.progress(trial.epoch, {"test": row["test_loss_mean"]})
            resumable.save(trial.step, state_dict)
        facts = {"dataset": dataset.name, "fingerprint": dataset.fingerprint, "note": dataset.note}
        resumable.finish(trial.model.state_dict(), **facts)


def estimate(spec: RunSpec, context: Context) -> float:
    """Seconds that a run takes on one core, from a few batches and a test."""
    with one_thread():
        trial = _make(spec, context)
        trial.train_batch()
        batch, test = seconds_of(trial.train_batch, CALIBRATION_BATCHES), seconds_of(trial.test)
    return planned_length(spec, "epochs") * (batch * trial.batches + test)


def _make(spec: RunSpec, context: Context) -> Trial:
    protocol = Protocol.from_dict(spec.protocol)
    return Trial(_dataset(spec, context), spec.condition, spec.method, protocol, spec.seed, context.device)


def datasets(spec: RunSpec) -> tuple[str, ...]:
    """The datasets that a run needs."""
    return (str(spec.params["dataset"]),)


@lru_cache(maxsize=1)
def load_dataset(name: str, data_dir: Path | None) -> Dataset:
    """Load one of them, once for all runs of a process that follow each other."""
    return load(name, data_dir)


def _dataset(spec: RunSpec, context: Context) -> Dataset:
    name = str(spec.params["dataset"])
    return context.datasets.get(name) or load_dataset(name, context.data_dir)
