"""Files of strangers are data: no part of headway executes what it reads, or writes where a file's names lead."""

from __future__ import annotations

import ast
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from headway.data.cifar import iter_members, unpickle
from headway.errors import DataError
from headway.runs import RunSpec, RunStore, State
from headway.runs.campaign import Campaign, run_campaign
from headway.runs.experiments import Context
from headway.runs.launchers import InProcess
from headway.study.controlled import specs as controlled_specs
from headway.study.doorkey import specs as doorkey_specs
from headway.study.protocols.classification import Protocol
from headway.study.protocols.minigrid import ExplorationProtocol
from tests.data.formats import tar_bytes
from tests.runs.conftest import Recorder

PACKAGE = Path(__file__).parents[2] / "headway"
FORBIDDEN = {
    "eval",
    "exec",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "cloudpickle.load",
    "cloudpickle.loads",
    "dill.load",
    "joblib.load",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "yaml.load",
    "yaml.unsafe_load",
    "os.system",
}
FORBIDDEN_METHODS = {"extract", "extractall"}  # of archives


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def test_no_part_reads_in_a_way_that_executes() -> None:
    found = []
    for where, call in calls():
        name = ast.unparse(call.func)
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        is_unsafe_load = name == "torch.load" and options.get("weights_only") != "True"
        pickles = name in ("np.load", "numpy.load") and options.get("allow_pickle", "False") != "False"
        unpacks = isinstance(call.func, ast.Attribute) and call.func.attr in FORBIDDEN_METHODS
        if name in FORBIDDEN or is_unsafe_load or pickles or unpacks:
            found.append(f"{where}: {name}")
    assert found == []


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def test_the_bomb_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()


def runs() -> list[RunSpec]:
    small = Protocol.demo().override({"hidden": "8", "batch_size": "256", "test_batches": "1"})
    quick = ExplorationProtocol.named("quick")
    return [
        *controlled_specs(["digits"], ["noise"], ["gmc"], [0], small, 1),
        *doorkey_specs(["ppo"], ["none"], [0], quick, "quick", steps=64),
    ]


@pytest.mark.parametrize("spec", runs(), ids=lambda spec: spec.experiment)
@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_checkpoint_of_a_stranger(tmp_path: Path, spec: RunSpec, how: str) -> None:
    """Its sums are right: somebody took the trouble."""
    store, bomb = RunStore(tmp_path / "runs"), Bomb(tmp_path / "executed")
    run = store.lock(spec)
    assert run is not None
    run.restore()
    content = pickle.dumps({"model": bomb}, protocol=2)
    run.checkpoint(1, lambda file: file.write(content) if how == "pickle" else torch.save({"model": bomb}, file))
    run.interrupt()
    tally = run_campaign(Campaign([spec], store, Context()), InProcess(), Recorder())
    assert not (tmp_path / "executed").exists()
    assert store.record(spec.run_id).state is State.FAILED
    (failure,) = tally.failures()
    assert "UnpicklingError" in failure.message


def test_a_batch_of_a_stranger(tmp_path: Path) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(DataError, match="expected a protocol 2 pickle"):
            unpickle(pickle.dumps({b"data": Bomb(tmp_path / "executed")}, protocol), "batch")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped-from-an-archive", "folder/../../escaped", "a/../../b"])
def test_an_archive_whose_names_lead_outside(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "archive.tar").write_bytes(tar_bytes({name: b"outside", "folder/wanted": b"inside"}))
    members = dict(iter_members(folder / "archive.tar", {"folder/wanted", name}, 100, 100_000))
    assert members == {name: b"outside", "folder/wanted": b"inside"}  # held in memory
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["archive.tar"]
    assert not Path("/tmp/escaped-from-an-archive").exists()
