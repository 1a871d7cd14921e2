"""Rooms of the arena: N at once over arrays, with a screen in every observation that may show noise.

An observation is a row of numbers: the body (where the agent is, what it has done) and the screen. The screen is there
in every room, dark where nothing is shown, so that a room has the same observations with and without a television.
Those in cells are in `grid_rooms.py`, the others in `continuous_rooms.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from headway.errors import EnvError
from headway.rl.envs.grid_env import ArrayVectorEnv, Mask, Outcome, check_num_envs
from headway.rl.envs.grids import worth
from headway.rl.envs.streams import Rows, Streams

PIXELS = 16
"""Numbers on the screen: 4x4."""
SLOW = 0.95
"""The share of a slow picture that is left after a step."""
Floats = NDArray[np.float32]
Cells = NDArray[np.intp]

SCREENS: Mapping[str, str] = {
    "none": "nothing is ever shown",
    "button": "the button shows a new picture of noise, near the screen only",
    "remote": "the button shows a new picture of noise, anywhere",
    "sticky": "the button shows a new picture of noise, near the screen only; it stays until the episode ends",
    "slow": "near the screen there is noise that changes a little at each step",
    "digits": "near the screen there is another image of a digit at each step",
    "door": "near the door on the way there is new noise at each step",
    "dynamics": "nothing is shown; near the screen's place each move leads to a random cell of it",
}
"""The kinds of televisions, and what they do."""


class Screen:
    """What N televisions show.

    Noise has mean 0 and deviation 1 in each pixel; a dark screen is zero.

    Args:
        kind: one of `SCREENS`.
        num_envs: N.
        images: pictures [any, 16] of the kind "digits".

    Raises:
        EnvError: no such kind, or no pictures where they are needed.
    """

    def __init__(self, kind: str, num_envs: int, images: Floats | None = None) -> None:
        if kind not in SCREENS:
            raise EnvError(f"expected a television out of {', '.join(SCREENS)}, got {kind!r}")
        if kind == "digits" and (images is None or images.ndim != 2 or images.shape[1] != PIXELS):
            got = "none" if images is None else list(images.shape)
            raise EnvError(f"expected images of shape [any, {PIXELS}] for the television 'digits', got {got}")
        self.kind = kind
        self.pixels: Floats = np.zeros((num_envs, PIXELS), dtype=np.float32)
        self.is_on: Mask = np.zeros(num_envs, dtype=bool)
        self._images = images

    def clear(self, rows: Rows) -> None:
        """Switch some off."""
        self.pixels[rows] = 0
        self.is_on[rows] = False

    def step(self, near: Mask, pressed: Mask, streams: Streams) -> None:
        """Show what follows a step, after which agents are near the screen [N] and have pressed the button [N]."""
        match self.kind:
            case "none" | "dynamics":
                return
            case "remote":
                new = shown = pressed
            case "button":
                new = shown = near & pressed
            case "sticky":
                new = near & pressed
                shown = self.is_on | new
            case _:
                new = shown = near
        if self.is_on.any():
            self.pixels[self.is_on & ~shown] = 0
        rows = np.flatnonzero(new)
        if len(rows):
            self.pixels[rows] = self._pictures(rows, streams)
        self.is_on = shown

    def _pictures(self, rows: Rows, streams: Streams) -> Floats:
        if self.kind == "digits":
            assert self._images is not None
            chosen = (streams.uniform(rows, 1)[:, 0] * len(self._images)).astype(np.intp)
            return self._images[chosen]
        noise = streams.normal(rows, PIXELS)
        if self.kind == "slow":
            changed = np.float32(SLOW) * self.pixels[rows] + np.float32((1 - SLOW**2) ** 0.5) * noise
            return np.where(self.is_on[rows, None], changed, noise)
        return noise


class Room(ArrayVectorEnv):
    """N rooms of one kind, all alike. Episodes begin anew in the step that ends them.

    Reaching the goal ends an episode, and is worth as much as in MiniGrid. Infos hold `noise_on`, whether the next
    observation carries noise [N].

    Args:
        name: of the room.
        num_envs: N.
        seed: decides the layout, if it is drawn, and all noise.
        screen: the television.
        body: numbers of an observation before the screen.
        actions: the space of one action.
        max_steps: after which an episode is truncated.
        cells: places that can be covered.

    Attributes:
        goals: episodes that have reached the goal.
        first_goal: steps in all rooms up to the first of them; 0 if there is none yet.
    """

    state: ClassVar[tuple[str, ...]] = ()
    """The names of the arrays that say where the agents are; `_restart` fills them."""

    def __init__(
        self,
        name: str,
        num_envs: int,
        seed: int,
        screen: Screen,
        body: int,
        actions: Discrete | Box,
        max_steps: int,
        cells: int,
    ) -> None:
        self.max_steps = max_steps
        self._screen = screen
        self._visited = np.zeros(cells, dtype=bool)
        self._clock = self.goals = self.first_goal = 0
        observations = Box(-np.inf, np.inf, (body + PIXELS,), np.float32)
        super().__init__(name, check_num_envs(num_envs), observations, actions, seed, AutoresetMode.SAME_STEP)

    @property
    def covered(self) -> float:
        """The share of places that were visited so far."""
        return float(self._visited.mean())

    def _restart(self, rows: Rows, options: Mapping[str, Any]) -> None:
        self._screen.clear(rows)
        self._place(rows)
        self._visited[self._cells()[rows]] = True

    def _advance(self, actions: NDArray[Any], live: Mask | None) -> Outcome:
        self._clock += 1
        reached, pressed = self._move(actions)
        self._screen.step(self._near(), pressed, self._streams)
        self._visited[self._cells()] = True
        found = int(reached.sum())
        if found and not self.goals:
            self.first_goal = self._clock * self.num_envs
        self.goals += found
        return worth(self._lengths, self.max_steps) * reached, reached, self._lengths >= self.max_steps

    def _observe(self) -> Floats:
        return np.concatenate([self._body(), self._screen.pixels], axis=1)

    def _infos(self) -> dict[str, Any]:
        return {"noise_on": self._noise().copy(), "_noise_on": np.ones(self.num_envs, dtype=bool)}

    def _inner_state(self) -> dict[str, Any]:
        arrays = {name: getattr(self, f"_{name}").tolist() for name in self.state}
        counts = {name: getattr(self, name) for name in ("_clock", "goals", "first_goal")}
        screen = {"pixels": self._screen.pixels.tolist(), "is_on": self._screen.is_on.tolist()}
        visited = np.flatnonzero(self._visited).tolist()
        return {**arrays, **counts, **screen, "visited": visited, "streams": self._streams.state_dict()}

    def _load_inner_state(self, state: Mapping[str, Any]) -> None:
        for name in self.state:
            setattr(self, f"_{name}", np.array(state[name], dtype=getattr(self, f"_{name}").dtype))
        for name in ("_clock", "goals", "first_goal"):
            setattr(self, name, int(state[name]))
        self._screen.pixels = np.array(state["pixels"], dtype=np.float32)
        self._screen.is_on = np.array(state["is_on"], dtype=bool)
        self._visited[:] = False
        self._visited[state["visited"]] = True
        self._streams.load_state_dict(state["streams"])

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "screen": self._screen.kind}

    # What a room fills in.

    def _place(self, rows: Rows) -> None:
        """Put agents where episodes begin."""
        raise NotImplementedError

    def _move(self, actions: NDArray[Any]) -> tuple[Mask, Mask]:
        """Act; tells who has reached the goal, and who has pressed the button [N]."""
        raise NotImplementedError

    def _body(self) -> Floats:
        """The numbers before the screen [N, body]."""
        raise NotImplementedError

    def _cells(self) -> Cells:
        """The place of each agent [N], to be covered."""
        raise NotImplementedError

    def _near(self) -> Mask:
        """Who is near the screen [N]."""
        return np.zeros(self.num_envs, dtype=bool)

    def _noise(self) -> Mask:
        """Whose observation carries noise [N]."""
        return self._screen.is_on
