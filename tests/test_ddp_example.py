"""`examples/ddp.py` under torchrun, and models that are sharded rather than copied."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from headway import GMC, Meter
from headway.errors import ModelError

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


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("whole", [True, False])
def test_sharded_models_are_refused(whole: bool) -> None:
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    fully_shard(model[0])
    if whole:
        fully_shard(model)
    kind = "FSDPSequential" if whole else "FSDPLinear in 0"
    with pytest.raises(ModelError, match=f"expected whole parameters, got {kind}, which shards them; use Distributed"):
        Meter(model, GMC())


@pytest.mark.usefixtures("alone")
def test_split_parameters_are_refused() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    model = nn.Sequential(nn.Linear(4, 2))
    mesh = init_device_mesh("cpu", (1,))
    model[0].weight = nn.Parameter(distribute_tensor(model[0].weight.detach(), mesh, [Shard(0)]))
    with pytest.raises(ModelError, match=r"0\.weight: expected a whole parameter, got a DTensor"):
        Meter(model, GMC())
