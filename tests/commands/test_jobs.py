"""Shares of a campaign, commands for single runs, and where runs are carried out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NoReturn

import pytest

from headway.commands import run as command
from headway.commands.main import main
from headway.commands.options import RunOptions, Shard, Url, parse_place
from headway.errors import DataError, UsageError
from headway.runs import RunSpec, RunStore, State
from headway.runs.launchers import InProcess, LaunchOptions, make_named_launcher
from headway.runs.processes import LocalProcesses, gpus_for, make_local
from tests.commands.test_run import SMALL, run
from tests.runs import dummy_cli
from tests.runs.dummy import spec_of

SPECS = [spec_of(seed=seed) for seed in range(7)]


def choose(specs: list[RunSpec], shard: Shard | None = None, *only: str) -> list[RunSpec]:
    return command.choose(specs, RunOptions(shard=shard, only=only))


def test_shares_are_disjoint_and_complete() -> None:
    shares = [choose(SPECS, Shard(index, 3)) for index in (1, 2, 3)]
    assert [len(share) for share in shares] == [3, 2, 2]
    assert [spec.seed for spec in shares[0]] == [0, 3, 6]
    assert {spec for share in shares for spec in share} == set(SPECS)
    assert choose([*SPECS, *SPECS]) == SPECS


def test_single_runs_are_chosen_by_id() -> None:
    assert choose(SPECS, None, SPECS[4].run_id, SPECS[1].run_id) == [SPECS[4], SPECS[1]]
    assert choose(SPECS, Shard(2, 3), SPECS[4].run_id) == [SPECS[4]]
    with pytest.raises(UsageError, match="expected the id of one of the 2 runs that the options mean"):
        choose(SPECS, Shard(2, 3), SPECS[0].run_id)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "a/b", "1/3/5", "-1/3", "1/9999999999"])
def test_a_share_that_makes_no_sense_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "runs", f"--shard={text}") == 2
    assert f"expected a share such as 2/8 (1/8 to 8/8), got {text!r}" in capsys.readouterr().err


def test_all_shares_together_are_the_campaign(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    for index in (1, 2):
        assert run(out, *SMALL, "--seeds", "0:3", "--shard", f"{index}/2") == 0
    assert [record.state for record in RunStore(out).status()] == [State.DONE] * 3


def test_printed_jobs_are_commands_for_single_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a store"
    options = [*SMALL, "--seeds", "0:3"]
    assert run(out, *options, "--print-jobs") == 0
    output = capsys.readouterr()
    jobs = output.out.splitlines()
    assert output.err == "headway: 3 commands; 0 of 3 runs done before\n"
    assert jobs[2].endswith("  # digits noise uniform seed 2")
    assert [record.state for record in RunStore(out).status()] == [State.PENDING] * 3
    words = shlex.split(jobs[1], comments=True)
    assert words[:2] == ["headway", "run"]
    assert main(words[1:]) == 0
    states = {record.spec.seed: record.state for record in RunStore(out).status() if record.spec}
    assert states == {0: State.PENDING, 1: State.DONE, 2: State.PENDING}
    capsys.readouterr()
    assert run(out, *options, "--print", "--shard", "2/3") == 0  # an abbreviation, which the commands must not have
    assert capsys.readouterr() == ("", "headway: 0 commands; 1 of 1 run done before\n")
    assert run(out, *options, "--print-jobs") == 0
    assert capsys.readouterr().out.splitlines() == [jobs[0], jobs[2]]


def test_a_job_is_a_store_and_a_run_and_what_the_run_may_use() -> None:
    out = ["--out", str(Path("runs").absolute())]
    assert shlex.split(RunOptions().job("x")) == ["headway", "run", "--only", "x", *out, "--workers", "0"]
    how = RunOptions(
        out=Url("s3://b/runs"),
        launcher="ray",
        address="a:1",
        workers=3,
        shard=Shard(1, 2),
        dry_run=True,
        data_dir=Path("data"),
        tensorboard=Path("/logs"),
        keep_weights=True,
        plugin=("one", "two"),
    )
    assert shlex.split(how.job("x")) == [
        *("headway", "run", "--only", "x", "--out", "s3://b/runs"),
        *("--data-dir", str(Path("data").absolute()), "--keep-weights", "--tensorboard", "/logs"),
        *("--plugin", "one", "--plugin", "two", "--workers", "0"),
    ]


def test_a_run_of_the_store_is_run_by_its_id_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs"
    assert run(out, *SMALL, "--seeds", "0:2", "--print-jobs") == 0
    ids = [record.run_id for record in RunStore(out).status()]
    assert main(["run", "--only", ids[1], "--out", str(out), "--workers", "0"]) == 0
    assert [RunStore(out).record(each).state for each in ids] == [State.PENDING, State.DONE]
    assert main(["run", "--only", "0" * 16, "--out", str(out)]) == 2
    assert main(["run", "--only", ids[0], "--out", str(tmp_path / "nothing")]) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--launcher", "ray", "--address", "head:6379", "--cpus-per-run", "2"],
        ["--only", "{0}", "--only={1}"],
        ["--workers", "2", "--dry-run"],
    ],
)
def test_a_printed_job_carries_out_its_run_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    out = tmp_path / "runs"
    assert run(out, *SMALL, "--seeds", "0:2", "--print-jobs") == 0
    ids = [line.split(" --only ")[1].split()[0] for line in capsys.readouterr().out.splitlines()]
    assert run(out, *SMALL, "--seeds", "0:2", *(word.format(*ids) for word in options), "--print-jobs") == 0
    jobs = [shlex.split(line, comments=True) for line in capsys.readouterr().out.splitlines()]
    assert len(jobs) == 2
    assert main(jobs[1][1:]) == 0
    assert [RunStore(out).record(each).state for each in ids] == [State.PENDING, State.DONE]


def test_jobs_of_failed_runs_run_them_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, options = tmp_path / "runs", [*SMALL, "--seeds", "0:2", "--print-jobs"]
    assert run(out, *options) == 0
    jobs = capsys.readouterr().out.splitlines()
    assert main(shlex.split(jobs[0], comments=True)[1:]) == 0
    (record,) = [each for each in RunStore(out).status() if each.state is State.DONE]
    assert record.spec is not None
    RunStore(out).reset(record.run_id)
    claimed = RunStore(out).lock(record.spec)
    assert claimed is not None
    claimed.fail(ValueError("no"))
    capsys.readouterr()
    assert run(out, *options) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [jobs[1]]
    assert "1 command; 0 of 2 runs done before, 1 failed, for which --retry-failed prints commands" in printed.err
    assert run(out, *options, "--retry-failed") == 0
    again = capsys.readouterr().out.splitlines()
    assert len(again) == 2
    assert main(shlex.split(again[0], comments=True)[1:]) == 0
    assert RunStore(out).record(record.run_id).state is State.DONE


def test_jobs_of_a_campaign_file_name_the_store_of_their_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "campaign.toml", tmp_path / "runs"
    section = """
