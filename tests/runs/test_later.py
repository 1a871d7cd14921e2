"""Later fields of protocols: which runs keep the ids that they had before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.analysis import load_results
from headway.commands.campaign_file import read_campaign_file
from headway.runs import RunSpec
from headway.runs.spec import LATER, Later, compared, written
from headway.study.protocols.classification import Protocol
from headway.study.protocols.fields import Fields
from headway.study.protocols.minigrid import ExplorationProtocol

ROOT = Path(__file__).parents[2]
FORMER = ROOT / "tests" / "golden" / "former_runs"
"""Campaign files, and the ids of their runs and of those in results/, as they were before any later field existed."""
PROTOCOLS: dict[str, type[Fields]] = {"controlled": Protocol, "doorkey": ExplorationProtocol}


def former_ids() -> dict[str, list[str]]:
    """The stored ids by campaign file and lot; "results -" has those of results/."""
    found: dict[str, list[str]] = {}
    for line in (FORMER / "ids.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            ids = found.setdefault(line[1:-1], [])
        else:
            ids.append(line)
    return found


def campaigns() -> Iterator[tuple[str, list[RunSpec]]]:
    for file in sorted(FORMER.glob("*.toml")):
        for section in read_campaign_file(file).sections:
            yield f"{file.stem} {section.name}", section.specs()


def as_before(spec: RunSpec) -> RunSpec:
    """The spec with the former value of every later field."""
    former = {name: LATER[spec.experiment][name].former for name in changed_fields(spec)}
    return dataclasses.replace(spec, protocol={**spec.protocol, **former})


def changed_fields(spec: RunSpec) -> list[str]:
    """The later fields that have another value than before: for new ones any that a spec holds."""
    later = LATER[spec.experiment]
    held = {name: spec.protocol[name] for name in later if name in spec.protocol}
    return [name for name, value in held.items() if later[name].is_new or value == later[name].now]


@pytest.mark.slow
def test_runs_keep_their_ids_unless_a_later_field_changes_their_numbers() -> None:
    before, kept, changed = former_ids(), 0, set()
    assert LATER.keys() == PROTOCOLS.keys()
    for lot, specs in campaigns():
        assert [as_before(spec).run_id for spec in specs] == before.pop(lot), lot
        for spec in specs:
            if changed_fields(spec):
                changed.add((spec.experiment, spec.method))
                assert spec.run_id != as_before(spec).run_id
            else:
                kept += 1
    assert before.keys() == {"results -"}
    assert kept == 854
    assert changed == {
        ("controlled", "uniform"),
        *(("controlled", name) for name in ("delta_loss", "norm_all", "norm_last")),  # norms by `paper` alone
        *(("doorkey", f"icm{scorer}") for scorer in ("", "+gmc", "+gmc_hard", "+gmc_soft")),
    }


def test_ids_of_the_results() -> None:
    ids = former_ids()
    stored = set(ids.pop("results -"))
    assert stored <= {one for lot in ids.values() for one in lot}
    runs = load_results(ROOT / "results")
    assert not runs.problems, "a file holds an id beside each spec"
    for run in runs:
        assert RunSpec.from_dict(run.spec.to_dict()).run_id == run.id


@pytest.mark.parametrize("experiment", LATER)
def test_a_spec_without_a_later_field_means_what_it_did(experiment: str) -> None:
    kind = PROTOCOLS[experiment]
    for preset in kind.presets():
        now = kind.named(preset).to_dict()
        old = {name: value for name, value in now.items() if not getattr(LATER[experiment].get(name), "is_new", False)}
        for name, value in kind.from_dict(old).to_dict().items():
            field = LATER[experiment].get(name)
            assert value == (field.former if field is not None and field.is_new else now[name])


@pytest.mark.parametrize("experiment", LATER)
def test_what_a_spec_holds_says_all_that_a_concerned_run_depends_on(experiment: str) -> None:
    kind = PROTOCOLS[experiment]
    for preset in kind.presets():
        now = kind.named(preset).to_dict()
        for name, field in LATER[experiment].items():
            method = next(m for m in ("uniform", "delta_loss", "norm_all", "norm_last", "icm") if field.concerns(m))
            read = kind.from_dict(written(experiment, method, now)).to_dict()
            assert read[name] == now[name]


def test_later_fields_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LATER, "made", {"new": Later(0, "a|b"), "old": Later(1, "a", now=7)})  # type: ignore[misc]
    assert written("made", "a", {"new": 5, "old": 7}) == {"new": 5, "old": 7}
    assert written("made", "a", {"new": 0, "old": 1}) == {"old": 1}
    assert written("made", "c", {"new": 5, "old": 7}) == {"old": 1}
    assert written("made", "c", {"new": 5, "old": 3}) == {"old": 3}
    assert written("other", "a", {"new": 5}) == {"new": 5}
    assert compared("made", "a", {"old": 1}) == {"new": 0, "old": 1}
    assert compared("made", "c", {"old": 1}) == {}
    assert compared("made", "c", {"old": 3}) == {"old": 3}
