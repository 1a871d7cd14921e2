"""One floor under the second moment, however many transitions are scored at once."""

from __future__ import annotations

import dataclasses

from headway.rl.intrinsic import IntrinsicConfig


def fixed_floor(config: IntrinsicConfig, batch: int) -> IntrinsicConfig:
    """Settings whose floor does not depend on how many transitions are scored at once.

    A floor in the unit "batch" grows with the square of the number of transitions. Where a predictor learns from
    batches of one size and pays for batches of another, that number is taken to be the size that it learns from.

    Args:
        config: the settings.
        batch: how many transitions the predictor learns from at once.
    """
    if config.floor_unit == "sample":
        return config
    return dataclasses.replace(config, floor=config.floor * batch**2, floor_unit="sample")
