"""What was run, what became of it, how long the rest may take, what the numbers rest on, and recordings of runs."""

from __future__ import annotations

import base64
import math
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from headway.analysis.comparison import EXPLORATION, Setting
from headway.analysis.results import LEFT_OUT, Results, stores_at
from headway.analysis.rundata import Problem, RunData, grouped
from headway.analysis.table import ranges
from headway.errors import StoreError
from headway.runs import Json, State
from headway.runs.files import read_bytes
from headway.runs.provenance import UNKNOWN_VERSION, version_of
from headway.runs.spec import compared
from headway.runs.text import count, duration, shorten
from headway.study.protocols.names import METHODS, rank, title

WORDS = {
    State.DONE: "done",
    State.RUNNING: "running",
    State.PENDING: "not started",
    State.INTERRUPTED: "interrupted",
    State.FAILED: "failed",
    State.CORRUPT: "corrupt",
}
"""The states of runs in words, in the order in which they are listed."""

BAD = (State.FAILED, State.CORRUPT)
_OVER = (State.DONE, *BAD)


class Tile(NamedTuple):
    """A number at the top of the page."""

    number: str
    label: str
    is_bad: bool = False


class Cover(NamedTuple):
    """How much there is of one method."""

    method: str  # its title
    done: int  # runs that are finished
    total: int  # all runs of it, and those that other methods have and it lacks
    rest: str  # what became of the others, in words; empty if there are none
    is_bad: bool  # whether a run failed or is corrupt


class Matrix(NamedTuple):
    """The runs of an experiment."""

    experiment: str  # its title
    methods: Sequence[str]  # titles of all methods, the columns
    # the settings, each with its seeds in words and what there is of every method (None: no runs)
    rows: Sequence[tuple[Setting, str, Sequence[Cover | None]]]


@dataclass(frozen=True)
class Overview:
    """What was run, and how far it is."""

    total: int  # all runs, also those that cannot be read
    done: int  # runs that are finished
    over: int  # runs that are done, failed or corrupt
    share: float  # the part of the work that is done, from 0 to 1
    # an estimate for the rest at the pace of the runs under way; None if none is, or it is unknown
    seconds_left: float | None
    tiles: Sequence[Tile]  # counts by state
    matrices: Sequence[Matrix]  # how much there is of each method in every setting, a table for each experiment
    active: Sequence[RunData]  # runs under way
    failures: Sequence[RunData]  # failed runs
    unfinished: Sequence[RunData]  # runs that were stopped
    problems: Sequence[Problem]  # what could not be read, and why
    doubles: Sequence[Problem]  # runs that are left out because others say the same
    gaps: Sequence[str]  # what is missing, in sentences

    @property
    def is_whole(self) -> bool:
        """Whether everything is there and finished."""
        return self.done == self.total and not (self.problems or self.gaps)


def overview_of(results: Results, settings: Sequence[Setting]) -> Overview:
    """Look at what there is."""
    doubles = [problem for problem in results.problems if problem.message.startswith(LEFT_OUT)]
    problems = [problem for problem in results.problems if problem not in doubles]
    known = {run.id for run in results}
    lost = sum(problem.id not in known for problem in problems)  # runs of which even the spec is damaged
    counts = results.counts()
    if lost:
        counts[State.CORRUPT] = counts.get(State.CORRUPT, 0) + lost
    total = len(results) + lost
    active, failures, unfinished = (
        [run for run in results if run.state is state] for state in (State.RUNNING, State.FAILED, State.INTERRUPTED)
    )
    rest = [run for run in results if run.state not in _OVER]
    left = math.fsum(1.0 - _share(run) for run in rest)
    tiles = [Tile(str(total), "run" if total == 1 else "runs")]
    tiles += [Tile(str(counts[state]), word, state in BAD) for state, word in WORDS.items() if counts.get(state)]
    return Overview(
        total=total,
        done=counts.get(State.DONE, 0),
        over=total - len(rest),
        share=min(1.0 - left / total, 0.99 if rest else 1.0) if total else 1.0,  # all is done when all is over
        seconds_left=_seconds_left(results.runs, rest, active),
        tiles=tiles,
        matrices=_matrices(settings),
        active=active,
        failures=failures,
        unfinished=unfinished,
        problems=problems,
        doubles=doubles,
        gaps=[sentence for setting in settings for sentence in _gaps(setting)],
    )


