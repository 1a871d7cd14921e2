"""The presets of the exploration study, as the data that they are in a stored run.

See `headway.analysis.presets` for why they stand here once more; a test compares them with
`headway.study.protocols.doorkey.ExplorationProtocol`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PAPER: Mapping[str, Any] = {
    "env_id": "MiniGrid-DoorKey-8x8-v0",
    "backend": "vector",
    "view": "full",
    "noise_channel": "with-noise",
    "observation_scale": 1.0,
    "num_envs": 1,
    "rollout_steps": 2048,
    "steps": 3000000,
    "truncation": "bootstrap",
    "networks": "separate",
    "network": "cnn",
    "channels": (32, 64, 64),
    "hidden": (128,),
    "initialisation": "uniform",
    "policy_learning_rate": 0.0003,
    "value_learning_rate": 0.001,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip": 0.2,
    "value_clip": None,
    "entropy_weight": 0.01,
    "max_grad_norm": 0.5,
    "epochs": 4,
    "minibatch_size": 256,
    "normalise_advantages": "rollout",
    "extrinsic_scale": 10.0,
    "intrinsic_scale": 0.02,
    "normalise_intrinsic": False,
    "value_heads": 1,
    "intrinsic_gamma": 0.99,
    "intrinsic_episodic": True,
    "predictor_hidden": 256,
    "predictor_learning_rate": 0.0001,
    "predictor_max_grad_norm": 0.5,
    "predictor_epochs": 1,
    "predictor_minibatches": 1,
    "icm_features": 64,
    "icm_hidden_layer": False,
    "icm_inverse_weight": 0.8,
    "icm_forward_weight": 0.2,
    "icm_forward_factor": 0.5,
    "icm_scored_loss": "mean-squared-error",
    "rnd_features": 512,
    "beta": 0.99,
    "beta_v": None,
    "floor": 1e-08,
    "floor_unit": "sample",
    "bias_correction": False,
    "return_window": 10,
    "curve_block": 1,
    "interval_ddof": 1,
}
"""The paper's text."""

RELEASED: Mapping[str, Any] = {
    **PAPER,
    "noise_channel": "always",
    "truncation": "terminate",
    "floor_unit": "batch",
    "bias_correction": True,
    "curve_block": 10,
    "interval_ddof": 0,
}
"""The authors' released code."""

FAST: Mapping[str, Any] = {
    **RELEASED,
    "num_envs": 16,
    "rollout_steps": 128,
    "return_window": 32,
}
"""The released choices with many environments."""

QUICK: Mapping[str, Any] = {
    **RELEASED,
    "env_id": "MiniGrid-DoorKey-5x5-v0",
    "num_envs": 32,
    "rollout_steps": 64,
    "return_window": 64,
    "steps": 200000,
    "channels": (16, 32),
    "hidden": (64,),
    "initialisation": "orthogonal",
    "policy_learning_rate": 0.001,
    "curve_block": 1,
}
"""A small grid and small networks."""

EXPLORATION_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "released": RELEASED,
    "paper": PAPER,
    "fast": FAST,
    "quick": QUICK,
}
"""All presets; of two that are equally near to a run's protocol the first gives it its name."""
