"""Intelligent adaptive curiosity: reward regions where predictions are getting better.

P.-Y. Oudeyer, F. Kaplan and V. Hafner, Intrinsic Motivation Systems for Autonomous Mental Development (2007).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from headway.rl.bonuses.bonus import Memory, check_least, register_bonus, with_options
from headway.rl.bonuses.forward import Forward
from headway.rl.episodes import Transitions
from headway.rl.spaces import Coding


@register_bonus("iac")
class IAC(Memory):
    """Learning progress in the region that a transition is in.

        r(s, a, s') = mean of the errors in the older half of the last updates - mean of those in the newer half

    Regions divide observations and actions, x = (s, a). One that holds `size` transitions is cut in two, at the mean
    of the coordinate whose cut leaves the next observations of both sides with the least squared deviations. Both
    sides begin without errors: where one side is easier, the cut itself would look like progress. Noise has no
    progress, and neither has what is known.

    There is one forward model, and not one for each region; an error is the mean over the transitions of an update
    that are in the region, since the model only learns between updates. A region's first update is worth zero.

    Args:
        size: transitions with which a region is cut, at least 2.
        window: updates over which progress is measured, at least 2.
        regions: how many there are at most.
    """

    trained = ("forward_model",)
    actions: Coding

    @with_options
    def __init__(self, *given: Any, size: int = 250, window: int = 10, regions: int = 64) -> None:
        super().__init__()
        check_least(2, size=size, window=window)
        check_least(1, regions=regions)
        self.size, self.window, self.regions = size, window, regions
        self.forward_model = Forward(*given)
        self._observations = self.forward_model._observations
        self.actions = self.forward_model.actions
        self._cuts: list[tuple[int, int, float]] = []  # region, coordinate, value; above it is a region of its own
        self._errors: list[list[float]] = [[]]
        width = self._observations.size
        self._held: list[Tensor] = [torch.zeros(0, 2 * width + self.actions.size)]

    def score(self, batch: Transitions) -> Tensor:
        """See `Memory.score`."""
        progress = torch.tensor([_progress(errors) for errors in self._errors], device=batch.obs.device)
        return progress[self._places(self._rows(batch))]

    def remember(self, batch: Transitions) -> None:
        """Note the errors of each region, then cut those that are full."""
        errors, rows = self.measures["forward_model"](batch), self._rows(batch)
        places = self._places(rows)
        for region in places.unique().tolist():
            inside = places == region
            self._errors[region] = [*self._errors[region], float(errors[inside].mean())][-self.window :]
            held = torch.cat([self._held[region].to(rows), rows[inside]])
            self._held[region] = held[-self.size :]
            if len(held) >= self.size and len(self._held) < self.regions:
                self._cut(region)

    def metrics(self) -> dict[str, float]:
        """The number of regions."""
        return {"regions": float(len(self._held))}

    def _rows(self, batch: Transitions) -> Tensor:
        """Observation, action and next observation of each transition, side by side [N, D + A + D]."""
        before, after = (self._observations.read(each).flatten(1) for each in (batch.obs, batch.next_obs))
        return torch.cat([before, self.actions.encode(batch.actions), after], dim=1)

    def _places(self, rows: Tensor) -> Tensor:
        """The region of each transition [N]."""
        places = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        for new, (region, coordinate, value) in enumerate(self._cuts, start=1):
            places[(places == region) & (rows[:, coordinate] > value)] = new
        return places

    def _cut(self, region: int) -> None:
        """Cut a region in two, if its transitions differ."""
        held = self._held[region]
        inputs, targets = held[:, : -self._observations.size], held[:, -self._observations.size :].double()
        middle = inputs.mean(0)
        above = (inputs > middle).T.double()  # [coordinates, n]
        left = _deviations(above, targets) + _deviations(1 - above, targets)
        count = above.sum(1)
        left = left.masked_fill((count == 0) | (count == len(held)), torch.inf)
        coordinate = int(left.argmin())
        if not left[coordinate].isfinite():
            return
        self._cuts.append((region, coordinate, float(middle[coordinate])))
        is_above = above[coordinate].bool()
        self._held[region] = held[~is_above]
        self._held.append(held[is_above])
        self._errors[region] = []
        self._errors.append([])

    def get_extra_state(self) -> dict[str, Any]:
        """The regions: cuts, errors and transitions."""
        return {"cuts": list(self._cuts), "errors": [list(each) for each in self._errors], "held": list(self._held)}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Put them back."""
        self._cuts = [(int(region), int(coordinate), float(value)) for region, coordinate, value in state["cuts"]]
        self._errors, self._held = [list(each) for each in state["errors"]], list(state["held"])


def _progress(errors: list[float]) -> float:
    half = len(errors) // 2  # an error in the middle is in neither
    return (sum(errors[:half]) - sum(errors[-half:])) / half if half else 0.0


def _deviations(chosen: Tensor, values: Tensor) -> Tensor:
    """The sum of squared deviations of values [n, D] from the mean of those that are chosen [ways, n]: [ways]."""
    count = chosen.sum(1).clamp(min=1)
    return chosen @ values.square().sum(1) - (chosen @ values).square().sum(1) / count
