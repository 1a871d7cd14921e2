"""`headway run doorkey`, as a user calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.commands import options
from headway.commands import run as common
from headway.commands.main import main
from headway.commands.options import RunOptions
from headway.runs import RunStore, State

TINY = ["--preset", "quick", "--set", "num_envs=2", "--set", "rollout_steps=8", "--set", "channels=4"]
SMALL = [*TINY, "--set", "hidden=8", "--steps", "32", "--workers", "0"]


def run(out: Path, *options: str) -> int:
    """The exit code of `headway run doorkey`, which argparse raises."""
    try:
        return main(["run", "doorkey", "--out", str(out), *options])
    except SystemExit as error:
        return int(error.code or 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "ppo", "magic"], "expected a method out of ppo, forward, icm, rnd, gmc, icm+gmc, rnd+gmc"),
        (["--noise", "window"], "expected noise out of none, door, got 'window'"),
        (["--env", "MiniGrid-DoorKey-7x7-v0"], "got 'MiniGrid-DoorKey-7x7-v0'"),
        (["--env", "MiniGrid-Empty-5x5-v0", "--set", "backend=minigrid"], "expected an environment with a door"),
        (["--seeds", "20:0"], "expected seeds such as 5 or 0,3,7 or 0:20 (0 to 19), got '20:0'"),
        (["--preset", "secret"], "expected a protocol out of released, paper, fast, quick, got 'secret'"),
        (["--set", "colour=red"], "expected a field of the protocol, got 'colour'"),
        (["--set", "clip=red"], "clip: expected a value of type float, got 'red'"),
        (["--set", "clip=0"], "clip: expected a number above 0, got 0.0"),
        (["--steps", "9", "--sweep", "steps=8,16"], "expected the length of runs once, got --steps and steps=..."),
        (
            ["--env", "MiniGrid-DoorKey-6x6-v0", "--set", "env_id=MiniGrid-DoorKey-5x5-v0"],
            "expected the environment once, got --env and env_id=...",
        ),
        (["--steps", "0"], "expected a whole number of at least 1, got '0'"),
    ],
)
def test_bad_use_is_exit_code_2_and_nothing_happens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(tmp_path / "runs", *options) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
    assert not (tmp_path / "runs").exists()


def test_the_default_is_the_papers_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "runs", *TINY, "--seeds", "0:2", "--dry-run") == 0
    header, *rows, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "dataset", "condition", "method", "seed", "length", "state"]
    methods = ["ppo", "icm", "gmc", "icm+gmc"]
    expected = [[noise, method, seed] for noise in ("none", "door") for seed in "01" for method in methods]
    assert [row.split()[2:5] for row in rows] == expected
    assert {row.split()[1] for row in rows} == {"MiniGrid-DoorKey-5x5-v0"}
    assert last.startswith("16 runs: 16 pending; about ")
    assert not (tmp_path / "runs").exists()


def test_runs_are_done_once_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    assert run(out, *SMALL, "--method", "ppo", "gmc", "--noise", "door", "--seeds", "0", "--keep-weights") == 0
    assert f"2 runs in {out}: 2 done" in capsys.readouterr().out
    assert run(out, *SMALL, "--method", "ppo", "--noise", "door", "--seeds", "0:2") == 0
    assert f"2 runs in {out}: 2 done (1 before)" in capsys.readouterr().out
    records = RunStore(out).status()
    assert [record.state for record in records] == 3 * [State.DONE]
    assert sum((out / record.run_id / "final.pt").exists() for record in records) == 2
    assert all((out / record.run_id / "policy.pt").exists() for record in records)
    assert main(["status", str(out)]) == 0
    _header, first, *_, last = capsys.readouterr().out.splitlines()
    words = first.split()
    assert words[1:4] == ["done", "doorkey", "MiniGrid-DoorKey-5x5-v0"]
    assert words[7] == "32/32"
    assert last == f"3 runs in {out}: 3 done"


def test_a_field_is_swept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--method", "gmc", "--noise", "none", "--seeds", "0", "--sweep", "floor=1e-8,1e-4", "--dry-run"]
    assert run(tmp_path / "runs", *SMALL, *options) == 0
    assert "2 runs: 2 pending" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("runs", "workers", "threads"), [(1, None, 8), (3, None, 2), (20, None, 1), (20, 2, 4), (20, 0, 8), (20, 16, 1)]
)
def test_a_run_may_use_the_cores_that_the_workers_leave(
    monkeypatch: pytest.MonkeyPatch, runs: int, workers: int | None, threads: int
) -> None:
    monkeypatch.setattr(common, "cores", lambda: 8)
    monkeypatch.setattr(options, "cores", lambda: 8)
    assert common._threads(runs, RunOptions(workers=workers)) == threads
