"""Metrics for TensorBoard: `Mirror` copies what the store holds of the runs into event files.

The store is the source, so that the files show exactly what was kept: a run that is killed between two checkpoints
and goes on from the first leaves no point twice. A run's file is begun anew by every campaign that works on the run,
and a session start in it tells a TensorBoard that is already open to drop what it has read before.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import StoreError, import_extra
from headway.runs import Columns, RunSpec, RunStore, State
from headway.runs.progress import Advanced, Ended, Event, Outcome, Started

INTERVAL = 5.0
"""The least time between two looks at a run's metrics, in seconds; it checkpoints every 10 or so."""
DONE_FILE = "headway.json"
STEP_COLUMNS = ("epoch", "env_steps", "step", "steps", "rollout")
"""The columns that can say how far a run was at a row; the first that is there does."""

_UNSAFE = re.compile(r"[^A-Za-z0-9+_-]+", re.ASCII)


def folder_name(spec: RunSpec) -> str:
    """The folder of a run, which is also its name in TensorBoard, such as "controlled/mnist/noise/gmc/seed 3 1a2b3c4d".

    Names are reduced to letters, digits, plus, minus and underscore; the id keeps them apart.
    """
    parts = (spec.experiment, str(spec.params.get("dataset", "")), spec.condition, spec.method)
    clean = [_UNSAFE.sub("_", part)[:60] for part in parts if part]
    return "/".join([*clean, f"seed-{spec.seed}-{spec.run_id[:8]}"])


def scalars(columns: Columns, row: int, spec: RunSpec) -> dict[str, float]:
    """The numbers of a row by tag: a list becomes a tag for each place, such as "draw_share/2".

    Returns are in the environment's own unit, without the protocol's factor.
    """
    found: dict[str, float] = {}
    for name, values in columns.items():
        value = values[row]
        if isinstance(value, list):
            numbers = ((place, item) for place, item in enumerate(value) if isinstance(item, (bool, int, float)))
            found |= {f"{name}/{place}": float(item) for place, item in numbers}
        elif isinstance(value, (bool, int, float)):
            found[name] = float(value)
    scale = spec.protocol.get("extrinsic_scale")
    if "episode_return" in found and isinstance(scale, (int, float)) and scale:
        found["episode_return"] /= scale
    return found


def steps_of(columns: Columns, rows: int) -> list[int]:
    """How far the run was at each row; rows are counted from 1 when no column says it."""
    for name in STEP_COLUMNS:
        values = columns.get(name, [])
        whole = [int(value) for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
        if len(whole) == rows:
            return whole
    return list(range(1, rows + 1))


@dataclass
class _Copy:
    """The event file of a run, and how many rows are in it."""

    writer: Any
    folder: Path
    rows: int = 0

    def write(self, values: list[dict[str, Any]], step: int) -> None:
        """Write values of a step."""
        from tensorboard.compat.proto.event_pb2 import Event as Record
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(**value) for value in values])
        self.writer.add_event(Record(wall_time=time.time(), step=step, summary=summary))


class Mirror:
    """Copies the stored metrics of runs into event files, one folder per run; a context that closes the files.

    Trouble with the files (a full disk, say) is reported once and ends the copying; the runs go on.
    """

    def __init__(
        self,
        store: RunStore,
        folder: Path,
        specs: Iterable[RunSpec],
        clock: Callable[[], float] = time.monotonic,
        complain: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    ) -> None:
        _event_file_writer()
        self._store = store
        self._folder = folder
        self._specs = {spec.run_id: spec for spec in specs}
        self._clock = clock
        self._complain = complain
        self._copies: dict[str, _Copy] = {}
        self._due: dict[str, float] = {}
        self._is_broken = False

    def notice(self, event: Event) -> None:
        """Copy what has been stored of a run since the last time, if it is worth a look."""
        now = self._clock()
        if isinstance(event, Started):
            self._due[event.run_id] = now
        elif isinstance(event, Advanced) and now >= self._due.get(event.run_id, now):
            self._due[event.run_id] = now + INTERVAL
            self._guard(self._copy, self._specs[event.run_id])
        elif isinstance(event, Ended) and event.outcome is not Outcome.HELD:
            self._guard(self._finish, self._specs[event.run_id])

    def catch_up(self) -> None:
        """Copy runs that were done before and are not in the folder yet."""
        for spec in self._specs.values():
            if not self._is_copied(spec) and self._store.record(spec.run_id).state is State.DONE:
                self._guard(self._finish, spec)

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *error: object) -> None:
        for copy in self._copies.values():
            with contextlib.suppress(OSError):  # the last flush has reported it
                copy.writer.close()
        self._copies.clear()

    def _guard(self, act: Callable[[RunSpec], None], spec: RunSpec) -> None:
        if self._is_broken:
            return
        try:
            act(spec)
        except StoreError:
            pass  # what is wrong with this run is reported with its state
        except OSError as error:
            self._is_broken = True
            self._complain(f"headway: cannot write for TensorBoard to {self._folder} ({error}); the runs go on without")

    def _copy(self, spec: RunSpec) -> None:
        copy = self._copies.get(spec.run_id) or self._open(spec)
        columns = self._store.metrics(spec.run_id)
        rows = max(map(len, columns.values()), default=0)
        steps = steps_of(columns, rows)
        for row in range(copy.rows, rows):
            values = scalars(columns, row, spec)
            copy.write([{"tag": tag, "simple_value": value} for tag, value in values.items()], steps[row])
        copy.writer.flush()
        copy.rows = max(copy.rows, rows)  # fewer if a damaged checkpoint was skipped: the same rows come again

    def _finish(self, spec: RunSpec) -> None:
        if spec.run_id not in self._copies and self._is_copied(spec):
            return
        self._copy(spec)
        copy = self._copies.pop(spec.run_id)
        copy.writer.close()
        if self._store.record(spec.run_id).state is State.DONE:
            text = json.dumps({"run_id": spec.run_id, "rows": copy.rows})
            (copy.folder / DONE_FILE).write_text(text + "\n")

    def _open(self, spec: RunSpec) -> _Copy:
        """Begin a run's file anew, with a session and the spec as text; an older one goes only when it is there."""
        from tensorboard.compat.proto.event_pb2 import Event as Record
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.plugins.text.metadata import create_summary_metadata
        from tensorboard.util.tensor_util import make_tensor_proto

        folder = self._folder / folder_name(spec)
        old = [*folder.glob("*tfevents*"), folder / DONE_FILE]
        copy = self._copies[spec.run_id] = _Copy(_event_file_writer()(str(folder)), folder)
        copy.writer.add_event(Record(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.START)))
        text = make_tensor_proto([f"```json\n{spec.to_json()}```".encode()])
        copy.write([{"tag": "spec", "metadata": create_summary_metadata("spec", ""), "tensor": text}], 0)
        for path in old:
            path.unlink(missing_ok=True)
        return copy

    def _is_copied(self, spec: RunSpec) -> bool:
        return (self._folder / folder_name(spec) / DONE_FILE).is_file()


def _event_file_writer() -> Any:
    return import_extra("tensorboard.summary.writer.event_file_writer", "tensorboard").EventFileWriter
