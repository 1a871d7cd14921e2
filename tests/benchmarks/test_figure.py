from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cost import figure
from headway.errors import MissingExtraError
from tests.benchmarks.tiny import result


def test_the_figure_has_a_bar_for_each_peer_and_says_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = figure.draw(result())
    (axes,) = drawn.axes
    widths = [bar.get_x() + bar.get_width() for bars in axes.containers for bar in bars]
    assert widths == pytest.approx([1.5, 60, 1.6])
    words = [text.get_text() for text in axes.texts]
    assert words == [
        *("1.50", "Opacus: not measured", "60"),
        *("1.60", "Opacus: not supported", "BackPACK: not supported"),
    ]
    assert axes.get_xscale() == "log"


def test_equal_results_give_equal_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one = figure.save(result(), tmp_path / "one")
    two = figure.save(result(), tmp_path / "two")
    assert [path.name for path in one] == ["one.svg", "one.png"]
    for first, second in zip(one, two, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_a_step_quicker_than_the_plain_one_stays_in_sight() -> None:
    pytest.importorskip("matplotlib")
    made = result()
    case = made.cases[0]
    quick = replace(case.timings[1], ratio=replace(case.timings[1].ratio, low=0.7, median=0.8))
    drawn = figure.draw(replace(made, cases=(replace(case, timings=(case.timings[0], quick)),)))
    assert drawn.axes[0].get_xlim()[0] < 0.7


def test_without_matplotlib_the_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'headway-torch\[bench\]'"):
        figure.draw(result())