def _matrices(settings: Sequence[Setting]) -> list[Matrix]:
    found = []
    for experiment, own in grouped(settings, lambda setting: setting.group.experiment).items():
        names = sorted({name for setting in own for name in setting.all}, key=lambda name: rank(METHODS, name))
        rows = []
        for setting in own:
            seeds = ranges(run.seed for runs in setting.all.values() for run in runs)
            rows.append((setting, seeds, [_cover(setting, name) if name in setting.all else None for name in names]))
        found.append(Matrix(title(experiment), [title(name) for name in names], rows))
    return found


def _cover(setting: Setting, method: str) -> Cover:
    runs = setting.all[method]
    done = [run.seed for run in runs if run.finished]
    rest = []
    for state, word in WORDS.items():
        seeds = [run.seed for run in runs if run.state is state]
        if seeds and state is not State.DONE:
            rest.append(f"{word}: {_seeds(seeds)}")
    if missing := _lacking(setting, method):
        rest.append(f"not in the store: {_seeds(missing)}")
    is_bad = any(run.state in BAD for run in runs)
    return Cover(title(method), len(done), len(runs) + len(missing), "; ".join(rest), is_bad)


def _lacking(setting: Setting, method: str, states: Collection[State] = tuple(State)) -> list[int]:
    """Seeds of which another method of the setting has a run in one of these states, and this one has not."""
    seeds = {name: {run.seed for run in runs if run.state in states} for name, runs in setting.all.items()}
    return sorted(set().union(*seeds.values()) - seeds[method])


def _gaps(setting: Setting) -> list[str]:
    """What comparisons will miss: seeds that not all methods have finished."""
    short = {name: seeds for name in setting.all if (seeds := _lacking(setting, name, [State.DONE]))}
    parts = [f"{title(name)} lacks {_seeds(seeds)}" for name, seeds in short.items()]
    if len(parts) > 4:
        parts = [*parts[:3], f"{count(len(parts) - 3, 'more method')}"]
    if len(parts) > 1:
        parts = [f"{', '.join(parts[:-1])} and {parts[-1]}"]
    return [f"{setting.title} ({setting.group.protocol}): {text}." for text in parts]


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {ranges(seeds)}"


def _seconds_left(runs: Sequence[RunData], rest: Sequence[RunData], active: Sequence[RunData]) -> float | None:
    """The work that is left, shared by as many processes as there are runs under way."""
    if not active or not rest:
        return None
    whole = _durations(runs)
    works = [whole.get((run.group, run.method), whole.get(None, math.nan)) * (1 - _share(run)) for run in rest]
    own = [left for run in active if (left := run.progress.seconds_left) is not None]
    known = [work for work in works if math.isfinite(work)]
    if not known:
        return max(own) if own and len(rest) == len(active) else None
    work = math.fsum(known) * len(works) / len(known)  # those that nothing is known of count as the others do
    return max([work / len(active), *own])


def _durations(runs: Sequence[RunData]) -> dict[object, float]:
    """How long a whole run takes, by group and method, and under None over all."""
    found: dict[object, list[float]] = {}
    for run in runs:
        if (share := _share(run)) > 0 and run.progress.seconds > 0:
            for key in ((run.group, run.method), None):
                found.setdefault(key, []).append(run.progress.seconds / share)
    return {key: math.fsum(values) / len(values) for key, values in found.items()}


def _share(run: RunData) -> float:
    """How much of a run is done, from 0 to 1."""
    if run.finished:
        return 1.0
    return min(1.0, run.progress.done / run.progress.total) if run.progress.total else 0.0


PACKAGES = ("headway", "numpy", "scipy", "pyarrow", "matplotlib", "jinja2")


@dataclass(frozen=True)
class Origin:
    """Where the runs of one setting come from."""

    setting: Setting  # the runs
    seeds: str  # its seeds, in words
    facts: Mapping[str, str]  # what its runs wrote down, such as versions and the data's fingerprint, by name
    machines: str  # where they ran
    time: str  # how long they took
    notes: Sequence[str]  # what was remarked about the data, such as that it is not the official copy


class ProtocolFields(NamedTuple):
    """A protocol with all its fields."""

    label: str  # its name
    experiment: str  # the experiment
    fields: Sequence[tuple[str, str]]  # names and values


