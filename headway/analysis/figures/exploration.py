"""The figures of the exploration study: reward curves beside the environment, and who watches the television."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis import summaries
from headway.analysis.columns import Array
from headway.analysis.figures.catalogue import Drawing, Item, Kind, Omission, Setting, interval_text, slug
from headway.analysis.figures.curves import FEW_RUNS, reward_curves
from headway.analysis.figures.gridworld import draw_gridworld, example_doorkey
from headway.analysis.figures.style import (
    COLUMN_WIDTH,
    GATED_BESIDE,
    GATED_METHODS,
    METHODS,
    TEXT_WIDTH,
    legend_below,
    new_figure,
)
from headway.analysis.figures.television import television
from headway.analysis.rundata import RunData
from headway.analysis.summaries import Band
from headway.study.protocols.names import title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REWARD_COLUMNS = ("env_steps", "episode_return")
NOISE_COLUMNS = ("noise_reward_share", "noise_time_share")
NOISE_SEED = 3
"""Seed of the static in pictures of the environment."""

Runs = Mapping[str, tuple[RunData, ...]]


def rewards(settings: Sequence[Setting]) -> Iterator[Item]:
    """Episode return without and with noise, beside a picture of the environment."""
    found = {s: s.pick(_ungated(s), *REWARD_COLUMNS) for s in settings if s.group.experiment == "doorkey"}
    found = {setting: runs for setting, runs in found.items() if runs}
    if not found:
        return
    members = [members for runs in found.values() for members in runs.values()]
    conditions = ", ".join(title(setting.group.condition) for setting in found)
    caption = f"{_env_id(found)}: episode return ({conditions}), {_spread_text(members)}."
    yield Drawing("minigrid", caption, partial(reward_figure, found))


def _spread_text(members: Sequence[Sequence[RunData]]) -> str:
    """What is drawn around the means: the single runs where there are few, intervals where there are many."""
    numbers = [len(runs) for runs in members]
    if max(numbers) == 1:
        return interval_text(members)
    if max(numbers) < FEW_RUNS:
        return interval_text(members, "mean (thick) and single runs (thin)")
    rest = f"; single runs (thin) where there are fewer than {FEW_RUNS}" if min(numbers) < FEW_RUNS else ""
    return interval_text(members) + rest


def _ungated(setting: Setting) -> list[str]:
    return [method for method in setting.methods if method not in GATED_METHODS]


def reward_figure(found: Mapping[Setting, Runs]) -> Figure:
    """The environment if it can be drawn, and a panel for each condition."""
    size = doorkey_size(_env_id(found))
    widths = ([0.72] if size else []) + [1.0] * len(found)
    figure = new_figure(TEXT_WIDTH if len(widths) > 1 else COLUMN_WIDTH, 2.35)
    panels = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    if size:
        draw_gridworld(panels[0], example_doorkey(size))
        panels[0].set_title("Environment")
    curves = panels[1:] if size else panels
    for ax, (setting, runs) in zip(curves, found.items(), strict=True):
        reward_curves(ax, reward_bands(runs), setting.title)
    _align(curves)
    handles = {label: handle for ax in curves for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    labels = [look.name for look in METHODS.values() if look.name in handles]
    labels += [label for label in handles if label not in labels]
    legend_below(figure, [handles[label] for label in labels], labels)
    return figure


def environment(settings: Sequence[Setting]) -> Iterator[Item]:
    """The environment with the noise off and on."""
    found = {s: s.methods for s in settings if s.group.experiment == "doorkey"}
    if not found:
        return
    size = doorkey_size(_env_id(found))
    if size is None:
        yield Omission("environment", f"only DoorKey can be drawn, got {_env_id(found)}")
        return
    caption = (
        f"{_env_id(found)}. Left: the agent (triangle) needs the key to open the door and reach the goal. Right: next "
        "to the door (dashed outline) the fourth channel of every tile, drawn as grey squares, is filled with noise."
    )
    yield Drawing("environment", caption, partial(environment_figure, size))


def environment_figure(size: int) -> Figure:
    """Two pictures side by side."""
    figure = new_figure(COLUMN_WIDTH, 1.82)
    panels = figure.subplots(1, 2)
    draw_gridworld(panels[0], example_doorkey(size))
    draw_gridworld(panels[1], example_doorkey(size, noise=np.random.default_rng(NOISE_SEED)))
    panels[0].set_title("Noise off")
    panels[1].set_title("Noise on")
    return figure


def televisions(settings: Sequence[Setting]) -> Iterator[Item]:
    """What was reached, what was paid for noise and how long it was watched."""
    found = [setting for setting in settings if setting.group.experiment == "doorkey"]
    noisy = [setting for setting in found if setting.group.condition != "none"]
    if found and not noisy:
        yield Omission("television", "no finished runs with noise")
    for setting in noisy:
        name = slug("television", setting.group.condition) if setting.group.condition != "door" else "television"
        yield _television(name, setting, _ungated(setting))
        if any(method in setting.methods for method in GATED_METHODS):
            yield _television(f"{name}-gates", setting, (*GATED_BESIDE, *GATED_METHODS))


def _television(name: str, setting: Setting, methods: Sequence[str]) -> Item:
    runs = setting.pick(methods, *REWARD_COLUMNS, *NOISE_COLUMNS)
    if not runs:
        return Omission(name, f"no finished runs with the columns {' and '.join(NOISE_COLUMNS)}")
    caption = (
        f"{title(setting.group.condition)}: episode return; share of the intrinsic reward that is paid while the "
        f"noise is on; share of the steps with the noise on; {_spread_text(list(runs.values()))}."
    )
    return Drawing(name, caption, partial(television_figure, runs))


def television_figure(runs: Runs) -> Figure:
    """Three panels in a row."""
    figure = new_figure(TEXT_WIDTH, 2.35)
    panels = figure.subplots(1, 3)
    paid = {method: _band(members, "noise_reward_share") for method, members in runs.items() if method != "ppo"}
    paid = {method: band for method, band in paid.items() if np.isfinite(band.mean).any()}
    time = {method: _band(members, "noise_time_share") for method, members in runs.items()}
    television(panels, reward_bands(runs), paid, time)
    legend_below(figure, *panels[0].get_legend_handles_labels())
    return figure


KINDS: tuple[Kind, ...] = (rewards, environment, televisions)


def reward_bands(runs: Runs) -> dict[str, Band]:
    """Episode return over environment steps by method."""
    return {
        method: summaries.band(members, summaries.return_curve, summaries.reward_steps)
        for method, members in runs.items()
    }


def doorkey_size(env_id: str) -> int | None:
    """Tiles on a side of a DoorKey environment; None for another one."""
    found = re.search(r"DoorKey-(\d+)x", env_id)
    return int(found[1]) if found and int(found[1]) >= 5 else None


def _band(runs: Sequence[RunData], column: str) -> Band:
    def curve(run: RunData) -> Array:
        return summaries.rollout_curve(run, column)

    return summaries.band(runs, curve, summaries.reward_steps)


def _env_id(found: Mapping[Setting, Runs]) -> str:
    runs = next(iter(next(iter(found.values())).values()))
    return str(runs[0].spec.params.get("env_id", ""))


def _align(panels: Sequence[Any]) -> None:
    """Give panels the same vertical range, and name it once."""
    ends = [ax.get_ylim() for ax in panels]
    for place, ax in enumerate(panels):
        ax.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
        if place:
            ax.set_ylabel("")
            ax.tick_params(labelleft=False)
