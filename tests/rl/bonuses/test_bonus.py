"""Bonuses of a user's own package, by name."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from gymnasium import spaces

from headway.errors import MethodError
from headway.rl import Transitions, make_reward, register_bonus
from headway.rl.bonuses import BONUSES

PACKAGE = '''
import torch
from headway.rl import Memory, register_bonus

@register_bonus("first-visits")
class FirstVisits(Memory):
    """1 where an environment has not been in a state before in this episode, else 0."""

    def __init__(self, observation_space, action_space, config, generator, *, worth=1.0):
        super().__init__()
        self.worth, self.seen = worth, {}

    def score(self, batch):
        return torch.zeros(len(batch))

    def remember(self, batch):
        self.remember_and_score(batch)

    def remember_and_score(self, batch):
        scores = []
        for env, state, ended in zip(batch.envs.tolist(), batch.next_obs.tolist(), batch.ended.tolist()):
            seen = self.seen.setdefault(env, [])
            scores.append(0.0 if state in seen else self.worth)
            self.seen[env] = [] if ended else [*seen, state]
        return torch.tensor(scores)

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, state):
        self.seen = dict(state)
'''


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BONUSES, "_entries", dict(BONUSES._entries))


def test_an_episodic_memory_of_a_users_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_bonuses.py").write_text(PACKAGE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("my_bonuses")
    reward = make_reward("first-visits", spaces.Discrete(4), spaces.Discrete(2), worth=2.0)
    assert reward is not None
    states, envs = torch.tensor([1, 1, 1, 2, 1]), torch.tensor([0, 1, 0, 1, 1])
    ended = torch.tensor([False, False, False, True, False])
    batch = Transitions(states, torch.zeros(5), states, ended=ended, envs=envs)
    assert reward.rewards_and_update(batch).rewards.tolist() == [2.0, 2.0, 0.0, 2.0, 2.0]
    other = make_reward("first-visits", spaces.Discrete(4), spaces.Discrete(2), worth=2.0)
    assert other is not None
    other.load_state_dict(reward.state_dict())
    assert other.rewards_and_update(batch).rewards.tolist() == [0.0, 0.0, 0.0, 2.0, 2.0]


def test_names_are_unique_and_unknown_ones_list_what_there_is() -> None:
    with pytest.raises(MethodError, match="'counts' twice"):
        register_bonus("counts")
    with pytest.raises(MethodError, match=r"forward.*icm.*rnd.*did you mean counts\?"):
        make_reward("count", spaces.Discrete(4), spaces.Discrete(2))
