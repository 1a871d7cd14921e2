"""Intrinsic rewards in Stable-Baselines3.

from headway.integrations.sb3 import OnPolicyIntrinsicCallback

model.learn(100_000, callback=OnPolicyIntrinsicCallback("icm+gmc"))
"""

from headway.integrations.versions import require

require("stable-baselines3", "gymnasium")

from headway.integrations.sb3.algorithms import (  # noqa: E402
    OffPolicyIntrinsicCallback,
    OnPolicyIntrinsicCallback,
)

__all__ = ["OffPolicyIntrinsicCallback", "OnPolicyIntrinsicCallback"]
