"""What an experiment is: a function that carries out one locked run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.runs import Run

WEIGHTS_FILE = "final.pt"
"""Where a run keeps its final weights, if it is to."""


def _never() -> bool:  # a lambda cannot be pickled
    return False


@dataclass(frozen=True)
class Context:
    """What a run may use besides its spec; none of it changes a number.

    Attributes:
        data_dir: where datasets are looked for first.
        device: where the tensors live.
        keep_weights: save the final weights with the run.
        checkpoint_seconds: the least time between two checkpoints.
        should_stop: asked between batches; when it says yes, the run checkpoints and stops.
        report: called with (step, total, losses) between epochs.
        threads: cores that a run may use.
        datasets: those that are in memory already, by name; the others are loaded.
        plugins: modules that are imported before the run, wherever it is carried out.
    """

    data_dir: Path | None = None
    device: str = "cpu"
    keep_weights: bool = False
    checkpoint_seconds: float = 10.0
    should_stop: Callable[[], bool] = _never
    report: Callable[[int, int, dict[str, float]], None] | None = None
    threads: int = 1
    datasets: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()


class Stopped(HeadwayError):  # noqa: N818 - it is a request, not an error
    """A run was asked to stop, and has left a checkpoint."""


Experiment = Callable[[Run, Context], None]
"""Carries a locked run to its end: restores, trains, logs, checkpoints and finishes it."""
