"""What the interface of RLeXplore's reward modules is: of the library itself, and as it was taken from it.

rllte asks for packages that do not go together with current ones, so it is not among those that the tests need.
`rllte.json` has what they need to know of it. `make rllte` installs it apart and compares; after a new release of it:

    PYTHONPATH=.venv/rllte python -m tests.integrations.rllte_interface > tests/integrations/rllte.json
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
from pathlib import Path
from typing import Any

import gymnasium
import torch

PACKAGE = "rllte-core"
STORED = Path(__file__).parent / "rllte.json"
METHODS = ("watch", "scale", "compute", "update")
STEPS, ENVS = 6, 2
OPTIONS = {"beta": 0.5, "kappa": 0.1, "rwd_norm_type": "none", "obs_norm_type": "none"}


def parameters(function: Any) -> list[str]:
    """The arguments that have a place in the order, each as "name" or "name=default"."""
    found = inspect.signature(function).parameters.values()
    placed = [each for each in found if each.kind is not each.KEYWORD_ONLY]
    return [str(each.replace(annotation=inspect.Parameter.empty)) for each in placed]


def samples() -> dict[str, torch.Tensor]:
    """A rollout of CartPole's shapes [n_steps, n_envs, ...]."""
    generator = torch.Generator().manual_seed(0)
    leading = (STEPS, ENVS)
    return {
        "observations": torch.rand(*leading, 4, generator=generator),
        "actions": torch.randint(2, (*leading, 1), generator=generator),
        "rewards": torch.ones(leading),
        "terminateds": torch.zeros(leading),
        "truncateds": torch.zeros(leading),
        "next_observations": torch.rand(*leading, 4, generator=generator),
    }


def facts(base: Any, module: Any, refusal: type[Exception]) -> dict[str, Any]:
    """All that a loop can tell of a reward module.

    Args:
        base: the class with the signatures.
        module: the class that is made and used.
        refusal: what it raises where samples lack a key.
    """
    irs = module(gymnasium.make_vec("CartPole-v1", ENVS, vectorization_mode="sync"), **OPTIONS)
    rollout = samples()
    watched = irs.watch(**{key: value[0] for key, value in rollout.items()})
    weights, steps = [irs.weight], [irs.global_step]
    for sync in (True, False):
        rewards = irs.compute(rollout, sync=sync)
        weights.append(irs.weight)
        steps.append(irs.global_step)
    learned = len(irs.metrics["loss"])
    updated = irs.update(rollout)
    return {
        "parameters": {"__init__": parameters(base), **{name: parameters(getattr(base, name)) for name in METHODS}},
        "keys": [key for key in rollout if _refuses(irs, rollout, key, refusal)],
        "attributes": sorted(name for name in ("beta", "device", "kappa", "n_envs") if hasattr(irs, name)),
        "watch gives": watched,
        "update gives": updated,
        "rewards": {"shape": list(rewards.shape), "dtype": str(rewards.dtype)},
        "weights": [round(float(each), 6) for each in weights],
        "global_step": steps,
        "losses": {"after compute": learned, "after update": len(irs.metrics["loss"])},
        "metrics": sorted({"loss", "intrinsic_rewards"} & set(irs.metrics)),
        "entries of a loss": len(irs.metrics["loss"][-1]),
    }


def _refuses(irs: Any, rollout: dict[str, torch.Tensor], key: str, refusal: type[Exception]) -> bool:
    try:
        irs.compute({name: value for name, value in rollout.items() if name != key})
    except refusal:
        return True
    return False


def of_the_library() -> dict[str, Any]:
    """The facts, and the version that they are taken from. Needs rllte."""
    from rllte.common.prototype.base_reward import BaseReward
    from rllte.xplore.reward import ICM

    found = facts(BaseReward, ICM, AssertionError)
    return {"package": PACKAGE, "version": importlib.metadata.version(PACKAGE), **found}


if __name__ == "__main__":
    print(json.dumps(of_the_library(), indent=1))
