"""The charts of the exploration study: returns beside a picture of the environment, and the pull of the noise."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.analysis import summaries
from headway.analysis.charts import model
from headway.analysis.charts.controlled import having
from headway.analysis.charts.model import FEW_RUNS, Axis, Chart, Item, Omission, Panel, Picture, Runs
from headway.analysis.comparison import EXPLORATION, Setting, headings, slug
from headway.analysis.rundata import Array, RunData
from headway.analysis.summaries import Band
from headway.errors import FigureError
from headway.study.protocols.names import title

if TYPE_CHECKING:
    from matplotlib.axes import Axes


REWARD_COLUMNS = ("env_steps", "episode_return")
NOISE_COLUMNS = ("noise_reward_share", "noise_time_share")
NOISE_SEED = 3  # Seed of the noise in pictures of the environment
MOST_COLUMNS = 4  # Panels in a row


def return_chart(name: str, found: Mapping[Setting, Runs]) -> Chart:
    """Episode return, a panel for each setting, beside a picture of the environment."""
    members = [members for runs in found.values() for members in runs.values()]
    env_id = env_id_of(found)
    size = doorkey_size(env_id)
    conditions = ", ".join(title(setting.group.condition) for setting in found)
    return Chart(
        name,
        "Episode return",
        f"{env_id or 'Rooms'}: episode return ({conditions}), {_spread_text(members)}.",
        model.styles_for((method for runs in found.values() for method in runs), model.METHODS),
        lambda: [_reward_panel(setting.key, name, found[setting]) for setting, name in headings(found).items()],
        legend="Methods",
        x=model.STEPS,
        columns=min(len(found), MOST_COLUMNS),
        few=FEW_RUNS,
        singles=True,
        wide=True,
        pictures=[Picture("Environment", example_doorkey(size))] if size else (),
    )


reward_chart = return_chart
"""The former name."""


def _reward_panel(key: str, heading: str, runs: Runs) -> Panel:
    return Panel(key, heading, Axis("episode return", zero=True), _bands(runs, summaries.return_curve))


def noise_chart(name: str, setting: Setting, runs: Runs) -> Chart:
    """What was reached, what was rewarded in the noise, and how long the noise was on."""
    return Chart(
        name,
        f"The pull of the noise, {setting.title}",
        f"{title(setting.group.condition)}: episode return; share of the intrinsic reward that comes while the noise "
        f"is on; share of the steps with the noise on; {_spread_text(list(runs.values()))}.",
        model.styles_for(runs, model.METHODS),
        partial(_noise_panels, runs),
        legend="Methods",
        x=model.STEPS,
        columns=3,
        few=FEW_RUNS,
        singles=True,
    )


def _noise_panels(runs: Runs) -> list[Panel]:
    panels = [_reward_panel("episode_return", "Task", runs)]
    rewarded = {method: members for method, members in runs.items() if method != "ppo"}  # has no intrinsic reward
    for column, own, heading, label in (
        (NOISE_COLUMNS[0], rewarded, "Reward for noise", "intrinsic reward\nwith the noise on"),
        (NOISE_COLUMNS[1], runs, "Time in noise", "steps with\nthe noise on"),
    ):
        bands = _bands(own, partial(summaries.rollout_curve, column=column))
        bands = {method: model.within_shares(band) for method, band in bands.items() if np.isfinite(band.mean).any()}
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
        return model.interval_text(members)
    if max(numbers) < FEW_RUNS:
        return model.interval_text(members, "mean (thick) and single runs (thin)")
    rest = f"; single runs (thin) where there are fewer than {FEW_RUNS}" if min(numbers) < FEW_RUNS else ""
    return model.interval_text(members) + rest


def env_id_of(found: Mapping[Setting, Runs]) -> str:
    """The environment of the first runs."""
    runs = next(iter(next(iter(found.values())).values()))
    return str(runs[0].spec.params.get("env_id", ""))


def doorkey_size(env_id: str) -> int | None:
    """Tiles on a side of a DoorKey environment; None for another one, or one that is too small for two rooms."""
    found = re.search(r"DoorKey-(\d+)x", env_id)
    return int(found[1]) if found and int(found[1]) >= 5 else None


def figures(settings: Sequence[Setting]) -> Iterator[Item]:
    """All figures that the runs of one protocol allow."""

    def ungated(setting: Setting) -> list[str]:
        return [method for method in setting.finished if method not in model.GATED_METHODS]

    found = {setting: setting.pick(ungated(setting), *REWARD_COLUMNS) for setting in settings}
    found = {setting: runs for setting, runs in found.items() if runs}
    if found:
        yield return_chart("minigrid", found)
    env_id = env_id_of({setting: setting.finished for setting in settings})
    if size := doorkey_size(env_id):
        yield environment_chart("environment", env_id, size)
    else:
        yield Omission("environment", f"only DoorKey can be drawn, got {env_id}")
    noisy = [setting for setting in settings if setting.group.condition != "none"]
    if not noisy:
        yield Omission("television", "no finished runs with noise")
    for setting in noisy:
        name = slug("television", setting.group.condition) if setting.group.condition != "door" else "television"
        sets = {name: ungated(setting)}
        if any(method in setting.finished for method in model.GATED_METHODS):
            sets[f"{name}-gates"] = [*model.GATED_BESIDE, *model.GATED_METHODS]
        lacking = f"no finished runs with the columns {' and '.join(NOISE_COLUMNS)}"
        for name, methods in sets.items():
            runs = setting.pick(methods, *REWARD_COLUMNS, *NOISE_COLUMNS)
            yield noise_chart(name, setting, runs) if runs else Omission(name, lacking)


def page_charts(settings: Sequence[Setting]) -> list[Chart]:
    """The charts of a page."""
    found = {setting: setting.shown for setting in settings if setting.kind == EXPLORATION and setting.shown}
    charts = [return_chart("rewards", found)] if found else []
    for setting, runs in found.items():
        noisy = having(runs, *NOISE_COLUMNS)
        if noisy and setting.group.condition != "none":
            charts.append(noise_chart(f"noise-{setting.key}", setting, noisy))
    return charts


# MiniGrid's codes: channel 0 is the object, 1 its colour, 2 its state (a door's) or direction (the agent's).
EMPTY, WALL, DOOR, KEY, BALL, BOX, GOAL, LAVA, AGENT = 1, 2, 4, 5, 6, 7, 8, 9, 10
OPEN, CLOSED, LOCKED = 0, 1, 2
COLOURS = ("#C63B2B", "#2E9E5B", "#2F6DB5", "#7B4FA3", "#E3B505", "#8A8A8A")  # Red, green, blue, purple, yellow, grey

FLOOR, WALL_COLOUR, EDGE = "#F6F4EF", "#5A5A5A", "#D8D4CA"
OUTLINE = "#222222"
LOUDEST = 2.5  # The value of the noise that is drawn black (or, below zero, white)


def draw_gridworld(ax: Axes, grid: Any, *, trigger: bool = True) -> Axes:
    """Draw MiniGrid's encoding [width, height, 3 or 4]: object, colour, state, and noise if there is a fourth.

    Noise shows as static over the tiles, and a dashed `trigger` outlines the places from which it is switched on: the
    free tiles at most one step from a door. Raises `FigureError` for a grid of another shape.
    """
    grid = np.asarray(grid, float)
    if grid.ndim != 3 or grid.shape[2] not in (3, 4):
        raise FigureError(f"expected a grid of shape [width, height, 3 or 4], got {list(grid.shape)}")
    width, height = grid.shape[:2]
    codes = grid[..., :3].astype(int)
    for x, y in np.ndindex(width, height):
        face = {WALL: WALL_COLOUR, GOAL: COLOURS[1], LAVA: "#F08A24"}.get(int(codes[x, y, 0]), FLOOR)
        _rectangle(ax, (x, y), 1, 1, facecolor=face, edgecolor=EDGE, linewidth=0.4, zorder=1)
    if grid.shape[2] == 4 and np.any(grid[..., 3]):
        for (x, y), value in np.ndenumerate(grid[..., 3]):  # a square, as grey as the noise is loud; objects go over it
            grey = str(float(np.clip(0.5 - value / (2 * LOUDEST), 0, 1)))
            _rectangle(ax, (x + 0.2, y + 0.2), 0.6, 0.6, facecolor=grey, linewidth=0, zorder=2)
    for x, y in np.ndindex(width, height):
        kind, colour, state = (int(code) for code in codes[x, y])
        if kind in _OBJECTS:
            _OBJECTS[kind](ax, x, y, COLOURS[colour % len(COLOURS)], state)
    if trigger:
        _outline(ax, trigger_tiles(codes))
    ax.set_xlim(0, width)
    ax.set_ylim(height, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    return ax


def trigger_tiles(codes: Any) -> set[tuple[int, int]]:
    """The tiles at a Manhattan distance of at most 1 from a door where an agent can stand."""
    kinds = np.asarray(codes)[..., 0]
    doors, free = np.argwhere(kinds == DOOR).tolist(), np.argwhere(kinds != WALL).tolist()
    steps = (0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)
    return {(x + dx, y + dy) for x, y in doors for dx, dy in steps} & {(x, y) for x, y in free}


def example_doorkey(size: int = 8, *, noise: np.random.Generator | None = None) -> Array:
    """A DoorKey layout to show, in MiniGrid's encoding with a fourth channel [size, size, 4]; the size is at least 5.

    With `noise` the agent stands before the door and the fourth channel is standard normal; otherwise it is zero.
    """
    if size < 5:
        raise FigureError(f"expected a grid of at least 5 tiles on a side, got {size}")
    grid = np.zeros((size, size, 4))
    grid[..., 0] = EMPTY
    middle, door = size // 2, size // 2 - 1
    for wall in (grid[0], grid[-1], grid[:, 0], grid[:, -1], grid[middle]):
        wall[..., :3] = (WALL, 5, 0)
    grid[middle, door, :3] = (DOOR, 4, LOCKED)
    grid[1, size - 2, :3] = (KEY, 4, 0)
    grid[size - 2, size - 2, :3] = (GOAL, 1, 0)
    away = (1, 1) if size > 5 else (1, 2)
    agent = away if noise is None else (middle - 1, door)
    grid[(*agent, slice(0, 3))] = (AGENT, 0, 1 if noise is None else 0)
    if noise is not None:
        grid[..., 3] = noise.standard_normal((size, size))
    return grid


def _rectangle(ax: Axes, corner: tuple[float, float], width: float, height: float, **look: Any) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle(corner, width, height, **look))


def _circle(ax: Axes, middle: tuple[float, float], radius: float, **look: Any) -> None:
    from matplotlib.patches import Circle

    ax.add_patch(Circle(middle, radius, **look))


def _door(ax: Axes, x: int, y: int, colour: str, state: int) -> None:
    if state == OPEN:
        _rectangle(ax, (x + 0.84, y + 0.06), 0.12, 0.88, facecolor=colour, edgecolor=OUTLINE, lw=0.5, zorder=4)
        return
    face = colour if state == LOCKED else FLOOR
    _rectangle(ax, (x + 0.06, y + 0.06), 0.88, 0.88, facecolor=face, edgecolor=OUTLINE, lw=0.7, zorder=4)
    _rectangle(ax, (x + 0.18, y + 0.18), 0.64, 0.64, facecolor="none", edgecolor=OUTLINE, lw=0.5, zorder=5)
    if state == LOCKED:
        _circle(ax, (x + 0.5, y + 0.43), 0.1, facecolor=OUTLINE, linewidth=0, zorder=6)
        _rectangle(ax, (x + 0.46, y + 0.45), 0.08, 0.22, facecolor=OUTLINE, linewidth=0, zorder=6)
    else:
        _circle(ax, (x + 0.72, y + 0.5), 0.06, facecolor=OUTLINE, linewidth=0, zorder=6)


def _key(ax: Axes, x: int, y: int, colour: str, state: int) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    bow = Path.circle((x + 0.5, y + 0.28), 0.17)
    hole = Path.circle((x + 0.5, y + 0.28), 0.07)
    hole = Path(np.asarray(hole.vertices)[::-1], hole.codes)  # wound the other way, it stays empty
    shaft = [(0.45, 0.43), (0.45, 0.86), (0.7, 0.86), (0.7, 0.78), (0.55, 0.78), (0.55, 0.72)]
    shaft += [(0.66, 0.72), (0.66, 0.64), (0.55, 0.64), (0.55, 0.43)]
    blade = Path([(x + dx, y + dy) for dx, dy in [*shaft, shaft[0]]], closed=True)
    for shape in (blade, Path.make_compound_path(bow, hole)):
        ax.add_patch(PathPatch(shape, facecolor=colour, edgecolor=OUTLINE, linewidth=0.5, zorder=4))


def _agent(ax: Axes, x: int, y: int, colour: str, state: int) -> None:
    from matplotlib.patches import Polygon

    turn = state * np.pi / 2  # 0 right, 1 down, 2 left, 3 up; the vertical axis points down
    corners = np.array([(0.38, 0.0), (-0.32, 0.34), (-0.32, -0.34)])
    turned = corners @ np.array([(np.cos(turn), np.sin(turn)), (-np.sin(turn), np.cos(turn))])
    place = turned + np.array([x + 0.5, y + 0.5])
    ax.add_patch(Polygon(place, facecolor=colour, edgecolor=OUTLINE, linewidth=0.6, zorder=7))


def _ball(ax: Axes, x: int, y: int, colour: str, state: int) -> None:
    _circle(ax, (x + 0.5, y + 0.5), 0.31, facecolor=colour, edgecolor=OUTLINE, linewidth=0.5, zorder=4)


def _box(ax: Axes, x: int, y: int, colour: str, state: int) -> None:
    _rectangle(ax, (x + 0.15, y + 0.15), 0.7, 0.7, facecolor=FLOOR, edgecolor=colour, linewidth=1.6, zorder=4)
    ax.plot([x + 0.15, x + 0.85], [y + 0.5, y + 0.5], color=colour, linewidth=1.2, zorder=5)


_OBJECTS = {DOOR: _door, KEY: _key, BALL: _ball, BOX: _box, AGENT: _agent}


def _outline(ax: Axes, tiles: set[tuple[int, int]]) -> None:
    """A dashed line around a set of tiles."""
    for x, y in sorted(tiles):
        for neighbour, line in (
            ((x - 1, y), ((x, x), (y, y + 1))),
            ((x + 1, y), ((x + 1, x + 1), (y, y + 1))),
            ((x, y - 1), ((x, x + 1), (y, y))),
            ((x, y + 1), ((x, x + 1), (y + 1, y + 1))),
        ):
            if neighbour not in tiles:
                ax.plot(*line, color=OUTLINE, linewidth=1.0, linestyle=(0, (2.5, 1.5)), zorder=8)
