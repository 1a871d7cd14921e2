"""The monitor: per source and over time, how large gradients are and how much of them couples to what is learned."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from headway.errors import SignalError, StateError, warn
from headway.ranks import rank_and_replicas, summed
from headway.selection.mixture import FollowsScores, Mixture
from headway.selection.sources import listed, numbers_of, places_of
from headway.telemetry.states import History, State, Thresholds, advise, entropy, judge
from headway.telemetry.writers import COLUMNS, QUANTILES, Row, Writer, write_parquet

SCHEMA = 3
UNSOURCED = "all"
"""The name in the rows of training without sources."""
SUMS = ("samples", "norms", "gmc", "losses", "samples with a loss", "samples that are not finite")
"""What is added up for every source between two rows ..."""
BINS, PER_OCTAVE, LOWEST = 512, 8, -40
"""... and how many of its scores are in each bin, eight to a factor of two from 2^-40 on: the counts add up over
processes, and give quantiles to within 5%."""
WIDEST = 24
"""Longer names are cut in the printed table."""


class SourceMonitor:
    """Follows data sources by their gradients: how large they are, and how much of them takes part in learning.

        meter = headway.Meter(model, [headway.GMC(), headway.NormAll()])
        monitor = headway.SourceMonitor(["web", "books"], writers=[CsvWriter("sources.csv")])
        for x, y, source in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            monitor.update(source, meter.backward(losses), losses)

    Every so many batches it adds one row for each source: the mean loss, the share of samples, the mean gradient norm,
    the mean and quantiles of GMC, the coupling (GMC per gradient norm), a state and advice. See `State` and
    `Thresholds` for the states, and the page on telemetry for what they can and cannot tell.

    Args:
        sources: the names of the sources, in the order of their numbers; None for training without sources, whose
            rows are of the source "all".
        every: batches per row.
        writers: where rows go; they are kept in `rows` too.
        thresholds: where one state ends and another begins.
        norm: the name of the meter's signal for the gradient norm.
        gmc: the name of the meter's signal for the coupling.
        chance: the loss that each source has when nothing is known but how frequent its labels are, see
            `chance_losses`. With it, a source that waits on a plateau is told from one that has been learned.
        sampler: a sampler, mixture or stream over the sources, whose shares are put beside those that were drawn.
        sync: add up over the processes of torch.distributed, where it is in use; the first of them writes.

    Raises:
        SignalError: the arguments make no sense.
    """

    def __init__(
        self,
        sources: Sequence[str] | None = None,
        *,
        every: int = 50,
        writers: Sequence[Writer] = (),
        thresholds: Thresholds | None = None,
        norm: str = "norm_all",
        gmc: str = "gmc",
        chance: Mapping[str, float] | None = None,
        sampler: FollowsScores | Mixture | None = None,
        sync: bool = True,
    ) -> None:
        self.has_sources = sources is not None
        sources = [UNSOURCED] if sources is None else sources
        if isinstance(sources, str) or not sources or len(set(sources)) < len(sources):
            raise SignalError(f"expected sources of different names, in a list, got {sources!r}")
        if every < 1:
            raise SignalError(f"expected at least one batch per row, got every={every}")
        if not isinstance(writers, Sequence) or not all(map(_is_writer, writers)):
            raise SignalError(f"writers: expected a list of writers such as [CsvWriter(path)], got {writers!r}")
        places_of(sources, chance or (), SignalError)  # refuses unknown names
        self.names = tuple(sources)
        self.rows: list[Row] = []
        self.step = 0
        self._every = every
        self._writers = list(writers)
        self._thresholds = thresholds or Thresholds()
        self._keys = (norm, gmc)
        self._sync = sync
        self._sums = torch.zeros(len(SUMS) + BINS, len(self.names), dtype=torch.float64)
        self.sampler = sampler
        self.skipped = 0
        self._chance = dict(chance or {})
        self._histories = self._fresh()

    def _fresh(self) -> dict[str, History]:
        return {name: History(self._chance.get(name)) for name in self.names}

    def update(
        self,
        source_ids: Tensor | Sequence[int] | Sequence[str] | None,
        scores: Mapping[str, Tensor] | Tensor | None,
        losses: Tensor | None = None,
    ) -> None:
        """Take in a batch.

        Samples with a value that is NaN or infinite are left out, and counted in `skipped`.

        Args:
            source_ids: the source of each sample [B], by number or by name; None for training without sources.
            scores: what the meter gave for several signals, by name; None for a batch that it did not score. Without
                sources, the scores [B] of one signal will do, of whatever signal.
            losses: the samples' losses [B]; with them, the states know whether a source's loss falls.

        Raises:
            SignalError: a signal is missing, shapes differ, or there is no such source.
        """
        if scores is not None:
            if not self.has_sources:
                source_ids, scores = self._unsourced(source_ids, scores)
            elif source_ids is None:
                raise SignalError(f"expected the source of each sample out of {listed(self.names)}, got None")
            self._add(numbers_of(self.names, source_ids, SignalError), scores, losses)
        self.step += 1
        if self.step % self._every == 0:
            self.flush()

    def _unsourced(self, source_ids: Any, scores: Any) -> tuple[Tensor, Any]:
        """All samples as of one source, with a norm that is not known where there is none."""
        if source_ids is not None:
            raise SignalError("expected None for the sources of a monitor without any; make it with their names")
        norm, gmc = self._keys
        if isinstance(scores, Tensor):
            scores = {gmc: scores}
        if not isinstance(scores, Mapping) or gmc not in scores:
            return torch.zeros(0, dtype=torch.int64), scores
        own = scores[gmc]
        return torch.zeros(len(own), dtype=torch.int64), {norm: torch.zeros_like(own), **scores}

    def _add(self, ids: Tensor, scores: Mapping[str, Tensor] | Tensor, losses: Tensor | None) -> None:
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
        values = torch.stack([column.detach().double().cpu() for column in columns])
        finite = values.isfinite().all(0)
        bad = len(ids) - int(finite.sum())
        if bad and not self.skipped:
            warn(f"{bad} of {len(ids)} samples have a loss, norm or GMC that is NaN or infinite, and are left out")
        self.skipped += bad
        told = finite * float(losses is not None)
        rows = torch.cat([finite.double().unsqueeze(0), values.where(finite, 0.0), torch.stack([told, ~finite])])
        self._sums[: len(SUMS)].index_add_(1, ids.cpu(), rows)
        bins = (values[1].abs().log2() - LOWEST).mul(PER_OCTAVE).nan_to_num(0.0).clamp(0, BINS - 1).long()
        self._sums[len(SUMS) :].index_put_((bins, ids.cpu()), finite.double(), accumulate=True)

    def flush(self) -> None:
        """Make rows of the batches since the last, also if they are fewer than `every`."""
        sums = self._total()
        self._sums.zero_()
        total = float(sums[0].sum())
        targets = {} if self.sampler is None else self.sampler.weights
        added = [
            self._row(name, own[: len(SUMS)].tolist(), total) | _quantiles(own[len(SUMS) :])
            for name, own in zip(self.names, sums.T, strict=True)
            if own[0] or own[len(SUMS) - 1]
        ]
        self._note(added)
        for row in added:
            row["target"] = targets.get(row["source"])
            history = self._histories[row["source"]]
            row["state"], row["advice"] = str(history.state), advise(history)
        if added and self._process()[0] == 0:
            for writer in self._writers:
                writer.write(added)

    def _row(self, name: str, sums: Sequence[float], total: float) -> dict[str, Any]:
        """The row of one source; without numbers if none of its samples was finite."""
        samples, norm, gmc, loss, told, _ = sums
        has_norm = samples and (norm > 0 or self.has_sources)
        return {
            "step": self.step,
            "source": name,
            "loss": loss / told if told else None,
            "share": samples / total if samples else 0.0,
            "samples": int(samples),
            "gradient_norm": norm / samples if has_norm else None,
            "gmc": gmc / samples if samples else None,
            "coupling": (gmc / norm if norm > 0 else 0.0) if has_norm else None,
        }

    def _note(self, rows: Sequence[Row]) -> None:
        """Keep the rows of one step, and bring the states up to date with them."""
        self.rows += rows
        for row in rows:
            self._histories[row["source"]].add(row, self._thresholds)
        judge(self._histories, self._thresholds, [row["source"] for row in rows])

    def _total(self) -> Tensor:
        """The sums over all processes, on the host."""
        return summed(self._sums.clone()) if self._sync else self._sums.clone()

    def _process(self) -> tuple[int, int]:
        """Which process this is, and how many there are."""
        return rank_and_replicas(None, None) if self._sync else (0, 1)

    @property
    def states(self) -> dict[str, State]:
        """The state of every source by name, judged by the rows so far."""
        return {name: history.state for name, history in self._histories.items()}

    @property
    def advice(self) -> dict[str, str]:
        """What to do about every source, in one line each."""
        return {name: advise(history) for name, history in self._histories.items()}

    def __str__(self) -> str:
        """The latest row and the advice of every source, as a table of at most 80 columns."""
        latest = {row["source"]: row for row in self.rows}
        width = min(WIDEST, max(map(len, ("source", *self.names))))
        lines = [f"{'source':{width}}  {'step':>8}  {'loss':>9}  {'share':>6}  {'target':>6}  state"]
        for name, state in self.states.items():
            row = latest.get(name, {})
            forms = {"step": ">8", "loss": ">9.4g", "share": ">6.1%", "target": ">6.1%"}
            cells = (_cell(row.get(column), form) for column, form in forms.items())
            short = name if len(name) <= width else name[: width - 3] + "..."
            lines.append("  ".join((f"{short:{width}}", *cells, str(state))))
            lines += textwrap.wrap(self.advice[name], 80, initial_indent="    ", subsequent_indent="    ")
        return "\n".join(lines)

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
            "rank": 0 if together else self._process()[0],
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
        if state.get("schema") not in (2, SCHEMA) or list(state.get("names", [])) != list(self.names):
            raise StateError(
                f"expected a monitor's state of schema {SCHEMA} with the sources {list(self.names)}, "
                f"got {state.get('schema')!r} with {state.get('names')}"
            )
        self.step = state["step"]
        rank, processes = self._process()
        self._sums.zero_()
        if processes == 1 or rank == state.get("rank", 0):
            self._sums[: len(state["sums"])] = state["sums"]  # schema 2 has no bins
        self.skipped = state["skipped"]
        self.rows, self._histories = [], self._fresh()
        for _, rows in itertools.groupby(state["rows"], key=lambda row: row["step"]):
            self._note([dict.fromkeys(COLUMNS) | row for row in rows])
        if rank == 0:
            for writer in self._writers:
                writer.restart(self.rows)


def chance_losses(labels: Tensor, source_ids: Tensor, names: Sequence[str]) -> dict[str, float]:
    """The loss of each source when nothing is known but how frequent its labels are: their entropy, in nats.

    Args:
        labels: whole numbers [N], such as classes or tokens.
        source_ids: the number of the source of each [N].
        names: the sources.
    """
    found = {}
    for number, name in enumerate(names):
        _, counts = labels[source_ids == number].unique(return_counts=True)
        if len(counts):
            found[name] = entropy(counts.tolist())
    return found


def _quantiles(bins: Tensor) -> dict[str, float | None]:
    """Quantiles of scores that were counted in bins [BINS]; the geometric middle of the bin that has each."""
    total = float(bins.sum())
    if not total:
        return dict.fromkeys(QUANTILES)
    places = torch.searchsorted(bins.cumsum(0), torch.tensor(list(QUANTILES.values()), dtype=bins.dtype) * total)
    middles = (2.0 ** ((place + 0.5) / PER_OCTAVE + LOWEST) if place else 0.0 for place in places.tolist())
    return dict(zip(QUANTILES, middles, strict=True))


def _cell(value: float | None, form: str) -> str:
    """A number in a column; a dash where there is none."""
    return f"{'-':>{form[1]}}" if value is None else f"{value:{form}}"


def _is_writer(given: Any) -> bool:
    return isinstance(given, Writer) and not isinstance(given, type)
