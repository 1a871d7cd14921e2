"""What methods, datasets, conditions and groups are called in tables and figures, and in which order they come."""

from __future__ import annotations

import math
from collections.abc import Mapping

MARK = "†"
"""Stands at every dataset whose copy is not the official one."""

METHODS: Mapping[str, str] = {
    "ppo": "PPO",
    "forward": "Forward",
    "icm": "ICM",
    "rnd": "RND",
    "uniform": "Uniform",
    "curiosity": "Curiosity",
    "gmc": "GMC",
    "icm+gmc": "ICM+GMC",
    "rnd+gmc": "RND+GMC",
    "norm_last": "NormLast",
    "norm_all": "NormAll",
    "delta_loss": "DeltaLoss",
    "dot": "Dot Product",
    "cosine": "Cosine",
    "projection": "Projection",
    "gmc_hard": "GMC, hard gate",
    "gmc_soft": "GMC, soft gate",
    "forward+gmc_hard": "GMC, hard gate",
    "forward+gmc_soft": "GMC, soft gate",
    "icm+gmc_hard": "ICM+GMC, hard gate",
    "icm+gmc_soft": "ICM+GMC, soft gate",
}
"""Titles of the methods, in the order in which they are listed."""

DATASETS: Mapping[str, str] = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "fashion-mnist": "Fashion-MNIST",
    "digits": "Digits",
}
"""Titles of the datasets, in the order in which they are listed."""

CONDITIONS: Mapping[str, str] = {
    "curriculum": "Curriculum",
    "noise": "Noise",
    "none": "No noise",
    "door": "Door noise",
}
"""Titles of the conditions, in the order in which they are listed."""

EXPERIMENTS: Mapping[str, str] = {"controlled": "Controlled", "doorkey": "MiniGrid DoorKey"}
"""Titles of the experiments, in the order in which they are listed."""

GROUPS: tuple[tuple[int, ...], ...] = ((0,), (1, 2), (3, 4, 5), (6, 7, 8, 9))
"""The classes of each of the four groups of a controlled run."""

GROUP_NAMES: Mapping[str, tuple[str, ...]] = {
    "curriculum": ("G0", "G1", "G2", "G3"),
    "noise": ("A", "B", "C", "D"),
}
"""What the four groups are called in each condition."""

LEAST_LOSS: tuple[float, ...] = tuple(math.log(len(classes)) for classes in GROUPS)
"""The least loss of each group under noise: of the label, only the group can be known."""


def title(name: str | None) -> str:
    """What a method, dataset, condition or experiment is called; a name without a title is its own."""
    if not name:
        return ""
    for table in (METHODS, DATASETS, CONDITIONS, EXPERIMENTS):
        if name in table:
            return table[name]
    return name


def rank(table: Mapping[str, str], name: str | None) -> tuple[int, str]:
    """A key to sort names by: those of the table in its order, then the others by the alphabet."""
    known = list(table)
    return (known.index(name) if name in known else len(known), name or "")
