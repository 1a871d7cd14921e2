"""The environment of the controlled study: arms that show labelled images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headway.data import Dataset, Split
from headway.errors import DataError
from headway.selection import Pools
from headway.study.protocols.classification import Protocol
from headway.study.protocols.names import GROUP_NAMES, groups_of

CONDITIONS = tuple(GROUP_NAMES)


@dataclass(frozen=True)
class Show:
    """A split as the arms show it."""

    images: Tensor  # pixels [N, inputs], not scaled
    group: Tensor  # the group of each image [N]
    labels: Tensor | None  # the label that each image was given for good [N], or None if it is drawn each time
    pools: Pools  # the images of every arm


class Environment:
    """Draws images and labels for chosen arms.

    In the "curriculum" condition every image has got a random label of its group, once and for all, and an arm is
    one of the classes. In the "noise" condition the label is drawn anew each time, and an arm is a group.
    """

    def __init__(
        self,
        dataset: Dataset,
        condition: str,
        protocol: Protocol,
        generator: torch.Generator,
        device: str = "cpu",
    ) -> None:
        if condition not in CONDITIONS:
            raise DataError(f"expected a condition out of {', '.join(CONDITIONS)}, got {condition!r}")
        groups = groups_of(len(dataset.class_names))
        self.condition = condition
        self._generator = generator
        self._device = device
        self._scale = 2.0 / dataset.train.pixel_max if protocol.centre_pixels else 1.0 / dataset.train.pixel_max
        self._shift = -1.0 if protocol.centre_pixels else 0.0
        self._sizes = torch.tensor([len(group) for group in groups])
        width = max(len(group) for group in groups)
        self._members = torch.tensor([[*group, *[-1] * (width - len(group))] for group in groups])
        self._group_of = torch.empty(len(dataset.class_names), dtype=torch.int64)
        for number, group in enumerate(groups):
            self._group_of[list(group)] = number
        self.arms = len(groups) if condition == "noise" else len(dataset.class_names)
        self._train = self._show(dataset.train, protocol)
        self._test = self._train
        if protocol.test_images == "test":
            self._test = self._show(dataset.test, protocol)
        elif not protocol.shared_stream:
            self._test = replace(self._train, pools=self._train.pools.reshuffled())

    def _show(self, split: Split, protocol: Protocol) -> Show:
        """Label the images of a split and sort them by arm."""
        true = torch.from_numpy(split.labels)
        group = self._group_of[true]
        labels = self._labels_within(group) if self.condition == "curriculum" else None
        if labels is None:
            owner = group
        else:
            owner = labels if protocol.curriculum_arm == "scrambled-label" else true
        members = [torch.nonzero(owner == arm).squeeze(1) for arm in range(self.arms)]
        pools = Pools(members, self._generator, protocol.replacement)
        return Show(torch.from_numpy(split.images).flatten(1), group, labels, pools)

    @property
    def inputs(self) -> int:
        """Pixels of an image."""
        return self._train.images.shape[1]

    @property
    def samples(self) -> int:
        """Images to learn from."""
        return len(self._train.images)

    def draw(self, arms: Tensor, test: bool = False) -> tuple[Tensor, Tensor]:
        """Show an image of every named arm: arms [B] -> pixels [B, inputs] and labels [B]."""
        show = self._test if test else self._train
        picks = show.pools.draw(arms.cpu())
        pixels = show.images.index_select(0, picks).to(self._device).to(torch.float32).mul_(self._scale)
        if self._shift:
            pixels.add_(self._shift)
        labels = self._labels_within(show.group[picks]) if show.labels is None else show.labels[picks]
        return pixels, labels.to(self._device)

    def _labels_within(self, groups: Tensor) -> Tensor:
        """A random label of each group: [B] -> [B]."""
        place = (torch.rand(len(groups), generator=self._generator) * self._sizes[groups]).long()
        return self._members[groups, place]

    def state_dict(self) -> dict[str, Any]:
        """How far the arms are used up; labels follow from the seed."""
        state = {"train": self._train.pools.state_dict()}
        if self._test is not self._train:
            state["test"] = self._test.pools.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self._train.pools.load_state_dict(state["train"])
        if self._test is not self._train:
            self._test.pools.load_state_dict(state["test"])
