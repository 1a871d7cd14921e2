"""An agent: a network for its policy, one for its values, and the distributions that its actions are drawn from.

Sampling is split in two to make a step cheap: the random numbers of a whole rollout are drawn at once, and each step
only turns its own into actions. Probabilities and entropies are computed for many steps at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import EnvError
from headway.rl.config import PPOConfig
from headway.rl.envs.make import gymnasium
from headway.rl.networks import Encoded, network_for
from headway.rl.spaces import Array, pack


class CategoricalHead(nn.Module):
    """One choice (Discrete), or several at once (MultiDiscrete): the outputs are the logits of all of them.

    Choices have `counts` possibilities, numbered from `starts` (None for 0). Drawn actions are counted from 0, and are
    [N] for a single choice without a shape, and otherwise [N, choices].
    """

    def __init__(self, *counts: int, starts: Sequence[int] | None = None, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._counts, self._shape = counts, shape
        self._starts = np.array([0] * len(counts) if starts is None else starts)
        self.outputs = sum(counts)

    def noise(self, steps: int, envs: int, generator: torch.Generator) -> Array:
        """The random numbers for the actions of a rollout [steps, envs, choices], uniform."""
        return torch.rand(steps, envs, len(self._counts), generator=generator, dtype=torch.float64).numpy()

    def sample(self, outputs: Array, noise: Array) -> Array:
        """Actions from outputs [N, outputs] and the random numbers of one step, by the cumulated probabilities."""
        chosen = []
        for logits, random in zip(self._split(outputs), np.split(noise, len(self._counts), axis=1), strict=True):
            edges = np.exp(logits - logits.max(axis=1, keepdims=True), dtype=np.float64).cumsum(axis=1)
            below = (edges <= random * edges[:, -1:]).sum(axis=1)
            chosen.append(np.minimum(below, logits.shape[1] - 1))
        return self._joined(chosen)

    def to_env(self, actions: Array) -> Array:
        """Actions as the environment takes them."""
        rows: Array = actions.reshape(len(actions), -1) + self._starts
        return rows.reshape(len(actions), *self._shape)

    def best(self, outputs: Array) -> Array:
        """The most likely actions for outputs [N, outputs]."""
        return self._joined([logits.argmax(axis=1) for logits in self._split(outputs)])

    def log_probabilities(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probabilities of actions [B, ...] under outputs [B, outputs], and the entropies: both [B].

        Choices are independent, so both are sums over them.
        """
        taken, entropies = [], []
        columns = actions.long().reshape(len(actions), len(self._counts))
        for logits, chosen in zip(outputs.split(self._counts, dim=1), columns.split(1, dim=1), strict=True):
            logs = F.log_softmax(logits, dim=1)
            entropies.append(-(logs.exp() * logs).sum(1))  # first: gradients are added up in this order
            taken.append(logs.gather(1, chosen).squeeze(1))
        return torch.stack(taken).sum(0), torch.stack(entropies).sum(0)

    def _split(self, outputs: Array) -> list[Array]:
        return np.split(outputs, np.cumsum(self._counts)[:-1], axis=1)

    def _joined(self, columns: list[Array]) -> Array:
        return np.stack(columns, axis=1) if self._shape else columns[0]


class GaussianHead(nn.Module):
    """Real numbers (Box): the outputs are means; the deviations are parameters of their own.

    What the environment gets is cut to the bounds of the space; probabilities are those of the number that was drawn.
    """

    def __init__(self, low: Array, high: Array) -> None:
        super().__init__()
        self._low, self._high = low, high
        self.outputs = int(low.size)
        self.log_deviation = nn.Parameter(torch.zeros(self.outputs))

    def noise(self, steps: int, envs: int, generator: torch.Generator) -> Array:
        """The random numbers for the actions of a rollout [steps, envs, outputs], normal."""
        return torch.randn(steps, envs, self.outputs, generator=generator).numpy()

    def sample(self, outputs: Array, noise: Array) -> Array:
        """Actions [N, outputs] from outputs [N, outputs] and the random numbers of one step."""
        deviation: Array = self.log_deviation.detach().exp().cpu().numpy()
        return outputs + deviation * noise

    def to_env(self, actions: Array) -> Array:
        """Actions as the environment takes them."""
        shaped = actions.reshape(len(actions), *self._low.shape)
        return np.clip(shaped, self._low, self._high).astype(self._low.dtype)

    def best(self, outputs: Array) -> Array:
        """The most likely actions for outputs [N, outputs]."""
        return outputs

    def log_probabilities(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """As of a `CategoricalHead`."""
        standard = (actions - outputs) * (-self.log_deviation).exp()
        constant = 0.5 * math.log(2 * math.pi)
        logs = -(0.5 * standard.square() + self.log_deviation + constant).sum(1)
        entropy = (self.log_deviation + constant + 0.5).sum()
        return logs, entropy.expand(len(outputs))


ActionHead = CategoricalHead | GaussianHead
"""Turns the outputs of a policy network, `outputs` numbers for one observation, into actions."""
LAST_GAIN = 0.01
"""The length of the rows of a policy's last layer when it starts, under orthogonal initialisation."""


def make_head(space: Any) -> ActionHead:
    """The head for the action space of one environment; one that PPO cannot act in is an EnvError."""
    spaces = gymnasium().spaces
    match space:
        case spaces.Discrete():
            return CategoricalHead(int(space.n), starts=[int(space.start)])
        case spaces.MultiDiscrete():
            counts, starts = (each.flatten().tolist() for each in (space.nvec, space.start))
            return CategoricalHead(*counts, starts=starts, shape=tuple(space.nvec.shape))
        case spaces.Box():
            return GaussianHead(space.low, space.high)
    raise EnvError(
        f"expected an action space out of Discrete, MultiDiscrete, Box for PPO, got {type(space).__name__}; "
        f"wrap the environment so that an action is one choice or one array of numbers"
    )


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
        super().__init__()
        self.head = make_head(action_space)
        self.network = network_for(observation_space, self.head.outputs, config, generator, LAST_GAIN)
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
    """A policy, a value network, and their optimizers; made as a `Policy`, on a device."""

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        config: PPOConfig,
        generator: torch.Generator,
        device: str | torch.device = "cpu",
    ) -> None:
        self.policy = Policy(observation_space, action_space, config, generator).to(device)
        self.value = network_for(observation_space, config.value_heads, config, generator).to(device)
        adam = partial(torch.optim.Adam, eps=config.adam_epsilon, fused=torch.device(device).type in ("cpu", "cuda"))
        self.policy_optimizer = adam(self.policy.parameters(), config.policy_learning_rate)
        self.value_optimizer = adam(self.value.parameters(), config.value_learning_rate)

    @torch.inference_mode()
    def values(self, frames: Tensor) -> Tensor:
        """The values of observations [B, ...]: [B, heads]."""
        values: Tensor = self.value(frames)
        return values

    def state_dict(self) -> dict[str, Any]:
        """Both networks and both optimizers."""
        return {name: part.state_dict() for name, part in self._parts()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        for name, part in self._parts():
            part.load_state_dict(state[name])

    def _parts(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in ("policy", "value", "policy_optimizer", "value_optimizer"))


def read(observations: Array, scale: float) -> Tensor:
    """Observations as float32, times a factor."""
    numbers = torch.from_numpy(np.ascontiguousarray(observations, dtype=np.float32))
    return numbers if scale == 1 else numbers * scale
