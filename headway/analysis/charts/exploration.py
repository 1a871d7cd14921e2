"""The charts of the exploration study: episode returns beside the environment, and the pull of the noise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from headway.analysis import summaries
from headway.analysis.charts.gridworld import example_doorkey
from headway.analysis.charts.model import STEPS, Axis, Chart, Panel, Picture, Runs, interval_text, within_shares
from headway.analysis.charts.style import METHODS, styles_for
from headway.analysis.rundata import Array, RunData
from headway.analysis.settings import Setting
from headway.analysis.summaries import Band
from headway.study.protocols.names import title

REWARD_COLUMNS = ("env_steps", "episode_return")
NOISE_COLUMNS = ("noise_reward_share", "noise_time_share")
NOISE_SEED = 3
"""Seed of the noise in pictures of the environment."""
FEW_RUNS = 5
"""Exploration runs differ so much that with fewer seeds intervals fill a panel: the single runs are drawn instead."""


def reward_chart(name: str, found: Mapping[Setting, Runs]) -> Chart:
    """Episode return, a panel for each setting, beside a picture of the environment."""
    members = [members for runs in found.values() for members in runs.values()]
    env_id = env_id_of(found)
    size = doorkey_size(env_id)
    conditions = ", ".join(title(setting.group.condition) for setting in found)
    return Chart(
        name,
        "Episode return",
        f"{env_id}: episode return ({conditions}), {_spread_text(members)}.",
        styles_for((method for runs in found.values() for method in runs), METHODS),
        partial(_reward_panels, found),
        legend="Methods",
        x=STEPS,
        columns=len(found),
        few=FEW_RUNS,
        singles=True,
        wide=True,
        pictures=[Picture("Environment", example_doorkey(size))] if size else (),
    )


def _reward_panels(found: Mapping[Setting, Runs]) -> list[Panel]:
    many = len({setting.heading for setting in found}) < len(found)
    return [
        _reward_panel(setting.key, f"{setting.heading}, {setting.group.protocol}" if many else setting.heading, runs)
        for setting, runs in found.items()
    ]


def _reward_panel(key: str, heading: str, runs: Runs) -> Panel:
    return Panel(key, heading, Axis("episode return", zero=True), _bands(runs, summaries.return_curve))


def noise_chart(name: str, setting: Setting, runs: Runs) -> Chart:
    """What was reached, what was paid for noise and how long it was watched."""
    return Chart(
        name,
        f"The pull of the noise, {setting.title}",
        f"{title(setting.group.condition)}: episode return; share of the intrinsic reward that is paid while the noise "
        f"is on; share of the steps with the noise on; {_spread_text(list(runs.values()))}.",
        styles_for(runs, METHODS),
        partial(_noise_panels, runs),
        legend="Methods",
        x=STEPS,
        columns=3,
        few=FEW_RUNS,
        singles=True,
    )


def _noise_panels(runs: Runs) -> list[Panel]:
    panels = [_reward_panel("episode_return", "Task", runs)]
    for column, heading, label in (
        (NOISE_COLUMNS[0], "Reward for noise", "intrinsic reward paid\nwith the noise on"),
        (NOISE_COLUMNS[1], "Time in noise", "steps with\nthe noise on"),
    ):
        bands = _bands(runs, partial(summaries.rollout_curve, column=column))
        bands = {method: within_shares(band) for method, band in bands.items() if np.isfinite(band.mean).any()}
        if column == NOISE_COLUMNS[0]:
            bands.pop("ppo", None)  # has no intrinsic reward
        panels.append(Panel(column, heading, Axis(label, zero=True, percent=True), bands, row=len(panels)))
    return panels


def environment_chart(name: str, env_id: str, size: int) -> Chart:
    """The environment with the noise off and on."""
    noisy = example_doorkey(size, noise=np.random.default_rng(NOISE_SEED))
    return Chart(
        name,
        env_id,
        f"{env_id}. Left: the agent (triangle) needs the key to open the door and reach the goal. Right: next to the "
        "door (dashed outline) the fourth channel of every tile, drawn as grey squares, is filled with noise.",
        {},
        list,
        height=1.82,
        pictures=[Picture("Noise off", example_doorkey(size)), Picture("Noise on", noisy)],
    )


def _bands(runs: Runs, curve: Callable[[RunData], Array]) -> dict[str, Band]:
    return {method: summaries.band(members, curve, summaries.reward_steps) for method, members in runs.items()}


def _spread_text(members: Sequence[Sequence[RunData]]) -> str:
    """What is drawn around the means: the single runs where there are few, intervals where there are many."""
    numbers = [len(runs) for runs in members]
    if max(numbers) == 1:
        return interval_text(members)
    if max(numbers) < FEW_RUNS:
        return interval_text(members, "mean (thick) and single runs (thin)")
    rest = f"; single runs (thin) where there are fewer than {FEW_RUNS}" if min(numbers) < FEW_RUNS else ""
    return interval_text(members) + rest


def env_id_of(found: Mapping[Setting, Runs]) -> str:
    """The environment of the first runs."""
    runs = next(iter(next(iter(found.values())).values()))
    return str(runs[0].spec.params.get("env_id", ""))


def doorkey_size(env_id: str) -> int | None:
    """Tiles on a side of a DoorKey environment; None for another one."""
    found = re.search(r"DoorKey-(\d+)x", env_id)
    return int(found[1]) if found and int(found[1]) >= 5 else None
