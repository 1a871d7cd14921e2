"""Playing the vectorised DoorKey and Farama's side by side, from the same layouts, with the same actions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from minigrid.envs import DoorKeyEnv
from minigrid.wrappers import FullyObsWrapper
from numpy.typing import NDArray

from headway.rl.envs.doorkey_env import DoorKeyVectorEnv
from headway.rl.envs.layouts import Layouts

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
EMPTY, DOOR, KEY, GOAL, AGENT = 1, 4, 5, 8, 10
OPEN, LOCKED = 0, 2
VECTORS = [(1, 0), (0, 1), (-1, 0), (0, -1)]


class Reference:
    """Farama's environment with its own `FullyObsWrapper`, as a user makes it."""

    def __init__(self, size: int, seed: int) -> None:
        self.env = FullyObsWrapper(gymnasium.make(f"MiniGrid-DoorKey-{size}x{size}-v0"))
        self.seed: int | None = seed

    def reset(self) -> NDArray[np.uint8]:
        observation, _ = self.env.reset(seed=self.seed)
        self.seed = None
        return observation["image"]

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool]:
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return observation["image"], reward, terminated, truncated


class QuickReference(Reference):
    """The same rules and the same encoding, but the grid is encoded again only when something in it has changed.

    The agent's partial view, which nobody looks at here, is left out.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.world = _WithoutPartialView(size=size)
        self.env = FullyObsWrapper(self.world)
        self.seed = seed
        self._objects: list[Any] = []

    def reset(self) -> NDArray[np.uint8]:
        self.world.reset(seed=self.seed)
        self.seed = None
        self._objects = []
        return self._image()

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool]:
        _, reward, terminated, truncated, _ = self.world.step(action)
        return self._image(), reward, terminated, truncated

    def _image(self) -> NDArray[np.uint8]:
        objects = self.world.grid.grid
        if objects != self._objects:
            self._objects = list(objects)
            self._door = next(each for each in objects if each is not None and each.type == "door")
            self._encoded = self.world.grid.encode()
        self._encoded[self._door.cur_pos] = self._door.encode()
        image = self._encoded.copy()
        image[self.world.agent_pos] = (AGENT, 0, self.world.agent_dir)
        return image


class _WithoutPartialView(DoorKeyEnv):
    def gen_obs(self) -> dict[str, Any]:
        return {}


def layouts_of(images: list[NDArray[np.uint8]]) -> Layouts:
    """Read layouts off the first observations of episodes."""

    def find(code: int) -> NDArray[np.intp]:
        found = [np.argwhere(image[..., 0] == code) for image in images]
        assert all(len(each) == 1 for each in found)
        return np.concatenate(found)

    door, key, agent = find(DOOR), find(KEY), find(AGENT)
    direction = np.array([image[x, y, 2] for image, (x, y) in zip(images, agent, strict=True)])
    return Layouts(door[:, 0], door[:, 1], agent[:, 0], agent[:, 1], direction.astype(np.intp), key[:, 0], key[:, 1])


class Solver:
    """Chooses actions that solve DoorKey from the whole grid, by breadth-first search over cells and directions."""

    def __init__(self) -> None:
        self._plan: deque[int] = deque()

    def act(self, image: NDArray[np.uint8]) -> int:
        if not self._plan:
            self._plan.extend(solve(image))
        return self._plan.popleft()

    def forget(self) -> None:
        self._plan.clear()


def solve(image: NDArray[np.uint8]) -> list[int]:
    """The actions up to the next thing done: key picked up, door opened, or goal reached."""
    things = image[..., 0]
    doors, keys = np.argwhere(things == DOOR), np.argwhere(things == KEY)
    if len(doors) and image[(*doors[0], 2)] != OPEN:
        locked_out = image[(*doors[0], 2)] == LOCKED and len(keys)
        target, last = (keys[0], PICKUP) if locked_out else (doors[0], TOGGLE)
    else:
        target, last = np.argwhere(things == GOAL)[0], FORWARD
    way = facing(image, tuple(target.tolist()))
    if way is None:  # the key lies in the way
        way, last = facing(image, tuple(keys[0].tolist())), PICKUP
    assert way is not None
    return [*way, last]


def facing(image: NDArray[np.uint8], target: tuple[int, int]) -> list[int] | None:
    """The shortest way to stand before a cell and look at it; None if there is none."""
    free = (image[..., 0] == EMPTY) | ((image[..., 0] == DOOR) & (image[..., 2] == OPEN))
    x, y = np.argwhere(image[..., 0] == AGENT)[0].tolist()
    start = (x, y, int(image[x, y, 2]))
    came: dict[tuple[int, int, int], tuple[tuple[int, int, int], int] | None] = {start: None}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        ahead = (at[0] + VECTORS[at[2]][0], at[1] + VECTORS[at[2]][1])
        if ahead == target:
            way: list[int] = []
            while (step := came[at]) is not None:
                at, action = step
                way.append(action)
            return way[::-1]
        nexts = [((at[0], at[1], (at[2] + 3) % 4), LEFT), ((at[0], at[1], (at[2] + 1) % 4), RIGHT)]
        if free[ahead]:
            nexts.append(((*ahead, at[2]), FORWARD))
        for following, action in nexts:
            if following not in came:
                came[following] = (at, action)
                queue.append(following)
    return None


@dataclass
class Tally:
    """What happened in the episodes that were compared."""

    episodes: int = 0
    steps: int = 0
    solved: int = 0
    truncated: int = 0
    shortest: int = 10**9
    returns: list[float] = field(default_factory=list)


def compare(
    size: int,
    episodes: int,
    randomness: float,
    parallel: int = 20,
    seed: int = 0,
    reference: Callable[[int, int], Reference] = QuickReference,
) -> Tally:
    """Play both until so many episodes are over; every observation, reward and end must be equal.

    Args:
        size: of the rooms.
        episodes: how many at least.
        randomness: the share of random actions; the others solve the room.
        parallel: environments played at the same time.
        seed: of layouts and actions.
        reference: what to compare with.
    """
    rng = np.random.default_rng(seed)
    theirs = [reference(size, seed * 10_000 + lane) for lane in range(parallel)]
    ours = DoorKeyVectorEnv(size, parallel, autoreset_mode=AutoresetMode.DISABLED)
    solvers = [Solver() for _ in theirs]
    images = [each.reset() for each in theirs]
    observations, _ = ours.reset(options={"layouts": layouts_of(images)})
    np.testing.assert_array_equal(observations, np.stack(images))
    tally = Tally()
    while tally.episodes < episodes:
        actions = rng.integers(0, 7, parallel)
        for lane in np.flatnonzero(rng.random(parallel) >= randomness):
            actions[lane] = solvers[lane].act(observations[lane])
        if randomness > 0:
            for solver in solvers:
                solver.forget()
        expected = [each.step(action) for each, action in zip(theirs, actions.tolist(), strict=True)]
        observations, rewards, terminated, truncated, infos = ours.step(actions)
        assert np.array_equal(observations, np.stack([each[0] for each in expected]))
        assert rewards.tolist() == [each[1] for each in expected]
        assert terminated.tolist() == [each[2] for each in expected]
        assert truncated.tolist() == [each[3] for each in expected]
        tally.steps += parallel
        over = terminated | truncated
        if over.any():
            observations = _again(ours, theirs, over, observations)
            tally.episodes += int(over.sum())
            tally.solved += int(terminated.sum())
            tally.truncated += int((truncated & ~terminated).sum())
            tally.shortest = min(tally.shortest, int(infos["episode_length"][over].min()))
            tally.returns += infos["episode_return"][over].tolist()
    return tally


def _again(
    ours: DoorKeyVectorEnv, theirs: list[Reference], over: NDArray[np.bool_], before: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Begin new episodes where they are over; the others stay as they are."""
    images = [theirs[lane].reset() for lane in np.flatnonzero(over)]
    observations, _ = ours.reset(options={"reset_mask": over, "layouts": layouts_of(images)})
    assert np.array_equal(observations[over], np.stack(images))
    assert np.array_equal(observations[~over], before[~over])
    return observations
