"""`examples/ddp.py` and `examples/fsdp.py` under torchrun."""

from __future__ import annotations

import runpy
import subprocess
import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
OPTIONS = ["examples/ddp.py", "--steps", "12", "--batch", "64", "--dtype", "float64"]

THREADS = """
import gc, os, runpy, sys, time
from pathlib import Path

import torch.distributed as dist

gc.disable()  # so that nothing is collected by chance
folder = sys.argv.pop(1)
del sys.argv[0]


def groups():
    found = 0
    for path in Path("/proc/self/task").glob("*/comm"):
        try:
            found += "gloo" in path.read_text()
        except OSError:
            pass  # it has just ended
    return found


part, most = dist.destroy_process_group, 0


def count_and_part():
    global most
    most = groups()
    part()


dist.destroy_process_group = count_and_part
runpy.run_path(sys.argv[0], run_name="__main__")
end = time.monotonic() + 10  # a thread that has been waited for is listed for a moment longer
while groups() and time.monotonic() < end:
    time.sleep(0.1)
Path(folder, os.environ["RANK"]).write_text(f"{most > 0} {groups()}")
"""


def run(*command: str) -> str:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@dataclass(frozen=True)
class Two:
    """Output and scores of two processes; for each, whether its group had threads, and how many are left."""

    output: str
    scores: torch.Tensor
    threads: tuple[str, str]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    folder = tmp_path_factory.mktemp("two")
    script = folder / "threads.py"
    script.write_text(THREADS)
    output = run(*TORCHRUN, str(script), str(folder), *OPTIONS, "--out", str(folder / "two.pt"))
    first, second = ((folder / rank).read_text() for rank in "01")
    return Two(output, torch.load(folder / "two.pt", weights_only=True), (first, second))


@pytest.mark.slow
def test_two_processes_give_the_scores_of_one(
    two: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [*OPTIONS, "--out", str(tmp_path / "one.pt")])
    runpy.run_path(str(ROOT / OPTIONS[0]), run_name="__main__")
    expected = torch.load(tmp_path / "one.pt", weights_only=True)
    assert expected.shape == (64,)
    assert expected.min() > 0
    torch.testing.assert_close(two.scores, expected, rtol=1e-10, atol=1e-12)
    assert capsys.readouterr().out == two.output


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="expected a system that lists threads in /proc")
def test_no_thread_of_the_group_is_left_for_the_end_of_the_interpreter(two: Two) -> None:
    """One that is left takes the interpreter's lock when that is gone, now and then, and aborts the process."""
    assert two.threads == ("True 0", "True 0")


def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    train = runpy.run_path(str(ROOT / OPTIONS[0]))["train"]
    train.__globals__["connect"] = lambda device: (0, 2, torch.device(device))
    with pytest.raises(SystemExit, match="expected a batch that 2 processes can share evenly, got 63"):
        train(Namespace(device="cpu", batch=63))


@pytest.mark.slow
def test_a_sharded_model_gives_the_scores_of_one_process_and_resumes_in_it(tmp_path: Path) -> None:
    options = ["examples/fsdp.py", "--batch", "16"]
    run(sys.executable, *options, "--steps", "6", "--out", str(tmp_path / "one.pt"))
    run(*TORCHRUN, *options, "--steps", "3", "--save", str(tmp_path / "state"))
    for name, command in {"two": TORCHRUN, "again": [sys.executable]}.items():
        run(
            *command,
            *options,
            "--steps",
            "6",
            "--resume",
            str(tmp_path / "state"),
            "--out",
            str(tmp_path / f"{name}.pt"),
        )
    expected, two, again = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("one", "two", "again"))
    assert expected.shape == (16,)
    assert expected.min() > 0
    torch.testing.assert_close(two, expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(again, expected, rtol=1e-4, atol=0)


@pytest.mark.slow
def test_the_page_about_sharded_models_runs_as_it_stands(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "models.md").read_text("utf-8").partition("## Sharded models (FSDP2)")[2]
    script = tmp_path / "sharded.py"
    script.write_text(page.partition("```python\n")[2].partition("```")[0])
    output = run(*TORCHRUN, str(script))  # where the lines of both may be mixed
    assert all(f"rank {rank}: 8 scores" in output for rank in (0, 1))
