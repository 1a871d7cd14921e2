"""The controlled study: which signal leads to which curriculum, and which falls for noise."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import torch

from headway.data import DATASETS, Dataset, load
from headway.errors import DataError, SpecError, did_you_mean
from headway.runs import Run, RunSpec
from headway.runs.experiments import WEIGHTS_FILE, Context, Stopped
from headway.runs.provenance import continued, in_words
from headway.study.determinism import made_here, one_thread, saves, saves_json
from headway.study.image_environment import CONDITIONS
from headway.study.protocols.classification import Protocol
from headway.study.signals import SIGNALS
from headway.study.trial import Trial

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
    for what, names, known in (
        ("dataset", datasets := list(datasets), tuple(DATASETS)),
        ("condition", conditions := list(conditions), CONDITIONS),
        ("signal", signals := list(signals), SIGNALS.names()),
    ):
        for name in names:
            if name not in known:
                raise SpecError(f"expected a {what} out of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
    seeds = list(seeds)
    if epochs is not None and epochs < 1:
        raise SpecError(f"expected at least one epoch, got {epochs}")
    return [
        RunSpec(
            experiment=EXPERIMENT,
            condition=condition,
            method=signal,
            seed=seed,
            params={"dataset": dataset, "epochs": epochs or protocol.epochs_for(dataset, condition)},
            protocol=protocol.to_dict(),
        )
        for dataset in datasets
        for condition in conditions
        for seed in seeds
        for signal in signals
    ]


def run(run: Run, context: Context) -> None:
    """Carry out a claimed run, from its last checkpoint if it has one."""
    made_with = [made_here(context.device)]
    with one_thread():
        dataset = _dataset(run.spec, context)
        trial = _make(run.spec, context)
        checkpoint = run.restore()
        if checkpoint is not None:
            state = torch.load(io.BytesIO(checkpoint.payload), map_location="cpu", weights_only=True)
            _check_data(state.pop("dataset"), dataset)
            made_with = continued(state.pop("provenance", [{}]), made_with[-1])
            trial.load_state_dict(state)
        epochs = _epochs(run.spec)
        first, start = trial.epoch, time.monotonic()
        run.progress(first, epochs)  # progress counts epochs; a checkpoint counts batches
        if context.report is not None and first:
            context.report(first, epochs, {})
        saved, last = trial.step, start
        while trial.epoch < epochs:
            row = trial.run_epoch(context.should_stop)
            if row is not None:
                run.log(row)
                losses = {"test": row["test_loss_mean"]}
                speed = (trial.epoch - first) / max(time.monotonic() - start, 1e-9)
                run.progress(trial.epoch, epochs, losses, speed)
                if context.report is not None:
                    context.report(trial.epoch, epochs, losses)
            due = row is None or time.monotonic() - last >= context.checkpoint_seconds
            if due and trial.step > saved:
                origin = {"dataset": dataset.fingerprint, "provenance": made_with}
                run.checkpoint(trial.step, saves({**trial.state_dict(), **origin}))
                saved, last = trial.step, time.monotonic()
            if row is None:
                raise Stopped("stopped on request")
        if context.keep_weights:
            run.save(WEIGHTS_FILE, saves(trial.model.state_dict()))
        facts = {**in_words(made_with), "dataset": dataset.name}
        facts |= {"fingerprint": dataset.fingerprint, "note": dataset.note}
        run.save("provenance.json", saves_json(facts))
        run.finish()


def estimate(spec: RunSpec, context: Context) -> float:
    """Seconds that a run takes on one core, from a few batches and a test."""
    with one_thread():
        trial = _make(spec, context)
        trial.train_batch()
        start = time.perf_counter()
        for _ in range(CALIBRATION_BATCHES):
            trial.train_batch()
        batch = (time.perf_counter() - start) / CALIBRATION_BATCHES
        start = time.perf_counter()
        trial.test()
        test = time.perf_counter() - start
    return _epochs(spec) * (batch * trial.batches + test)


def _epochs(spec: RunSpec) -> int:
    epochs = spec.params["epochs"]
    if not isinstance(epochs, int):
        raise SpecError(f"expected a whole number of epochs, got {epochs!r}")
    return epochs


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
    (name,) = datasets(spec)
    return context.datasets.get(name) or load_dataset(name, context.data_dir)


def _check_data(fingerprint: str, dataset: Dataset) -> None:
    """Refuse to go on with other images than the run began with: its curve would be of neither."""
    if fingerprint != dataset.fingerprint:
        raise DataError(
            f"expected the {dataset.name} that the run began with ({fingerprint[:12]}), got another copy "
            f"({dataset.fingerprint[:12]}) from {dataset.source}; use the first one, or another --out"
        )
