"""Protocols: presets and overrides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.errors import ProtocolError
from headway.study.protocols.classification import Protocol


def test_the_presets_differ_where_text_and_code_do() -> None:
    paper, released = Protocol.paper(), Protocol.released()
    assert (paper.floor_unit, released.floor_unit) == ("sample", "batch")
    assert (paper.curriculum_arm, released.curriculum_arm) == ("true-class", "scrambled-label")
    assert (paper.actor_inputs, released.actor_inputs) == (4, None)
    assert (paper.stars, released.stars) == ("paper", "released")
    assert paper.entropy_weight == released.entropy_weight == 0.05


def test_names_and_lengths() -> None:
    assert Protocol.named("released") == Protocol.released()
    assert Protocol.released().epochs_for("mnist", "curriculum") == 500
    assert Protocol.released().epochs_for("mnist", "noise") == 100
    with pytest.raises(ProtocolError, match="out of paper, released, demo, got 'mine'"):
        Protocol.named("mine")


def test_fields_are_read_from_text() -> None:
    changed = Protocol.paper().override(
        {"floor": "1e-3", "bias_correction": "true", "delta_window": "none", "dot_over": "tensor", "batch_size": "32"}
    )
    assert changed.floor == 1e-3
    assert changed.bias_correction is True
    assert changed.delta_window is None
    assert changed.dot_over == "tensor"
    assert changed.batch_size == 32
    assert Protocol.paper().override({"delta_window": "50"}).delta_window == 50


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("flor", "1", "did you mean floor"),
        ("floor", "low", "type float, got 'low'"),
        ("batch_size", "2.5", "type int, got '2.5'"),
        ("bias_correction", "yes", "true or false, got 'yes'"),
        ("dot_over", "some", "one of all, tensor, got 'some'"),
        ("batch_size", "0", "at least 1, got 0"),
        ("delta_window", "0", "at least 1 or none"),
        ("beta", "2", r"in \[0, 1\), got 2"),
        ("learning_rate", "nan", "above 0, got nan"),
        ("entropy_weight", "-1", "at least 0"),
    ],
)
def test_bad_overrides_are_refused(field: str, text: str, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        Protocol.paper().override({field: text})


def test_dictionaries_round_trip() -> None:
    assert Protocol.from_dict(Protocol.demo().to_dict()) == Protocol.demo()
    with pytest.raises(ProtocolError, match="beta"):
        Protocol.from_dict({k: v for k, v in Protocol.paper().to_dict().items() if k != "beta"})


def test_the_factors_of_the_paper_are_those_that_were_derived() -> None:
    """`benchmarks/calibrate.py` wrote the file; each signal's factor is off by less than two in every condition."""
    found = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "calibration.json").read_text("utf-8"))
    paper = Protocol.paper()
    fields = {"norm_last": "norm_last_scale", "norm_all": "norm_all_scale", "delta_loss": "delta_scale"}
    assert found["constants"] == {field: getattr(paper, field) for field in fields.values()}
    assert len(found["sizes"]) == 4
    for sizes in found["sizes"].values():
        for name, field in fields.items():
            assert 0.5 < getattr(paper, field) * sizes[name] / sizes["curiosity"] < 2
