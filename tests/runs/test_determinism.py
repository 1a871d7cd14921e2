from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headway.runs import RunStore
from headway.runs.experiments import COMMON, Context, use_common_instructions
from headway.study import controlled
from tests.study import test_controlled

WIDE = "processor : 0\nflags\t\t: fpu sse2 avx2 avx512f avx512bw\n"
NARROW = "processor : 0\nflags\t\t: fpu sse2 avx2\nbugs\t\t: avx512f\n"


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in COMMON:
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)


def processor(folder: Path, text: str) -> Path:
    file = folder / "cpuinfo"
    file.write_text(text)
    return file


def chosen() -> dict[str, str]:
    return {name: os.environ[name] for name in COMMON if name in os.environ}


def test_a_processor_with_more_is_told_to_do_without(tmp_path: Path, unset: None) -> None:
    use_common_instructions(processor(tmp_path, WIDE))
    assert chosen() == COMMON


def test_another_processor_is_left_alone(tmp_path: Path, unset: None) -> None:
    use_common_instructions(processor(tmp_path, NARROW))
    use_common_instructions(tmp_path / "a system that does not tell")
    assert chosen() == {}


def test_whoever_has_chosen_keeps_the_choice(tmp_path: Path, unset: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    use_common_instructions(processor(tmp_path, WIDE))
    assert chosen() == {**COMMON, "ATEN_CPU_CAPABILITY": "default"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        (["controlled", "--dataset", "digits", "--condition", "noise", "--signal", "gmc", "--epochs", "1"], 0),
        (["doorkey", "--preset", "quick", "--method", "ppo", "--noise", "none", "--steps", "1"], 1),
    ],
    ids=["controlled", "doorkey"],
)
def test_runs_of_a_command_do_without(tmp_path: Path, unset: None, arguments: list[str], workers: int) -> None:
    command = [sys.executable, "-m", "headway", "run", *arguments, "--seeds", "0", "--workers", str(workers)]
    subprocess.run([*command, "--out", str(tmp_path)], check=True, capture_output=True)
    store = RunStore(tmp_path)
    (record,) = store.status()
    assert json.loads(store.read_file(record.spec.run_id, "provenance.json"))["instructions"] not in ("", "AVX512")


def test_a_run_writes_down_its_instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.backends.cpu.get_cpu_capability()
    for name, reported, expected in (("same", own, own), ("other", "SSE41", f"{own}, oneDNN SSE41")):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", reported)
        store, spec = RunStore(tmp_path / name), test_controlled.one(epochs=1)
        with store.lock(spec) as run:
            controlled.run(run, Context())
        assert json.loads(store.read_file(spec.run_id, "provenance.json"))["instructions"] == expected
