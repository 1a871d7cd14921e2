"""`headway run controlled` and `headway status`, as a user calls them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.commands.main import main
from headway.runs import RunStore, State
from headway.runs.campaign import busy_text
from headway.study.controlled_trial import Trial
from tests.runs.dummy import spec_of

QUICK = ["--protocol", "demo", "--set", "hidden=8", "--set", "batch_size=256", "--set", "test_batches=1"]
SMALL = [*QUICK, "--epochs", "1", "--condition", "noise", "--signal", "uniform", "--workers", "0"]


def run(out: Path, *options: str) -> int:
    """The exit code of `headway run controlled`, which argparse raises."""
    try:
        return main(["run", "controlled", "--out", str(out), *options])
    except SystemExit as error:
        return int(error.code or 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--signal", "gmc", "curiousity"], "got 'curiousity'; did you mean curiosity?"),
        (["--signal", "gmc", "magic"], "expected a signal out of uniform, curiosity, gmc"),
        (["--dataset", "imagenet"], "expected a dataset out of digits, mnist"),
        (["--condition", "silence"], "expected a condition out of curriculum, noise, got 'silence'"),
        (["--seeds", "20:0"], "expected seeds such as 5 or 0,3,7 or 0:20 (0 to 19), got '20:0'"),
        (["--protocol", "secret"], "expected a protocol out of paper, released, demo, got 'secret'"),
        (["--set", "colour=red"], "expected a field of the protocol, got 'colour'"),
        (["--set", "beta=red"], "beta: expected a value of type float, got 'red'"),
        (["--set", "beta"], "expected FIELD=VALUE, got 'beta'"),
        (["--set", "batch_size=5000"], "batch_size: expected at most the 1442 images of digits, got 5000"),
        (["--epochs", "3", "--sweep", "epochs=2,4"], "expected the length of runs once, got --epochs and epochs=..."),
        (["--epochs", "3", "--set", "epochs_curriculum_mnist=4"], "got --epochs and epochs_curriculum_mnist=..."),
        (["--epochs", "0"], "expected a whole number of at least 1, got '0'"),
        (["--workers", "-1"], "expected a whole number of at least 0, got '-1'"),
        (["--workers", "two"], "expected a whole number of at least 0, got 'two'"),
        (["--device", "abacus"], "expected a device of this machine, got 'abacus'"),
        (["--seeds", "0:90000"], "expected at most 1000000 runs, got 1080000; sweep over fewer values or seeds"),
        (["--colour"], "unrecognized arguments: --colour"),
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


def test_an_option_that_is_repeated_keeps_all_of_its_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repeated = ["--signal", "gmc", "--signal", "uniform", "dot", "--condition", "noise", "--condition", "curriculum"]
    assert run(tmp_path / "runs", *QUICK, "--epochs", "1", "--seeds", "0", *repeated, "--dry-run") == 0
    _, *rows, _last = capsys.readouterr().out.splitlines()
    found = [tuple(row.split()[2:4]) for row in rows]
    assert found == [(name, signal) for name in ("noise", "curriculum") for signal in ("gmc", "uniform", "dot")]
    assert main(["run", "ablation", "--out", str(tmp_path), *QUICK, "--seeds", "0", "--dry-run", *repeated[:4]]) == 0
    _, *rows, _last = capsys.readouterr().out.splitlines()
    assert [row.split()[3] for row in rows] == ["gmc", "uniform"]


@pytest.mark.parametrize(
    ("options", "lengths"),
    [
        ([], ["500", "100"]),
        (["--epochs", "3"], ["3", "3"]),
        (["--set", "epochs=3"], ["3", "3"]),
        (["--sweep", "epochs=3,4"], ["3", "3", "4", "4"]),
        (["--set", "epochs_curriculum_mnist=3"], ["3", "100"]),
        (["--set", "epochs=3", "--set", "epochs_curriculum_mnist=7"], ["7", "3"]),
    ],
)
def test_the_length_that_is_asked_for_holds_in_every_condition(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    lengths: list[str],
) -> None:
    monkeypatch.setattr("headway.data.loading.find", lambda spec, places: None)
    few = ["--dataset", "mnist", "--signal", "gmc", "--seeds", "0", "--dry-run"]
    assert run(tmp_path / "runs", *few, *options) == 0
    _, *rows, _last = capsys.readouterr().out.splitlines()
    assert [row.split()[5] for row in rows] == lengths


def test_a_dry_run_lists_and_guesses_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "runs", *SMALL, "--seeds", "0:2", "--dry-run") == 0
    header, first, _second, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "dataset", "condition", "method", "seed", "length", "state"]
    assert first.split()[1:] == ["digits", "noise", "uniform", "0", "1", "epochs", "pending"]
    assert last.startswith("2 runs: 2 pending; about ")
    assert last.endswith(" with 1 worker")
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_downloads_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("downloaded")

    monkeypatch.setattr("headway.data.loading.fetch", refuse)
    monkeypatch.setattr("headway.data.loading.find", lambda spec, places: None)
    assert run(tmp_path / "runs", *SMALL, "--dataset", "mnist", "--dry-run") == 0
    assert "no estimate of the time: mnist is not on this machine yet" in capsys.readouterr().out


def test_runs_are_done_once_and_weights_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    assert run(out, *SMALL, "--seeds", "0", "--keep-weights") == 0
    first, *_, end, hint = capsys.readouterr().out.splitlines()
    assert first == f"1 run in {out}; 1 to go in this process"
    assert end == f"1 run in {out}: 1 done"
    assert hint == f"to see the results: headway report {out}"
    assert run(out, *SMALL, "--seeds", "0:2") == 0
    first, *_, end, _hint = capsys.readouterr().out.splitlines()
    assert first == f"2 runs in {out}, 1 done before; 1 to go in this process"
    assert end == f"2 runs in {out}: 2 done (1 before)"
    records = RunStore(out).status()
    assert [record.state for record in records] == [State.DONE, State.DONE]
    assert [(out / record.run_id / "final.pt").exists() for record in records] == [True, False]
    assert run(out, *SMALL, "--seeds", "0:2", "--keep-weights") == 0
    assert "--keep-weights: 1 run done earlier without it" in capsys.readouterr().out
    assert main(["status", str(out)]) == 0
    header, first, _second, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["run", "state", "experiment", "dataset", "condition", "method", "seed", "done", "time"]
    assert first.split()[1:8] == ["done", "controlled", "digits", "noise", "uniform", "0", "1/1"]
    assert last == f"2 runs in {out}: 2 done"


@pytest.mark.slow
@pytest.mark.parametrize("output", [">&-", ">/dev/full", "| true"])
def test_runs_go_on_whatever_becomes_of_the_output(tmp_path: Path, output: str) -> None:
    out = tmp_path / "runs"
    words = [sys.executable, "-m", "headway", "run", "controlled", "--out", str(out), *SMALL, "--seeds", "0"]
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shlex.join(words)} {output}"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert [record.state for record in RunStore(out).status()] == [State.DONE]


def test_a_store_that_cannot_be_used_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(tmp_path / "file", *SMALL) == 1
    assert "expected a folder, got a file" in capsys.readouterr().err
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "store.json").write_text('{"schema": 99}')
    for arguments in (["run", "controlled", "--out", str(newer), *SMALL], ["status", str(newer)]):
        assert main(arguments) == 1
        assert "was written by a newer headway" in capsys.readouterr().err
    assert [path.name for path in newer.iterdir()] == ["store.json"]
    assert main(["status", str(tmp_path / "nothing")]) == 1
    assert "expected a run store" in capsys.readouterr().err


@pytest.fixture
def mixed(store: RunStore) -> RunStore:
    """A store with a run in each state that one can be in for long."""
    store.add(spec_of("waiting"))
    failed, stopped = store.lock(spec_of("failed")), store.lock(spec_of("stopped"))
    assert failed
    assert stopped
    failed.progress(1, 3, {"value": float("nan")})
    failed.fail(ValueError("two is too much"))
    stopped.progress(2, 3, {"value": 0.5})
    stopped.interrupt("stopped on request")
    corrupt = store.add(spec_of("corrupt"))
    (store.root / corrupt / "spec.json").write_text("{")
    return store


def test_status_counts_and_shows_failures(mixed: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(mixed.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"4 runs in {mixed.root}: 1 pending, 1 failed, 1 interrupted, 1 corrupt"
    rows = {line.split()[1]: line for line in lines[1:-1]}
    assert rows["failed"].endswith("ValueError: two is too much")
    assert rows["interrupted"].endswith("stopped on request")
    assert "2/3" in rows["interrupted"]
    assert "spec.json" in rows["corrupt"]


def test_status_shows_control_characters_and_does_not_send_them(
    store: RunStore, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = store.lock(replace(spec_of("good"), params={"dataset": "\x1b[31mred\nline"}))
    assert hostile
    hostile.progress(1, 3, {"\x9b2J": 0.5})
    hostile.fail(ValueError("\x1b[2J"))
    for options in ([], ["--failed"], ["--json"]):
        assert main(["status", str(store.root), *options]) == 0
        output = capsys.readouterr().out
        assert not set(output) & set(map(chr, (*range(10), *range(11, 32), *range(127, 160))))
        assert "x1b[" in output or options == ["--json"]


def test_status_shows_tracebacks_of_what_failed(mixed: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(mixed.root), "--failed"]) == 0
    output = capsys.readouterr().out
    assert f"{spec_of('failed').run_id} dummy/none/failed/seed 0: failed\n    ValueError: two is too much\n" in output
    assert "unreadable: corrupt" in output
    assert "waiting" not in output


def test_status_of_lots_leaves_out_what_is_no_store(
    mixed: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "campaign.log").touch()
    (tmp_path / "unreadable" / "store.json").mkdir(parents=True)
    assert main(["status", str(tmp_path)]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines()[-1].startswith(f"4 runs in {mixed.root}: ")
    assert output.err.startswith(f"headway status: left out {tmp_path / 'unreadable'}: ")


def test_status_of_an_exported_file_names_who_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lot.parquet").touch()
    assert main(["status", str(tmp_path / "lot.parquet")]) == 2
    assert f"headway report {tmp_path / 'lot.parquet'} reads exported files" in capsys.readouterr().err
    assert main(["status", str(tmp_path)]) == 2
    assert f"got exported files in {tmp_path}; headway report {tmp_path} reads them" in capsys.readouterr().err


def test_status_as_json(mixed: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(mixed.root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["counts"] == {"pending": 1, "failed": 1, "interrupted": 1, "corrupt": 1}
    runs = {run["state"]: run for run in found["runs"]}
    assert runs["interrupted"]["step"] == 2
    assert runs["interrupted"]["losses"] == {"value": 0.5}
    assert runs["failed"]["losses"] == {"value": None}
    assert runs["failed"]["error"].endswith("ValueError: two is too much\n")
    assert "reason" in runs["corrupt"]
    assert main(["status", str(mixed.root), "--json", "--failed"]) == 0
    assert {run["state"] for run in json.loads(capsys.readouterr().out)["runs"]} == {"failed", "corrupt"}


def test_five_frames_lead_from_the_command_to_the_training_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks: list[list[str]] = []
    run_epoch = Trial.run_epoch

    def noting(trial: Trial, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        frames = [frame for frame in traceback.extract_stack() if "/headway/" in frame.filename]
        stacks.append([frame.name for frame in frames])
        return run_epoch(trial, should_stop)

    monkeypatch.setattr(Trial, "run_epoch", noting)
    assert run(tmp_path / "runs", *SMALL, "--seeds", "0") == 0
    assert stacks == [["main", "execute", "run_campaign", "launch", "attempt", "run"]]


def test_a_busy_machine_is_told_by_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.runs.campaign.cores", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (2.0, 9.0, 9.0))
    assert busy_text() == ""
    monkeypatch.setattr("os.getloadavg", lambda: (3.5, 0.0, 0.0))
    assert "load 3.5 on 4 cores" in busy_text()
