from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from benchmarks.common import Neighbours, available_cores, cpu_name, describe, quoted, write_json
from headway.errors import HeadwayError


def test_a_machine_is_described_without_naming_it() -> None:
    found = describe(threads=1)
    assert found.versions["torch"] == torch.__version__
    assert (found.threads, found.cores) == (1, available_cores())
    assert os.uname().nodename not in repr(found)


def test_the_processor_is_named_where_the_system_tells(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Fast One\n", "utf-8")
    assert cpu_name(info) == "Fast One"
    assert cpu_name(tmp_path / "missing") != ""


def test_the_work_of_others_is_counted_in_cores(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 5000 10 0 0 0 0 0\n", "utf-8")
    neighbours = Neighbours(stat)
    assert neighbours.cores() == 0.0
    stat.write_text("cpu  900000 0 900000 5000 10 5 5 5 0 0\n", "utf-8")
    found = neighbours.cores()
    assert found is not None
    assert found > 1
    assert Neighbours(tmp_path / "missing").cores() is None


def test_how_busy_others_were_is_said_where_it_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "stat").write_text("cpu  100 0 100 5000 10 0 0 0 0 0\n", "utf-8")
    assert Neighbours(tmp_path / "stat").say() == 0.0
    assert capsys.readouterr().out == "other processes kept 0.0 cores busy\n"
    assert Neighbours(tmp_path / "missing").say() is None
    assert capsys.readouterr().out == ""


def test_numbers_are_written_where_a_file_is_named(tmp_path: Path) -> None:
    write_json(None, {"a": 1})
    write_json(tmp_path / "new" / "file.json", {"a": [1.5]})
    assert json.loads((tmp_path / "new" / "file.json").read_text("utf-8")) == {"a": [1.5]}


BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def test_a_text_goes_between_its_marks_and_replaces_what_was_there() -> None:
    page = f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n"
    written = quoted(page, "bench", "new")
    assert written == f"before\n\n{BEGIN}\nnew\n{END}\n\nafter\n"
    assert quoted(written, "bench", "new") == written


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}{BEGIN}"])
def test_a_page_without_marks_is_refused(page: str) -> None:
    with pytest.raises(HeadwayError, match="bench: begin"):
        quoted(page, "bench", "numbers")
