"""A Triton kernel that reduces the per-sample gradients of a layer with positions tile by tile.

The gradient of sample s for a weight [p, d] is the sum over its positions of b_t a_t^T. A program holds one tile of
[p, d], goes through the samples, adds up b^T a over the positions of each in registers, reduces the tile to a number,
and adds it to the tile of the weight's gradient. That is the work of the weight-gradient product, done once, and
nothing of the size of a weight is written per sample.

Programs write their numbers side by side, [tiles, samples], and one sum adds them up: in a fixed order, unlike
atomic additions, so that scores are the same in every run. The same holds for the weight's gradient where a layer has
fewer tiles than the device has processors, and its samples are split over several programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headway.grads.kernels import is_interpreted
from headway.grads.persample import Reduction


@triton.jit
def outer_kernel(  # type: ignore[no-untyped-def]
    a,  # inputs [samples, positions, d]
    b,  # gradients at the outputs [samples, positions, p]
    weight,  # [p, d], or anything if not WEIGHTED
    numbers,  # results [tiles, samples]
    total,  # the sum over the samples of each split [splits, p, d], or anything if not TRAINS
    samples,
    positions,
    p,
    d,
    split,  # samples of a program
    a_sample,  # strides
    a_position,
    a_column,
    b_sample,
    b_position,
    b_column,
    KIND: tl.constexpr,
    WEIGHTED: tl.constexpr,
    TRAINS: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    POSITIONS: tl.constexpr,
):
    """Reduce one tile of the gradients of some samples."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    places = rows[:, None] * d + columns[None, :]
    inside = (rows < p)[:, None] & (columns < d)[None, :]
    if WEIGHTED:
        weights = tl.load(weight + places, mask=inside, other=0.0)
    if TRAINS:
        summed = tl.zeros((ROWS, COLUMNS), tl.float32)
    number = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    first = tl.program_id(2) * split
    for sample in range(first, tl.minimum(first + split, samples)):
        # 64 bits for where a sample begins, 32 within it: pointers of 64 bits take the registers of the tiles.
        of_a = a + tl.cast(sample, tl.int64) * a_sample
        of_b = b + tl.cast(sample, tl.int64) * b_sample
        tile = tl.zeros((ROWS, COLUMNS), tl.float32)
        for start in range(0, positions, POSITIONS):
            t = start + tl.arange(0, POSITIONS)
            left = tl.load(
                of_b + (t[None, :] * b_position + rows[:, None] * b_column),
                mask=(rows < p)[:, None] & (t < positions)[None, :],
                other=0.0,
            )
            right = tl.load(
                of_a + (t[:, None] * a_position + columns[None, :] * a_column),
                mask=(t < positions)[:, None] & (columns < d)[None, :],
                other=0.0,
            )
            right = right.to(left.dtype)  # autocast has rounded the inputs too, before the layer saw them
            if WIDEN:
                left, right = left.to(tl.float32), right.to(tl.float32)
            tile = tl.dot(left, right, tile, input_precision=PRECISION)
        if TRAINS:
            summed += tile
        if KIND == "l1":
            tile = tl.abs(tile)
        if KIND == "sq":
            tile = tile * tile
        if WEIGHTED:
            tile = tile * weights
        tl.store(numbers + number * samples + sample, tl.sum(tile))
    if TRAINS:
        tl.store(total + tl.cast(tl.program_id(2), tl.int64) * p * d + places, summed, mask=inside)


@dataclass(frozen=True)
class Tile:
    """How the kernel divides its work: rows and columns of the weight [p, d], positions that are multiplied at once.

    So many warps share a tile, and the pipeline that loads the positions has so many stages.
    """

    rows: int
    columns: int
    positions: int
    warps: int
    stages: int


