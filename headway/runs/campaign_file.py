"""Campaign files: a whole study as data, in lots that are run one after another.

    description = "what the study is for"

    [[lot]]
    name = "noise-mnist"
    experiment = "controlled"
    dataset = "mnist"
    condition = "noise"
    signal = ["gmc", "uniform"]
    seeds = "0:20"
    set = { entropy_weight = 0.2 }
    sweep = { beta = [0.9, 0.99] }

Whatever stands beside `name` and `experiment` is an option of `headway run EXPERIMENT`, under the same name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import UsageError, did_you_mean
from headway.runs.jsonable import MAX_INTEGER
from headway.runs.text import shorten

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)


@dataclass(frozen=True)
class Lot:
    """Runs that are carried out and kept together.

    Attributes:
        name: what it is called, and the folder of its runs.
        experiment: what kind of runs.
        arguments: the options, as a command line has them.
    """

    name: str
    experiment: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class CampaignFile:
    """A campaign file's contents."""

    description: str
    lots: tuple[Lot, ...]

    def choose(self, names: Sequence[str]) -> tuple[Lot, ...]:
        """The lots of these names, in the file's order; all of them if no name is given.

        Raises:
            UsageError: there is no such lot.
        """
        known = [lot.name for lot in self.lots]
        for name in names:
            if name not in known:
                raise UsageError(f"expected a lot out of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
        return tuple(lot for lot in self.lots if not names or lot.name in names)


def read_campaign_file(path: Path) -> CampaignFile:
    """Read a campaign file.

    Raises:
        UsageError: it is not there, is no TOML, or a lot in it is not complete.
    """
    try:
        contents = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"expected a campaign file, got {path}: {error.strerror}") from error
    except RecursionError:
        raise UsageError(f"{path}: expected a description and [[lot]] tables, got values nested too deeply") from None
    except ValueError as error:  # no TOML, no UTF-8, or an integer of thousands of digits
        raise UsageError(f"{path}: expected TOML, got {str(error)[:200]}") from None
    unknown = set(contents) - {"description", "lot"}
    if unknown or not isinstance(contents.get("lot"), list) or not contents["lot"]:
        got = f"also {', '.join(sorted(unknown))}" if unknown else "none"
        raise UsageError(f"{path}: expected a description and [[lot]] tables, got {got}")
    lots = tuple(_lot(path, number, table) for number, table in enumerate(contents["lot"], start=1))
    names = [lot.name for lot in lots]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: expected lots of different names, got {name!r} twice")
    return CampaignFile(str(contents.get("description", "")), lots)


def _lot(path: Path, number: int, table: Any) -> Lot:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected [[lot]] tables, got {_shown(table)}")
    for key in ("name", "experiment"):
        if not isinstance(table.get(key), str):
            raise UsageError(f"{path}: lot {number}: expected its {key}, got {_shown(table.get(key))}")
    name = table["name"]
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{path}: expected a lot's name of small letters, digits, '.', '_' and '-', got {_shown(name)}"
        )
    arguments: list[str] = []
    for key, value in table.items():
        if key not in ("name", "experiment"):
            arguments += _option(f"{path}: {name}: {key}", f"--{key.replace('_', '-')}", value)
    return Lot(name, table["experiment"], tuple(arguments))


def _option(where: str, flag: str, value: Any) -> list[str]:
    """An option as words: a list has several, and a table of fields repeats the option for each of them."""
    if isinstance(value, Mapping):
        words = []
        for field, own in value.items():
            text = ",".join(_word(where, one) for one in own) if isinstance(own, list) else _word(where, own)
            words += [flag, f"{field}={text}"]
        return words
    if isinstance(value, list) and flag == "--seeds":  # one word with commas, as on a command line
        return [f"{flag}={','.join(_word(where, one) for one in value)}"]
    if isinstance(value, list):
        return [flag, *(_word(where, one) for one in value)]
    if value is True:
        return [flag]
    return [f"{flag}={_word(where, value)}"]


def _word(where: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= MAX_INTEGER:
        raise UsageError(f"{where}: expected an integer between -2**64 and 2**64, got one beyond")
    if isinstance(value, (str, int, float)):
        return str(value)
    raise UsageError(f"{where}: expected text, a number, or a list of them, got {_shown(value)}")


def _shown(value: Any) -> str:
    """A value in a message; what is too deep or too long to be written is only named."""
    try:
        return shorten(repr(value), 100)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"
