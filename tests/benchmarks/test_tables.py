"""Tables on the screen and in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.common import quoted
from benchmarks.cost.results import load
from benchmarks.cost.tables import (
    faster,
    legend,
    markdown,
    memory,
    mib,
    notes,
    peer_memory,
    provenance,
    show,
    tables,
    times,
)
from tests.benchmarks.tiny import MACHINE, interrupted, result

ROOT = Path(__file__).parent.parent.parent


def test_times_are_multiples_of_the_plain_step() -> None:
    table = times(result())
    assert table.columns == ("case", "plain step", "headway", "Opacus", "BackPACK", "goal")
    assert table.rows == (
        ("a", "10 ms", "1.50 ±0.15", "-", "60.0 ±6.0", "1.70: met"),
        ("d", "10 ms", "1.60 ±0.16", "-", "-", "1.40: missed"),
    )


def test_peers_are_multiples_of_headway() -> None:
    table = faster(result())
    assert table.columns == ("case", "Opacus", "BackPACK", "goal")
    assert table.rows == (("a", "-", "40", "25: met"),)


def test_memory_is_what_comes_on_top_of_the_plain_step() -> None:
    assert memory(result()).rows == (
        ("a", "256", "5.0", "3.0", "0.5", "3.5", "3.5", "12.0: met"),
        ("d", "32", "16.0", "28.0", "0.0", "28.0", "7.0", "24.0: missed"),
    )
    table = peer_memory(result())
    assert table.columns == ("case", "batch", "headway", "Opacus", "BackPACK")
    assert table.rows == (("a", "256", "3.5 (3.5)", "-", "201 (201.0)"),)


def test_the_legend_explains_the_letters() -> None:
    assert next(legend(result())) == "a: MLP 6-8-4; batch 256, 1.0 MiB of parameters"


def test_notes_say_what_is_missing_and_why() -> None:
    assert list(notes(interrupted())) == [
        "Not measured, case d: Opacus, BackPACK; no rule for LayerNorm.",
        "Not measured, case d at batch 4096: BackPACK; too large.",
        "Other processes kept so many of 2 cores busy: 0.7 (case d). The 2 threads of the benchmark did not have "
        "a core each; measure again on a quiet machine.",
        "The run was interrupted: cases may be missing, or rest on few rounds.",
    ]


def test_provenance_names_machine_and_versions() -> None:
    expected = "2026-01-31; A processor, 2 cores, 2 threads; Python 3.11.7, headway 0.1.0, torch 2.13.0."
    assert provenance(MACHINE) == expected


@pytest.mark.parametrize(("size", "shown"), [(0, "0.0"), (-(2**19), "-0.5"), (200 * 2**20, "200")])
def test_mib(size: int, shown: str) -> None:
    assert mib(size) == shown


def test_all_tables_and_notes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(result())
    shown = capsys.readouterr().out
    assert all(table.text() in shown for table in tables(result()))
    assert "no rule for LayerNorm" in shown


def test_markdown_has_every_table_and_note() -> None:
    lines = markdown(result()).splitlines()
    assert "| case | plain step | headway | Opacus | BackPACK | goal |" in lines
    assert "| a | - | 40 | 25: met |" in lines
    assert "- Not measured, case d: Opacus, BackPACK; no rule for LayerNorm." in lines


def test_the_docs_show_the_stored_numbers() -> None:
    stored = ROOT / "benchmarks" / "results" / "bench.json"
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert quoted(page, "bench", markdown(load(stored))) == page, (
        "run: make bench ARGS='--load benchmarks/results/bench.json'"
    )
