"""How figures look: names, colours, dashes and markers, sizes and fonts.

Series that appear in one figure differ in colour, in lightness, in dashes and in markers, so that they can be told
apart in greyscale and by colour-blind readers; `tests/analysis/figures/test_style.py` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headway.errors import MissingExtraError
from headway.study.protocols.names import GROUP_NAMES, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN_WIDTH = 3.3
"""Width in inches of a figure in one of two columns."""
TEXT_WIDTH = 6.8
"""Width in inches of a figure across the page."""
SMALLEST_FONT = 7.0
"""No text in a figure is smaller than this, in points."""

INK, PALE, GRID = "#222222", "#666666", "#E4E4E4"
"""Colours of text, of remarks, and of grid lines."""

Dash: TypeAlias = str | tuple[float, tuple[float, ...]]

SOLID: Dash = "solid"
DASHED: Dash = (0, (4.5, 1.8))
DOTTED: Dash = (0, (1.2, 1.3))
DASH_DOT: Dash = (0, (5, 1.5, 1.2, 1.5))
DASH_DOT_DOT: Dash = (0, (5, 1.4, 1.2, 1.4, 1.2, 1.4))
LONG: Dash = (0, (9, 2.2))
SHORT: Dash = (0, (2.6, 1.3))


@dataclass(frozen=True)
class Look:
    """How a series is shown.

    Attributes:
        name: what a legend calls it.
        colour: as #RRGGBB.
        dash: line style, in the form that matplotlib takes.
        marker: marker, in the form that matplotlib takes.
    """

    name: str
    colour: str
    dash: Dash
    marker: str


SIGNALS: Mapping[str, Look] = {
    "uniform": Look(title("uniform"), "#000000", DOTTED, "x"),
    "curiosity": Look(title("curiosity"), "#D95F02", DASHED, "s"),
    "gmc": Look(title("gmc"), "#0067A5", SOLID, "o"),
    "norm_last": Look(title("norm_last"), "#F2BE4A", DASH_DOT, "D"),
    "norm_all": Look(title("norm_all"), "#6E1A40", LONG, "^"),
    "delta_loss": Look(title("delta_loss"), "#3DB590", DASH_DOT_DOT, "v"),
    "dot": Look(title("dot"), "#D081B0", DASHED, "P"),
    "cosine": Look(title("cosine"), "#6B3A00", DASH_DOT, "*"),
    "projection": Look(title("projection"), "#CFC75A", LONG, "h"),
    "gmc_hard": Look(title("gmc_hard"), "#00483A", SHORT, "<"),
    "gmc_soft": Look(title("gmc_soft"), "#8ECBEF", DASH_DOT, ">"),
}
"""The signals of the controlled study, in the order in which they are shown."""

MAIN = ("uniform", "curiosity", "gmc")
"""The first set of signals of the per-group figures ..."""
OTHERS = ("norm_last", "norm_all", "delta_loss")
"""... the second ..."""
VARIANTS = ("gmc", "dot", "cosine", "projection")
"""... the ablation's, which are told from GMC by where they take absolute values or norms ..."""
GATES = ("gmc", "gmc_hard", "gmc_soft")
"""... and GMC with its noise gates."""

METHODS: Mapping[str, Look] = {
    "ppo": Look(title("ppo"), "#000000", DOTTED, "x"),
    "forward": Look(title("forward"), "#93CDF3", DASH_DOT, "D"),
    "icm": Look(title("icm"), "#F09A3E", DASHED, "s"),
    "rnd": Look(title("rnd"), "#2FA37C", DASH_DOT_DOT, "v"),
    "gmc": Look(title("gmc"), "#0067A5", SOLID, "o"),
    "icm+gmc": Look(title("icm+gmc"), "#8F2A00", LONG, "^"),
    "rnd+gmc": Look(title("rnd+gmc"), "#003B2A", SHORT, "P"),
    "forward+gmc_hard": Look(title("forward+gmc_hard"), "#00214A", DASHED, "<"),
    "forward+gmc_soft": Look(title("forward+gmc_soft"), "#5FB7D9", DASH_DOT, ">"),
    "icm+gmc_hard": Look(title("icm+gmc_hard"), "#CF7A12", SHORT, "s"),
    "icm+gmc_soft": Look(title("icm+gmc_soft"), "#F2BC84", DASH_DOT_DOT, "D"),
}
"""The exploration methods: one hue for each predictor, light when scored by error and dark when scored by GMC."""

