"""How fast exploration runs are, phase by phase, and what the intrinsic reward costs.

    python benchmarks/doorkey.py [--threads 2] [--rounds 3] [--presets released fast] [--out FILE.json]

Measured are whole rollouts of 2048 steps on DoorKey-8x8 with the networks of the paper: acting, paying (with the
values of the rollout beside it), estimating advantages, learning. An observation that comes again is looked at once
(see `headway.rl.distinct`), so the speed depends on what the agent sees; both ends are measured:

- quiet: an agent that has just begun, without noise. Most observations come again and again.
- noisy: noise in every observation, so that none comes twice.

Beside the time on the clock stands the processor's own time along the critical path: acting, then the longer one of
what two cores do side by side. That is what a rollout takes where no other process runs, so it counts on a machine
that is shared.

The published code's speeds are constants, measured on two cores of one machine. The reference `plain` is PPO as one
writes it down first (`benchmarks/plain_ppo.py`), measured here. All take turns, and the fastest rollout of each counts:
what other processes do can only add time.

The price of GMC is measured apart, on rollouts of the same agents, against the same predictor that is scored by its
error, in the processor's time; it is given as a share of the rollout's.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import Neighbours, describe, write_json
from benchmarks.plain_ppo import PlainPPO
from headway.rl import DoorKeyVectorEnv, DoorNoise, make_env
from headway.rl.episodes import Transitions
from headway.rl.learning import Parallel
from headway.rl.methods import make_reward
from headway.rl.ppo import PPO, never
from headway.rl.rollout import collect
from headway.study.protocols.minigrid import ExplorationProtocol
from headway.study.resumable import keep_memory, one_thread

PUBLISHED = {"ppo": 217, "gmc": 173, "icm+gmc": 228}
"""Steps per second of the published code on two cores of an AMD EPYC at 2.45 GHz."""
WANTED = {"released": 1.6, "fast": 2.0}
"""How many times that each preset shall reach."""
SITUATIONS = ("quiet", "noisy")
PRICED = {"gmc": "forward", "icm+gmc": "icm"}
"""Methods with GMC, and the same predictor scored by its error."""
SHARE = 0.05
"""The most that GMC may cost, as a share of a rollout's time."""

Seconds = dict[str, float]


def make(preset: str, situation: str, method: str, threads: int) -> PPO:
    """An agent before its first step."""
    protocol = ExplorationProtocol.named(preset)
    env: Any
    if situation == "quiet":
        env = make_env("MiniGrid-DoorKey-8x8-v0", protocol.num_envs, noise_channel=True)
    else:
        env = DoorNoise(DoorKeyVectorEnv(8, protocol.num_envs), distance=100)
    reward = make_reward(method, env.single_observation_space, env.single_action_space, protocol.reward)
    return PPO(env, protocol.ppo, reward, threads=threads)


class TimedParallel(Parallel):
    """Parallel that keep the processor time of what they do.

    Attributes:
        path: seconds that pieces of work side by side have taken, if each lane had a core of its own.
    """

    path: float = 0.0

    def run(self, *work: Callable[[], Any]) -> list[Any]:
        """As `Parallel.run`."""
        if self.threads == 1:
            return super().run(*work)  # in the caller's thread, whose time is kept anyway
        seconds = [0.0] * len(work)

        def timed(place: int) -> Any:
            start = time.thread_time()
            result = work[place]()
            seconds[place] = time.thread_time() - start
            return result

        results = super().run(*(partial(timed, place) for place in range(len(work))))
        parallel = [0.0] * self.threads
        for each in seconds:  # a piece goes to the lane that is free first
            parallel[parallel.index(min(parallel))] += each
        self.path += max(parallel)
        return results


def one_rollout(ppo: PPO) -> Seconds:
    """Seconds of each phase of a rollout, of the whole, and of the processor along the critical path."""
    phases: Seconds = {}
    parallel = TimedParallel(ppo._parallel.threads)
    ppo._parallel = parallel
    busy = time.thread_time()
    start = last = time.perf_counter()

    def mark(phase: str) -> None:
        nonlocal last
        now = time.perf_counter()
        phases[phase], last = now - last, now

    ppo.iterate(mark=mark)
    phases["rollout"] = time.perf_counter() - start
    phases["processor"] = time.thread_time() - busy + parallel.path
    parallel.close()
    return phases


