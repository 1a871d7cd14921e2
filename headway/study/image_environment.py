"""The environment of the controlled study: arms that show labelled images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headway.data import Dataset, Split
from headway.errors import DataError, check_known
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
        self, dataset: Dataset, condition: str, protocol: Protocol, generator: torch.Generator, device: str = "cpu"
    ) -> None:
        check_known("a condition", [condition], CONDITIONS, DataError)
        groups = groups_of(len(dataset.class_names))
        self.condition = condition
        self._generator = generator
        self._device = device
        self._scale = 2.0 / dataset.train.pixel_max if protocol.centre_pixels else 1.0 / dataset.train.pixel_max
        self._shift = -1.0 if protocol.centre_pixels else 0.0
        self._sizes = torch.tensor([len(group) for group in groups])
        width = max(len(group) for group in groups)
        self._members = torch.tensor([[*group, *[-1] * (width - len(group))] for group in groups])
        self._group_of = torch.arange(len(groups)).repeat_interleave(self._sizes)  # groups have classes in their order
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
        owner = group if labels is None else labels if protocol.curriculum_arm == "scrambled-label" else true
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
        return {name: show.pools.state_dict() for name, show in self._shows().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        for name, show in self._shows().items():
            show.pools.load_state_dict(state[name])

    def _shows(self) -> dict[str, Show]:
        return {"train": self._train} if self._test is self._train else {"train": self._train, "test": self._test}
