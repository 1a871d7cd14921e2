from __future__ import annotations

from dataclasses import replace

from headway.analysis.comparison import settings_of
from headway.analysis.report.overview import origins, protocols, versions
from headway.analysis.rundata import Progress
from tests.analysis.made import controlled, exploration, together

LOSSES = [[1.0] * 4] * 3


def test_where_runs_come_from() -> None:
    runs = [
        replace(
            controlled(LOSSES, seed=seed),
            host=f"node{seed % 2}",
            environment={"torch": "2.13.0", "dataset": "mnist", "fingerprint": "abc", "note": "JPEG-compressed copy"},
            progress=Progress(3, 3, 60.0),
        )
        for seed in range(3)
    ]
    (origin,) = origins(settings_of(together(*runs)))
    assert origin.seeds == "0–2"
    assert origin.facts == {"torch": "2.13.0", "fingerprint": "abc"}
    assert origin.machines == "node0, node1"
    assert origin.time == "3 min 0 s"
    assert origin.notes == ["JPEG-compressed copy"]


def test_two_versions_are_both_told() -> None:
    runs = [replace(controlled(LOSSES, seed=seed), environment={"torch": f"2.{12 + seed}"}) for seed in range(2)]
    (origin,) = origins(settings_of(together(*runs)))
    assert origin.facts["torch"] == "2.12, 2.13"


def test_a_run_that_two_versions_made_is_told_beside_one_that_one_made() -> None:
    runs = [
        replace(controlled(LOSSES, seed=seed), environment={"code": code})
        for seed, code in enumerate(["a then b", "b"])
    ]
    (origin,) = origins(settings_of(together(*runs)))
    assert origin.facts["code"] == "a then b, b"


def test_runs_that_recorded_nothing_are_told_too() -> None:
    runs = [replace(controlled(LOSSES, seed=seed), environment={"torch": "2.13"} if seed else {}) for seed in range(2)]
    (origin,) = origins(settings_of(together(*runs)))
    assert origin.facts["torch"] == "2.13 or not recorded"


def test_protocols_have_all_fields() -> None:
    runs = [controlled(LOSSES), controlled(LOSSES, floor=1e-3), exploration([1.0, 2.0])]
    found = protocols(runs)
    assert [rules.label for rules in found] == [run.protocol for run in runs]
    fields = dict(found[1].fields)
    assert fields["floor"] == "0.001"
    assert fields["dataset"] == "mnist"
    assert fields["bias_correction"] == "yes"
    assert fields["delta_window"] == "none"
    assert {name for name, _ in found[0].fields} >= set(runs[0].spec.protocol)
    assert dict(found[2].fields)["env_id"] == "MiniGrid-DoorKey-8x8-v0"


def test_versions_name_this_program() -> None:
    assert {"python", "headway", "numpy"} <= dict(versions()).keys()