TILES = {
    "half": Tile(128, 64, 64, warps=8, stages=3),
    "tf32": Tile(64, 64, 32, warps=8, stages=3),
    "ieee": Tile(64, 64, 16, warps=8, stages=2),
}
"""The largest tiles that fit the registers of sm_80 and sm_90 (`benchmarks/kernels.py`), by how they are multiplied."""

_MOST = 2**31 - 1
"""The largest offset within a sample, and within a weight."""


class TritonKernels:
    """Reductions of sums of outer products, sum_t b_t a_t^T, that never hold the gradient of a sample.

    Args:
        processors: programs that a device can run at once; None asks the device.
    """

    def __init__(self, processors: int | None = None) -> None:
        self._processors = processors
        self._interpreted = is_interpreted()

    def takes(self, a: Tensor, b: Tensor) -> bool:
        """Whether the kernel handles inputs [c, T, d] and output gradients [c, T, p] of these types, where they are.

        That is float32 and less, on a CUDA device or in the interpreter, with no numbers further apart than 2^31.
        """
        kinds = (torch.float32, torch.bfloat16, torch.float16)
        here = self._interpreted or (a.is_cuda and a.device == b.device)
        spans = (
            a.shape[1] * a.stride(1) + a.shape[2] * a.stride(2),
            b.shape[1] * b.stride(1) + b.shape[2] * b.stride(2),
        )
        small = max(*spans, a.shape[2] * b.shape[2]) <= _MOST
        return here and a.dtype in kinds and b.dtype in kinds and small

    def reduce(
        self, a: Tensor, b: Tensor, reductions: Sequence[Reduction], trains: bool
    ) -> tuple[list[Tensor], Tensor | None]:
        """One tensor [c] per reduction, and the sum over the samples, flat, if it `trains` the parameter.

        That is one launch for each reduction; the first also adds up the weight's gradient.
        """
        found = [self._launch(a, b, one, trains and not place) for place, one in enumerate(reductions)]
        return [numbers for numbers, _ in found], found[0][1]

    def _launch(self, a: Tensor, b: Tensor, reduction: Reduction, trains: bool) -> tuple[Tensor, Tensor | None]:
        (samples, positions, d), p = a.shape, b.shape[2]
        precision, tile = _how(b.dtype)
        down, across = triton.cdiv(p, tile.rows), triton.cdiv(d, tile.columns)
        splits = min(samples, max(1, self._programs(a) // (across * down)))
        split = triton.cdiv(samples, splits)
        splits = triton.cdiv(samples, split)
        numbers = torch.empty(across * down, samples, dtype=torch.float32, device=a.device)
        total = torch.empty(splits, p, d, dtype=torch.float32, device=a.device) if trains else numbers
        weight = numbers if reduction.weight is None else reduction.weight.reshape(p, d).float().contiguous()
        with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
            outer_kernel[(down, across, splits)](
                a, b, weight, numbers, total, samples, positions, p, d, split, *a.stride(), *b.stride(),
                KIND=reduction.kind, WEIGHTED=reduction.weight is not None and reduction.kind != "sq", TRAINS=trains,
                PRECISION=precision, WIDEN=self._interpreted,  # the interpreter would multiply the bits of bfloat16
                ROWS=tile.rows, COLUMNS=tile.columns, POSITIONS=tile.positions,
                num_warps=tile.warps, num_stages=tile.stages,
            )  # fmt: skip
        added = (total[0] if splits == 1 else total.sum(0)).reshape(-1) if trains else None
        return numbers.sum(0), added

    def _programs(self, like: Tensor) -> int:
        if self._processors is None:
            properties: Any = torch.cuda.get_device_properties(like.device) if like.is_cuda else None
            self._processors = properties.multi_processor_count if properties else 1
        return self._processors


def _how(dtype: torch.dtype) -> tuple[str, Tile]:
    """How numbers are multiplied, as torch's own products do, and the tile for it."""
    if dtype != torch.float32:
        return "ieee", TILES["half"]
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
    return precision, TILES[precision]
