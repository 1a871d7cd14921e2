"""What the ranks of a sharded model do together: they add up numbers, compare what they do, and share their errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import torch
import torch.distributed as dist
from torch import Tensor

from headway.errors import ModelError

_SUM, _END, _ERROR = range(3)
"""What a rank does next inside a block of `Agreement.together`: take part in a sum, leave the block, raise."""


class Agreement:
    """The ranks of a device mesh. Every method that communicates has to run on all of them.

    Args:
        mesh: the device mesh.
        device: where tensors are added up.

    Attributes:
        rank: which process this is.
        count: how many there are.
    """

    def __init__(self, mesh: Any, device: torch.device) -> None:
        self._mesh, self._device = mesh, device
        self._numbers: list[int] = mesh.mesh.flatten().tolist()
        self.rank, self.count = dist.get_rank(), len(self._numbers)
        self._done = 0  # a checksum of what this rank has done since the ranks last met
        self._inside = False
        self._parted: ModelError | None = None

    def sum(self, number: Tensor, dims: Sequence[int] | None = None) -> Tensor:
        """The sum of a tensor over some dimensions of the mesh, or over all ranks.

        Raises:
            ModelError: another rank has met an error in the same block of `together`.
        """
        if self._inside:
            if self._parted is None:
                self.note(f"sum {tuple(number.shape)} {number.dtype} {dims}")
                self._parted = self._meet(_SUM)
            if self._parted is not None:
                raise self._parted
        return self._sum(number, dims)

    def _sum(self, number: Tensor, dims: Sequence[int] | None = None) -> Tensor:
        total = number.detach().to(self._device, copy=True)
        for dim in range(self._mesh.ndim) if dims is None else dims:
            dist.all_reduce(total, group=self._mesh.get_group(dim))
        return total

    def _exchange(self, *numbers: int) -> list[list[int]]:
        """A row of whole numbers from each rank, in the order of the mesh; as many from each."""
        table = torch.zeros(self.count, len(numbers), dtype=torch.int64)
        table[self._numbers.index(self.rank)] = torch.tensor(numbers)
        return self._sum(table).tolist()

    def note(self, what: str) -> None:
        """Take note of something that all ranks have to do; they compare it when they meet next."""
        self._done = crc32(what.encode(), self._done)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let an error inside the block be an error of all ranks, so that none waits for one that has given up.

        Sums inside the block may come before or after the error: each begins with the ranks saying that they take part.

        Raises:
            ModelError: another rank has met an error, and this one has not; or they have not done the same.
        """
        error: Exception | None = None
        self._inside, self._parted = True, None
        try:
            yield
        except Exception as met:
            error = met
        finally:
            self._inside = False
        if self._parted is not None:  # all ranks have left the block, whatever was made of it inside
            raise self._parted
        elsewhere = self._meet(_END if error is None else _ERROR)
        if error is not None:
            raise error
        if elsewhere is not None:
            raise elsewhere

    def _meet(self, state: int) -> ModelError | None:
        """Compare with the other ranks what this one does next, and what it has done; the error, if there is one."""
        rows = self._exchange(state, self._done)
        self._done = 0
        failed = [number for number, row in zip(self._numbers, rows, strict=True) if row[0] == _ERROR]
        if failed:
            named = f"rank {failed[0]}" if len(failed) == 1 else f"ranks {', '.join(map(str, failed))}"
            return ModelError(f"expected no error on any rank, got one on {named}; see the output there")
        if any(row != rows[0] for row in rows):
            return ModelError(
                "expected the same sums and reductions on all ranks, got others on some; call the same layers on all "
                "ranks, and let signals ask for the same sums on all"
            )
        return None

    def agree(self, samples: int, flag: bool, order: Sequence[str]) -> tuple[int, bool]:
        """Compare what a batch will do before it does it.

        Args:
            samples: the samples of this rank.
            flag: anything that holds for all ranks if it holds for one.
            order: what all ranks have to do alike, in this order.

        Returns:
            The samples of all ranks, and whether the flag is set on any.

        Raises:
            ModelError: ranks will do different things, or in another order.
        """
        rows = self._exchange(samples, flag, len(order), crc32("\n".join(order).encode()))
        if any(row[2:] != rows[0][2:] for row in rows):
            raise self._difference(order, max(row[2] for row in rows))
        return sum(row[0] for row in rows), any(row[1] for row in rows)

    def _difference(self, order: Sequence[str], longest: int) -> ModelError:
        """An error that names the first place at which the ranks differ."""
        rows = self._exchange(*(crc32(one.encode()) for one in order), *[-1] * (longest - len(order)))
        at = next(place for place in range(longest) if len({row[place] for row in rows}) > 1)
        own = rows[self._numbers.index(self.rank)][at]
        here = order[at] if at < len(order) else "nothing more"
        others = [n for n, row in zip(self._numbers, rows, strict=True) if row[at] != own]
        return ModelError(
            f"expected all ranks to call the same layers in the same order, got {here} on rank {self.rank}, and "
            f"something else on rank {others[0]}; call every layer on all ranks, also where one has nothing for it: "
            f"multiply its output by 0 there"
        )