def origins(settings: Sequence[Setting]) -> list[Origin]:
    """Where the runs of every setting come from."""
    found = []
    for setting in settings:
        runs = [run for members in setting.all.values() for run in members]
        seeds, machines = ranges(run.seed for run in runs), _distinct(run.host for run in runs)
        time = duration(sum(run.progress.seconds for run in runs))
        found.append(Origin(setting, seeds, facts_of(runs), machines, time, notes_of(runs)))
    return found


def shared_facts(origins: Sequence[Origin]) -> dict[str, str]:
    """What the runs of all settings wrote down alike, by name."""
    first = origins[0].facts if origins else {}
    return {
        name: value for name, value in first.items() if value and all(each.facts.get(name) == value for each in origins)
    }


def facts_of(runs: Iterable[RunData]) -> dict[str, str]:
    """What runs wrote down about their versions and data, by name; also that some of them did not."""
    written = [run.environment for run in runs]
    names = dict.fromkeys(name for each in written for name in each if name not in ("note", "dataset"))
    facts = {}
    for name in names:
        left_out = any(each.get(name) in (None, "") for each in written)
        facts[name] = _distinct(each.get(name) for each in written) + (" or not recorded" if left_out else "")
    return facts


def notes_of(runs: Iterable[RunData]) -> list[str]:
    """What was remarked about the data of runs, each remark once."""
    return list(dict.fromkeys(_text(run.environment["note"]) for run in runs if run.environment.get("note")))


def protocols(runs: Iterable[RunData]) -> list[ProtocolFields]:
    """Every protocol of the runs, with all fields.

    What the runs say of themselves comes first, and counts where the protocol has a field of the same name.
    """
    found = []
    for (experiment, label), members in grouped(runs, lambda run: (run.experiment, run.protocol)).items():
        params = {
            name: _distinct(run.spec.params.get(name) for run in members) for run in members for name in run.spec.params
        }
        written = [compared(experiment, run.method, run.spec.protocol) for run in members]
        names = dict.fromkeys(name for each in written for name in each if name not in params)
        fields = {name: ", ".join(dict.fromkeys(_text(w[name]) for w in written if name in w)) for name in names}
        found.append(ProtocolFields(label, title(experiment), [*params.items(), *fields.items()]))
    return found


def versions() -> list[tuple[str, str]]:
    """What this report was made with."""
    found = [(package, version_of(package)) for package in PACKAGES]
    return [("python", platform.python_version()), *(pair for pair in found if pair[1] != UNKNOWN_VERSION)]


def _distinct(values: Iterable[Json]) -> str:
    """The different values, in words; many are counted."""
    texts = list(dict.fromkeys(_text(value) for value in values if value not in (None, "")))
    return ", ".join(texts) if len(texts) <= 8 else f"{', '.join(texts[:6])} and {len(texts) - 6} more"


def _text(value: Json) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(value).removesuffix(".0") if isinstance(value, float) else shorten(str(value))


RECORDING_FILE = "play.gif"
MOST_BYTES = 2 << 20  # A recording larger than this is not put into the page ...
MOST_BYTES_IN_ALL = 7 << 20  # ... nor one that would make all of them together larger than this.
_GIF = (b"GIF87a", b"GIF89a")


class Recording(NamedTuple):
    """A recording."""

    title: str  # what it shows
    source: str  # a data: URL


def recordings(source: Path, settings: Sequence[Setting]) -> list[Recording]:
    """The recordings of a store: for each setting of exploration and method that of its first seed that has one."""
    stores, found, room = stores_at(source), [], MOST_BYTES_IN_ALL
    for setting in (each for each in settings if each.kind == EXPLORATION):
        for name, runs in setting.all.items():
            for run in runs:
                content = next(filter(None, (_read(store / run.id) for store in stores)), b"")
                if content and len(content) <= room:
                    room -= len(content)
                    url = f"data:image/gif;base64,{base64.b64encode(content).decode()}"
                    found.append(Recording(f"{title(name)}, {setting.title}, seed {run.seed}", url))
                    break
    return found


def _read(folder: Path) -> bytes:
    """The recording in the folder of a run; nothing if there is none, or something else under its name."""
    try:
        content = read_bytes(folder / RECORDING_FILE, MOST_BYTES) or b""
    except StoreError:
        return b""
    return content if content.startswith(_GIF) else b""
