"""What the numbers rest on: versions, data, protocols with all their fields, seeds, machines."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.analysis.rundata import RunData
from headway.analysis.settings import Setting
from headway.analysis.table import ranges
from headway.runs import Json
from headway.runs.provenance import UNKNOWN_VERSION, version_of
from headway.runs.spec import compared
from headway.runs.text import duration, shorten
from headway.study.protocols.names import title

PACKAGES = ("headway", "numpy", "scipy", "pyarrow", "matplotlib", "jinja2")


@dataclass(frozen=True)
class Origin:
    """Where the runs of one setting come from.

    Attributes:
        setting: the runs.
        seeds: its seeds, in words.
        facts: what its runs wrote down, such as versions and the data's fingerprint, by name.
        machines: where they ran.
        time: how long they took.
        notes: what was remarked about the data, such as that it is not the official copy.
    """

    setting: Setting
    seeds: str
    facts: Mapping[str, str]
    machines: str
    time: str
    notes: Sequence[str]


@dataclass(frozen=True)
class ProtocolFields:
    """A protocol with all its fields.

    Attributes:
        label: its name.
        experiment: the experiment.
        fields: names and values.
    """

    label: str
    experiment: str
    fields: Sequence[tuple[str, str]]


def origins(settings: Sequence[Setting]) -> list[Origin]:
    """Where the runs of every setting come from."""
    return [_origin(setting) for setting in settings]


def _origin(setting: Setting) -> Origin:
    runs = [run for members in setting.all.values() for run in members]
    return Origin(
        setting,
        ranges(run.seed for run in runs),
        facts_of(runs),
        _distinct(run.host for run in runs),
        duration(sum(run.progress.seconds for run in runs)),
        notes_of(runs),
    )


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
    families: dict[tuple[str, str], list[RunData]] = {}
    for run in runs:
        families.setdefault((run.experiment, run.protocol), []).append(run)
    found = []
    for (experiment, label), members in families.items():
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
