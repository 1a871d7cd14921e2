"""The docs quote the stored measurements, and a measurement that breaks a promise is not stored."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import quoted
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


@pytest.mark.parametrize(("pace", "seconds", "broken"), [(20.0, 2.9, 0), (5.0, 2.9, 1), (20.0, 10.0, 1), (5.0, 3.0, 2)])
def test_broken_promises_are_noticed(pace: float, seconds: float, broken: int) -> None:
    found = {"local": {"runs_per_second": pace}, "listing": {"seconds": seconds}}
    assert len(campaign.broken_promises(found)) == broken


def test_kills_that_hit_no_run_prove_nothing() -> None:
    assert soak.Outcome("kills", runs=2, kills=8, losses=1, done=2, identical=2).is_good
    assert not soak.Outcome("kills", runs=2, kills=8, losses=0, done=2, identical=2).is_good


@pytest.mark.parametrize("done", [0, 1])
def test_a_soak_that_went_wrong_is_kept_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], done: int
) -> None:
    def part(folder: Path, *_: object) -> soak.Outcome:
        (folder / "part.log").touch()
        return soak.Outcome("a part", 1, kills=1, losses=1, done=done, identical=done, messages=["why"])

    out, page = tmp_path / "soak.json", tmp_path / "page.md"
    out.write_text(json.dumps({"parts": {"other": {**vars(soak.Outcome("another part", 2)), "date": "before"}}}))
    page.write_text("<!-- soak: begin -->\nold\n<!-- soak: end -->\n")
    monkeypatch.setattr(soak, "PARTS", {"other": part, "part": part})
    monkeypatch.setattr(soak, "_conduct", lambda *_: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    options = ["--runs", "1", "--parts", "part", "--out", str(out), "--docs", str(page)]
    monkeypatch.setattr("sys.argv", ["soak", *options])
    assert soak.main() == (0 if done else 1)
    output = capsys.readouterr().out
    assert "why" in output
    kept = [path.name for path in tmp_path.glob("headway-soak-*/*")]
    assert kept == ([] if done else ["part.log"])
    assert (str(tmp_path) in output) is not bool(done)
    assert list(json.loads(out.read_text())["parts"]) == (["other", "part"] if done else ["other"])
    assert ("| a part | 1 | 1 | 1 | 1 | 1 |" in page.read_text()) is bool(done)
    assert ("old" in page.read_text()) is not bool(done)
