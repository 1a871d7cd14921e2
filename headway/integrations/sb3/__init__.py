"""Intrinsic rewards in Stable-Baselines3.

from headway.integrations.sb3 import OnPolicyIntrinsicCallback

model.learn(100_000, callback=OnPolicyIntrinsicCallback("icm+gmc"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.integrations.sb3.offpolicy import OffPolicyIntrinsicCallback
    from headway.integrations.sb3.onpolicy import OnPolicyIntrinsicCallback

__all__ = ["OffPolicyIntrinsicCallback", "OnPolicyIntrinsicCallback"]

_HOMES = {"OffPolicyIntrinsicCallback": "offpolicy", "OnPolicyIntrinsicCallback": "onpolicy"}


def __getattr__(name: str) -> Any:
    """Import a callback when it is first asked for, and say what is missing if it cannot be.

    Raises:
        MissingExtraError: Stable-Baselines3 is not installed.
        WrongVersionError: it is too old.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headway.integrations.versions import require

    require("stable-baselines3", "gymnasium")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
