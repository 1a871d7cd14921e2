"""Signals, datasets, environments and methods of users: the examples of CONTRIBUTING.md are run as they stand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.commands.main import main
from headway.data import DATASETS, unregister_dataset
from headway.errors import EnvError, SignalError, UsageError
from headway.runs import RunStore, State, experiments
from headway.runs.experiments import Context, Stopped
from headway.study import doorkey, register_env, register_signal
from headway.study.protocols.classification import Protocol
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.protocols.names import groups_of
from headway.study.signals import SIGNALS

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"
EXAMPLE = re.compile(r"```python\n# (\w+)\.py\n(.*?)```\n+```sh\nheadway (.*?)\n```", re.DOTALL)
EXAMPLES = {name: (code, command) for name, code, command in EXAMPLE.findall(GUIDE.read_text("utf-8"))}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder at hand, with the modules of the examples; the dataset that one of them adds is gone afterwards."""
    for name, (code, _) in EXAMPLES.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(DATASETS)
    yield tmp_path
    for name in set(DATASETS) - before:
        unregister_dataset(name)


def test_the_guide_has_all_four() -> None:
    assert sorted(EXAMPLES) == ["my_dataset", "my_env", "my_method", "my_signal"]
    assert all(len(code.splitlines()) < 30 for code, _ in EXAMPLES.values())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "workers"), [("my_signal", 1), ("my_dataset", 0), ("my_env", 0), ("my_method", 0)])
def test_an_example_takes_part_in_headway_run(name: str, workers: int, folder: Path) -> None:
    words = [*shlex.split(EXAMPLES[name][1]), "--workers", str(workers), "--out", str(folder / "runs")]
    assert main(words) == 0
    records = RunStore(folder / "runs").status()
    assert len(records) >= 2
    assert {record.state for record in records} == {State.DONE}
    for record in records:
        facts = json.loads(RunStore(folder / "runs").read_file(record.run_id, "provenance.json"))
        assert re.search(rf"\b{name} [0-9a-f]{{12}}\b", facts["plugins"])


def test_a_campaign_file_names_its_plugins(folder: Path) -> None:
    file = folder / "campaign.toml"
    section = (
        "name='a'\nexperiment='controlled'\nsignal='loss_rank'\nprotocol='demo'\nepochs=1\nseeds=0\ncondition='noise'"
    )
    file.write_text(f"plugins = ['my_signal']\n[[section]]\n{section}\n")
    assert main(["run", "--campaign", str(file), "--workers", "0", "--out", str(folder / "runs")]) == 0
    (record,) = RunStore(folder / "runs" / "a").status()
    assert (record.state, record.spec.method) == (State.DONE, "loss_rank")


def test_a_run_in_an_environment_of_a_user_resumes_exactly(folder: Path) -> None:
    experiments.load_plugins(["my_env"])
    protocol = ExplorationProtocol.quick().replaced(network="mlp", num_envs=2, rollout_steps=64)
    (spec,) = doorkey.specs(["gmc"], ["none"], [0], protocol, "quick", "corridor", 384)
    whole, halved = RunStore(folder / "whole"), RunStore(folder / "halved")
    with whole.lock(spec) as run:
        doorkey.run(run, Context())
    answers = iter([False] * 200 + [True] * 1000)
    with halved.lock(spec) as run, pytest.raises(Stopped):
        doorkey.run(run, Context(should_stop=lambda: next(answers)))
    with halved.lock(spec) as run:
        doorkey.run(run, Context())
    before, after = whole.metrics(spec.run_id), halved.metrics(spec.run_id)
    del before["steps_per_second"], after["steps_per_second"]
    assert str(before) == str(after)  # NaN is equal to itself as text
    assert whole.read_file(spec.run_id, "policy.pt") == halved.read_file(spec.run_id, "policy.pt")


def test_noise_at_doors_needs_doors(folder: Path) -> None:
    experiments.load_plugins(["my_env"])
    assert main(["run", "doorkey", "--env", "corridor", "--noise", "door", "--out", str(folder / "runs")]) == 2


def test_names_are_registered_once_and_listed_on_a_miss() -> None:
    with pytest.raises(SignalError, match="'gmc' twice"):
        register_signal("gmc")
    with pytest.raises(EnvError, match="letters"):
        register_env("a b")
    with pytest.raises(SignalError, match="expected a signal out of uniform, curiosity"):
        SIGNALS.find("gmcc")(Protocol.demo(), 4)


def test_a_plugin_that_cannot_be_imported_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.py").write_text("1 / 0")
    for name in ("broken", "nowhere_to_be_found"):
        with pytest.raises(UsageError, match=name):
            experiments.load_plugins([name])
    assert main(["run", "controlled", "--plugin", "broken", "--out", str(folder / "runs")]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("classes", range(1, 30))
def test_groups_grow_and_hold_every_class_once(classes: int) -> None:
    groups = groups_of(classes)
    assert [label for group in groups for label in group] == list(range(classes))
    assert list(map(len, groups)) == sorted(map(len, groups))
    assert len(groups) <= 4
    assert groups_of(10) == ((0,), (1, 2), (3, 4, 5), (6, 7, 8, 9))
