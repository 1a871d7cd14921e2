"""Options that commands share: places, numbers, and dataclasses such as `RunOptions`, whose fields are options."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from headway.errors import UsageError
from headway.runs import RunSpec
from headway.runs.files import store_error
from headway.runs.launchers import LAUNCHERS, STALL_SECONDS, cores
from headway.runs.store import is_url

BENCH_HELP = "results of headway bench and of benchmarks/controlled.py as JSON, for the claim about time"
T = TypeVar("T")
_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})", re.ASCII)


class Url(str):
    """The URL of a store; like a path, it can be divided to get to what is below it."""

    __slots__ = ()

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self.rstrip('/')}/{name}")


Place: TypeAlias = Path | Url


def parse_place(text: str) -> Place:
    """Read a path or a URL; a type for argparse. A file's URL becomes its path, and ~ a home."""
    if is_url(text):
        parts = urlsplit(text)
        if parts.scheme not in ("file", "local"):
            return Url(text)
        text = unquote(parts.netloc + parts.path)
    if not text:
        raise argparse.ArgumentTypeError(
            "expected a folder or a URL, got an empty string; use . for the current folder"
        )
    try:
        return Path(text).expanduser() if text.startswith("~") else Path(text)
    except RuntimeError as error:
        raise argparse.ArgumentTypeError(
            f"expected a folder, got {text!r} of an unknown user; ./{text} is a folder of this name"
        ) from error


def parse_folder(text: str, hint: str = "; fetch it first: headway fetch {} FOLDER") -> Path:
    """Read a path where only a path will do; a type for argparse."""
    place = parse_place(text)
    if isinstance(place, Url):
        raise argparse.ArgumentTypeError(f"expected a folder, got a URL{hint.format(text)}")
    return place


parse_new_folder = partial(parse_folder, hint=" ({}), which only the --out of headway run takes")
"""Reads a path of a folder to be written."""


def add_runs_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the argument of a command that reads runs: where they are."""
    text = f"{text} (%(default)s)"
    parser.add_argument("path", type=parse_folder, nargs="?", default=Path("runs"), metavar="RUNS", help=text)


def number(kind: Callable[[str], T], is_fine: Callable[[T], bool], expected: str) -> Callable[[str], T]:
    """A reader of numbers for argparse."""

    def read(text: str) -> T:
        with contextlib.suppress(ValueError):
            if is_fine(found := kind(text)):
                return found
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")

    return read


def whole(least: int) -> Callable[[str], int]:
    """A reader of whole numbers for argparse."""
    return number(int, lambda found: found >= least, f"a whole number of at least {least}")


above_zero = number(float, lambda found: 0 < found < math.inf, "a number above 0")
"""A reader of numbers above zero for argparse."""


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


def add_options(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Add an option for each field of a dataclass: its metadata are arguments of `add_argument`.

    Options that are not given leave nothing in the namespace, so that they may stand before and behind a subcommand.
    """
    for each in dataclasses.fields(kind):
        settings = {key: value for key, value in each.metadata.items() if key not in ("read", "job")}
        settings["help"] += _default(each)
        parser.add_argument(f"--{each.name.replace('_', '-')}", default=argparse.SUPPRESS, **settings)


def _default(each: dataclasses.Field[Any]) -> str:
    """The default in words; empty where the help says it, or there is none."""
    if each.default in (None, False, (), dataclasses.MISSING) or "(default" in each.metadata["help"]:
        return ""
    words = " ".join(map(str, each.default)) if isinstance(each.default, tuple) else str(each.default)
    return f" (default: {words.replace('%', '%%')})"


