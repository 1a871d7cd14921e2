from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from headway.cli import main
from headway.runs.places import Url, parse_folder, parse_place


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


@pytest.mark.parametrize("command", ["report", "claims", "figures", "watch"])
def test_readers_say_how_to_get_at_a_store_behind_a_url(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "s3://bucket/runs"])
    assert stop.value.code == 2
    assert "expected a folder, got a URL; fetch it first: headway fetch s3://bucket/runs FOLDER" in (
        " ".join(capsys.readouterr().err.split())
    )
