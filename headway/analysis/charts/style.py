"""How series look: names, colours, dashes and markers.

Series that appear in one chart differ in colour, in lightness, in dashes and in markers, so that they can be told
apart in greyscale and by colour-blind readers; `tests/analysis/charts/test_style.py` measures it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from headway.study.protocols.names import GROUP_NAMES, title

INK = "#222222"
"""The colour of text, and of what is no series."""

Dash: TypeAlias = str | tuple[float, tuple[float, ...]]

SOLID: Dash = "solid"
DASHED: Dash = (0, (4.5, 1.8))
DOTTED: Dash = (0, (1.2, 1.3))
DASH_DOT: Dash = (0, (5, 1.5, 1.2, 1.5))
DASH_DOT_DOT: Dash = (0, (5, 1.4, 1.2, 1.4, 1.2, 1.4))
LONG: Dash = (0, (9, 2.2))
SHORT: Dash = (0, (2.6, 1.3))


@dataclass(frozen=True)
class Style:
    """How a series looks.

    Attributes:
        name: what a legend calls it.
        colour: as #RRGGBB.
        dash: line style, in the form that matplotlib takes.
        marker: marker, in the form that matplotlib takes; empty for a thin line that is no series of its own.
    """

    name: str
    colour: str
    dash: Dash
    marker: str


def _titled(looks: Mapping[str, tuple[str, Dash, str]]) -> dict[str, Style]:
    return {key: Style(title(key), *look) for key, look in looks.items()}


SIGNALS: Mapping[str, Style] = _titled(
    {
        "uniform": ("#000000", DOTTED, "x"),
        "curiosity": ("#D95F02", DASHED, "s"),
        "gmc": ("#0067A5", SOLID, "o"),
        "norm_last": ("#F2BE4A", DASH_DOT, "D"),
        "norm_all": ("#6E1A40", LONG, "^"),
        "delta_loss": ("#3DB590", DASH_DOT_DOT, "v"),
        "dot": ("#D081B0", DASHED, "P"),
        "cosine": ("#6B3A00", DASH_DOT, "*"),
        "projection": ("#CFC75A", LONG, "h"),
        "gmc_hard": ("#00483A", SHORT, "<"),
        "gmc_soft": ("#8ECBEF", DASH_DOT, ">"),
    }
)
"""The signals of the controlled study, in the order in which they are shown."""

MAIN = ("uniform", "curiosity", "gmc")
"""The first set of signals of the per-group figures ..."""
OTHERS = ("norm_last", "norm_all", "delta_loss")
"""... the second ..."""
VARIANTS = ("gmc", "dot", "cosine", "projection")
"""... the ablation's, which are told from GMC by where they take absolute values or norms ..."""
GATES = ("gmc", "gmc_hard", "gmc_soft")
"""... and GMC with its noise gates."""

METHODS: Mapping[str, Style] = _titled(
    {
        "ppo": ("#000000", DOTTED, "x"),
        "forward": ("#93CDF3", DASH_DOT, "D"),
        "icm": ("#F09A3E", DASHED, "s"),
        "rnd": ("#2FA37C", DASH_DOT_DOT, "v"),
        "gmc": ("#0067A5", SOLID, "o"),
        "icm+gmc": ("#8F2A00", LONG, "^"),
        "rnd+gmc": ("#003B2A", SHORT, "P"),
        "forward+gmc_hard": ("#00214A", DASHED, "<"),
        "forward+gmc_soft": ("#5FB7D9", DASH_DOT, ">"),
        "icm+gmc_hard": ("#CF7A12", SHORT, "s"),
        "icm+gmc_soft": ("#F2BC84", DASH_DOT_DOT, "D"),
    }
)
"""The exploration methods: one hue for each predictor, light when scored by error and dark when scored by GMC."""

GATED_METHODS = ("forward+gmc_hard", "forward+gmc_soft", "icm+gmc_hard", "icm+gmc_soft")
"""The methods behind a noise gate; they have figures of their own ..."""
GATED_BESIDE = ("ppo", "gmc", "icm+gmc")
"""... beside these."""

GROUPS: tuple[Style, ...] = (
    Style("A", "#7CC4EE", SOLID, "o"),
    Style("B", "#E07B00", DASHED, "s"),
    Style("C", "#A8327A", DASH_DOT, "^"),
    Style("D", "#0E2346", LONG, "D"),
)
"""The groups of classes; the darker, the more classes (and noise) they have."""

_SPARE = (("#888888", SHORT, "<"), ("#BBBBBB", DASH_DOT, ">"), ("#555555", LONG, "p"), ("#A0A0A0", DASHED, "d"))


def group_styles(condition: str | None) -> dict[str, Style]:
    """The styles of the four groups, under the names that they have in this condition: "group-0" to "group-3"."""
    names = GROUP_NAMES.get(condition or "", GROUP_NAMES["noise"])
    return {f"group-{place}": replace(GROUPS[place], name=name) for place, name in enumerate(names)}


def styles_for(keys: Iterable[str], known: Mapping[str, Style]) -> dict[str, Style]:
    """The style of every series, known ones first and in their order; those that are not known get a grey one each."""
    keys = list(dict.fromkeys(keys))
    found = {key: style for key, style in known.items() if key in keys}
    for look, key in zip(itertools.cycle(_SPARE), [key for key in keys if key not in known], strict=False):
        found[key] = Style(key, *look)
    return found


def source_styles(names: Iterable[str]) -> dict[str, Style]:
    """The styles of data sources: the colours of the signals in turn, each time round with other dashes."""
    return {name: replace(style, name=name) for name, style in zip(names, _turns(), strict=False)}


def _turns() -> Iterator[Style]:
    known = list(SIGNALS.values())
    dashes = list(dict.fromkeys(style.dash for style in known))
    for place in itertools.count():
        style = known[(place + 2) % len(known)]  # the strongest colour first
        yield replace(style, dash=dashes[(dashes.index(style.dash) + place // len(known)) % len(dashes)])


def number_text(value: float) -> str:
    """A setting as a tick label, as short as it can be: 0.999, 1e-8, 6.6e-4."""
    small = 0 < abs(value) < 0.01
    mantissa, e, power = (f"{value:.4e}" if small else f"{value:.4g}").partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if small else mantissa
    return f"{mantissa}e{int(power)}" if e else mantissa


def percent_text(share: float) -> str:
    """A share in percent, with more digits near both ends: 0.2%, 37%, 99.8%."""
    percent = 100 * share
    near_an_end = 0 < percent < 9.95 or 99 < percent < 100
    return f"{percent:.1f}%" if near_an_end else f"{percent:.0f}%"
