from __future__ import annotations

import pytest

from headway.analysis.figures.style import GROUPS, METHODS, SIGNALS
from headway.analysis.report.looks import dark, group_items, item, method_items, signal_items

DARK_CARD = "#1c1f25"


def luminance(colour: str) -> float:
    """Relative luminance of a colour, after WCAG."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("look", [*SIGNALS.values(), *METHODS.values(), *GROUPS], ids=lambda look: look.name)
def test_every_series_stands_out_on_a_dark_page(look: object) -> None:
    assert contrast(dark(look.colour), DARK_CARD) >= 3


def test_black_becomes_nearly_white() -> None:
    assert dark("#000000") == "#e6e6e6"


@pytest.mark.parametrize("table", [dict(list(SIGNALS.items())[:6]), METHODS], ids=["signals", "methods"])
def test_series_of_one_figure_stay_different_in_the_dark(table: dict) -> None:
    colours = [dark(look.colour) for look in table.values()]
    assert len(set(colours)) == len(colours)


def test_a_series_as_the_script_knows_it() -> None:
    assert item("gmc", SIGNALS["gmc"]) == {
        "key": "gmc",
        "name": "GMC",
        "light": "#0067A5",
        "dark": dark("#0067A5"),
        "dash": [],
    }
    assert all(length > 0 for length in item("x", SIGNALS["uniform"], "other")["dash"])


def test_series_come_in_their_order_and_unknown_ones_last() -> None:
    assert [each["key"] for each in signal_items(["magic", "gmc", "uniform"])] == ["uniform", "gmc", "magic"]
    assert [each["key"] for each in method_items(["icm+gmc", "ppo"])] == ["ppo", "icm+gmc"]


def test_groups_have_the_names_of_their_condition() -> None:
    assert [each["name"] for each in group_items("noise")] == ["A", "B", "C", "D"]
    assert [each["name"] for each in group_items("curriculum")] == ["G0", "G1", "G2", "G3"]
