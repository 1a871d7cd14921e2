"""What methods, datasets, conditions and groups are called in tables and figures, and in which order they come."""

from __future__ import annotations

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

EXPERIMENTS: Mapping[str, str] = {
    "controlled": "Controlled",
    "doorkey": "MiniGrid DoorKey",
    "mixture": "Mixtures",
    "arena": "Arena",
}
"""Titles of the experiments, in the order in which they are listed."""


def groups_of(classes: int) -> tuple[tuple[int, ...], ...]:
    """The classes of each group of a controlled run, such as ((0,), (1, 2), (3, 4, 5), (6, 7, 8, 9)) for ten.

    Groups have one, two, three and all other classes; one that would have fewer than the one before is joined with it.
    """
    groups: list[tuple[int, ...]] = []
    left = tuple(range(classes))
    for size in (1, 2, 3, classes):
        group, left = left[:size], left[size:]
        if groups and len(group) < len(groups[-1]):
            groups[-1] += group
        elif group:
            groups.append(group)
    return tuple(groups)


GROUPS = groups_of(10)
"""The classes of each of the four groups, with ten classes."""

GROUP_NAMES: Mapping[str, tuple[str, ...]] = {
    "curriculum": ("G0", "G1", "G2", "G3"),
    "noise": ("A", "B", "C", "D"),
}
"""What the four groups are called in each condition."""
_TITLES = {**EXPERIMENTS, **CONDITIONS, **DATASETS, **METHODS}


def title(name: str | None) -> str:
    """What a method, dataset, condition or experiment is called; a name without a title is its own."""
    return _TITLES.get(name, name) if name else ""


def rank(table: Mapping[str, str], name: str | None) -> tuple[int, str]:
    """A key to sort names by: those of the table in its order, then the others by the alphabet."""
    known = list(table)
    return (known.index(name) if name in known else len(known), name or "")
