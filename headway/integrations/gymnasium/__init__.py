"""Intrinsic rewards from a wrapper around a Gymnasium vector environment.

from headway.integrations.gymnasium import IntrinsicRewardWrapper

env = IntrinsicRewardWrapper(gymnasium.make_vec("CartPole-v1", 8), "icm+gmc")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.integrations.gymnasium.wrapper import IntrinsicRewardWrapper

__all__ = ["IntrinsicRewardWrapper"]


def __getattr__(name: str) -> Any:
    """Import the wrapper when it is first asked for, and say what is missing if it cannot be.

    Raises:
        MissingExtraError: Gymnasium is not installed.
        WrongVersionError: it is too old.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headway.integrations.versions import require

    require("gymnasium")
    from headway.integrations.gymnasium import wrapper

    globals()[name] = getattr(wrapper, name)
    return globals()[name]


def __dir__() -> list[str]:
    """The public names."""
    return __all__
