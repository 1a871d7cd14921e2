"""Campaign files: a whole study as data, in sections that are run one after another.

    description = "what the study is for"
    plugins = ["my_package.signals"]

    [[section]]
    name = "noise-mnist"
    experiment = "controlled"
    dataset = "mnist"
    condition = "noise"
    signal = ["gmc", "uniform"]
    seeds = "0:20"
    set = { entropy_weight = 0.2 }
    sweep = { beta = [0.9, 0.99] }

Whatever stands beside `name` and `experiment` is an option of `headway run EXPERIMENT`, under the same name. Files of
earlier versions say `[[lot]]`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import UsageError, did_you_mean
from headway.runs import RunSpec
from headway.runs.experiments import load_plugins
from headway.runs.jsonable import MAX_INTEGER
from headway.study.requests import REQUESTS, Request, shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
_EXPECTED = "expected a description, plugins and [[section]] tables"


@dataclass(frozen=True)
class Section:
    """Runs that are carried out and kept together.

    Attributes:
        name: what it is called, and the folder of its runs.
        request: which runs.
        path: the campaign file.
    """

    name: str
    request: Request
    path: Path

    def specs(self) -> list[RunSpec]:
        """The runs; a `UsageError` if something in the request does not exist."""
        try:
            return self.request.specs()
        except UsageError as error:
            raise UsageError(f"{self.path}: {self.name}: {error}") from error


@dataclass(frozen=True)
class CampaignFile:
    """A campaign file's contents."""

    description: str
    plugins: tuple[str, ...]
    sections: tuple[Section, ...]

    def choose(self, names: Sequence[str]) -> tuple[Section, ...]:
        """The sections of these names, in the file's order; all of them if no name is given."""
        known = [section.name for section in self.sections]
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                raise UsageError(f"expected a section out of {', '.join(known)}, got {name!r}{hint}")
        return tuple(section for section in self.sections if not names or section.name in names)


def read_campaign_file(path: Path, not_here: Sequence[str] = ()) -> CampaignFile:
    """Read a campaign file, and import its plugins.

    Args:
        path: the file.
        not_here: names of options that are for the command line.

    Raises:
        UsageError: it is not there, is no TOML, or a section in it makes no sense.
    """
    try:
        contents = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"expected a campaign file, got {path}: {error.strerror}") from error
    except RecursionError:
        raise UsageError(f"{path}: {_EXPECTED}, got values nested too deeply") from None
    except ValueError as error:  # no TOML, no UTF-8, or an integer of thousands of digits
        raise UsageError(f"{path}: expected TOML, got {str(error)[:200]}") from None
    unknown = set(contents) - {"description", "plugins", "section", "lot"}
    tables = contents.get("section", contents.get("lot"))
    if unknown or not isinstance(tables, list) or not tables or {"section", "lot"} <= set(contents):
        got = f"also {', '.join(sorted(unknown))}" if unknown else "both [[section]] and [[lot]]" if tables else "none"
        raise UsageError(f"{path}: {_EXPECTED}, got {got}")
    plugins = contents.get("plugins", [])
    if not isinstance(plugins, list) or not all(isinstance(name, str) for name in plugins):
        raise UsageError(f"{path}: expected plugins to be a list of modules, got {shown(plugins)}")
    load_plugins(plugins)
    sections = tuple(_section(path, number, table, not_here) for number, table in enumerate(tables, start=1))
    for name, number in Counter(section.name for section in sections).items():
        if number > 1:
            raise UsageError(f"{path}: expected sections of different names, got {name!r} twice")
    return CampaignFile(str(contents.get("description", "")), tuple(plugins), sections)


def _section(path: Path, number: int, table: Any, not_here: Sequence[str]) -> Section:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected [[section]] tables, got {shown(table)}")
    for key in ("name", "experiment"):
        if not isinstance(table.get(key), str):
            raise UsageError(f"{path}: section {number}: expected its {key}, got {shown(table.get(key))}")
    name = table["name"]
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{path}: expected a section's name of small letters, digits, '.', '_' and '-', got {shown(name)}"
        )
    try:
        values = {key.replace("-", "_"): value for key, value in table.items() if key not in ("name", "experiment")}
        for key, value in values.items():
            if key in not_here:
                raise UsageError(f"expected what to run, got {key}; where and how to run is for the command line")
            _check(key, value)
        return Section(name, REQUESTS.find(table["experiment"]).read(values), path)
    except UsageError as error:
        raise UsageError(f"{path}: {name}: {error}") from error


def _check(key: str, value: Any, depth: int = 0) -> None:
    """Refuse what no option can be: values nested too deeply, dates, and integers that no spec can hold."""
    if isinstance(value, Mapping) and depth == 0:
        for field, own in value.items():
            _check(f"{key}: {field}", own)
    elif isinstance(value, list) and depth < 2:
        for own in value:
            _check(key, own, depth + 1)
    elif isinstance(value, int) and abs(value) >= MAX_INTEGER:
        raise UsageError(f"{key}: expected an integer between -2**64 and 2**64, got one beyond")
    elif not isinstance(value, (str, int, float)):
        raise UsageError(f"{key}: expected text, a number, or a list of them, got {shown(value)}")
