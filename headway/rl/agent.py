"""An agent: a network for its policy, one for its values, and what it takes to act with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headway.rl.actions import make_head
from headway.rl.config import PPOConfig
from headway.rl.networks import Encoded, network_for
from headway.rl.packing import pack

Array = npt.NDArray[Any]


class Policy(nn.Module):
    """A network and the head that turns its outputs into actions.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: the network, and the scale of observations.
        generator: where the weights come from.

    Raises:
        EnvError: an action space that PPO cannot act in.
    """

    def __init__(
        self, observation_space: Any, action_space: Any, config: PPOConfig, generator: torch.Generator
    ) -> None:
        """Make the network."""
        super().__init__()
        self.head = make_head(action_space)
        self.network = network_for(observation_space, self.head.outputs, config, generator, self.head.last_gain)
        self.scale = 1.0 if isinstance(self.network, Encoded) else config.observation_scale  # others scale themselves

    def read(self, observations: Array) -> Tensor:
        """Observations [N, ...] as the network takes them."""
        return read(pack(observations), self.scale)

    @torch.inference_mode()
    def act(self, observations: Array) -> Array:
        """The outputs [N, outputs] for observations [N, ...]."""
        device = next(self.network.parameters()).device
        outputs: Array = self.network(self.read(observations).to(device)).cpu().numpy()
        return outputs

    def choose(self, observations: Array, generator: torch.Generator | None = None) -> Array:
        """Actions [N, ...] for observations [N, ...], as the environment takes them.

        Args:
            observations: as the environment gave them.
            generator: draws the actions; None for the most likely ones.
        """
        outputs = self.act(observations)
        if generator is None:
            return self.head.to_env(self.head.best(outputs))
        noise = self.head.noise(1, len(observations), generator)[0]
        return self.head.to_env(self.head.sample(outputs, noise))


class Agent:
    """A policy, a value network, and their optimizers.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        config: the settings of PPO.
        generator: where the weights come from.
        device: where the networks live.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: PPOConfig,
        generator: torch.Generator,
        device: str | torch.device = "cpu",
    ) -> None:
        """Make both networks."""
        self.policy = Policy(observation_space, action_space, config, generator).to(device)
        self.value = network_for(observation_space, config.value_heads, config, generator).to(device)
        rates = config.policy_learning_rate, config.value_learning_rate
        fused = torch.device(device).type in ("cpu", "cuda")
        self.policy_optimizer, self.value_optimizer = (
            torch.optim.Adam(network.parameters(), rate, eps=config.adam_epsilon, fused=fused)
            for network, rate in zip((self.policy, self.value), rates, strict=True)
        )

    @torch.inference_mode()
    def values(self, frames: Tensor) -> Tensor:
        """The values of observations [B, ...]: [B, heads]."""
        values: Tensor = self.value(frames)
        return values

    def state_dict(self) -> dict[str, Any]:
        """Both networks and both optimizers."""
        return {name: getattr(self, name).state_dict() for name in _PARTS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        for name in _PARTS:
            getattr(self, name).load_state_dict(state[name])


_PARTS: Sequence[str] = ("policy", "value", "policy_optimizer", "value_optimizer")


def read(observations: Array, scale: float) -> Tensor:
    """Observations as float32, times a factor."""
    numbers = torch.from_numpy(np.ascontiguousarray(observations, dtype=np.float32))
    return numbers if scale == 1 else numbers * scale
