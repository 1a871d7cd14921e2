"""Campaign files and sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.commands.campaign_file import read_campaign_file
from headway.commands.main import main
from headway.errors import DataError, UsageError
from headway.runs import RunStore, State
from headway.study.requests import ControlledRequest, combinations, sweeps

SMALL = """
dataset = "digits"
condition = "noise"
protocol = "demo"
epochs = 1
seeds = "0"
set = { hidden = 8, batch_size = 256, test_batches = 1 }
"""


def write(path: Path, text: str) -> Path:
    file = path / "campaign.toml"
    file.write_text(text)
    return file


def campaign(path: Path) -> Path:
    return write(
        path,
        f"""
description = "two sections"
[[section]]
name = "first"
experiment = "controlled"
signal = ["uniform"]
{SMALL}
[[section]]
name = "second"
experiment = "sensitivity"
sweep = {{ beta = [0.9, 0.99] }}
{SMALL}
""",
    )


def run(*arguments: object) -> int:
    try:
        return main(["run", "--campaign", *map(str, arguments)])
    except SystemExit as error:
        return int(error.code or 0)


def test_sweeps_give_every_combination() -> None:
    assert combinations({}, 1) == [{}]
    assert combinations(sweeps("sweep", ["a=1,2", "b=x"]), 1) == [{"a": "1", "b": "x"}, {"a": "2", "b": "x"}]
    assert sweeps("sweep", {"a": [1, 2], "b": "x, y", "c": 0.5}) == {"a": (1, 2), "b": ("x", "y"), "c": (0.5,)}
    with pytest.raises(UsageError, match=r"expected FIELD=VALUE,VALUE,\.\.\., got 'a=1,'"):
        sweeps("sweep", ["a=1,"])


def test_too_many_runs_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    values = tuple(range(100))
    assert len(combinations({"a": values, "b": values}, 100)) == 10_000
    monkeypatch.setattr("itertools.product", lambda *_: pytest.fail("they were made"))
    with pytest.raises(UsageError, match="expected at most 1000000 runs, got 2700000; sweep over fewer values or"):
        combinations({"a": values, "b": values}, 270)


def test_a_section_asks_for_what_the_command_line_does(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
[[section]]
name = "a"
experiment = "controlled"
signal = ["gmc", "uniform"]
epochs = 3
set = { floor = 1e-5, replacement = true }
sweep = { beta = [0.9, 0.99] }
""",
    )
    (section,) = read_campaign_file(file).sections
    assert section.request == ControlledRequest(
        signal=("gmc", "uniform"),
        epochs=3,
        set={"floor": 1e-5, "replacement": True},
        sweep={"beta": (0.9, 0.99)},
    )
    texts = {
        "signal": ["gmc", "uniform"],
        "epochs": "3",
        "set": ["floor=1e-5", "replacement=true"],
        "sweep": ["beta=0.9,0.99"],
    }
    assert ControlledRequest.read(texts).specs() == section.specs()


def test_seeds_may_be_a_list(tmp_path: Path) -> None:
    section = "[[section]]\nname='a'\nexperiment='controlled'\nseeds=[0, '5:7']"
    assert read_campaign_file(write(tmp_path, section)).sections[0].request == ControlledRequest(seeds=(0, 5, 6))


def test_files_and_options_of_earlier_versions_are_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = campaign(tmp_path)
    file.write_text(file.read_text().replace("[[section]]", "[[lot]]"))
    assert run(file, "--lot", "first", "--out", tmp_path / "out", "--dry-run") == 0
    output = capsys.readouterr()
    assert "1 run: 1 pending" in output.out
    assert "--lot is called --section now" in output.err


