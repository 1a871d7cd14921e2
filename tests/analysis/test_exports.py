from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.analysis import Results, ResultsReader, exports, load_results, write_export
from headway.errors import StoreError
from headway.runs import RunStore, State
from tests.analysis.stores import controlled_spec, doorkey_spec, finish, write_mixed_store


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root = tmp_path_factory.mktemp("mixed")
    write_mixed_store(root, epochs=4, seeds=2)
    return load_results(root)


def test_an_export_holds_everything_that_the_store_says(mixed: Results, tmp_path: Path) -> None:
    readable = [run for run in mixed if run.state is not State.CORRUPT]
    assert write_export(mixed, tmp_path / "export.parquet") == len(readable)
    loaded = load_results(tmp_path)
    assert [run.id for run in loaded] == [run.id for run in readable]
    for ours, theirs in zip(loaded, readable, strict=True):
        assert ours.spec == theirs.spec
        assert (ours.state, ours.progress, ours.error) == (theirs.state, theirs.progress, theirs.error)
        assert (ours.note, ours.host) == (theirs.note, theirs.host)
        assert ours.environment == theirs.environment
        assert set(ours.columns) == set(theirs.columns)
        for name, values in theirs.columns.items():
            np.testing.assert_array_equal(ours.columns[name], values)
            assert ours.columns[name].dtype == values.dtype
            assert ours.columns[name].shape == values.shape


def test_one_file_is_enough(mixed: Results, tmp_path: Path) -> None:
    write_export(mixed, tmp_path / "new" / "export.parquet")
    assert len(load_results(tmp_path / "new" / "export.parquet").finished()) == len(mixed.finished())


def test_several_row_groups(mixed: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_RUNS_PER_ROW_GROUP", 3)
    write_export(mixed, tmp_path / "export.parquet")
    assert pq.ParquetFile(tmp_path / "export.parquet").num_row_groups > 10
    for ours, theirs in zip(load_results(tmp_path).finished(), mixed.finished(), strict=True):
        for name, values in theirs.columns.items():
            np.testing.assert_array_equal(ours.columns[name], values)


def test_half_the_digits(mixed: Results, tmp_path: Path) -> None:
    write_export(mixed, tmp_path / "export.parquet", single=True)
    for ours, theirs in zip(load_results(tmp_path).finished(), mixed.finished(), strict=True):
        for name, values in theirs.columns.items():
            np.testing.assert_allclose(ours.columns[name], values, rtol=1e-7)
            assert ours.columns[name].dtype == values.dtype


def test_some_columns(mixed: Results, tmp_path: Path) -> None:
    write_export(mixed, tmp_path / "export.parquet", columns=["test_loss", "episode_return"])
    assert {name for run in load_results(tmp_path) for name in run.columns} == {"test_loss", "episode_return"}
    assert {name for run in load_results(tmp_path, ["test_loss"]) for name in run.columns} == {"test_loss"}


def test_a_finished_run_wins_over_an_unfinished_one(tmp_path: Path) -> None:
    finish(RunStore(tmp_path / "a"), doorkey_spec(steps=4096))
    RunStore(tmp_path / "b").add(doorkey_spec(steps=4096))
    write_export(load_results(tmp_path / "b"), tmp_path / "exports" / "1.parquet")
    write_export(load_results(tmp_path / "a"), tmp_path / "exports" / "2.parquet")
    (run,) = load_results(tmp_path / "exports")
    assert run.finished


def test_a_changed_export_is_read_again(mixed: Results, tmp_path: Path) -> None:
    path = tmp_path / "export.parquet"
    write_export(mixed.select(method="gmc"), path)
    reader = ResultsReader(tmp_path)
    before = reader.read()
    assert reader.read().runs == before.runs  # the same objects
    write_export(mixed, path)
    assert len(reader.read()) > len(before)


def test_a_damaged_export_hides_no_other(mixed: Results, tmp_path: Path) -> None:
    write_export(mixed, tmp_path / "good.parquet")
    content = bytearray((tmp_path / "good.parquet").read_bytes())
    (tmp_path / "short.parquet").write_bytes(content[:-9])
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    (tmp_path / "changed.parquet").write_bytes(content)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    newer = pa.table({"a": [1]}).replace_schema_metadata({"headway.lot": "99"})
    pq.write_table(newer, tmp_path / "newer.parquet")
    results = load_results(tmp_path)
    assert len(results.finished()) == len(mixed.finished())
    messages = {problem.id: problem.message for problem in results.problems}
    assert set(messages) == {"short.parquet", "changed.parquet", "other.parquet", "newer.parquet"}
    assert "expected a file that headway export wrote" in messages["other.parquet"]
    assert "upgrade headway" in messages["newer.parquet"]


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("spec", "{", "expected a JSON object"),
        ("state", "corrupt", "expected a state among"),
        ("progress", "7", "expected progress and environment"),
        ("progress", "[1]", "list for progress"),
        ("progress", '{"done": "x", "total": "y"}', "'x' for done"),
        ("progress", '{"seconds": null}', "'None' for seconds"),
        ("progress", '{"seconds": NaN}', "'nan' for seconds"),
        ("progress", '{"pace": 1}', "pace"),
        ("environment", "{", "expected a JSON object"),
    ],
)
def test_a_bad_row_hides_no_other(mixed: Results, tmp_path: Path, column: str, value: str, expected: str) -> None:
    path = tmp_path / "export.parquet"
    write_export(mixed.select(experiment="doorkey"), path)
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[1] = value
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array(values)), path)
    results = load_results(tmp_path)
    assert len(results) == len(mixed.select(experiment="doorkey")) - 1
    (problem,) = results.problems
    assert expected in problem.message
    assert "export.parquet, row 2" in problem.message


def test_a_row_with_odd_metrics_hides_no_other(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    for seed in range(4):
        finish(store, controlled_spec(seed=seed, epochs=5))
    path = tmp_path / "exports" / "export.parquet"
    write_export(load_results(store.root), path)
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0]["arms.test_loss"][2] = rows[0]["arms.test_loss"][2][:2]
    rows[1]["metric.policy_entropy"] = rows[1]["metric.policy_entropy"][:3]
    rows[2]["arms.train_count"][0] = None
    changed = pa.Table.from_pylist(rows, schema=table.schema.remove_metadata())
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    results = load_results(path)
    assert [run.seed for run in results] == [3]
    messages = [problem.message for problem in results.problems]
    assert messages == [
        "export.parquet, row 1: expected lists of one length in the metric test_loss, got several",
        "export.parquet, row 2: expected as many values of each metric, got 3 of policy_entropy, 5 of test_loss_mean",
        "export.parquet, row 3: expected lists of one length in the metric train_count, got several",
    ]


def test_what_cannot_be_written(mixed: Results, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"expected a file name that ends in \.parquet"):
        write_export(mixed, tmp_path / "export.csv")
    with pytest.raises(StoreError, match="expected at least one readable run"):
        write_export(mixed.select(state=State.CORRUPT), tmp_path / "export.parquet")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot make"):
        write_export(mixed, tmp_path / "file" / "export.parquet")


def test_what_it_was_made_with(mixed: Results, tmp_path: Path) -> None:
    write_export(mixed, tmp_path / "export.parquet")
    metadata = pq.read_schema(tmp_path / "export.parquet").metadata
    assert {"python", "headway", "numpy", "pyarrow"} <= json.loads(metadata[b"headway.made_with"]).keys()
