"""One run as the analysis sees it: what it was, where it stands, and its metrics as arrays, straight from Parquet."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from headway.errors import DamagedError, SpecError
from headway.runs import Json, RunSpec, State
from headway.runs.jsonable import freeze, parse_object, thaw
from headway.runs.metrics import MAX_VALUES, pyarrow, read_table
from headway.study.protocols.labels import PRESETS, former_choices, protocol_label
from headway.study.protocols.names import CONDITIONS, DATASETS, EXPERIMENTS, METHODS, rank, title

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True)
class Group:
    """What runs must share to be compared or pooled: everything but the method and the seed."""

    experiment: str  #: The experiment, such as "controlled"
    dataset: str | None  #: The dataset; None in an experiment without one
    condition: str  #: The condition, such as "noise"
    protocol: str  #: The label of the protocol, which names every change from a preset

    @property
    def title(self) -> str:
        """Name the group for people, such as "Curriculum+MNIST" or "MiniGrid DoorKey, Door noise"."""
        if self.dataset:
            return f"{title(self.condition)}+{title(self.dataset)}"
        return ", ".join(filter(None, (title(self.experiment), title(self.condition))))

    @property
    def order(self) -> tuple[object, ...]:
        """A key to sort groups by: protocol, experiment, condition, dataset."""
        preset = self.protocol.split(",")[0]
        return (
            rank(dict.fromkeys((name for presets in PRESETS.values() for name in presets), ""), preset),
            self.protocol,
            rank(EXPERIMENTS, self.experiment),
            rank(CONDITIONS, self.condition),
            rank(DATASETS, self.dataset),
        )


@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    done: int = 0  #: Steps done: epochs, or steps in the environment
    total: int | None = None  #: Steps at which it is finished, when known
    seconds: float = 0.0  #: Time spent on it, over all attempts
    speed: float | None = None  #: Steps per second of the last attempt, when known
    updated_at: float | None = None  #: When this was written, in seconds since 1970

    @property
    def seconds_left(self) -> float | None:
        """Time that the rest will take at this speed; None when unknown."""
        if self.total is None or not self.speed:
            return None
        return max(0, self.total - self.done) / self.speed


@dataclass(frozen=True)
class Failure:
    """Why a run failed."""

    message: str  #: The last line of the traceback
    traceback: str  #: All of it

    @classmethod
    def of(cls, text: str) -> Failure | None:
        """Make one from a traceback; None when there is none."""
        lines = text.strip().splitlines()
        return cls(lines[-1].strip(), text) if lines else None


@dataclass(frozen=True, eq=False)
class RunData:
    """A run and its metrics."""

    id: str  #: The id of its spec
    spec: RunSpec  #: What it is
    state: State  #: Where it stands. A run whose files are damaged is CORRUPT, and has no columns.
    columns: Mapping[str, Array] = field(default_factory=dict)
    """Metrics by name, one entry per epoch or rollout: [rows], or [rows, arms]; read-only. What there is, if it is
    not finished."""
    progress: Progress = field(default_factory=Progress)  #: How far it has come
    error: Failure | None = None  #: Why it failed, if it did
    note: str = ""  #: What its last process remarked, such as why it stopped
    host: str = ""  #: Where it last ran
    environment: Mapping[str, Json] = field(default_factory=dict)
    """What its numbers rest on besides its spec: versions, the dataset's fingerprint and note."""
    stands_in: bool = False
    """Whether it stands in for a run that does what its preset now says, and it does not; see `former`."""
    protocol: str = field(init=False)
    """The label of its protocol: "released", "paper", "demo", or one of them with the changes."""

    def __post_init__(self) -> None:
        """Name the protocol."""
        object.__setattr__(self, "protocol", protocol_label(self.spec, with_former=not self.stands_in))

    @property
    def former(self) -> tuple[str, ...]:
        """What it does as runs did before its preset came to do it otherwise, such as "uniform=actor"."""
        return former_choices(self.spec)

    @property
    def experiment(self) -> str:
        """The experiment."""
        return self.spec.experiment

    @property
    def dataset(self) -> str | None:
        """The dataset; None in an experiment without one."""
        name = self.spec.params.get("dataset")
        return None if name is None else str(name)

    @property
    def condition(self) -> str:
        """The condition."""
        return self.spec.condition

    @property
    def method(self) -> str:
        """The signal or exploration method."""
        return self.spec.method

    @property
    def seed(self) -> int:
        """The seed."""
        return self.spec.seed

    @property
    def finished(self) -> bool:
        """Whether it has ended, with all its metrics here."""
        return self.state is State.DONE

    @property
    def group(self) -> Group:
        """What it shares with the runs that it may be compared with."""
        return Group(self.experiment, self.dataset, self.condition, self.protocol)

    @property
    def rows(self) -> int:
        """Epochs or rollouts for which there are metrics."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @property
    def label(self) -> str:
        """Name the run for people, such as "Noise+MNIST, GMC, seed 3"."""
        return f"{self.group.title}, {title(self.method)}, seed {self.seed}"

    @property
    def order(self) -> tuple[object, ...]:
        """A key to sort runs by: group, method, seed."""
        return (self.group.order, rank(METHODS, self.method), self.seed, self.id)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by key, keys and items in the order in which they come up."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def planned_epochs(run: RunData) -> int | None:
    """How many epochs a run was meant to have; None in an experiment that does not count in epochs."""
    return _count(run, "epochs")


def _count(run: RunData, name: str) -> int | None:
    """A parameter that counts something; None where there is none."""
    number = run.spec.params.get(name)
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None


def what_is_missing(run: RunData) -> str:
    """What a run that says it is finished lacks, in words; empty if it is whole, or not finished."""
    if not run.finished or not run.columns:
        return ""
    for planned, got, unit in (
        (planned_epochs(run), run.rows, "epochs"),
        (_count(run, "steps"), _last_step(run), "steps"),
    ):
        if planned is not None and got is not None and got < planned:
            return f"expected the metrics of {planned} {unit} from a finished run, got {got}; run it again"
    return ""


LISTS = frozenset({"train_count", "draw_share", "train_loss", "score_mean", "test_count", "test_loss"})
"""The metrics of a controlled run that have a number for each arm; all others of the known experiments have one."""


def what_is_odd(run: RunData) -> str:
    """Which metric of a known experiment is of another kind than its runs log, in words; empty if none is."""
    if run.experiment not in EXPERIMENTS:
        return ""
    for name, values in run.columns.items():
        is_list = run.experiment == "controlled" and name in LISTS
        expected = "a list of numbers" if is_list else "a number"
        if values.dtype.kind not in "biuf":
            return f"expected {expected} in every row of the metric {name}, got text; run it again"
        if run.finished and len(values) and (values.ndim == 2) != is_list and (is_list or name in _NUMBERS):
            got = "a list" if values.ndim == 2 else "a number"
            return f"expected {expected} in every row of the metric {name}, got {got}; run it again"
    return ""


_NUMBERS = frozenset({"epoch", "test_loss_mean", "policy_entropy", "under_floor", "momentum_within_bound"}) | {
    *("env_steps", "episodes", "episode_return", "episode_length", "noise_reward_share", "noise_time_share")
}


def parse_environment(text: str | bytes, what: str) -> Mapping[str, Json]:
    """Read what a run wrote down about versions and data."""
    try:
        environment: Mapping[str, Json] = thaw(freeze(parse_object(text, what, DamagedError), "provenance"))
    except SpecError as error:
        raise DamagedError(f"{what}: {error}") from None
    return environment


def _last_step(run: RunData) -> int | None:
    """The environment steps up to the last metrics of an exploration run; None where they were not logged or read."""
    steps = run.columns.get("env_steps")
    if steps is None or not all(map(math.isfinite, steps[-1:])):
        return None
    return int(steps[-1]) if len(steps) else 0


@dataclass(frozen=True)
class Problem:
    """Something in a store or an export that could not be used."""

    id: str  #: The id of the run, or the name of the file
    label: str  #: What it was meant to be, for people; empty when unknown
    message: str  #: What is wrong, in a sentence

    @property
    def name(self) -> str:
        """What it is called in a message: by its label and its id."""
        return f"{self.label} ({self.id})" if self.label else self.id


Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = dict[str, Array]

TIMES = frozenset({"steps_per_second", "seconds", "plain_seconds"})  #: Metrics that measure the machine and not the run


def read_parquet(data: bytes, what: str, wanted: Collection[str] | None = None) -> tuple[Arrays, dict[str, str]]:
    """Read a run's metrics."""
    pyarrow("report")
    table, metadata = read_table(data, what, wanted)
    try:
        columns = {name: frozen(from_arrow(table.column(name).combine_chunks())) for name in table.column_names}
    except (ValueError, MemoryError) as error:
        raise DamagedError(f"{what}: expected metrics of a run, got {error}") from None
    return columns, metadata


