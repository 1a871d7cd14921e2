"""How fast the grid environments are, against Farama's, in one run on one core.

    python benchmarks/envs.py [--sizes 5 6 8 16] [--envs 1 16 256 1024] [--rounds 15] [--out FILE.json]

Everyone plays at random and begins anew when an episode ends. The reference is Farama's environment with its
`FullyObsWrapper`, as a user makes it. The variants take turns, so that a change in the machine's speed meets all of
them alike; ratios are those of the same round, and the table has their medians.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import minigrid  # noqa: F401  (registers its environments)
import numpy as np
from minigrid.wrappers import FullyObsWrapper

from benchmarks.common import Neighbours, describe, write_json
from headway.rl import make_env

Turn = Callable[[int], float]
"""Plays so many steps of all environments and tells the steps of single environments per second."""

TURN = 0.1
"""Seconds that a turn shall take."""
FARAMA = "farama"


def farama(env_id: str) -> Turn:
    """Farama's environment, whole grid, one at a time."""
    env: Any = FullyObsWrapper(gymnasium.make(env_id))
    env.reset(seed=0)
    rng = np.random.default_rng(0)

    def turn(steps: int) -> float:
        actions = rng.integers(0, 7, steps).tolist()
        start = time.perf_counter()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return steps / (time.perf_counter() - start)

    return turn


def vectorised(env_id: str, num_envs: int, noise: str) -> Turn:
    """The environments of `make_env`."""
    env = make_env(env_id, num_envs, noise)
    env.reset()
    rng = np.random.default_rng(0)

    def turn(steps: int) -> float:
        actions = rng.integers(0, 7, (steps, num_envs))
        start = time.perf_counter()
        for each in actions:
            env.step(each)
        return steps * num_envs / (time.perf_counter() - start)

    return turn


def variants(size: int, counts: list[int]) -> dict[str, tuple[Turn, int]]:
    """What takes part for one size: a turn, and how many environments one of its steps advances."""
    env_id = f"MiniGrid-DoorKey-{size}x{size}-v0"
    found: dict[str, tuple[Turn, int]] = {FARAMA: (farama(env_id), 1)}
    for count in counts:
        for noise in ("none", "door"):
            name = f"{count} envs" + (", door noise" if noise == "door" else "")
            found[name] = (vectorised(env_id, count, noise), count)
    return found


def measure(size: int, counts: list[int], rounds: int) -> dict[str, dict[str, float]]:
    """Median steps per second of each variant, and the median, least and greatest ratio to Farama's."""
    found = variants(size, counts)
    steps = {}
    for name, (turn, count) in found.items():
        turn(20)
        rate = turn(50) / count
        episodes = 10 * size**2  # all rooms that began together end together: a turn should see about as much of it
        steps[name] = max(50, min(int(TURN * rate), 4 * episodes))
    rates: dict[str, list[float]] = {name: [] for name in found}
    gc.disable()
    for _ in range(rounds):
        for name, (turn, _) in found.items():
            rates[name].append(turn(steps[name]))
    gc.enable()
    result = {}
    for name, own in rates.items():
        ratios = [mine / theirs for mine, theirs in zip(own, rates[FARAMA], strict=True)]
        result[name] = {
            "steps_per_second": statistics.median(own),
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "greatest": max(ratios),
        }
    return result


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Steps per second and ratios, by size and variant."""
    lines = [f"{'room':8}{'variant':24}{'steps/s':>12}{'/ farama':>10}{'least':>8}{'greatest':>10}"]
    for room, own in results.items():
        for name, row in own.items():
            cells = f"{row['steps_per_second']:12,.0f}{row['ratio']:10.1f}{row['least']:8.1f}{row['greatest']:10.1f}"
            lines.append(f"{room:8}{name:24}{cells}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="speed of the grid environments against Farama's")
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 6, 8, 16], choices=[5, 6, 8, 16])
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 16, 256, 1024], help="numbers of environments")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each variant (default: 15)")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    neighbours = Neighbours()
    results = {}
    for size in options.sizes:
        results[f"{size}x{size}"] = measure(size, options.envs, options.rounds)
        print(f"measured {size}x{size}", flush=True)
    print(table(results))
    busy = neighbours.say()
    versions = {name: version(name) for name in ("gymnasium", "minigrid", "numpy")}
    machine = describe()
    content = {
        "date": machine.date,
        "cpu": machine.cpu,
        "busy_cores_of_others": busy,
        "versions": versions,
        "rooms": results,
    }
    write_json(options.out, content)


if __name__ == "__main__":
    main()
