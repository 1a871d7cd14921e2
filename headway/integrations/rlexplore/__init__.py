"""Intrinsic rewards with the interface of RLeXplore's reward modules (rllte.xplore.reward).

A loop that is written for them takes this one instead:

    irs = RLeXploreReward(envs, device="cpu", beta=0.1, method="icm+gmc")
    irs.watch(observations, actions, rewards, terminateds, truncateds, next_observations)
    rewards += irs.compute(samples, sync=True)

It does not need rllte. Where it differs on purpose: making it does not step the environments; `sync=False` leaves
everything but the step count as it is; with `gamma`, rewards are divided by the deviation of their discounted sums,
and not replaced by those sums.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headway.errors import MissingExtraError

if TYPE_CHECKING:
    from headway.integrations.rlexplore.reward import KEYS, RLeXploreReward

__all__ = ["KEYS", "RLeXploreReward"]


def __getattr__(name: str) -> Any:
    """Import the reward when it is first asked for, and say what is missing if it cannot be.

    Raises:
        MissingExtraError: a package of the extra is not installed.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.reward")
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "headway"):
            raise
        raise MissingExtraError(package, "rl") from error
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    """The public names."""
    return __all__
