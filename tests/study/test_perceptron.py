"""The study's own meter gives the numbers of `headway.Meter`, to the last bit."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F

from headway import Meter
from headway.selection import perceptron
from headway.study.controlled_trial import PerceptronMeter
from headway.study.protocols.classification import Protocol
from headway.study.signals import SIGNALS

BATCH, INPUTS, ARMS = 64, 48, 4


def batches(number: int, seed: int = 0):
    draws = torch.Generator().manual_seed(seed)
    for _ in range(number):
        pixels = torch.rand(BATCH, INPUTS, generator=draws) * 2 - 1
        labels = torch.randint(10, (BATCH,), generator=draws)
        yield pixels, labels, torch.randint(ARMS, (BATCH,), generator=draws)


@pytest.mark.parametrize("preset", ["released", "paper"])
@pytest.mark.parametrize("name", SIGNALS.names())
def test_losses_gradients_and_scores_are_those_of_the_meter(name: str, preset: str) -> None:
    protocol = dataclasses.replace(Protocol.named(preset), delta_window=None if preset == "released" else 20)
    model = perceptron([INPUTS, 32, 32, 10], torch.Generator().manual_seed(0))
    twin = copy.deepcopy(model)
    own = PerceptronMeter(model, SIGNALS.find(name)(protocol, ARMS))
    meter = Meter(twin, SIGNALS.find(name)(protocol, ARMS))
    steps = [torch.optim.SGD(one.parameters(), 0.1) for one in (model, twin)]
    scored = False
    for place, (pixels, labels, arms) in enumerate(batches(12)):
        losses, scores = own.backward(pixels, labels, arms)
        steps[0].step()
        expected = F.cross_entropy(twin(pixels), labels, reduction="none")
        steps[1].zero_grad()
        wanted = meter.backward(expected, groups=arms)
        steps[1].step()
        assert torch.equal(losses, expected.detach())
        assert torch.equal(scores, wanted)
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))
        scored |= bool(scores.any())
        if place % 3 == 2:
            own.end_epoch()
            meter.end_epoch()
        if place == 7:  # a state of the meter can be continued
            own = PerceptronMeter(model, SIGNALS.find(name)(protocol, ARMS))
            own.load_state_dict(meter.state_dict())
            meter.load_state_dict(own.state_dict())
    assert scored == (name != "uniform")
