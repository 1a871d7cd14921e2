"""`examples/ddp.py` and `examples/fsdp.py` under torchrun."""

from __future__ import annotations

import subprocess
import sys
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


@pytest.mark.slow
def test_two_processes_give_the_scores_of_one(tmp_path: Path) -> None:
    one = run(sys.executable, *OPTIONS, "--out", str(tmp_path / "one.pt"))
    two = run(*TORCHRUN, *OPTIONS, "--out", str(tmp_path / "two.pt"))
    expected, scores = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("one", "two"))
    assert expected.shape == (64,)
    assert expected.min() > 0
    torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-12)
    assert one == two


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="expected a system that lists threads in /proc")
def test_no_thread_of_the_group_is_left_for_the_end_of_the_interpreter(tmp_path: Path) -> None:
    """One that is left takes the interpreter's lock when that is gone, now and then, and aborts the process."""
    script = tmp_path / "threads.py"
    script.write_text(THREADS)
    run(*TORCHRUN, str(script), str(tmp_path), *OPTIONS)
    for rank in "01":
        assert (tmp_path / rank).read_text() == "True 0", "whether the group had threads, and how many are left"


@pytest.mark.slow
def test_a_batch_that_cannot_be_shared_is_refused() -> None:
    command = [*TORCHRUN, *OPTIONS, "--batch", "63"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode != 0
    assert "expected a batch that 2 processes can share evenly, got 63" in result.stderr


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
    assert set(run(*TORCHRUN, str(script)).split("\n")) >= {"rank 0: 8 scores", "rank 1: 8 scores"}
