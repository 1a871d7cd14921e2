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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headway.commands.options import RunOptions
from headway.errors import UsageError, check_known
from headway.runs import RunSpec
from headway.runs.experiments import load_plugins
from headway.runs.jsonable import MAX_INTEGER
from headway.study.requests import REQUESTS, Request, shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
_ELSEWHERE = [field.name for field in fields(RunOptions)]
_EXPECTED = "expected a description, plugins and [[section]] tables"


@dataclass(frozen=True)
class Section:
    """Runs that are carried out and kept together."""

    name: str  # what it is called, and the folder of its runs
    request: Request  # which runs
    path: Path  # the campaign file

    def specs(self) -> list[RunSpec]:
        """The runs; a `UsageError` if something in the request does not exist."""
        try:
            return self.request.specs()
        except UsageError as error:
            raise UsageError(f"{self.path}: {self.name}: {error}") from error


@dataclass(frozen=True)
class CampaignFile:
    """A campaign file's contents."""

    plugins: tuple[str, ...]
    sections: tuple[Section, ...]

    def choose(self, names: Sequence[str]) -> tuple[Section, ...]:
        """The sections of these names, in the file's order; all of them if no name is given."""
        known = [section.name for section in self.sections]
        check_known("a section", names, known, UsageError)
        return tuple(section for section in self.sections if not names or section.name in names)


def read_campaign_file(path: Path) -> CampaignFile:
    """Read a campaign file, and import its plugins."""
    try:
        contents = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"expected a campaign file, got {path}: {error.strerror}") from error
    except RecursionError:
        raise UsageError(f"{path}: {_EXPECTED}, got values nested too deeply") from None
    except ValueError as error:  # no TOML, no UTF-8, or an integer of thousands of digits
        raise UsageError(f"{path}: expected TOML, got {str(error)[:200]}") from None
    try:
        return _read(contents, path)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _read(contents: Mapping[str, Any], path: Path) -> CampaignFile:
    unknown = sorted(set(contents) - {"description", "plugins", "section", "lot"})
    tables = contents.get("section", contents.get("lot"))
    if unknown or not isinstance(tables, list) or not tables or {"section", "lot"} <= set(contents):
        got = f"also {', '.join(unknown)}" if unknown else "both [[section]] and [[lot]]" if tables else "none"
        raise UsageError(f"{_EXPECTED}, got {got}")
    plugins = contents.get("plugins", [])
    if not isinstance(plugins, list) or not all(isinstance(name, str) for name in plugins):
        raise UsageError(f"expected plugins to be a list of modules, got {shown(plugins)}")
    load_plugins(plugins)
    sections: dict[str, Section] = {}
    for number, table in enumerate(tables, start=1):
        if not isinstance(table, dict):
            raise UsageError(f"expected [[section]] tables, got {shown(table)}")
        for key in ("name", "experiment"):
            if not isinstance(table.get(key), str):
                raise UsageError(f"section {number}: expected its {key}, got {shown(table.get(key))}")
        name, experiment = table.pop("name"), table.pop("experiment")
        if not _NAME.fullmatch(name):
            expected = "a section's name of small letters, digits, '.', '_' and '-'"
            raise UsageError(f"expected {expected}, got {shown(name)}")
        if name in sections:
            raise UsageError(f"expected sections of different names, got {name!r} twice")
        values = {key.replace("-", "_"): value for key, value in table.items()}
        try:
            for key, value in values.items():
                _check(key, value)
            sections[name] = Section(name, REQUESTS.find(experiment).read(values), path)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
    return CampaignFile(tuple(plugins), tuple(sections.values()))


def _check(key: str, value: Any, depth: int = 0) -> None:
    """Refuse what no section can have: other options, values nested too deeply, dates, integers that no spec holds."""
    if key in _ELSEWHERE:
        raise UsageError(f"expected what to run, got {key}; where and how to run is for the command line")
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
