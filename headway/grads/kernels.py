"""Kernels that take the place of prepared operations on a device, where they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from os import environ
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from headway.errors import MissingExtraError, ModelError

if TYPE_CHECKING:
    from headway.grads.triton_kernels import TritonKernels

Choice = Literal["triton"]
"""The kernels that there are."""


def is_interpreted() -> bool:
    """Whether Triton was told to run its kernels in Python, on the CPU."""
    return environ.get("TRITON_INTERPRET", "0") == "1"


def load(choice: Choice | None, parameters: Mapping[str, Tensor]) -> TritonKernels | None:
    """The kernels of a name, for a model with some parameters; None for none.

    Raises:
        ModelError: no such kernels, or none for the device of the parameters.
        MissingExtraError: Triton is not installed.
    """
    if choice is None:
        return None
    if choice != "triton":
        raise ModelError(f"expected kernels 'triton' or None, got {choice!r}")
    if find_spec("triton") is None:
        raise MissingExtraError("triton", "triton")
    devices = sorted({parameter.device.type for parameter in parameters.values()})
    if devices != ["cuda"] and not is_interpreted():
        raise ModelError(
            f"expected a model on a CUDA device for kernels='triton', got one on {' and '.join(devices)}; move it "
            f"there before the meter is made, or leave kernels out"
        )
    from headway.grads.triton_kernels import TritonKernels

    return TritonKernels()
