"""Rooms of the arena: N at once over arrays, with a screen in every observation that may show noise.

An observation is a row of numbers: the body (where the agent is, what it has done) and the screen. The screen is there
in every room, dark where nothing is shown, so that a room has the same observations with and without a television.
Here are also the continuous ones, a point mass and a pendulum; those in cells are in `grid_rooms.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from headway.errors import EnvError
from headway.rl.envs.grid_env import ArrayVectorEnv, Mask, Outcome
from headway.rl.envs.grids import worth
from headway.rl.envs.streams import Rows, Streams

PIXELS = 16
"""Numbers on the screen: 4x4."""
SLOW = 0.95
"""The share of a slow picture that is left after a step."""
PRESSED = 0.5
"""The last number of a continuous action is the button: above this it is pressed."""
POINT_STEPS, POINT_BINS = 100, 10
PENDULUM_STEPS, ANGLE_BINS, SPEED_BINS = 200, 12, 10
START, GOAL = -0.9, 0.9
"""Both coordinates of the point mass where it starts, and of its goal ..."""
REACH = 0.1
"""... and how near it has to come in each."""
DRAG, PUSH, TIME_STEP = 0.9, 0.1, 0.1
GRAVITY, TORQUE, TOP_SPEED, SWING_STEP = 10.0, 2.0, 8.0, 0.05
UPRIGHT, SLOW_ENOUGH = 0.2, 1.0
"""The pendulum's goal: within so many radians of upright, at no more than this speed."""
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
    """What N televisions of a kind out of `SCREENS` show; the kind "digits" needs images [any, 16].

    Noise has mean 0 and deviation 1 in each pixel; a dark screen is zero.
    """

    def __init__(self, kind: str, num_envs: int, images: Floats | None = None) -> None:
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

    It is made with the numbers of an observation before the screen (`body`), the space of one action, and the number of
    places that can be covered (`cells`); the seed decides the layout, if it is drawn, and all noise.

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
        super().__init__(name, num_envs, observations, actions, seed, AutoresetMode.SAME_STEP)

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


class PointMass(Room):
    """A mass in a square: v' = 0.9 v + 0.1 f and p' = p + 0.1 v', with the force f in [-1, 1]^2 and p in [-1, 1]^2.

    It starts in one corner, and the goal is in the opposite one. A wall takes the speed towards it. The body is p, v.
    Covered are 10x10 squares.
    """

    state = ("position", "velocity")

    def __init__(self, name: str, num_envs: int, seed: int, screen: Screen) -> None:
        self._position = np.full((num_envs, 2), START)
        self._velocity = np.zeros((num_envs, 2))
        actions = Box(-1, 1, (3,), np.float32)
        super().__init__(name, num_envs, seed, screen, 4, actions, POINT_STEPS, POINT_BINS**2)

    def _place(self, rows: Rows) -> None:
        self._position[rows], self._velocity[rows] = START, 0.0

    def _move(self, actions: NDArray[Any]) -> tuple[Mask, Mask]:
        velocity = DRAG * self._velocity + PUSH * actions[:, :2]
        moved = self._position + TIME_STEP * velocity
        self._position = np.clip(moved, -1.0, 1.0)
        self._velocity = np.where(moved == self._position, velocity, 0.0)
        near = np.abs(self._position - GOAL) <= REACH
        return near[:, 0] & near[:, 1], actions[:, 2] > PRESSED

    def _body(self) -> Floats:
        return np.concatenate([self._position, self._velocity], axis=1).astype(np.float32)

    def _cells(self) -> Cells:
        places = _bin((self._position + 1) / 2, POINT_BINS)
        return places[:, 0] * POINT_BINS + places[:, 1]


class Pendulum(Room):
    """The pendulum of Gymnasium, hanging down at first; the goal is to hold it upright, slowly, for one step.

        w' = w + (1.5 g sin(angle) + 3 u) dt, within -8 and 8;  angle' = angle + w' dt;  u in [-2, 2], g = 10, dt = 0.05

    The torque u is not enough to lift it at once. The body is cos, sin and w / 8; covered are 12x10 cells of angle and
    speed.
    """

    state = ("angle", "speed")

    def __init__(self, name: str, num_envs: int, seed: int, screen: Screen) -> None:
        self._angle, self._speed = np.full(num_envs, np.pi), np.zeros(num_envs)
        actions = Box(-1, 1, (2,), np.float32)
        super().__init__(name, num_envs, seed, screen, 3, actions, PENDULUM_STEPS, ANGLE_BINS * SPEED_BINS)

    def _place(self, rows: Rows) -> None:
        self._angle[rows], self._speed[rows] = np.pi, 0.0

    def _move(self, actions: NDArray[Any]) -> tuple[Mask, Mask]:
        pull = 1.5 * GRAVITY * np.sin(self._angle) + 3 * TORQUE * actions[:, 0]
        self._speed = np.clip(self._speed + pull * SWING_STEP, -TOP_SPEED, TOP_SPEED)
        self._angle = (self._angle + self._speed * SWING_STEP + np.pi) % (2 * np.pi) - np.pi
        reached: Mask = (np.abs(self._angle) <= UPRIGHT) & (np.abs(self._speed) <= SLOW_ENOUGH)
        return reached, actions[:, 1] > PRESSED

    def _body(self) -> Floats:
        parts = (np.cos(self._angle), np.sin(self._angle), self._speed / TOP_SPEED)
        return np.stack(parts, axis=1).astype(np.float32)

    def _cells(self) -> Cells:
        angle = _bin((self._angle + np.pi) / (2 * np.pi), ANGLE_BINS)
        return angle * SPEED_BINS + _bin((self._speed / TOP_SPEED + 1) / 2, SPEED_BINS)


def _bin(shares: NDArray[np.float64], bins: int) -> Cells:
    """Numbers from 0 to 1 as one of some bins."""
    return np.minimum((shares * bins).astype(np.intp), bins - 1)
