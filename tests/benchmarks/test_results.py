from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cost.results import from_json, load, save, to_json
from headway.errors import HeadwayError
from tests.benchmarks.tiny import interrupted, result


@pytest.mark.parametrize("made", [result(), interrupted()])
def test_a_result_comes_back_from_json_as_it_was(made: object, tmp_path: Path) -> None:
    save(made, tmp_path / "bench.json")  # type: ignore[arg-type]
    assert load(tmp_path / "bench.json") == made
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', to_json(result()).replace("goal", "aim")])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(HeadwayError, match="expected the JSON of a benchmark"):
        from_json(text)


def test_a_newer_schema_is_refused() -> None:
    raw = {**json.loads(to_json(result())), "schema": 2}
    with pytest.raises(HeadwayError, match="got 2"):
        from_json(json.dumps(raw))


def test_extra_memory_is_state_and_peak_together() -> None:
    case = result().cases[0]
    assert [memory.extra for memory in case.memories] == [0, 3 * 2**20 + 2**19, 201 * 2**20]
    assert case.memory_goal == 4 * 2**20 + 8 * 2**20
