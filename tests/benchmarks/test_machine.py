from __future__ import annotations

import os
from pathlib import Path

import torch

from benchmarks.cost.machine import Neighbours, available_cores, cpu_name, describe


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
