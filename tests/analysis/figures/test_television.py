from __future__ import annotations

import pytest

from headway.analysis.figures.television import television
from tests.analysis.figures.panels import line, new_axes


def test_three_panels_show_task_reward_and_time() -> None:
    axes = new_axes(1, 3)[0]
    rewards = {"ppo": line([1, 2]), "icm": line([1, 3])}
    paid = {"icm": line([0.1, 0.6], half=0.01)}
    time = {"ppo": line([0.1, 0.1]), "icm": line([0.2, 0.3])}
    assert television(axes, rewards, paid, time) is axes
    assert [len(ax.lines) for ax in axes] == [2, 1, 2]
    assert axes[1].lines[0].get_ydata() == pytest.approx([10, 60])
    assert [ax.get_title() for ax in axes] == ["Task", "Reward for noise", "Time in noise"]
    assert all("(%)" in ax.get_ylabel() for ax in axes[1:])