def given(kind: type[Any], options: argparse.Namespace) -> dict[str, Any]:
    """The options of a dataclass that were given."""
    names = [each.name for each in dataclasses.fields(kind)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def _option(default: Any, text: str, metavar: str | None = None, read: Any = str, job: bool = False) -> Any:
    """A field of `RunOptions`; `job` says that a single run in a job of its own needs it too."""
    if default is False:
        return field(default=default, metadata={"help": text, "job": job, "action": "store_true"})
    several = {"action": "append"} if default == () else {}
    return field(default=default, metadata={"help": text, "job": job, "metavar": metavar, "type": read, **several})


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where and how runs are carried out."""

    out: Place = _option(Path("runs"), "the run store: a folder or a URL", "DIR", parse_place)
    workers: int | None = _option(None, "processes; 0 runs in this one (default: one per core)", "N", whole(0))
    launcher: str = _option("local", f"launcher of the runs: {', '.join(LAUNCHERS)}", "NAME")
    address: str | None = _option(
        None, "address of the cluster (default: a running one, or a new one of this machine)", "HOST:PORT"
    )
    cpus_per_run: float | None = _option(None, "cores that a run gets on a cluster", "X", above_zero)
    gpus_per_run: float | None = _option(None, "GPUs that a run gets on a cluster; 0.25 shares one", "X", above_zero)
    runs_per_gpu: int | None = _option(None, "runs that share a GPU; with --device cuda", "N", whole(1))
    data_dir: Path | None = _option(None, "where datasets are looked for first", "DIR", Path, job=True)
    device: str = _option("cpu", "where tensors live, such as cpu or cuda:0", "NAME", job=True)
    keep_weights: bool = _option(False, "keep the final weights with each run", job=True)
    checkpoint_seconds: float = _option(10.0, "the least time between two checkpoints", "S", above_zero, job=True)
    stall_seconds: float = _option(
        STALL_SECONDS, "report a run that makes no progress for so long", "S", above_zero, job=True
    )
    tensorboard: Path | None = _option(
        None, "also write the metrics for TensorBoard", "DIR", parse_new_folder, job=True
    )
    retry_failed: bool = _option(False, "run again what has failed before", job=True)
    dry_run: bool = _option(False, "only list the runs, and estimate how long they take")
    shard: Shard | None = _option(None, "only a share of the runs: the i-th of n, from 1/n to n/n", "I/N", Shard.parse)
    only: tuple[str, ...] = _option(
        (), "only the run with this id; repeatable. Without an experiment the run is looked for in the store", "RUN"
    )
    print_jobs: bool = _option(False, "only add the runs to the store, and print a command for each that is not over")
    plugin: tuple[str, ...] = _option(
        (), "import a module that registers signals, datasets, environments or methods; repeatable", "MODULE", job=True
    )

    def workers_for(self, runs: int) -> int:
        """How many workers go on with so many runs: one per core, but not more than runs, unless a number is given."""
        return max(1, min(cores(), runs)) if self.workers is None else self.workers

    def job(self, run_id: str) -> str:
        """The command that carries out one run of the store in a process of its own, from any folder."""
        words = ["headway", "run", "--only", run_id, "--out", _in_full(self.out)]
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            if not each.metadata.get("job") or value == each.default:
                continue
            flag = f"--{each.name.replace('_', '-')}"
            if value is True:
                words.append(flag)
            else:
                for one in value if isinstance(value, tuple) else (value,):
                    words += [flag, _in_full(one)]
        return shlex.join([*words, "--workers", "0"])


def choose(specs: Sequence[RunSpec], how: RunOptions) -> list[RunSpec]:
    """The runs that are this command's: its share, or those that it names.

    Runs next to each other go to different shares, since they take alike.
    """
    chosen = list(dict.fromkeys(specs))
    if how.shard:
        chosen = chosen[how.shard.index - 1 :: how.shard.of]
    return named(how.only, {spec.run_id: spec for spec in chosen}) if how.only else chosen


def named(only: Sequence[str], known: Mapping[str, T]) -> list[T]:
    """What belongs to some ids of runs, each once; ids that no run has are refused."""
    for run_id in only:
        if run_id not in known:
            raise UsageError(f"expected the id of one of the {len(known)} runs that the options mean, got {run_id!r}")
    return [known[run_id] for run_id in dict.fromkeys(only)]


def _in_full(value: Any) -> str:
    """A value as a word; a folder with its whole path, since a queue may start a job anywhere."""
    return str(value.expanduser().absolute()) if isinstance(value, Path) else str(value)


def make_folder(path: Path) -> None:
    """Make a folder that results are written to, if it is not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("make", path, error) from error


def add_format_option(parser: argparse.ArgumentParser, more: tuple[str, ...] = ()) -> None:
    """Add the option `--format` to a command that prints a table; the first format is the default."""
    kinds = (*more, "text", "markdown", "json", "csv")
    parser.add_argument(
        "--format", choices=kinds, default=kinds[0], help=f"one of {', '.join(kinds)} (default: %(default)s)"
    )


def add_plugin_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--plugin` to a command that carries out or reads runs of plugins."""
    text = RunOptions.__dataclass_fields__["plugin"].metadata["help"]
    parser.add_argument("--plugin", action="append", default=[], metavar="MODULE", help=text)
