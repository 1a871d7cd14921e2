"""How different two colours look, also in greyscale and to colour-blind readers.

sRGB is taken to CIE L*a*b* (D65); dichromats are simulated with the matrices of Machado, Oliveira and Fernandes
(2009) for full severity, which act on linear RGB.
"""

from __future__ import annotations

import numpy as np

TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = TO_XYZ.sum(1)
SIGHTS = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(colour: str, sight: str = "normal") -> np.ndarray:
    """L*, a* and b* as someone with this sight sees the colour."""
    seen = np.clip(SIGHTS[sight] @ linear(colour), 0, 1)
    ratio = TO_XYZ @ seen / WHITE
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def lightness_difference(one: str, other: str) -> float:
    """What is left of the difference in greyscale."""
    return float(abs(lab(one)[0] - lab(other)[0]))


def distance(one: str, other: str, sight: str) -> float:
    """CIE76: 2.3 is just noticeable side by side."""
    return float(np.linalg.norm(lab(one, sight) - lab(other, sight)))


def contrast_with_white(colour: str) -> float:
    """WCAG's contrast ratio."""
    luminance = float(TO_XYZ[1] @ linear(colour))
    return 1.05 / (luminance + 0.05)
