from __future__ import annotations

from pathlib import Path

import pytest

from headway.commands import main as cli
from headway.runs import RunStore
from tests.analysis import stores


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished, failed, stopped and damaged runs of two protocols."""
    store = RunStore(tmp_path_factory.mktemp("runs"))
    for protocol in ("released", "paper"):
        stores.finish_all(
            store,
            stores.controlled_specs(conditions=("noise",), methods=("uniform", "gmc"), seeds=2, protocol=protocol),
        )
    stores.fail(store, stores.controlled_spec(seed=7))
    stores.stop(store, stores.controlled_spec(seed=8))
    stores.finish(store, stores.controlled_spec(seed=9))
    stores.damage(store, stores.controlled_spec(seed=9))
    return store.root


def test_it_draws_what_it_can_and_says_what_is_left_out(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures"
    options = ["--out", str(out), "--format", "png", "--protocol", "released"]
    assert cli.main(["figures", str(root), *options]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("8 finished runs (not shown: 1 failed, 1 interrupted, 1 corrupt)\n")
    assert "left out groups-mnist-noise-others: no finished runs of NormLast / NormAll / DeltaLoss\n" in said.out
    assert said.out.endswith(f"4 figures in {out}, each as png; captions in captions.md\n")
    assert "headway: left out" in said.err
    names = {path.name for path in out.iterdir()}
    assert names == {
        "groups-mnist-noise-main.png",
        "average-loss-mnist-noise.png",
        "auc.png",
        "telemetry-mnist.png",
        "captions.md",
    }
    captions = (out / "captions.md").read_text("utf-8")
    assert "# Protocol: released" in captions
    assert "**auc.** Area under the test-loss curve" in captions


def test_two_protocols_have_a_folder_each(root: Path, tmp_path: Path) -> None:
    assert cli.main(["figures", str(root), "--out", str(tmp_path), "--format", "svg", "--only", "average-loss"]) == 0
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.svg"))
    assert found == ["paper/average-loss-mnist-noise.svg", "released/average-loss-mnist-noise.svg"]


def test_protocols_that_differ_in_a_sign_have_a_folder_each(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    specs = [stores.controlled_spec(method="uniform", epochs=3, dot_scale=scale) for scale in (2.0, -2.0)]
    stores.finish_all(store, specs)
    out = tmp_path / "figures"
    assert cli.main(["figures", str(store.root), "--out", str(out), "--format", "svg", "--only", "average-loss"]) == 0
    found = sorted(path.parent.name for path in out.rglob("*.svg"))
    assert found == ["released-dot-scale-2-epochs-3", "released-dot-scale-2-epochs-3-2"]


def test_the_same_runs_give_the_same_files(root: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        options = ["--protocol", "paper", "--only", "auc", "--out", str(tmp_path / name)]
        assert cli.main(["figures", str(root), *options]) == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--protocol", "nonsense"],
            "expected a protocol of the finished runs, got 'nonsense'; there are: released; paper",
        ),
        (["--only", "pie"], "expected the beginning of a figure's name, got pie; there are: groups-mnist-noise-main"),
    ],
)
def test_a_wrong_choice_is_told_what_there_is(
    root: Path, tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["figures", str(root), "--out", str(tmp_path / "out"), *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_store_without_finished_runs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stores.fail(RunStore(tmp_path), stores.controlled_spec(epochs=4))
    assert cli.main(["figures", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert f"expected finished runs in {tmp_path}, got 1 failed" in capsys.readouterr().err


def test_no_store_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["figures", str(tmp_path / "missing")]) == 1
    assert "check the path" in capsys.readouterr().err


def test_a_file_in_the_way_is_an_error(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("")
    assert cli.main(["figures", str(root), "--protocol", "paper", "--out", str(tmp_path / "out")]) == 1
    assert f"cannot make {tmp_path / 'out'}: " in capsys.readouterr().err


def test_an_unknown_format_is_a_wrong_option(root: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["figures", str(root), "--format", "jpg"])
    assert stop.value.code == 2
