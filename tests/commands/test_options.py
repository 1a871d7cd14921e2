"""Options that commands share: where stores are, and numbers."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from headway.commands.main import main
from headway.commands.options import RunOptions, Url, parse_folder, parse_place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("runs", Path("runs")),
        ("/a/b", Path("/a/b")),
        ("file:///a/b%20c", Path("/a/b c")),
        ("local://a/b", Path("a/b")),
        ("C:/runs", Path("C:/runs")),
    ],
)
def test_paths_and_urls_of_files_are_folders(text: str, place: Path) -> None:
    assert parse_place(text) == parse_folder(text) == place


def test_other_urls_are_kept_as_they_are() -> None:
    place = parse_place("s3://bucket/runs/")
    assert isinstance(place, Url)
    assert place / "x" == "s3://bucket/runs/x"
    with pytest.raises(argparse.ArgumentTypeError, match="fetch it first: headway fetch s3://bucket/runs FOLDER"):
        parse_folder("s3://bucket/runs")


def test_a_tilde_is_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert parse_place("~/runs") == parse_place("file://~/runs") == Path("/home/me/runs")
    assert parse_place("./~/runs") == Path("~/runs")
    with pytest.raises(argparse.ArgumentTypeError, match="expected a folder, got '~no-such-user/x' of an unknown user"):
        parse_place("~no-such-user/x")


@pytest.mark.parametrize("text", ["", "file://"])
def test_nothing_is_no_place(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a folder or a URL, got an empty string"):
        parse_place(text)


def test_the_demo_is_kept_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["demo", "--out", "s3://bucket/runs"])
    assert "expected a folder, got a URL (s3://bucket/runs)" in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["report", "claims", "figures", "watch"])
def test_readers_say_how_to_get_at_a_store_behind_a_url(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "s3://bucket/runs"])
    assert stop.value.code == 2
    assert "expected a folder, got a URL; fetch it first: headway fetch s3://bucket/runs FOLDER" in (
        " ".join(capsys.readouterr().err.split())
    )


@pytest.mark.parametrize("words", [["claims", "--seed", "-1"], ["verify", "--runs", "0"], ["demo", "--workers", "-1"]])
def test_numbers_that_are_too_small_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert f"got {words[-1]!r}" in capsys.readouterr().err


def test_there_are_no_more_workers_than_runs_unless_a_number_is_given() -> None:
    assert RunOptions().workers_for(1) == 1
    assert [RunOptions(workers=workers).workers_for(1) for workers in (0, 3)] == [0, 3]
