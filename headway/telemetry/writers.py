"""Where telemetry goes: CSV, Parquet, TensorBoard, Weights & Biases. All but CSV need a package of their own."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from headway.errors import MissingExtraError, SignalError, WrongVersionError

Row = Mapping[str, Any]

QUANTILES = {"gmc_q10": 0.1, "gmc_q50": 0.5, "gmc_q90": 0.9}
NUMBERS = ("loss", "share", "target", "samples", "gradient_norm", "gmc", *QUANTILES, "coupling")
COLUMNS = ("step", "source", *NUMBERS, "state", "advice")
"""What a row has; the page on telemetry explains it."""
LATER = {"target", *QUANTILES, "advice"}
"""The columns that files of earlier versions do not have."""

LEAST_WANDB = "0.20"
"""The oldest wandb that works, as pyproject.toml has it."""


@runtime_checkable
class Writer(Protocol):
    """Somewhere to put rows. Rows come in groups, one row for each source that was seen since the last group."""

    def write(self, rows: Sequence[Row]) -> None:
        """Add some rows."""
        ...

    def restart(self, rows: Sequence[Row]) -> None:
        """A state was loaded: these rows, and no others, have been written up to it."""
        return

    def close(self) -> None:
        """Nothing more will come."""
        return


class CsvWriter(Writer):
    """Rows in a CSV file, on the disk as soon as they come.

    Args:
        path: the file. One that is there is replaced when the first rows come, also one of an earlier run: give every
            run a name of its own. A run that goes on from `SourceMonitor.load_state_dict` has its earlier rows in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._begun = False

    def write(self, rows: Sequence[Row]) -> None:
        """See `Writer.write`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a" if self._begun else "w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file, lineterminator="\n")
            if not self._begun:
                lines.writerow(COLUMNS)
            lines.writerows([[_text(row[name]) for name in COLUMNS] for row in rows])
        self._begun = True

    def restart(self, rows: Sequence[Row]) -> None:
        """Write the file anew, so that no step is in it twice."""
        self._begun = False
        self.write(rows)


class TensorBoardWriter(Writer):
    """Scalars such as "loss/web", and the state of each source with advice, as text when it changes.

    What TensorBoard has stays when a state is loaded; steps that come again are shown at the same place.

    Args:
        target: a folder for event files, or a SummaryWriter (Lightning: `logger.experiment`).

    Raises:
        MissingExtraError: a folder was given, and tensorboard is not installed.
    """

    def __init__(self, target: Any) -> None:
        self._own = isinstance(target, str | os.PathLike)
        if self._own:
            target = _imported("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(target))
        self._writer = target
        self._states: dict[str, str] = {}

    def write(self, rows: Sequence[Row]) -> None:
        """See `Writer.write`."""
        for row in rows:
            source, step = row["source"], row["step"]
            for name in NUMBERS:
                if row[name] is not None:
                    self._writer.add_scalar(f"{name}/{source}", row[name], step)
            if self._states.get(source) != row["state"]:
                self._states[source] = row["state"]
                self._writer.add_text(f"state/{source}", row["state"], step)
                self._writer.add_text(f"advice/{source}", row["advice"], step)

    def close(self) -> None:
        """Close what was opened here; a writer that was handed in is its owner's."""
        self._writer.flush()
        if self._own:
            self._writer.close()


class WandbWriter(Writer):
    """Numbers such as "sources/web/loss" in a run of Weights & Biases.

    Args:
        run: a run that `wandb.init` gave; None takes the one that is open.
        step: the name of the step on the horizontal axis, apart from the run's own count.

    Raises:
        MissingExtraError: no run was given, and wandb is not installed.
        WrongVersionError: wandb is too old.
        SignalError: no run is open, or what was given is none.
    """

    def __init__(self, run: Any = None, step: str = "sources/step") -> None:
        if run is None or type(run).__module__.partition(".")[0] == "wandb":
            wandb = _imported("wandb", "wandb")
            if _release(wandb.__version__) < _release(LEAST_WANDB):
                raise WrongVersionError("wandb", LEAST_WANDB, wandb.__version__, "wandb")
            run = wandb.run if run is None else run
        if not hasattr(run, "define_metric"):
            raise SignalError(f"expected an open run that wandb.init() gave, got {run!r}; call wandb.init() first")
        self._run, self._step = run, step
        self._run.define_metric(step)
        self._run.define_metric("sources/*", step_metric=step)

    def write(self, rows: Sequence[Row]) -> None:
        """See `Writer.write`."""
        by_step: dict[int, dict[str, Any]] = {}
        for row in rows:
            values = by_step.setdefault(row["step"], {self._step: row["step"]})
            for name in (*NUMBERS, "state", "advice"):
                if row[name] is not None:
                    values[f"sources/{row['source']}/{name}"] = row[name]
        for values in by_step.values():
            self._run.log(values)


def write_parquet(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Put rows into a Parquet file, with the columns of the CSV file.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    from headway.runs.metrics import to_parquet

    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    content = to_parquet(columns, {"headway": "source telemetry, schema 2"})
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _text(value: Any) -> Any:
    """A number so that it can be read back exactly; nothing for None."""
    return "" if value is None else repr(value) if isinstance(value, float) else value


def _imported(module: str, package: str) -> Any:
    """A module of a package that an extra of the same name installs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, package) from error


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers of a version: "0.20.1" -> (0, 20)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
