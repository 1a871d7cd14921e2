"""Intrinsic rewards in Stable-Baselines3.

from headway.integrations.sb3 import OnPolicyIntrinsicCallback

model.learn(100_000, callback=OnPolicyIntrinsicCallback("icm+gmc"))
"""

from headway.integrations.sb3.offpolicy import OffPolicyIntrinsicCallback
from headway.integrations.sb3.onpolicy import OnPolicyIntrinsicCallback

__all__ = ["OffPolicyIntrinsicCallback", "OnPolicyIntrinsicCallback"]
