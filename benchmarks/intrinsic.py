"""What intrinsic rewards cost in a rollout of the released protocol, and what of it is the scoring.

    python benchmarks/intrinsic.py [--noise none door] [--rounds 5] [--threads N] [--out FILE.json]

An agent without intrinsic reward learns in DoorKey-8x8, 2,048 steps per rollout. The transitions of each of its
rollouts are then paid for by every predictor, by its error and by GMC, with the step of training that goes with it.
What GMC takes longer than the error is the cost of the scores. All take turns in each round, so that a change in the
machine's speed meets them alike; shares are those of the same round, and the table has their medians.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import Neighbours, describe, write_json
from headway.rl import make_env
from headway.rl.episodes import Transitions
from headway.rl.methods import make_reward
from headway.rl.ppo import PPO
from headway.rl.reward import IntrinsicResult, Reward
from headway.study.protocols.minigrid import ExplorationProtocol

PREDICTORS = ("forward", "icm", "rnd")
WARM_UP = 2


class Tap:
    """Pays nothing, and keeps the transitions that it was shown."""

    def rewards_and_update(self, batch: Transitions) -> IntrinsicResult:
        """Keep them."""
        self.batch = batch
        return IntrinsicResult(torch.zeros(len(batch)))


def measure(noise: str, rounds: int, threads: int) -> dict[str, dict[str, float]]:
    """Median seconds of a rollout and of each predictor's payments, and the share of the scores."""
    protocol = ExplorationProtocol.released()
    env = make_env(protocol.env_id, noise=noise, noise_channel=True)
    tap: Any = Tap()
    ppo = PPO(env, protocol.ppo, tap, threads=threads)
    spaces = env.single_observation_space, env.single_action_space
    names = [f"{predictor}+{scorer}" for predictor in PREDICTORS for scorer in ("error", "gmc")]
    rewards = {name: make_reward(name, *spaces, protocol.reward) for name in names}
    times: dict[str, list[float]] = {name: [] for name in ("rollout", *names)}
    for number in range(WARM_UP + rounds):
        start = time.perf_counter()
        ppo.iterate()
        seconds = {"rollout": time.perf_counter() - start}
        seconds |= {name: _pay(reward, tap.batch) for name, reward in rewards.items() if reward is not None}
        if number >= WARM_UP:
            for name, spent in seconds.items():
                times[name].append(spent)
    ppo.close()
    result = {"rollout": {"seconds": statistics.median(times["rollout"])}}
    for predictor in PREDICTORS:
        rows = list(zip(times["rollout"], times[f"{predictor}+error"], times[f"{predictor}+gmc"], strict=True))
        shares = [(gmc - error) / (rollout + gmc) for rollout, error, gmc in rows]
        result[predictor] = {
            "error_seconds": statistics.median(error for _, error, _ in rows),
            "gmc_seconds": statistics.median(gmc for _, _, gmc in rows),
            "score_share": statistics.median(shares),
            "score_share_least": min(shares),
            "score_share_greatest": max(shares),
        }
    return result


def _pay(reward: Reward, batch: Transitions) -> float:
    start = time.perf_counter()
    reward.rewards_and_update(batch)
    return time.perf_counter() - start


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Seconds and shares by noise and predictor."""
    lines = [
        f"{'noise':8}{'predictor':12}{'rollout':>10}{'+error':>10}{'+gmc':>10}{'scores':>10}{'least':>9}{'most':>9}"
    ]
    for noise, own in results.items():
        for predictor in PREDICTORS:
            row = own[predictor]
            cells = f"{own['rollout']['seconds']:8.2f} s{row['error_seconds']:8.3f} s{row['gmc_seconds']:8.3f} s"
            shares = f"{row['score_share']:10.1%}{row['score_share_least']:9.1%}{row['score_share_greatest']:9.1%}"
            lines.append(f"{noise:8}{predictor:12}{cells}{shares}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="what intrinsic rewards cost in a rollout")
    parser.add_argument("--noise", nargs="+", default=["none", "door"], choices=["none", "door"])
    parser.add_argument("--rounds", type=int, default=5, help="rollouts that are measured (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="cores that the agent uses (default: 1)")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the agent uses cores by threads of its own
    neighbours = Neighbours()
    results = {noise: measure(noise, options.rounds, options.threads) for noise in options.noise}
    print(table(results))
    busy = neighbours.say()
    machine = describe(options.threads)
    content = {"date": machine.date, "cpu": machine.cpu, "threads": options.threads, "results": results}
    write_json(options.out, {**content, "other_cores_busy": busy})


if __name__ == "__main__":
    main()
