from __future__ import annotations

import pytest
import torch

from headway.rl.distinct import distinct_rows


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.float64, torch.bool])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2, 3)])
def test_rows_come_back_as_they_were(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    few = torch.randint(0, 3, (7, *shape), generator=generator)
    values = few[torch.randint(0, 7, (50,), generator=generator)].to(dtype)
    rows, indices = distinct_rows(values)
    assert torch.equal(rows[indices], values)
    assert rows.dtype == dtype
    assert len(rows) == len({tuple(row.flatten().tolist()) for row in values})


def test_a_view_whose_rows_are_not_contiguous() -> None:
    values = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    rows, indices = distinct_rows(values)
    assert torch.equal(rows[indices], values)
    assert len(rows) == 4


def test_gradients_of_repeated_rows_add_up() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    layer = torch.nn.Linear(2, 2)
    layer(values).square().sum().backward()
    expected = layer.weight.grad
    layer.weight.grad = None
    rows, indices = distinct_rows(values)
    assert len(rows) == 2
    layer(rows).index_select(0, indices).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, expected)
