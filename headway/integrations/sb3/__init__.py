"""Intrinsic rewards in Stable-Baselines3."""

from headway.integrations.versions import require

require("stable-baselines3", "gymnasium")

from headway.integrations.sb3.algorithms import (  # noqa: E402
    OffPolicyIntrinsicCallback,
    OnPolicyIntrinsicCallback,
)

__all__ = ["OffPolicyIntrinsicCallback", "OnPolicyIntrinsicCallback"]
