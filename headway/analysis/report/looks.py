"""How series look on the page: the colours of the printed figures, and their counterparts on a dark page."""

from __future__ import annotations

import colorsys
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headway.analysis.figures.style import METHODS, SIGNALS, Look, group_looks, looks_for

DASH_SCALE = 1.7
"""Pixels per unit of the printed dashes, for lines of two pixels."""
_DARK_RANGE = (0.48, 0.9)


def dark(colour: str) -> str:
    """The colour for a dark page: the same hue with its lightness turned round, so that nothing sinks into the page.

    What is darkest on paper becomes brightest; the order of lightness, which tells series apart without colour, stays.
    """
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    hue, light, strength = colorsys.rgb_to_hls(red, green, blue)
    light = min(max(1.0 - light, _DARK_RANGE[0]), _DARK_RANGE[1])
    return "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, light, strength))


def item(key: str, look: Look, name: str | None = None) -> dict[str, Any]:
    """A series as the page's script knows it."""
    dash = [] if isinstance(look.dash, str) else [round(DASH_SCALE * length, 1) for length in look.dash[1]]
    return {
        "key": key,
        "name": look.name if name is None else name,
        "light": look.colour,
        "dark": dark(look.colour),
        "dash": dash,
    }


def signal_items(methods: Iterable[str]) -> list[dict[str, Any]]:
    """The looks of signals of the controlled study, in their order."""
    return _items(methods, SIGNALS)


def method_items(methods: Iterable[str]) -> list[dict[str, Any]]:
    """The looks of exploration methods, in their order."""
    return _items(methods, METHODS)


def group_items(condition: str) -> list[dict[str, Any]]:
    """The looks of the four groups of classes, under the names that they have in this condition."""
    return [item(f"group-{place}", look, look.name) for place, look in enumerate(group_looks(condition))]


def source_items(names: Iterable[str]) -> list[dict[str, Any]]:
    """The looks of data sources: the colours of the signals in turn, each time round with other dashes."""
    return [item(name, look, name) for name, look in zip(names, _turns(), strict=False)]


def _turns() -> Iterator[Look]:
    known = list(SIGNALS.values())
    dashes = list(dict.fromkeys(look.dash for look in known))
    for place in itertools.count():
        look = known[(place + 2) % len(known)]  # the strongest colour first
        yield replace(look, dash=dashes[(dashes.index(look.dash) + place // len(known)) % len(dashes)])


def _items(methods: Iterable[str], known: Mapping[str, Look]) -> list[dict[str, Any]]:
    return [item(key, look) for key, look in looks_for(methods, known).items()]