def from_arrow(array: Any) -> Array:
    """Turn an Arrow array into a NumPy array.

    Numbers become [rows]; lists of numbers become [rows, longest list] with NaN where a list is shorter; strings
    become an object array. A missing number is NaN.
    """
    arrow, _ = pyarrow("report")
    if isinstance(array, arrow.ChunkedArray):  # one of no chunks does not become an array by itself
        array = arrow.concat_arrays(array.chunks) if array.num_chunks else arrow.array([], array.type)
    if arrow.types.is_list(array.type):
        array = array.fill_null([]) if array.null_count else array
        starts = array.offsets.to_numpy()
        return _rectangle(from_arrow(array.values)[starts[0] : starts[-1]], np.diff(starts))
    if arrow.types.is_boolean(array.type) and array.null_count:
        array = array.cast("int8").cast("float64")
    result: Array = (array.cast("float64") if arrow.types.is_null(array.type) else array).to_numpy(zero_copy_only=False)
    return result


def from_lists(values: Sequence[Any]) -> Array:
    """Turn a column of Python values into an array, as `from_arrow` does."""
    arrow, _ = pyarrow("report")
    return from_arrow(arrow.array(values))


def same_numbers(first: Array, second: Array) -> bool:
    """Whether two arrays are equal; what is missing in both is."""
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def is_rounded(first: Array, second: Array) -> bool:
    """Whether the first array is the second one rounded to single precision, and not the second one itself."""
    if first.dtype.kind != "f" or second.dtype.kind != "f" or same_numbers(first, second):
        return False
    with np.errstate(over="ignore"):  # what is too large becomes infinite, as it did in the first array
        rounded = second.astype(np.float32)
    return same_numbers(first, rounded.astype(first.dtype))


