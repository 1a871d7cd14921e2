from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from headway.errors import EnvError
from headway.rl.spaces import coding_of, is_image, looks_channels_first


def test_a_choice_is_one_hot() -> None:
    coding = coding_of(spaces.Discrete(3, start=-1), "action")
    assert coding.size == 3
    assert coding.encode(torch.tensor([-1, 1])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert torch.equal(coding.encode(torch.tensor([[-1], [1]])), coding.encode(torch.tensor([-1, 1])))
    guesses = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, math.log(2.0)]])
    losses = coding.losses(guesses, torch.tensor([-1, 1]))
    assert losses.tolist() == pytest.approx([math.log(3), math.log(2)])


def test_several_choices_are_one_hot_side_by_side() -> None:
    coding = coding_of(spaces.MultiDiscrete([2, 3]), "action")
    assert coding.size == 5
    assert coding.encode(torch.tensor([[1, 0], [0, 2]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    losses = coding.losses(torch.zeros(2, 5), torch.tensor([[1, 0], [0, 2]]))
    assert losses.tolist() == pytest.approx([math.log(2) + math.log(3)] * 2)


def test_numbers_are_taken_as_they_are() -> None:
    coding = coding_of(spaces.Box(-1, 1, (2, 1), np.float64), "action")
    values = torch.tensor([[[1.0], [3.0]]], dtype=torch.float64)
    assert coding.encode(values).dtype == torch.float32
    assert coding.encode(values).tolist() == [[1.0, 3.0]]
    assert coding.losses(torch.tensor([[0.0, 0.0]]), values).tolist() == [5.0]


def test_bits() -> None:
    coding = coding_of(spaces.MultiBinary(2), "action")
    assert coding.encode(torch.tensor([[1, 0]])).tolist() == [[1.0, 0.0]]
    assert coding.losses(torch.zeros(1, 2), torch.tensor([[1, 0]])).tolist() == pytest.approx([2 * math.log(2)])


def test_what_has_no_coding_is_refused_with_a_way_out() -> None:
    box = spaces.Box(0, 1, (2,))
    with pytest.raises(EnvError, match=r"expected an observation space out of Box, .* got Dict; .*FlattenObs"):
        coding_of(spaces.Dict({"a": box}), "observation")
    with pytest.raises(EnvError, match=r"expected an action space out of Box, .* got Tuple; wrap"):
        coding_of(spaces.Tuple([box]), "action")


def test_images_have_three_dimensions() -> None:
    assert is_image(spaces.Box(0, 255, (8, 8, 3), np.uint8))
    assert not is_image(spaces.Box(0, 255, (8, 8), np.uint8))
    assert not is_image(spaces.MultiBinary((8, 8, 3)))


@pytest.mark.parametrize(
    ("shape", "first"),
    [
        ((4, 84, 84), True),  # stacked frames
        ((3, 210, 160), True),
        ((20, 7, 7), True),
        ((3, 4, 4), True),
        ((210, 160, 3), False),
        ((84, 84, 4), False),
        ((7, 7, 20), False),  # a grid, one-hot
        ((3, 3, 20), None),  # a small grid, or three planes
        ((7, 3, 3), None),  # a long grid, or seven planes
        ((7, 9, 20), None),
        ((12, 210, 160), None),
    ],
)
def test_where_images_have_their_channels(shape: tuple[int, ...], first: bool | None) -> None:
    assert looks_channels_first(shape) is first
