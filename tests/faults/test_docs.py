"""The docs quote the stored measurements, and these keep what is promised."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from headway.bench.quoting import quoted
from tests.faults import soak, timing
from tests.faults.campaigns import ROOT

PAGE = ROOT / "docs" / "scale.md"
RESULTS = ROOT / "benchmarks" / "results"


def load_campaign() -> Any:
    spec = importlib.util.spec_from_file_location("campaign", ROOT / "benchmarks" / "campaign.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


campaign = load_campaign()


def stored(name: str) -> Any:
    return json.loads((RESULTS / name).read_text())


@pytest.mark.parametrize(
    ("name", "say"), [("soak", soak.table), ("campaign", campaign.table), ("faults", timing.sentence)]
)
def test_measurements_are_quoted(name: str, say: Any) -> None:
    page = PAGE.read_text("utf-8")
    assert quoted(page, name, say(stored(f"{name}.json"))) == page


def test_the_last_soak_was_good() -> None:
    result = stored("soak.json")
    assert result["is_good"]
    parts = [soak.Outcome(**part) for part in result["parts"]]
    assert [part.runs for part in parts] == [200, 200, 50, 50]
    assert all(part.is_good for part in parts)


def test_a_campaign_costs_no_more_than_promised() -> None:
    found = stored("campaign.json")
    assert campaign.broken_promises(found) == []
    assert found["listing"]["runs"] == 10_000


def test_the_fault_suite_takes_no_longer_than_promised() -> None:
    result = stored("faults.json")
    assert result["is_good"]
    assert result["seconds"] < 60 * timing.MOST_MINUTES


@pytest.mark.parametrize(("pace", "seconds", "broken"), [(20.0, 2.9, 0), (5.0, 2.9, 1), (20.0, 10.0, 1), (5.0, 3.0, 2)])
def test_broken_promises_are_noticed(pace: float, seconds: float, broken: int) -> None:
    found = {"local": {"runs_per_second": pace}, "listing": {"seconds": seconds}}
    assert len(campaign.broken_promises(found)) == broken


def test_kills_that_hit_no_run_prove_nothing() -> None:
    assert soak.Outcome("kills", runs=2, kills=8, losses=1, done=2, identical=2).is_good
    assert not soak.Outcome("kills", runs=2, kills=8, losses=0, done=2, identical=2).is_good


@pytest.mark.parametrize("done", [0, 1])
def test_the_soak_keeps_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], done: int
) -> None:
    def part(folder: Path, *_: object) -> soak.Outcome:
        (folder / "part.log").touch()
        return soak.Outcome("a part", 1, kills=1, losses=1, done=done, identical=done, messages=["why"])

    monkeypatch.setattr(soak, "PARTS", {"part": part})
    monkeypatch.setattr(soak, "_conduct", lambda *_: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = soak.soak(1, 0.0, ["part"])
    assert result["parts"][0]["messages"] == ["why"]
    kept = [path.name for path in tmp_path.glob("headway-soak-*/*")]
    assert kept == ([] if done else ["part.log"])
    assert (str(tmp_path) in capsys.readouterr().out) is not bool(done)
