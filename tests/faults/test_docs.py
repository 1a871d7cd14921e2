"""The docs quote the stored measurements."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

from tests.faults import soak
from tests.faults.campaigns import ROOT

PAGE = ROOT / "docs" / "scale.md"
RESULTS = ROOT / "benchmarks" / "results"


def campaign() -> Any:
    spec = importlib.util.spec_from_file_location("campaign", ROOT / "benchmarks" / "campaign.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_last_soak_is_quoted_and_was_good() -> None:
    result = json.loads((RESULTS / "soak.json").read_text())
    page = PAGE.read_text("utf-8")
    assert soak.quoted(page, result) == page
    assert result["is_good"]
    first = result["parts"][0]
    assert (first["runs"], first["done"], first["identical"]) == (200, 200, 200)


def test_the_costs_of_a_campaign_are_quoted() -> None:
    found = json.loads((RESULTS / "campaign.json").read_text())
    page = PAGE.read_text("utf-8")
    assert campaign().quoted(page, found) == page
