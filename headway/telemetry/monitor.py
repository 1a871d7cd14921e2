"""The monitor: per source and over time, how large gradients are and how much of them couples to what is learned."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from headway.errors import SignalError, StateError, did_you_mean, warn
from headway.selection.ranks import summed
from headway.telemetry.states import Reading, State, Thresholds, name_states
from headway.telemetry.writers import Row, Writer, write_parquet

SCHEMA = 2
SUMS = ("samples", "norms", "gmc", "losses", "samples with a loss", "samples that are not finite")
"""What is added up for every source between two rows."""


class SourceMonitor:
    """Follows data sources by their gradients: how large they are, and how much of them takes part in learning.

        meter = headway.Meter(model, [headway.GMC(), headway.NormAll()])
        monitor = headway.SourceMonitor(["web", "books"], writers=[CsvWriter("sources.csv")])
        for x, y, source in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            monitor.update(source, meter.backward(losses), losses)

    Every so many batches it adds one row for each source: the mean gradient norm, the mean GMC, their ratio (the
    coupling), the mean loss and a state. See `State` and `Thresholds` for the states, and the page on telemetry for
    what they can and cannot tell.

    Args:
        sources: the names of the sources, in the order of their numbers.
        every: batches per row.
        writers: where rows go; they are kept in `rows` too.
        thresholds: where one state ends and another begins.
        norm: the name of the meter's signal for the gradient norm.
        gmc: the name of the meter's signal for the coupling.
        sync: add up over the processes of torch.distributed, where it is in use; the first of them writes.

    Raises:
        SignalError: the arguments make no sense.
    """

    def __init__(
        self,
        sources: Sequence[str],
        *,
        every: int = 50,
        writers: Sequence[Writer] = (),
        thresholds: Thresholds | None = None,
        norm: str = "norm_all",
        gmc: str = "gmc",
        sync: bool = True,
    ) -> None:
        """Start without rows."""
        if isinstance(sources, str):
            raise SignalError(f"expected the names of sources, got {sources!r}; pass [{sources!r}]")
        if not sources or len(set(sources)) < len(sources):
            raise SignalError(f"expected sources of different names, got {list(sources)}")
        if every < 1:
            raise SignalError(f"expected at least one batch per row, got every={every}")
        _check_writers(writers)
        self.names = tuple(sources)
        self.rows: list[Row] = []
        self.step = 0
        self._every = every
        self._writers = list(writers)
        self._thresholds = thresholds or Thresholds()
        self._keys = (norm, gmc)
        self._sync = sync
        self._sums = torch.zeros(len(SUMS), len(self.names), dtype=torch.float64)
        self.skipped = 0
        self._readings: dict[str, Reading] = {}

    def update(
        self,
        source_ids: Tensor | Sequence[int] | Sequence[str],
        scores: Mapping[str, Tensor] | None,
        losses: Tensor | None = None,
    ) -> None:
        """Take in a batch.

        Samples with a value that is NaN or infinite are left out, and counted in `skipped`.

        Args:
            source_ids: the source of each sample [B], by number or by name.
            scores: what the meter gave for several signals, by name; None for a batch that it did not score.
            losses: the samples' losses [B]; with them, the states know whether a source's loss falls.

        Raises:
            SignalError: a signal is missing, shapes differ, or there is no such source.
        """
        if scores is not None:
            self._add(self._ids(source_ids), scores, losses)
        self.step += 1
        if self.step % self._every == 0:
            self.flush()

    def _ids(self, source_ids: Any) -> Tensor:
        if isinstance(source_ids, str):
            raise SignalError(f"expected a source for each sample, got {source_ids!r}; pass [{source_ids!r}]")
        if not isinstance(source_ids, Tensor) and len(source_ids) and isinstance(source_ids[0], str):
            known = {name: number for number, name in enumerate(self.names)}
            for name in source_ids:
                if name not in known:
                    wanted, near = ", ".join(self.names), did_you_mean(str(name), self.names)
                    raise SignalError(f"expected one of the sources {wanted}, got {name!r}{near}")
            return torch.tensor([known[name] for name in source_ids])
        ids = torch.as_tensor(source_ids).detach()
        if len(ids) and (ids.is_floating_point() or ids.dtype == torch.bool):
            raise SignalError(f"expected the numbers or names of sources, got {ids.dtype}")
        return ids.long()

    def _add(self, ids: Tensor, scores: Mapping[str, Tensor], losses: Tensor | None) -> None:
        if not isinstance(scores, Mapping) or any(key not in scores for key in self._keys):
            got = list(scores) if isinstance(scores, Mapping) else type(scores).__name__
            raise SignalError(
                f"expected scores of the signals {self._keys[0]!r} and {self._keys[1]!r} by name, got {got}; "
                f"make the meter with [headway.GMC(), headway.NormAll()]"
            )
        columns = [scores[key] for key in self._keys]
        columns.append(torch.zeros(len(ids)) if losses is None else losses)
        if any(column.shape != ids.shape for column in columns):
            shapes = [list(column.shape) for column in columns]
            raise SignalError(f"expected one value for each of {len(ids)} samples, got shapes {shapes}")
        if len(ids) and not (int(ids.min()) >= 0 and int(ids.max()) < len(self.names)):
            raise SignalError(
                f"expected sources from 0 to {len(self.names) - 1}, got numbers from {int(ids.min())} to "
                f"{int(ids.max())}"
            )
        values = torch.stack([column.detach().double().cpu() for column in columns])
        finite = values.isfinite().all(0)
        self._report(len(ids) - int(finite.sum()), len(ids))
        told = finite * float(losses is not None)
        rows = torch.cat([finite.double().unsqueeze(0), values.where(finite, 0.0), torch.stack([told, ~finite])])
        self._sums.index_add_(1, ids.cpu(), rows)

    def _report(self, bad: int, of: int) -> None:
        if bad and not self.skipped:
            warn(f"{bad} of {of} samples have a loss, norm or GMC that is NaN or infinite, and are left out")
        self.skipped += bad

    def flush(self) -> None:
        """Make rows of the batches since the last, also if they are fewer than `every`."""
        sums = self._total()
        self._sums.zero_()
        total = float(sums[0].sum())
        added = [
            self._row(name, own, total)
            for name, own in zip(self.names, sums.T.tolist(), strict=True)
            if own[0] or own[-1]
        ]
        for row in added:
            self._note(row)
        states = self.states
        for row in added:
            row["state"] = str(states[row["source"]])
        if added and self._is_first():
            for writer in self._writers:
                writer.write(added)

    def _row(self, name: str, sums: Sequence[float], total: float) -> dict[str, Any]:
        """The row of one source; without numbers if none of its samples was finite."""
        samples, norm, gmc, loss, told, _ = sums
        return {
            "step": self.step,
            "source": name,
            "samples": int(samples),
            "share": samples / total if samples else 0.0,
            "loss": loss / told if told else None,
            "gradient_norm": norm / samples if samples else None,
            "gmc": gmc / samples if samples else None,
            "coupling": (gmc / norm if norm > 0 else 0.0) if samples else None,
            "state": str(State.UNSEEN),
        }

    def _note(self, row: Row) -> None:
        """Keep a row, and what the states need of it."""
        self.rows.append(row)
        before = self._readings.get(row["source"])
        before = before or Reading(0.0, 0.0, 0.0)
        if not row["samples"]:
            self._readings[row["source"]] = dataclasses.replace(before, is_finite=False)
            return
        norm, losses, highest = row["gradient_norm"], list(before.losses), before.highest_loss
        if row["loss"] is not None:
            losses = [*losses, row["loss"]][-self._thresholds.rows :]
            highest = max(highest, row["loss"])
        self._readings[row["source"]] = Reading(norm, row["coupling"], max(norm, before.peak), losses, highest)

    def _total(self) -> Tensor:
        """The sums over all processes, on the host."""
        own = self._sums.clone()
        return summed(own) if self._sync else own

    def _is_distributed(self) -> bool:
        return self._sync and distributed.is_available() and distributed.is_initialized()

    def _rank(self) -> int:
        return distributed.get_rank() if self._is_distributed() else 0

    def _is_first(self) -> bool:
        return self._rank() == 0

    @property
    def states(self) -> dict[str, State]:
        """The state of every source by name, judged by the rows so far."""
        named = name_states(self._readings, self._thresholds)
        return {name: named.get(name, State.UNSEEN) for name in self.names}

    def write_parquet(self, path: Any) -> None:
        """Put all rows into a Parquet file; pyarrow has to be installed."""
        write_parquet(self.rows, path)

    def close(self) -> None:
        """Make the last rows, and close the writers."""
        self.flush()
        for writer in self._writers:
            writer.close()

    def state_dict(self, together: bool = False) -> dict[str, Any]:
        """The rows so far, and what the next ones will be made of.

        Args:
            together: add up what all processes know of the next rows, so that the state of one serves them all. All of
                them have to call it then. Otherwise a state has what its own process knows, and is for that one.
        """
        return {
            "schema": SCHEMA,
            "names": list(self.names),
            "step": self.step,
            "sums": self._total() if together else self._sums.clone(),
            "rank": 0 if together else self._rank(),
            "skipped": self.skipped,
            "rows": [dict(row) for row in self.rows],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; a CSV file is written anew, without what came after it.

        Of several processes, the one that a state is from takes over what its next rows will be made of, and the first
        one does of a state that they made together: they are added up, and must be in them once.

        Raises:
            StateError: it belongs to other sources, or to a newer version.
        """
        if state.get("schema") != SCHEMA or list(state.get("names", [])) != list(self.names):
            raise StateError(
                f"expected a monitor's state of schema {SCHEMA} with the sources {list(self.names)}, "
                f"got {state.get('schema')!r} with {state.get('names')}"
            )
        self.step = state["step"]
        is_own = not self._is_distributed() or self._rank() == state.get("rank", 0)
        self._sums = state["sums"].clone() if is_own else torch.zeros_like(self._sums)
        self.skipped = state["skipped"]
        self.rows, self._readings = [], {}
        for row in state["rows"]:
            self._note(dict(row))
        if self._is_first():
            for writer in self._writers:
                writer.restart(self.rows)


def _check_writers(writers: Any) -> None:
    """Refuse what would fail only with the first row."""
    if isinstance(writers, Writer | str):
        raise SignalError(f"writers: expected a list of writers, got {writers!r}; pass [CsvWriter(path)]")
    for writer in writers:
        if isinstance(writer, type) or not isinstance(writer, Writer):
            raise SignalError(f"writers: expected writers such as CsvWriter(path), got {writer!r}")
