"""Small networks: gradients as autograd gives them, steps as torch.optim takes them, to the last bit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from headway.selection import PlainLogits, perceptron
from headway.selection.networks import Adam, backpropagate, record


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


NETWORKS = {"perceptron": lambda: perceptron([5, 16, 32, 3], generator()), "logits": lambda: PlainLogits(3)}


@pytest.mark.parametrize("kind", NETWORKS)
def test_gradients_are_those_of_autograd(kind: str) -> None:
    network: nn.Module = NETWORKS[kind]()
    twin = copy.deepcopy(network)
    inputs, at_output = torch.randn(64, 5, generator=generator()), torch.randn(64, 3, generator=generator())
    for _ in range(2):  # the second pass overwrites what the first one left
        seen = record(network, inputs)
        at_layers = backpropagate(network, seen, at_output)
        twin.zero_grad()
        output: Tensor = twin(inputs)
        output.backward(at_output)
        assert torch.equal(seen[-1], output)
        assert not seen[-1].requires_grad
        assert torch.equal(at_layers[-1], at_output)
        for own, other in zip(network.parameters(), twin.parameters(), strict=True):
            assert own.grad is not None
            assert other.grad is not None
            assert torch.equal(own.grad, other.grad)


def test_gradients_at_the_layers_are_those_of_autograd() -> None:
    network = perceptron([5, 16, 3], generator())
    inputs, at_output = torch.randn(64, 5, generator=generator()), torch.randn(64, 3, generator=generator())
    first = network[0](inputs)
    (expected,) = torch.autograd.grad(network[2](first.relu()), first, at_output)
    assert torch.equal(backpropagate(network, record(network, inputs), at_output)[0], expected)


def steps(network: nn.Module, optimizer: torch.optim.Adam, number: int, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    for _ in range(number):
        for parameter in network.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=draws)
        if isinstance(optimizer, Adam):
            optimizer.advance()
        else:
            optimizer.step()


def test_steps_are_those_of_torch_optim() -> None:
    one, two = NETWORKS["perceptron"](), NETWORKS["perceptron"]()
    own = Adam(list(one.parameters()), 1e-2, (0.99, 0.999))
    other = torch.optim.Adam(two.parameters(), 1e-2, (0.99, 0.999), fused=True)
    steps(one, own, 5, 1)
    steps(two, other, 5, 1)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))

    third = NETWORKS["perceptron"]()  # both kinds of state can be continued
    third.load_state_dict(two.state_dict())
    resumed = Adam(list(third.parameters()), 1.0)
    resumed.load_state_dict(copy.deepcopy(other.state_dict()))
    other.load_state_dict(copy.deepcopy(own.state_dict()))
    for network, optimizer in ((one, own), (two, other), (third, resumed)):
        steps(network, optimizer, 3, 2)
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), third.parameters(), strict=True))
