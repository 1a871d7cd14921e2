"""One floor under the second moment, however many transitions are scored at once."""

from __future__ import annotations

import dataclasses
from typing import Any

from headway.errors import MethodError
from headway.rl.intrinsic import IntrinsicConfig
from headway.rl.reward import IntrinsicReward
from headway.rl.scorers import SignalScorer
from headway.signals import MomentSignal


def fixed_floor(config: IntrinsicConfig, batch: int) -> IntrinsicConfig:
    """Settings whose floor does not depend on how many transitions are scored at once.

    A floor in the unit "batch" grows with the square of the number of transitions. Where a predictor learns from
    batches of one size and pays for batches of another, that number is taken to be the size that it learns from.

    Args:
        config: the settings.
        batch: how many transitions the predictor learns from at once.
    """
    if config.floor_unit != "batch":
        return config
    return dataclasses.replace(config, floor=config.floor * batch**2, floor_unit="sample")


def check_unit(reward: IntrinsicReward, batch: int) -> None:
    """Refuse a reward whose size depends on how many transitions are scored at once.

    It is not changed instead: whoever made it may use it elsewhere too.

    Args:
        reward: made by a user.
        batch: how many transitions the predictor learns from at once.

    Raises:
        MethodError: it says how to make one that works.
    """
    signal: Any = reward.scorer.signal if isinstance(reward.scorer, SignalScorer) else None
    if getattr(signal, "unit", "sample") != "batch":
        return
    way_out = "give its signal unit='sample'"
    if isinstance(signal, MomentSignal):
        floor = signal.floor_for(batch)
        way_out = (
            f"the floor for batches of update_every={batch} is IntrinsicConfig(floor={floor:.6g}, floor_unit='sample') "
            f"for make_reward, or floor={floor:.6g}, unit='sample' for a signal of your own"
        )
    raise MethodError(
        f"expected a reward in the unit 'sample', got {reward.name!r} in the unit 'batch', which depends on how many "
        f"transitions are scored at once; {way_out}"
    )
