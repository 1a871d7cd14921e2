"""The networks of the study have the sizes of the released ones, counted parameter by parameter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from torch import nn

from headway.data import Dataset, Split
from headway.runs.experiments import Context
from headway.selection import Actor
from headway.study import doorkey
from headway.study.controlled_trial import Trial
from headway.study.protocols.classification import Protocol
from headway.study.protocols.minigrid import ExplorationProtocol


def linear(*widths: int) -> int:
    """Parameters of Linear layers of these widths: weights and biases."""
    return sum(inputs * outputs + outputs for inputs, outputs in itertools.pairwise(widths))


def convolutions(*channels: int) -> int:
    """Parameters of 3x3 convolutions with biases."""
    return sum(9 * inputs * outputs + outputs for inputs, outputs in itertools.pairwise(channels))


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


CONVOLUTIONS = convolutions(4, 32, 64, 64)
FLAT = 64 * 8 * 8
POLICY, VALUE = CONVOLUTIONS + linear(FLAT, 128, 7), CONVOLUTIONS + linear(FLAT, 128, 1)
ICM = {
    "encoder": CONVOLUTIONS + linear(FLAT, 64),
    "inverse": linear(2 * 64, 256, 7),
    "scored": linear(64 + 7, 256, 64),
}


def test_the_sizes_by_hand() -> None:
    assert (POLICY, VALUE) == (581_927, 581_153)
    assert ICM == {"encoder": 318_816, "inverse": 34_823, "scored": 34_880}
    assert sum(ICM.values()) == 388_519


@pytest.mark.parametrize("preset", ["released", "paper", "fast"])
@pytest.mark.parametrize("method", ["ppo", "icm", "gmc", "icm+gmc"])
def test_networks_of_exploration(preset: str, method: str) -> None:
    """With a fourth channel on 8x8 cells, which every preset has under noise."""
    protocol = ExplorationProtocol.named(preset)
    (spec,) = doorkey.specs([method], ["door"], [0], protocol, preset)
    ppo = doorkey.make(spec, Context())
    assert (count(ppo.agent.policy), count(ppo.agent.value)) == (POLICY, VALUE)
    if method == "ppo":
        assert ppo.reward is None
    elif method == "gmc":
        assert ppo.reward is not None
        assert count(ppo.reward.predictor) == count(ppo.reward.predictor.scored) == linear(4 * 64 + 7, 256, 256, 256)
        assert count(ppo.reward.predictor) == 199_168
    else:
        assert ppo.reward is not None
        assert {name: count(part) for name, part in ppo.reward.predictor.named_children()} == ICM
        assert count(ppo.reward.predictor) == 388_519
    ppo.close()


def test_the_former_encoder_is_still_there() -> None:
    protocol = ExplorationProtocol.released().replaced(icm_hidden_layer=True)
    (spec,) = doorkey.specs(["icm"], ["door"], [0], protocol, "released")
    ppo = doorkey.make(spec, Context())
    assert ppo.reward is not None
    assert count(ppo.reward.predictor) == 388_519 - linear(FLAT, 64) + linear(FLAT, 128, 64)
    ppo.close()


@pytest.mark.parametrize("protocol", [Protocol.paper(), Protocol.released()], ids=["paper", "released"])
@pytest.mark.parametrize(("condition", "arms"), [("noise", 4), ("curriculum", 10)])
@pytest.mark.parametrize(("shape", "model"), [((1, 28, 28), 269_322), ((3, 32, 32), 855_050)], ids=["mnist", "cifar10"])
def test_networks_of_the_controlled_study(
    protocol: Protocol, condition: str, arms: int, shape: tuple[int, ...], model: int
) -> None:
    split = Split(np.zeros((300, *shape), dtype=np.uint8), np.arange(300, dtype=np.int64) % 10)
    images = Dataset("blank", split, split, tuple("0123456789"), "0" * 64, "blank")
    trial = Trial(images, condition, "gmc", protocol, seed=0)
    assert count(trial.model) == model == linear(int(np.prod(shape)), 256, 256, 10)
    assert isinstance(trial.actor, Actor)
    inputs = arms if protocol.actor_inputs is None else protocol.actor_inputs
    assert count(trial.actor.policy) == linear(inputs, 256, 256, arms)
    assert (inputs, arms, count(trial.actor.policy)) in ((4, 4, 68_100), (10, 10, 71_178), (4, 10, 69_642))