[[section]]
name = "{name}"
experiment = "controlled"
condition = "noise"
signal = "uniform"
protocol = "demo"
set = {{ hidden = 8, batch_size = 256, test_batches = 1 }}
epochs = 1
seeds = "{seeds}"
"""
    file.write_text(section.format(name="one", seeds="0:2") + section.format(name="two", seeds="7"))
    assert main(["run", "--campaign", str(file), "--out", str(out), "--print-jobs"]) == 0
    jobs = [shlex.split(line, comments=True) for line in capsys.readouterr().out.splitlines()]
    assert [job[job.index("--out") + 1] for job in jobs] == [str(out / name) for name in ("one", "one", "two")]
    assert main(jobs[2][1:]) == 0
    assert [record.state for record in RunStore(out / "one").status()] == [State.PENDING] * 2
    assert [record.state for record in RunStore(out / "two").status()] == [State.DONE]


def test_printed_jobs_mean_the_same_in_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    section = "[[section]]\nname='one'\nexperiment='controlled'\ncondition='noise'\nsignal='uniform'\nseeds=0\nepochs=1"
    (tmp_path / "here" / "c.toml").write_text(f"{section}\nprotocol='demo'\nset={{hidden=8, test_batches=1}}")
    monkeypatch.chdir(tmp_path / "here")
    assert main(["run", "--campaign", "./c.toml", "--data-dir", "data", "--print-jobs"]) == 0
    assert main(["run", "controlled", *SMALL, "--seeds", "0", "--print-jobs"]) == 0
    jobs = [shlex.split(line, comments=True) for line in capsys.readouterr().out.splitlines()]
    assert str(tmp_path / "here" / "data") in jobs[0]
    monkeypatch.chdir(tmp_path / "there")
    assert [main(job[1:]) for job in jobs] == [0, 0]
    assert list((tmp_path / "there").iterdir()) == []
    for out in ("runs", "runs/one"):
        assert [record.state for record in RunStore(tmp_path / "here" / out).status()] == [State.DONE]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--launcher", "rya"], "expected a launcher out of local, ray, got 'rya'; did you mean ray?"),
        (["--address", "auto"], "expected --address with a cluster's launcher, got the local one; add --launcher ray"),
        (["--cpus-per-run", "2"], "expected --cpus-per-run with a cluster's launcher"),
        (["--gpus-per-run", "none"], "expected a number above 0, got 'none'"),
        (["--runs-per-gpu", "2"], "expected --runs-per-gpu with a GPU, got --device cpu"),
        (["--launcher", "ray", "--gpus-per-run", "0.5"], "expected --device cuda with GPUs for each run"),
        (
            ["--launcher", "ray", "--device", "cuda:1"],
            "expected a device without a number, got cuda:1",
        ),
        (["--launcher", "ray", "--workers", "0"], "expected at least 1 worker, got 0; leave --workers out"),
        (["--only", "0123456789abcdef"], "expected the id of one of the 36 runs that the options mean"),
        (["--out", "nothing://x"], "expected a URL that fsspec can open"),
    ],
)
def test_bad_use_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(tmp_path / "runs", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_local_launchers() -> None:
    assert isinstance(make_local(LaunchOptions(workers=0)), InProcess)
    local = make_local(LaunchOptions(workers=3))
    assert isinstance(local, LocalProcesses)
    assert (local.workers, local.devices) == (3, ())


def test_runs_share_gpus_evenly() -> None:
    local = make_local(LaunchOptions(device="cuda", runs_per_gpu=3, count_gpus=lambda: 2))
    assert isinstance(local, LocalProcesses)
    assert (local.workers, local.devices) == (6, ("cuda:0", "cuda:1"))
    fewer = make_local(LaunchOptions(device="cuda:1", runs_per_gpu=3, workers=2))
    assert isinstance(fewer, LocalProcesses)
    assert (fewer.workers, fewer.devices) == (2, ("cuda:1",))
    with pytest.raises(UsageError, match="expected a GPU for --device cuda, got none"):
        gpus_for("cuda", lambda: 0)


def test_launchers_have_names() -> None:
    assert isinstance(make_named_launcher("local", LaunchOptions(workers=0)), InProcess)
    with pytest.raises(UsageError, match="expected a launcher out of"):
        make_named_launcher("", LaunchOptions())


def test_places_are_paths_or_urls() -> None:
    assert parse_place("runs/a b") == Path("runs/a b")
    assert parse_place("file:///tmp/a%20b") == Path("/tmp/a b")
    url = parse_place("s3://bucket/runs/")
    assert isinstance(url, Url)
    assert url / "lot" == "s3://bucket/runs/lot"
    assert RunStore(Path("runs")).place == "runs"


def test_a_campaign_behind_a_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"memory://{tmp_path.name}/runs"
    arguments = ["--out", url, "--workers", "0", "--seeds", "0:2", "--method", "good", "fail"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headway.runs.experiments._MODULES", {})
        assert dummy_cli.main(arguments) == 1
    output = capsys.readouterr()
    assert f"4 runs in {url}; 4 to go in this process" in output.out
    assert f"to see the results: headway fetch {url} FOLDER; headway report FOLDER" in output.out
    assert f"see why: headway status {url} --failed" in output.err
    assert main(["status", url]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"4 runs in {url}: 2 done, 2 failed"
    assert main(["fetch", url, str(tmp_path / "copy")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"4 runs copied from {url} to {tmp_path / 'copy'}"
    assert main(["status", str(tmp_path / "copy")]) == 0
    assert main(["fetch", str(tmp_path / "copy")]) == 2


def test_jobs_are_printed_without_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They may be run on other machines, where the data are."""
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr("headway.commands.run.load", missing)
    words = ["--dataset", "mnist", "--condition", "noise", "--signal", "gmc", "--seeds", "0:3", "--print-jobs"]
    assert main(["run", "controlled", *words, "--out", str(tmp_path / "runs")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_only_the_data_of_runs_that_are_to_be_done_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headway.data.loading.find", lambda spec, places: None)
    monkeypatch.setattr("headway.data.loading.fetch", unreachable)
    out, options = tmp_path / "runs", [*SMALL, "--dataset", "digits", "mnist", "--seeds", "0"]
    assert run(out, *options, "--print-jobs") == 0
    digits, _ = (line.split(" --only ")[1].split()[0] for line in capsys.readouterr().out.splitlines())
    assert run(out, *options) == 1
    assert {record.state for record in RunStore(out).status()} == {State.PENDING}
    assert run(out, *options, "--only", digits) == 0
    monkeypatch.setattr("headway.commands.run.load", unreachable)
    assert run(out, *options, "--shard", "1/2") == 0
    assert f"1 run in {out}: 1 done (1 before)" in capsys.readouterr().out


def unreachable(*arguments: object, **options: object) -> NoReturn:
    raise DataError("out of reach")


def missing(name: str, data_dir: Path | None, *, download: bool) -> NoReturn:
    assert not download
    raise DataError(f"no {name}")
