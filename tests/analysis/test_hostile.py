from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.analysis import load_results
from headway.analysis.watch import LivePage
from tests.analysis.hostile import COMMANDS, GOOD, call, write_hostile_store

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    root = tmp_path_factory.mktemp("hostile")
    return root, write_hostile_store(root)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_on_the_good_runs_and_names_the_others(
    stored: tuple[Path, dict[str, str]], tmp_path: Path, command: str
) -> None:
    root, hostile = stored
    result, _, memory = call(command, root, tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    assert memory < 800  # numpy, scipy and matplotlib take 300 of them
    if command == "status":  # which reads no metrics
        assert f"{len(GOOD) + len(hostile) - 1} runs in" in result.stdout
        return
    said = result.stderr + result.stdout
    if command == "report":
        page = tmp_path / "report" / "index.html"
        said = page.read_text("utf-8")
        assert page.stat().st_size < 5_000_000
    for kind, name in hostile.items():
        assert name in said, f"{kind}: {said}"


def test_the_good_runs_are_read_and_each_other_one_has_its_problem(stored: tuple[Path, dict[str, str]]) -> None:
    root, hostile = stored
    results = load_results(root)
    assert {run.id for run in results.finished()} == {spec.run_id for spec in GOOD}
    messages = {problem.id: problem.message for problem in results.problems}
    assert messages.keys() == set(hostile.values())
    expected = {
        "deep": "levels of nesting, got many more",
        "not so deep": "expected at most 32 levels of nesting",
        "long note": "expected at most 1048576 bytes",
        "one long list": "lists of up to 630000 values in 630000 rows",
        "very many values": "values or more, where 10000000 are the most",
        "text for numbers": "expected a number in every row of the metric policy_entropy, got text",
        "numbers for lists": "expected a list of numbers in every row of the metric test_loss, got a number",
        "words for lists": "a column 'test_loss' of type list<",
        "long text": "a text of 50000000 bytes",
        "pipe": "expected a regular file",
    }
    for kind, words in expected.items():
        assert words in messages[hostile[kind]], kind


def test_the_live_page_names_them_too(stored: tuple[Path, dict[str, str]]) -> None:
    root, hostile = stored
    page = LivePage(root).snapshot().page()
    assert len(page) < 5_000_000
    for kind, name in hostile.items():
        assert name in page, kind