GATED_METHODS = ("forward+gmc_hard", "forward+gmc_soft", "icm+gmc_hard", "icm+gmc_soft")
"""The methods behind a noise gate; they have figures of their own ..."""
GATED_BESIDE = ("ppo", "gmc", "icm+gmc")
"""... beside these."""

GROUPS: tuple[Look, ...] = (
    Look("A", "#7CC4EE", SOLID, "o"),
    Look("B", "#E07B00", DASHED, "s"),
    Look("C", "#A8327A", DASH_DOT, "^"),
    Look("D", "#0E2346", LONG, "D"),
)
"""The groups of classes; the darker, the more classes (and noise) they have."""

_SPARE = (("#888888", SHORT, "<"), ("#BBBBBB", DASH_DOT, ">"), ("#555555", LONG, "p"), ("#A0A0A0", DASHED, "d"))

RC: Mapping[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelpad": 3.0,
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlepad": 4.0,
    "axes.titlesize": 8.5,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.dpi": 100.0,
    "figure.titlesize": 9.0,
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so the same on every machine
    "font.size": 8.0,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.6,
    "legend.borderaxespad": 0.2,
    "legend.columnspacing": 1.4,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "legend.handletextpad": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.6,
    "mathtext.fontset": "dejavusans",
    "patch.linewidth": 0.6,
    "pdf.fonttype": 42,  # TrueType: text can be searched and edited, and publishers accept it
    "ps.fonttype": 42,
    "svg.fonttype": "path",  # looks the same where the font is missing
    "svg.hashsalt": "headway",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 7.0,
    "xtick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.color": INK,
    "ytick.labelsize": 7.0,
    "ytick.major.size": 2.5,
    "ytick.major.width": 0.6,
}
"""Matplotlib's settings in the house style."""


def require() -> None:
    """Make sure that figures can be drawn.

    Raises:
        MissingExtraError: matplotlib is not installed; the message has the command that installs it.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report") from error


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the house style, whatever the user's own settings are. Saving belongs inside too."""
    require()
    from matplotlib import style

    with style.context(["default", dict(RC)]):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that lays itself out and belongs to no global state.

    Args:
        width: in inches.
        height: in inches.
    """
    require()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def group_looks(condition: str | None) -> tuple[Look, ...]:
    """The looks of the four groups, under the names that they have in this condition."""
    names = GROUP_NAMES.get(condition or "", GROUP_NAMES["noise"])
    return tuple(replace(look, name=name) for look, name in zip(GROUPS, names, strict=True))


def looks_for(keys: Iterable[str], known: Mapping[str, Look]) -> dict[str, Look]:
    """The look of every series, known ones first and in their order; those that are not known get a grey one each."""
    keys = list(dict.fromkeys(keys))
    unknown = [key for key in keys if key not in known]
    looks = {key: look for key, look in known.items() if key in keys}
    for place, key in enumerate(unknown):
        colour, dash, marker = _SPARE[place % len(_SPARE)]
        looks[key] = Look(plain(key), colour, dash, marker)
    return looks


def number_text(value: float) -> str:
    """A setting as a tick label, as short as it can be: 0.999, 1e-8, 6.6e-4."""
    small = 0 < abs(value) < 0.01
    mantissa, e, power = (f"{value:.4e}" if small else f"{value:.4g}").partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if small else mantissa
    return f"{mantissa}e{int(power)}" if e else mantissa


def plain(name: str) -> str:
    """A name that a user has chosen, so that matplotlib shows it as it is: no formula, and not left out of legends."""
    name = name.replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str], title: str = "") -> None:
    """A legend under all panels, in as few rows as the width allows, to be read row by row; with a title above it."""
    inches = sum(0.055 * len(label) + 0.6 for label in labels)  # letters of 7.5 points, and the handle
    rows = max(1, math.ceil(inches / figure.get_figwidth()))
    across = math.ceil(len(labels) / rows)
    order = [place for column in range(across) for place in range(column, len(labels), across)]
    figure.legend(
        [handles[place] for place in order],
        [labels[place] for place in order],
        loc="outside lower center",
        ncols=across,
        title=title or None,
        title_fontsize=8,
    )