def plain(reference: PlainPPO, threads: int) -> float:
    """Seconds of a rollout of the reference, whose operations are split over all cores."""
    torch.set_num_threads(threads)
    start = time.perf_counter()
    reference.iterate()
    seconds = time.perf_counter() - start
    torch.set_num_threads(1)
    return seconds


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The fastest rollouts, by preset, situation and method."""
    keys = [(p, s, m) for p in options.presets for s in SITUATIONS for m in PUBLISHED]
    agents = {key: make(*key, options.threads) for key in keys}
    times: dict[tuple[str, str, str], list[Seconds]] = {key: [] for key in keys}
    reference, reference_times = PlainPPO(), []
    for round_ in range(options.rounds + 1):  # the first one warms up
        reference_times.append(plain(reference, options.threads))
        for key, agent in agents.items():
            times[key].append(one_rollout(agent))
        print(f"round {round_} of {options.rounds}", flush=True)
    best = min(reference_times[1:])
    rows = []
    for (preset, situation, method), own in times.items():
        fastest = min(own[1:], key=lambda seconds: seconds["rollout"])
        speed = 2048 / fastest["rollout"]
        undisturbed = 2048 / min(seconds["processor"] for seconds in own[1:])
        rows.append(
            {
                "preset": preset,
                "situation": situation,
                "method": method,
                "seconds": fastest,
                "steps_per_second": speed,
                "of_published": speed / PUBLISHED[method],
                "wanted": WANTED[preset],
                "of_plain": best / fastest["rollout"],
                "undisturbed_steps_per_second": undisturbed,
                "undisturbed_of_published": undisturbed / PUBLISHED[method],
            }
        )
    return {"plain_steps_per_second": 2048 / best, "rows": rows}


def price(preset: str, method: str, situation: str, rounds: int) -> dict[str, Any]:
    """What the scores cost: the predictor's update with GMC against that with its error, on the same rollouts."""
    agent = make(preset, situation, method, 1)
    spaces = agent.env.single_observation_space, agent.env.single_action_space
    rewards = {
        name: make_reward(name, *spaces, ExplorationProtocol.named(preset).reward) for name in (method, PRICED[method])
    }
    times: dict[str, list[float]] = {name: [] for name in rewards}
    for _ in range(rounds + 1):
        batch = _transitions(agent)
        for name, reward in rewards.items():
            assert reward is not None
            times[name].append(_timed(partial(reward.rewards_and_update, batch)))
    scored, unscored = (min(own[1:]) for own in times.values())
    return {"preset": preset, "situation": situation, "method": method, "scored": scored, "unscored": unscored}


def _transitions(agent: PPO) -> Transitions:
    policy = agent.agent.policy
    rollout = collect(agent.episodes, policy.act, policy.head, agent.config.rollout_steps, agent._generator, never)
    assert rollout is not None
    return rollout.transitions()


def _timed(work: Callable[[], object]) -> float:
    """Seconds of the processor."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def table(result: dict[str, Any]) -> str:
    """Everything as text."""
    rows = result["rows"]
    phases = [phase for phase in rows[0]["seconds"] if phase not in ("rollout", "processor")]
    lines = [
        f"{'preset':10}{'situation':10}{'method':9}"
        + "".join(f"{phase:>15}" for phase in [*phases, "rollout"])
        + f"{'steps/s':>9}{'/ published':>12}{'/ plain':>9}{'undisturbed':>13}{'/ published':>12}{'wanted':>8}"
    ]
    for row in rows:
        cells = "".join(f"{row['seconds'][phase]:13.2f} s" for phase in [*phases, "rollout"])
        lines.append(
            f"{row['preset']:10}{row['situation']:10}{row['method']:9}{cells}{row['steps_per_second']:9.0f}"
            f"{row['of_published']:12.2f}{row['of_plain']:9.2f}{row['undisturbed_steps_per_second']:13.0f}"
            f"{row['undisturbed_of_published']:12.2f}{row['wanted']:8.1f}"
        )
    lines += [f"plain: {result['plain_steps_per_second']:.0f} steps/s", ""]
    for row in result["price"]:
        lines.append(
            f"{row['preset']:10}{row['situation']:10}{row['method']:9} update {row['unscored'] * 1e3:7.0f} ms, scored "
            f"{row['scored'] * 1e3:7.0f} ms: GMC costs {row['share']:.1%} of a rollout (at most {SHARE:.0%} wanted)"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="speed of exploration runs")
    parser.add_argument("--threads", type=int, default=2, help="cores of a run")
    parser.add_argument("--rounds", type=int, default=3, help="rollouts of each kind")
    parser.add_argument("--presets", nargs="+", default=list(WANTED), choices=list(WANTED))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/doorkey.json"))
    options = parser.parse_args()
    neighbours = Neighbours()
    keep_memory()  # as a run does
    with one_thread():
        result = measure(options)
        result["price"] = [
            price(preset, method, situation, options.rounds)
            for preset in options.presets
            for situation in SITUATIONS
            for method in PRICED
        ]
    whole = {
        (row["preset"], row["situation"], row["method"]): 2048 / row["undisturbed_steps_per_second"]
        for row in result["rows"]
    }
    for row in result["price"]:
        row["share"] = (row["scored"] - row["unscored"]) / whole[row["preset"], row["situation"], row["method"]]
    print(table(result))
    busy = neighbours.say()
    content = {"machine": dataclasses.asdict(describe(options.threads)), "busy_cores": busy, "published": PUBLISHED}
    write_json(options.out, {**content, **result})


if __name__ == "__main__":
    main()
