"""Continuous rooms of the arena: a point mass and a pendulum that are rewarded at the goal alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from headway.rl.envs.grid_env import Mask
from headway.rl.envs.rooms import Cells, Floats, Room, Screen
from headway.rl.envs.streams import Rows

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