def agree(first: Array, second: Array) -> bool:
    """Whether two arrays have the same numbers, one of them perhaps in single precision."""
    return same_numbers(first, second) or is_rounded(first, second) or is_rounded(second, first)


def frozen(array: Array) -> Array:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


def freeze_lists(columns: Mapping[str, Sequence[Any]], wanted: Collection[str] | None = None) -> Arrays:
    """Turn columns of Python values into read-only arrays; only the wanted ones, if told."""
    chosen = {name: values for name, values in columns.items() if wanted is None or name in wanted}
    try:
        return {name: frozen(from_lists(values)) for name, values in chosen.items()}
    except (ValueError, MemoryError) as error:
        raise DamagedError(f"expected metrics of a run, got {error}") from None


def _rectangle(values: Array, lengths: Array) -> Array:
    """Put lists under each other: all values in a row, and the length of each list -> [lists, longest]."""
    if not len(lengths):
        return np.empty((0, 0))
    longest = int(lengths.max())
    if (lengths == longest).all():
        return values.reshape(len(lengths), longest)
    if len(lengths) * longest > MAX_VALUES:
        raise ValueError(f"lists of up to {longest} values in {len(lengths)} rows, where {MAX_VALUES} fit")
    padded = np.full((len(lengths), longest), np.nan)
    padded[np.arange(longest) < lengths[:, None]] = values
    return padded