def test_sections_are_run_each_in_its_folder_and_only_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = campaign(tmp_path), tmp_path / "out"
    assert run(file, "--out", out, "--workers", 0, "--section", "second") == 0
    assert not (out / "first").exists()
    assert run(file, "--out", out, "--workers", 0) == 0
    said = capsys.readouterr().out
    assert "2 runs in" in said
    assert f"to see the results of all sections: headway report {out}" in said
    assert main(["status", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"1 run in {out / 'first'}: 1 done" in said
    assert f"2 runs in {out / 'second'}: 2 done" in said
    first, second = RunStore(out / "first").status(), RunStore(out / "second").status()
    assert [record.state for record in (*first, *second)] == [State.DONE] * 3
    protocols = [record.spec.protocol for record in second if record.spec]
    assert sorted((p["beta"], p["floor_unit"]) for p in protocols) == [(0.9, "sample"), (0.99, "sample")]


def test_sections_may_be_named_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = campaign(tmp_path)
    assert run(file, "--section", "first", "--section", "second", "--out", tmp_path / "out", "--print-jobs") == 0
    jobs = [line.split("  #")[0].split() for line in capsys.readouterr().out.splitlines()]
    assert [Path(job[job.index("--out") + 1]).name for job in jobs] == ["first", "second", "second"]


A = "[[section]]\nname='a'\nexperiment='controlled'\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[lot]", "expected TOML"),
        ("", "expected a description, plugins and [[section]] tables, got none"),
        (f"a={'[' * 100_000}{']' * 100_000}", "nested too deeply"),
        (f"{A}epochs={'[' * 200}{']' * 200}", "epochs"),
        (f"{A}epochs=1{'0' * 5000}", "Exceeds the limit"),
        (f"{A}epochs=0x{'f' * 5000}", "epochs"),
        (f"colour = 1\n{A}", "colour"),
        ("[[section]]\nname='a'", "section 1: expected its experiment, got None"),
        ("[[section]]\nname='../a'\nexperiment='controlled'", "'../a'"),
        ("[[section]]\nname='a'\nexperiment='controled'", "did you mean controlled?"),
        (f"{A}colour='red'", "'colour'"),
        (f"{A}epoch=3", "'epoch'; did you mean epochs?"),
        (f"{A}workers=0", "workers"),
        (f"{A}epochs=[[1]]", "epochs"),
        (f"{A}signal='gmcc'", "campaign.toml: a: "),
        (f"{A}seeds='x'", "campaign.toml: a: "),
        (f"{A}set={{flor=1}}", "campaign.toml: a: "),
        ("[[section]]\nname='a'\nexperiment='sensitivity'\nsweep={beta=[2.0]}", "campaign.toml: a: beta"),
        ("[[section]]\nname='a'\nexperiment='doorkey'\nmethod='imc'", "campaign.toml: a: "),
        (A + A, "'a' twice"),
    ],
)
def test_a_bad_file_is_exit_code_2_and_nothing_happens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, named: str
) -> None:
    assert run(write(tmp_path, text), "--out", tmp_path / "out") == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_mistake_in_the_last_section_is_found_before_the_first_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = campaign(tmp_path)
    file.write_text(file.read_text().replace("beta = [0.9, 0.99]", "betta = [0.9, 0.99]"))
    assert run(file, "--out", tmp_path / "out", "--workers", 0) == 2
    assert "campaign.toml: second: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_options_may_stand_before_the_file_and_the_experiment(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["run", "--out", str(out), "--campaign", str(campaign(tmp_path)), "--print-jobs"]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["first", "second"]
    assert main(["run", "--out", str(out / "third"), "controlled", "--print-jobs", "--seeds", "0"]) == 0
    assert len(RunStore(out / "third").status()) == 12


def test_what_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "nothing.toml") == 2
    assert "nothing.toml: No such file" in capsys.readouterr().err
    assert run(campaign(tmp_path), "--section", "thrid") == 2
    assert "expected a section out of first, second, got 'thrid'" in capsys.readouterr().err
    assert main(["run"]) == 2
    assert "expected an experiment out of controlled" in capsys.readouterr().err


THREE = "".join(
    f"""
[[section]]
name = "{name}"
experiment = "controlled"
signal = ["uniform"]
{SMALL.replace('"digits"', f'"{dataset}"').replace('"0"', f'"{seed}"')}
"""
    for seed, (name, dataset) in enumerate((("one", "digits"), ("two", "mnist"), ("three", "digits")))
)
"""Sections of one run each."""


@pytest.fixture
def without_mnist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which MNIST is not and cannot be had."""
    monkeypatch.setenv("HEADWAY_DATA", str(tmp_path / "data"))

    def unreachable(*arguments: object) -> None:
        raise DataError("mnist is out of reach")

    monkeypatch.setattr("headway.data.loading.find", lambda spec, places: None)
    monkeypatch.setattr("headway.data.loading.fetch", unreachable)


@pytest.mark.usefixtures("without_mnist")
def test_trouble_of_one_section_is_reported_first_and_the_others_are_carried_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write(tmp_path, THREE), tmp_path / "out"
    assert run(file, "--out", out, "--workers", 0) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("headway: section two: dataset mnist: expected the files ")
    assert told[-1] == "headway: 1 of 3 sections failed, see above: two"
    assert sorted(path.name for path in out.iterdir()) == ["one", "three"]
    assert [RunStore(out / name).status()[0].state for name in ("one", "three")] == [State.DONE] * 2


def test_trouble_while_a_section_is_carried_out_leaves_the_later_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = write(tmp_path, THREE.replace("mnist", "digits")), tmp_path / "out"
    out.mkdir()
    (out / "two").symlink_to(tmp_path / "nowhere" / "two")  # a folder that cannot be made
    (tmp_path / "nowhere").touch()
    assert run(file, "--out", out, "--workers", 0) == 1
    assert "headway: section two: " in capsys.readouterr().err
    assert [RunStore(out / name).status()[0].state for name in ("one", "three")] == [State.DONE] * 2


def test_a_batch_that_is_too_large_is_found_before_the_first_section_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = THREE.replace("mnist", "digits").rsplit("batch_size = 256", 1)
    file = write(tmp_path, f"{first}batch_size = 5000{last}")
    assert run(file, "--out", tmp_path / "out", "--workers", 0) == 2
    assert "campaign.toml: three: batch_size: expected at most the 1442 images" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("without_mnist")
def test_a_run_is_found_in_whichever_section_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = write(tmp_path, THREE), tmp_path / "out"
    (section,) = read_campaign_file(file).choose(["three"])
    (spec,) = section.specs()
    assert run(file, "--out", out, "--workers", 0, "--only", spec.run_id) == 0
    assert [path.name for path in out.iterdir()] == ["three"]
    capsys.readouterr()
    assert run(file, "--out", out, "--only", spec.run_id, "--only", "0" * 16) == 2
    assert f"expected the id of one of the 3 runs that the options mean, got '{'0' * 16}'" in capsys.readouterr().err
