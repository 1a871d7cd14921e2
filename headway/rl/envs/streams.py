"""Random numbers for many environments at once, each from a stream of its own.

A stream is a key and a counter. Its c-th word is a hash of both, so words of any set of streams come from a few
array operations, what one environment gets does not depend on how many others there are, and the whole state is
two integers per stream. The hash is the output function of SplitMix64 (G. Steele, D. Lea and C. Flood, Fast
Splittable Pseudorandom Number Generators, 2014), in the constants of D. Stafford's variant 13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.errors import StateError

Rows = NDArray[np.intp]

_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: consecutive counters differ in many bits
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_27, _30, _31 = np.uint64(27), np.uint64(30), np.uint64(31)
_TO_UNIT = 2.0**-53
_ANGLE = np.float32(2 * np.pi * 2.0**-24)
_24_BITS = np.uint64(0xFFFFFF)


class Streams:
    """Independent streams of random numbers.

    Args:
        count: the number of streams.
        seed: decides all of them.
        purpose: streams of different purposes are independent under the same seed.
    """

    def __init__(self, count: int, seed: int, purpose: int) -> None:
        self._purpose = purpose
        self._keys = np.zeros(count, dtype=np.uint64)
        self._used = np.zeros(count, dtype=np.uint64)
        self.seed(seed, np.arange(count))

    def seed(self, seed: int, rows: Rows, index: int | None = None) -> None:
        """Start some streams anew; what stream i becomes depends on the seed and on i, or on `index` instead of i."""
        for row in rows.tolist():
            own = child(seed, row if index is None else index, self._purpose)
            self._keys[row] = own.generate_state(1, np.uint64)[0]
        self._used[rows] = 0

    def uniform(self, rows: Rows, count: int) -> NDArray[np.float64]:
        """Uniform numbers in [0, 1) from some streams [rows, count], with all 53 bits."""
        words = self._words(rows, count)
        return (words >> np.uint64(11)).astype(np.float64) * _TO_UNIT

    def normal(self, rows: Rows, count: int) -> NDArray[np.float32]:
        """Standard normal numbers from some streams [rows, count], up to 5.8 deviations.

        Box and Muller: a word gives a radius sqrt(-2 log u) and an angle, which make two numbers.
        """
        words = self._words(rows, self._pairs(count))
        radius = ((words >> np.uint64(40)) + np.uint64(1)).astype(np.float32)  # u = 0 would be infinitely far out
        radius *= np.float32(2.0**-24)
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        angle = (words & _24_BITS).astype(np.float32)
        angle *= _ANGLE
        numbers = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return numbers[:, :count]

    def last_normal(self, rows: Rows, count: int) -> NDArray[np.float32]:
        """What the last call gave, if it was `normal` with this count."""
        self._used[rows] -= np.uint64(self._pairs(count))
        return self.normal(rows, count)

    @staticmethod
    def _pairs(count: int) -> int:
        return -(-count // 2)

    def _words(self, rows: Rows, count: int) -> NDArray[np.uint64]:
        """The next words of some streams [rows, count]; the arithmetic is modulo 2**64."""
        at: NDArray[np.uint64] = np.add.outer(self._used[rows], np.arange(1, count + 1, dtype=np.uint64))
        self._used[rows] += np.uint64(count)
        at *= _STEP
        at += self._keys[rows, np.newaxis]
        at ^= at >> _30
        at *= _MIX_1
        at ^= at >> _27
        at *= _MIX_2
        at ^= at >> _31
        return at

    def state_dict(self) -> dict[str, Any]:
        """Keys and counters, as lists of integers."""
        return {"keys": self._keys.tolist(), "used": self._used.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of as many streams."""
        keys, used = (np.array(state[name], dtype=np.uint64) for name in ("keys", "used"))
        if keys.shape != self._keys.shape or used.shape != self._used.shape:
            raise StateError(f"expected the state of {len(self._keys)} random streams, got {len(keys)}")
        self._keys, self._used = keys, used


def child(seed: int, index: int, purpose: int) -> np.random.SeedSequence:
    """The seed of one environment for one purpose."""
    return np.random.SeedSequence(seed, spawn_key=(index, purpose))
