from __future__ import annotations

import argparse
from typing import Any

import pytest

from headway.commands.options import add_options, given
from headway.runs import RunSpec
from headway.study import controlled, doorkey
from headway.study.protocols.classification import Protocol
from headway.study.protocols.labels import PRESETS, nearest_first, protocol_label
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.requests import ControlledRequest
from tests.analysis.stores import controlled_spec, doorkey_spec


@pytest.mark.parametrize("name", PRESETS["controlled"])
@pytest.mark.parametrize("condition", ["curriculum", "noise"])
@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_a_preset_is_recognised(name: str, condition: str, dataset: str) -> None:
    assert protocol_label(controlled_spec(dataset, condition, protocol=name)) == name


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"floor": 1e-6}, "released, floor=1e-06"),
        ({"floor": 1e-6, "bias_correction": False}, "released, bias_correction=false, floor=1e-06"),
        ({"beta_v": 0.9}, "released, beta_v=0.9"),
        ({"epochs": 20}, "released, epochs=20"),
        ({"novel": "x"}, "released, novel=x"),
    ],
)
def test_changes_are_named(changes: dict[str, Any], label: str) -> None:
    assert protocol_label(controlled_spec(**changes)) == label


def test_many_changes_are_counted_and_told_apart() -> None:
    changes = {"floor": 1e-6, "beta": 0.9, "hidden": 8, "epochs": 7}
    label = protocol_label(controlled_spec(**changes))
    assert label.startswith("released, 4 changes (")
    assert label != protocol_label(controlled_spec(**{**changes, "hidden": 9}))


def test_values_that_differ_have_labels_that_differ() -> None:
    assert protocol_label(controlled_spec(beta=0.9999999)) == "released, beta=0.9999999"
    assert protocol_label(controlled_spec(beta=0.99999999)) == "released, beta=0.99999999"
    assert protocol_label(controlled_spec(floor=1e-6)) == "released, floor=1e-06"
    assert protocol_label(controlled_spec(dot_scale=2.0)) == "released, dot_scale=2"


def test_epochs_that_do_not_count_make_no_difference() -> None:
    assert protocol_label(controlled_spec("mnist", "curriculum", epochs=500)) == "released"
    assert protocol_label(controlled_spec("mnist", "curriculum", epochs=400)) == "released"
    assert protocol_label(controlled_spec("mnist", "curriculum", epochs=399)) == "released, epochs=399"
    assert protocol_label(controlled_spec("mnist", "noise", epochs=400)) == "released, epochs=400"


def test_how_long_a_run_is_makes_its_label_and_not_how_that_was_said() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, ControlledRequest)
    common = ("--dataset", "mnist", "--condition", "curriculum", "--signal", "gmc", "--seeds", "0")
    for words, label in {
        ("--set", "epochs=30", "--set", "epochs_curriculum_mnist=500"): "released",
        ("--set", "epochs=30"): "released, epochs=30",  # both lengths
        ("--epochs", "30"): "released, epochs=30",
        ("--set", "epochs_curriculum_mnist=450"): "released",
    }.items():
        (spec,) = ControlledRequest.read(given(ControlledRequest, parser.parse_args([*common, *words]))).specs()
        assert protocol_label(spec) == label, words


def test_a_field_that_an_older_run_does_not_know_is_no_change() -> None:
    spec = controlled_spec()
    older = {name: value for name, value in spec.protocol.items() if name != "beta_v"}
    assert protocol_label(RunSpec(**{**_fields(spec), "protocol": older})) == "released"


def test_labels_of_the_exploration_study() -> None:
    full = 1465 * 2048
    assert protocol_label(doorkey_spec(steps=full)) == "released"
    assert protocol_label(doorkey_spec(steps=2048)) == "released, steps=2048"
    assert protocol_label(doorkey_spec(steps=full, env_id="other")) == "released, env_id=other"
    assert protocol_label(doorkey_spec(steps=full, preset="fast")) == "fast"
    assert protocol_label(doorkey_spec(steps=98 * 2048, preset="quick", env_id="MiniGrid-DoorKey-5x5-v0")) == "quick"


def test_real_specs_have_the_names_of_their_presets() -> None:
    for name in ExplorationProtocol.presets():
        (spec,) = doorkey.specs(["ppo"], ["none"], [0], ExplorationProtocol.named(name), name)
        assert protocol_label(spec) == name
    changed = ExplorationProtocol.released().override({"beta": "0.9", "channels": "8x16"})
    (spec,) = doorkey.specs(["ppo"], ["none"], [0], changed, "released")
    assert protocol_label(spec) == "released, beta=0.9, channels=8x16"
    (spec,) = controlled.specs(["mnist"], ["curriculum"], ["gmc"], [0], Protocol.paper())
    assert protocol_label(spec) == "paper"


def _fields(spec: RunSpec) -> dict[str, Any]:
    names = ("experiment", "condition", "method", "seed", "params", "protocol")
    return {name: getattr(spec, name) for name in names}


def test_labels_that_say_most_come_first() -> None:
    labels = ["released, 4 changes (002cd6)", "released, beta=0.9, floor=0.1", "released, epochs=100", "paper"]
    assert nearest_first(labels) == ["paper", "released, epochs=100", "released, beta=0.9, floor=0.1", labels[0]]
