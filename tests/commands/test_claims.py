from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.analysis import load_results, write_export
from headway.commands.main import main
from headway.runs import RunStore
from tests.analysis.stores import controlled_spec, finish, write_mixed_store

LABEL = "released, epochs=12"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("claims")
    write_mixed_store(root / "store", epochs=12, seeds=3)
    return root


def test_it_judges_what_is_there_and_says_what_does_not_count(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", str(root / "store"), "--protocol", LABEL]) == 0
    out, err = capsys.readouterr()
    assert f"Protocol: {LABEL}" in out
    assert "reproduced    MNIST: Curiosity's share of D: 0." in out
    assert "17 claims under protocol released, epochs=12: " in out
    assert "5 of 65 runs are not finished and do not count" in err
    assert "it was damaged since" in err
    assert "\nthe data of MNIST: made up\n" in out
    assert "--bench FILE judges C16" in out
    assert (
        "there are runs of 1 other protocol, such as released, steps=81920: --protocol 'released, steps=81920'" in out
    )


def test_every_protocol_without_one_that_is_called_released(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", str(root / "store"), "--brief"]) == 0
    lines = capsys.readouterr().out.splitlines()
    labels = [line for line in lines if line.startswith("Protocol")]
    assert labels == [f"Protocol: {LABEL}", "Protocol: released, steps=81920"]
    named = [word for line in lines if line.startswith("not tested") for word in line.split(": ")[1].split(", ")]
    assert len([line for line in lines if line.startswith("C")]) + len(named) == 34, "each claim twice"


def test_released_is_what_counts_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RunStore(tmp_path)
    rows = [{"test_loss": [1.0] * 4}]
    finish(store, controlled_spec(), rows * 100)
    finish(store, controlled_spec(protocol="paper"), rows * 100)
    assert main(["claims", str(tmp_path), "--only", "C5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Protocol: released\nC5  not tested")
    assert "there are runs of 1 other protocol, such as paper: --protocol paper, or --protocol all" in out
    assert "C16" not in out
    assert main(["claims", str(tmp_path), "--only", "C5", "C7", "--protocol", "all"]) == 0
    assert "Protocol: paper\nC5  not tested" in capsys.readouterr().out


def test_json_and_markdown(root: Path, tmp_path: Path) -> None:
    files = {"--json": tmp_path / "new" / "claims.json", "--markdown": tmp_path / "claims.md"}
    words = [str(word) for pair in files.items() for word in pair]
    assert main(["claims", str(root / "store"), *words]) == 0
    content = json.loads(files["--json"].read_text())
    assert [each["protocol"] for each in content["protocols"]] == [LABEL, "released, steps=81920"]
    assert content["runs"] == {"pending": 1, "done": 60, "failed": 1, "interrupted": 1, "corrupt": 2}
    assert len(content["problems"]) == 3
    (claim,) = (claim for claim in content["protocols"][0]["claims"] if claim["id"] == "C5")
    part = claim["parts"][0]
    assert (part["verdict"], part["seeds"]) == ("reproduced", 3)
    assert 0.25 < part["estimate"]["low"] < part["estimate"]["value"] < part["estimate"]["high"] <= 1
    assert files["--markdown"].read_text().startswith(f"## Protocol: {LABEL}\n")


def test_a_lot_gives_the_same_verdicts(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_export(load_results(root / "store"), root / "exports" / "export.parquet")
    main(["claims", str(root / "store")])
    expected = capsys.readouterr().out
    main(["claims", str(root / "exports")])
    assert capsys.readouterr().out == expected


def bench_file(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def test_a_benchmark(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timing = {"variant": "headway", "rounds": 9, "ratio": {"low": 1.5, "median": 1.6, "high": 1.7}}
    content = {"schema": 1, "cases": [{"key": key, "timings": [timing]} for key in "ab"]}
    words = ["--bench", bench_file(tmp_path / "bench.json", content), "--only", "C16"]
    assert main(["claims", str(root / "store"), "--protocol", LABEL, *words]) == 0
    assert "1.60 [1.50, 1.70] (median and quartiles of 9 rounds); paper: about 1" in capsys.readouterr().out


def test_the_stored_benchmark_can_be_read(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = Path(__file__).parents[2] / "benchmarks" / "results" / "bench.json"
    assert main(["claims", str(root / "store"), "--only", "C16", "--bench", str(stored), "--protocol", LABEL]) == 0
    assert "no benchmark" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--protocol", "papers"], "expected the protocol of a finished run (released, epochs=12; released, steps"),
        (["--bench", "absent.json"], "cannot read absent.json"),
        (["--only", "C99"], "expected claims out of C1, C2, C3"),
    ],
)
def test_bad_use(root: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["claims", str(root / "store"), *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("content", [{}, [], {"cases": [{"key": "a"}]}, {"cases": [{"key": "a", "timings": [1]}]}])
def test_a_file_that_is_no_benchmark(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any
) -> None:
    assert main(["claims", str(root / "store"), "--bench", bench_file(tmp_path / "bench.json", content)]) == 2
    assert "expected the JSON that headway bench or benchmarks/controlled.py wrote" in capsys.readouterr().err


def test_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", str(tmp_path)]) == 1
    assert "expected a run store" in capsys.readouterr().err


def test_a_file_that_cannot_be_written(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["claims", str(root / "store"), "--json", str(tmp_path / "file" / "claims.json")]) == 1
    assert "cannot make" in capsys.readouterr().err


def test_every_claim_is_tested_by_the_results_of_the_repository(capsys: pytest.CaptureFixture[str]) -> None:
    results = Path(__file__).parents[2] / "results"
    assert main(["claims", str(results), "--brief"]) == 0
    out = capsys.readouterr().out
    assert ", 0 not tested\n" in out
    assert "--bench FILE" not in out
