"""Trained agents of stored runs, ready to play."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import torch

from headway.errors import UsageError
from headway.rl import make_env
from headway.rl.agent import Policy
from headway.rl.film import Array, Choose
from headway.runs import RunRecord, RunSpec, RunStore, State
from headway.runs.checkpoints import find_newest
from headway.study import doorkey
from headway.study.protocols.doorkey import ExplorationProtocol


@dataclass(frozen=True)
class Player:
    """An agent in an environment of the kind that it was trained in.

    Attributes:
        env: one environment, with autoreset disabled.
        policy: how the agent acts.
        method: what it was paid for.
        place: the environment in a few words.
        progress: how long it was trained, in words.
        has_noise: whether the environment has noise.
    """

    env: Any
    policy: Policy
    method: str
    place: str
    progress: str
    has_noise: bool

    def actor(self, seed: int, greedy: bool = False) -> Choose:
        """The agent as a function from observations to actions.

        Args:
            seed: of the actions.
            greedy: take the most likely actions instead of drawing them.
        """
        generator = None if greedy else torch.Generator().manual_seed(seed)

        def choose(observations: Array) -> Array:
            return self.policy.choose(observations, generator)

        return choose


def load_player(store: RunStore, record: RunRecord) -> Player:
    """The agent of a run: of a finished one as it was in the end, of another as it was at its last checkpoint.

    Raises:
        UsageError: it is no exploration run, or has nothing to show yet.
        StoreError: a file cannot be read, or is damaged.
    """
    spec = record.spec
    if spec is None:
        raise UsageError(f"expected a run that can be read, got {record.run_id}: {record.reason}")
    if spec.experiment != doorkey.EXPERIMENT:
        raise UsageError(
            f"expected a run of an agent (experiment {doorkey.EXPERIMENT}), got {record.run_id}, {spec}; "
            f"there is no agent to be seen in it"
        )
    content, progress = _weights(store, record, spec)
    protocol = ExplorationProtocol.from_dict(spec.protocol)
    env_id = str(spec.params["env_id"])
    env = make_env(
        env_id,
        1,
        spec.condition,
        protocol.backend,
        view=protocol.view,
        noise_channel=True if protocol.noise_channel == "always" else None,
        autoreset_mode="disabled",
    )
    noisy = spec.condition != "none"
    name = env_id.removeprefix("MiniGrid-").removesuffix("-v0")
    place = f"{name}, {spec.condition} noise" if noisy else f"{name}, no noise"
    return Player(env, doorkey.load_policy(spec, content), spec.method, place, progress, noisy)


def _weights(store: RunStore, record: RunRecord, spec: RunSpec) -> tuple[bytes, str]:
    """The policy's weights as `doorkey.load_policy` takes them, and how long they were trained."""
    total = f"{spec.params['steps']:,} steps"
    if record.state is State.DONE:
        return store.read_file(record.run_id, doorkey.POLICY_FILE), f"trained for {total}"
    found, problems = find_newest(store.folder(record.run_id), record.run_id)
    if found is None:
        why = f" ({'; '.join(problems)})" if problems else ""
        raise UsageError(
            f"expected a run that has got somewhere, got {record.run_id}, {record.state.value}, without a checkpoint"
            f"{why}; let it run first"
        )
    state = torch.load(io.BytesIO(found.payload), map_location="cpu", weights_only=True)
    file = io.BytesIO()
    torch.save(state["agent"]["policy"], file)
    return file.getvalue(), f"trained for {found.step:,} of {total}"
