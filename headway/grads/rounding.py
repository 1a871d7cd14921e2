"""How far apart two ways to compute one gradient may be by rounding alone.

Some gradients are zero whatever the data: that of an attention's key bias, of a bias in front of an instance norm, of
anything that softmax or a normalisation takes away again. What is computed for them is rounding, left over by terms
that cancel, and has no size of its own to be compared with. Those terms are as large as the model's other gradients.
"""

from __future__ import annotations

import torch

_NOISE = {torch.float64: 1e-13, torch.float32: 5e-5}
"""500 times the precision. A sum over the positions of an image of 512 x 512 was seen to leave 45 times."""

_LOW_NOISE = 0.016
"""Twice the precision of bfloat16; its sums are made in float32, so that less is left."""


def noise(dtype: torch.dtype, low_precision: bool) -> float:
    """The norm that rounding may leave of a gradient that is zero, as a share of the norm of the whole gradient.

    Args:
        dtype: the dtype of the numbers that are compared.
        low_precision: whether something less than float32 took part in computing them.
    """
    return _LOW_NOISE if low_precision else _NOISE.get(dtype, _LOW_NOISE)
