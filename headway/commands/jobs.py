"""Dividing the runs of a command among jobs that do not know of each other, such as the tasks of an array job."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.errors import UsageError
from headway.runs import RunSpec, RunStore, State
from headway.runs.address import Place, parse_place
from headway.runs.output import complain, emit
from headway.runs.plan import look_up
from headway.runs.text import count, label

_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)
_PRINT_JOBS, _RETRY_FAILED = "--print-jobs", "--retry-failed"
_DROPPED = (_PRINT_JOBS, "--dry-run")
"""Options that a printed command must not have."""
_DROPPED_WITH_VALUE = (
    *("--only", "--launcher", "--workers"),
    *("--address", "--cpus-per-run", "--gpus-per-run", "--runs-per-gpu"),
)
"""The same with a value: what a printed command sets itself, and what makes no sense for one run in one process."""


_FOLDERS = ("--data-dir", "--tensorboard")
"""Options that name folders."""
DEFAULT_OUT = Path("runs")
"""Where runs are kept if nothing else is said."""


@dataclass(frozen=True)
class Shard:
    """Every n-th run, beginning with the i-th; i counts from 1."""

    index: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read "2/8"; a type for argparse."""
        match = _SHARD.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= shard.index <= shard.of:
            raise argparse.ArgumentTypeError(f"expected a share such as 2/8 (1/8 to 8/8), got {text!r}")
        return shard


def add_sharing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that leave a part of the runs to other commands."""
    add = parser.add_argument
    add("--shard", type=Shard.parse, metavar="I/N", help="only a share of the runs: the i-th of n, from 1/n to n/n")
    add("--only", action="append", metavar="RUN", help="only the run with this id; repeatable")
    add(_PRINT_JOBS, action="store_true", help="only print a command for each run that is not over")


def choose(specs: Sequence[RunSpec], shard: Shard | None, only: Sequence[str] | None) -> list[RunSpec]:
    """The runs that are this command's.

    Args:
        specs: all runs.
        shard: the share of them; runs next to each other go to different shares, since they take alike.
        only: ids.

    Raises:
        UsageError: there is no run of such an id.
    """
    chosen = list(dict.fromkeys(specs))
    if shard:
        chosen = chosen[shard.index - 1 :: shard.of]
    if not only:
        return chosen
    known = {spec.run_id: spec for spec in chosen}
    for run_id in only:
        if run_id not in known:
            raise UsageError(f"expected the id of one of the {len(known)} runs that the options mean, got {run_id!r}")
    return [known[run_id] for run_id in dict.fromkeys(only)]


def print_jobs(specs: Sequence[RunSpec], store: RunStore, command_line: Sequence[str]) -> int:
    """Print a command for each run that is to be carried out, one a line; return the exit code.

    Failed runs are among them if the command line says that they are to be run again, since otherwise their jobs
    would only say that they have failed.

    Args:
        specs: the runs.
        store: where they are kept.
        command_line: the command with all of its options.
    """
    states = {record.run_id: record.state for record in look_up(store, specs)}
    done = sum(state is State.DONE for state in states.values())
    over = {State.DONE} if any(_means(word, _RETRY_FAILED) for word in command_line) else {State.DONE, State.FAILED}
    left = [spec for spec in specs if states[spec.run_id] not in over]
    common = shlex.join(pass_on(command_line))
    for spec in left:
        emit(f"{common} --launcher local --workers 0 --only {spec.run_id}  # {label(spec)}")
    summary = f"{count(len(left), 'command')}; {done} of {count(len(specs), 'run')} done before"
    if failed := len(specs) - done - len(left):
        summary += f", {failed} failed, for which {_RETRY_FAILED} prints commands too"
    complain(f"headway: {summary}")
    return 0


def pass_on(command_line: Sequence[str]) -> list[str]:
    """A command line without the options that are not a printed command's; it is known to make sense.

    Folders are named in full, also that of the runs if it was not named at all: a queue may start a job anywhere.
    """
    kept: list[str] = []
    out: Place = DEFAULT_OUT
    words = iter(command_line)
    for word in words:
        if _means(word, "--out"):
            out = parse_place(_value(word, words))
        elif folders := [option for option in _FOLDERS if _means(word, option)]:
            kept += [folders[0], str(Path(_value(word, words)).expanduser().absolute())]
        elif any(_means(word, option) for option in _DROPPED_WITH_VALUE):
            _value(word, words)
        elif not any(_means(word, option) for option in _DROPPED):
            kept.append(word)
    return [*kept, "--out", str(out.absolute() if isinstance(out, Path) else out)]


def _value(word: str, rest: Iterator[str]) -> str:
    """The value of an option: behind "=", or the next word, which is taken."""
    _, equals, value = word.partition("=")
    return value if equals else next(rest)


def without(words: Sequence[str], option: str) -> list[str]:
    """Words of a command line without an option and its values, however many it has."""
    kept: list[str] = []
    is_dropping = False
    for word in words:
        if word.startswith("-"):
            is_dropping = _means(word, option)
        if not is_dropping:
            kept.append(word)
    return kept


def _means(word: str, option: str) -> bool:
    """Tell whether a word is an option, perhaps abbreviated, perhaps with its value behind "="."""
    return len(word) > 2 and option.startswith(word.partition("=")[0])
