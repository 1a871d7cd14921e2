"""One way to make every environment: by id, with or without noise, over arrays or as Farama's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from headway.errors import EnvError, did_you_mean, import_extra

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode

    from headway.rl.envs.noise import GridNoise

BACKENDS = ("vector", "minigrid")


def make_env(
    env_id: str,
    num_envs: int = 1,
    noise: str = "none",
    backend: str = "vector",
    seed: int = 0,
    view: str = "full",
    *,
    noise_channel: bool | None = None,
    autoreset_mode: str | AutoresetMode = "same_step",
) -> GridNoise:
    """Make grid environments that are stepped together.

        env = make_env("MiniGrid-DoorKey-8x8-v0", num_envs=16, noise="door")
        obs, infos = env.reset()
        obs, rewards, terminated, truncated, infos = env.step(env.action_space.sample())

    Observations are uint8 [num_envs, width, height, 3], encoded as Farama's `FullyObsWrapper` does: in every cell
    an object, a colour and a state, the first axis of a grid being x. With a noise channel they are float32
    [num_envs, width, height, 4].

    Args:
        env_id: "MiniGrid-DoorKey-8x8-v0" and its like, or without a version for the newest. `env_ids` lists them.
        num_envs: how many environments. What happens in one does not depend on how many others there are.
        noise: "none", or "door" for a fourth channel with noise while the agent is near a door.
        backend: "vector" for arrays (DoorKey), "minigrid" for Farama's environments one after the other (any id).
        seed: decides every layout and all noise. `reset(seed=...)` starts anew with another.
        view: "full" for the whole grid, "partial" for what the agent sees (only with backend="minigrid").
        noise_channel: True adds the fourth channel also without noise, as zeros. By default it follows `noise`.
        autoreset_mode: "same_step", "next_step" or "disabled", or Gymnasium's `AutoresetMode`.

    Returns:
        a `gymnasium.vector.VectorEnv`, with `state_dict()` and `load_state_dict()` for exact resumption.

    Raises:
        EnvError: there is no such environment, backend, noise or view, or they do not go together.
        MissingExtraError: gymnasium (or for that backend minigrid) is not installed.
    """
    _check_choice("noise", noise, ("none", "door"))
    if noise == "door" and noise_channel is False:
        raise EnvError("expected a noise channel for noise='door', got noise_channel=False; leave it out")
    mode = _autoreset_mode(autoreset_mode)
    name = _known_id(env_id, backend)
    env: Any
    if backend == "vector":
        from headway.rl.envs.doorkey_env import SIZES, DoorKeyVectorEnv

        if view != "full":
            raise EnvError(f"expected view='full' with backend='vector', got {view!r}; use backend='minigrid'")
        env = DoorKeyVectorEnv(SIZES[name], num_envs, seed, mode)
    else:
        from headway.rl.envs.farama import MiniGridVectorEnv

        env = MiniGridVectorEnv(name, num_envs, seed, view, mode)
    from headway.rl.envs.noise import DoorNoise, GridNoise

    return DoorNoise(env, seed) if noise == "door" else GridNoise(env, channel=bool(noise_channel))


def env_ids(backend: str = "vector") -> list[str]:
    """The environments that a backend knows.

    Args:
        backend: "vector" or "minigrid".

    Raises:
        EnvError: there is no such backend.
        MissingExtraError: the packages that it needs are not installed.
    """
    _check_choice("backend", backend, BACKENDS)
    gymnasium()
    if backend == "vector":
        from headway.rl.envs.doorkey_env import SIZES

        return list(SIZES)
    from headway.rl.envs.farama import minigrid_ids

    return minigrid_ids()


def gymnasium() -> Any:
    """Gymnasium, which everything here needs.

    Raises:
        MissingExtraError: it is not installed.
    """
    return import_extra("gymnasium", "rl")


def _check_choice(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise EnvError(f"expected {what} to be one of {', '.join(known)}, got {value!r}")


def _autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """The mode of that name ("same_step") or value ("SameStep")."""
    modes = {each.name.lower(): each for each in gymnasium().vector.AutoresetMode}
    for name, each in modes.items():
        if mode is each or str(mode).lower() in (name, each.value.lower()):
            return cast("AutoresetMode", each)
    raise EnvError(f"expected autoreset_mode to be one of {', '.join(modes)}, got {mode!r}")


def _known_id(env_id: str, backend: str) -> str:
    """The full id of an environment that the backend has: the newest version where none is given."""
    known = env_ids(backend)
    if env_id in known:
        return env_id
    versions = [each for each in known if each.rpartition("-v")[0] == env_id]
    if versions:
        return max(versions, key=lambda each: int(each.rpartition("-v")[2]))
    way_out = "headway.rl.env_ids('minigrid') lists them"
    if backend == "vector":
        way_out = f"it has {', '.join(known)}, and backend='minigrid' has all of Farama's environments"
    hint = did_you_mean(env_id, known)
    raise EnvError(f"expected an id of an environment of backend={backend!r}, got {env_id!r}{hint}; {way_out}")
