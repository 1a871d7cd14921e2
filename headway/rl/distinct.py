"""Doing work once for observations that occur many times.

In a grid world the same few hundred observations make up thousands of transitions, and every observation is the
next one of the transition before. A network that is run on the distinct ones gives the same outputs and, since the
gradients of repeated rows add up, the same gradients.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def distinct_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of a tensor, and where each row is among them.

    Rows are distinct if any of their bits are.

    Args:
        values: [N, ...].

    Returns:
        the distinct rows [U, ...], in no particular but always the same order, and indices [N], such that
        `rows[indices]` equals `values`.
    """
    if values.device.type != "cpu":
        rows, indices = torch.unique(values, dim=0, return_inverse=True)
        return rows, indices
    flat = np.ascontiguousarray(values.detach().reshape(len(values), -1).numpy())
    if not flat.size:
        return values, torch.arange(len(values))
    keys = flat.view(np.dtype((np.void, flat.shape[1] * flat.itemsize))).ravel()  # one opaque key per row
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return values[torch.from_numpy(first)], torch.from_numpy(inverse.reshape(-1))
