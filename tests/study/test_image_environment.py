"""Arms, labels and draws of the controlled study."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from headway.data import load
from headway.errors import DataError
from headway.study.image_environment import Environment
from headway.study.protocols.classification import Protocol
from headway.study.protocols.names import GROUPS


def make(condition: str, seed: int = 0, **choices) -> Environment:
    protocol = dataclasses.replace(Protocol.released(), **choices)
    return Environment(load("digits"), condition, protocol, torch.Generator().manual_seed(seed))


def true_labels() -> dict[bytes, int]:
    split = load("digits").train
    return {image.tobytes(): int(label) for image, label in zip(split.images, split.labels, strict=True)}


def test_noise_draws_labels_anew_within_the_group() -> None:
    environment = make("noise")
    assert environment.arms == 4
    arms = torch.arange(4).repeat(500)
    _, labels = environment.draw(arms)
    for arm, group in enumerate(GROUPS):
        shares = torch.bincount(labels[arms == arm], minlength=10)[list(group)] / 500
        assert shares.sum() == 1
        assert shares.tolist() == pytest.approx([1 / len(group)] * len(group), abs=0.1)


@pytest.mark.parametrize("arm_is", ["true-class", "scrambled-label"])
def test_curriculum_scrambles_once_within_the_group(arm_is: str) -> None:
    environment = make("curriculum", curriculum_arm=arm_is, shared_stream=True)
    assert environment.arms == 10
    group_of = {label: number for number, group in enumerate(GROUPS) for label in group}
    known = true_labels()
    seen: dict[bytes, int] = {}
    changed = 0
    for _ in range(12):
        arms = torch.arange(10).repeat(30)
        pixels, labels = environment.draw(arms)
        for arm, image, label in zip(arms.tolist(), pixels, labels.tolist(), strict=True):
            key = image.add(1).mul(8).round().to(torch.uint8).numpy().tobytes()
            true = known[key]
            assert seen.setdefault(key, label) == label  # once and for all
            assert group_of[true] == group_of[label]
            assert arm == (label if arm_is == "scrambled-label" else true)
            changed += true != label
    assert changed > 500


def test_pixels_are_centred_unless_the_protocol_says_otherwise() -> None:
    arms = torch.arange(4).repeat(20)
    centred, _ = make("noise").draw(arms)
    plain, _ = make("noise", centre_pixels=False).draw(arms)
    assert (centred.min(), centred.max()) == (-1, 1)
    assert (plain.min(), plain.max()) == (0, 1)


def test_a_shared_stream_shows_a_sample_once_to_both() -> None:
    environment = make("noise", shared_stream=True)
    arms = torch.zeros(40, dtype=torch.int64)
    rows = [environment.draw(arms, test=test)[0] for test in (False, True, False)]
    assert len(torch.cat(rows).unique(dim=0)) == 120


def test_test_images_can_come_from_the_test_split() -> None:
    environment = make("noise", shared_stream=False, test_images="test")
    held_out = {image.tobytes() for image in load("digits").test.images}
    pixels, _ = environment.draw(torch.arange(4).repeat(10), test=True)
    assert all(row.add(1).mul(8).round().to(torch.uint8).numpy().tobytes() in held_out for row in pixels)


def test_with_replacement_an_image_may_come_again_at_once() -> None:
    environment = make("noise", replacement=True)
    pixels, _ = environment.draw(torch.zeros(140, dtype=torch.int64))
    assert len(pixels.unique(dim=0)) < 120  # about 146 images, 140 draws


def test_a_condition_that_there_is_not() -> None:
    protocol, generator = Protocol.released(), torch.Generator().manual_seed(0)
    with pytest.raises(DataError, match="got 'fog'"):
        Environment(load("digits"), "fog", protocol, generator)
