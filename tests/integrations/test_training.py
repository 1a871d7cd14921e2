"""A loss that others run backward on, against the meter's own backward."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from headway import GMC, Meter
from headway.errors import LossError
from headway.integrations.training import metered_loss
from tests.models import batch, losses, mlp
from tests.ranks import join_pair, leaving_together, run_ranks

STEPS = 4


def gradients(model) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("factor", [1.0, 0.25, 1024.0])
def test_gradients_carry_what_the_loop_does_to_the_loss_and_scores_do_not(factor: float) -> None:
    one, two = mlp(torch.float64), mlp(torch.float64)
    direct, bridged = Meter(one, GMC(beta=0.9)), Meter(two, GMC(beta=0.9))
    for step in range(STEPS):
        x, y = batch(dtype=torch.float64, seed=step)
        one.zero_grad()
        two.zero_grad()
        expected = direct.backward(losses(one, x, y))
        found = []
        loss = metered_loss(bridged, losses(two, x, y), found.append)
        assert loss.item() == pytest.approx(losses(two, x, y).mean().item())
        assert not found  # nothing before backward
        (loss * factor).backward()
        torch.testing.assert_close(found[0], expected, rtol=1e-12, atol=0)
        for have, want in zip(gradients(two), gradients(one), strict=True):
            torch.testing.assert_close(have, want * factor, rtol=1e-12, atol=1e-15)
    for name, m in direct.moments().m.items():
        torch.testing.assert_close(bridged.moments().m[name], m, rtol=1e-9, atol=1e-15)


def test_accumulated_micro_batches_add_up() -> None:
    one, two = mlp(torch.float64), mlp(torch.float64)
    meter = Meter(two, GMC(beta=0.9))
    x, y = batch(12, dtype=torch.float64)
    losses(one, x, y).mean().backward()
    for part in range(3):
        (metered_loss(meter, losses(two, x[part::3], y[part::3])) / 3).backward()
    for have, want in zip(gradients(two), gradients(one), strict=True):
        torch.testing.assert_close(have, want)
    assert meter.moments().updates == 3


def test_a_grad_scaler_works_as_usual() -> None:
    one, two = mlp(), mlp()
    meter = Meter(two, GMC(beta=0.9))
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    x, y = batch()
    losses(one, x, y).mean().backward()
    optimizer = torch.optim.SGD(two.parameters(), 0.1)
    scaler.scale(metered_loss(meter, losses(two, x, y))).backward()
    scaler.unscale_(optimizer)
    for have, want in zip(gradients(two), gradients(one), strict=True):
        torch.testing.assert_close(have, want)


def test_batches_that_are_left_out_say_so_and_errors_arrive() -> None:
    model = mlp()
    meter = Meter(model, GMC(), every=2)
    found = []
    for step in range(4):
        metered_loss(meter, losses(model, *batch(seed=step)), found.append).backward()
    assert [scores is None for scores in found] == [False, True, False, True]
    with pytest.raises(LossError, match="one loss per sample"):
        metered_loss(meter, losses(model, *batch()).view(2, 5)).backward()


def test_without_a_listener_and_verified() -> None:
    model = mlp(torch.float64)
    meter = Meter(model, GMC(), verify=True)
    for step in range(2):
        metered_loss(meter, losses(model, *batch(dtype=torch.float64, seed=step))).backward()
    assert meter.verification.largest_difference < 1e-9


def _train(model, part: slice, bridge: bool) -> list[torch.Tensor]:
    meter = Meter(model, GMC(beta=0.9))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scores = []
    for step in range(STEPS):
        x, y = (tensor[part] for tensor in batch(12, dtype=torch.float64, seed=step))
        own = losses(model, x, y)
        if bridge:
            metered_loss(meter, own, scores.append).backward()
        else:
            scores.append(meter.backward(own))
        optimizer.step()
        optimizer.zero_grad()
    return scores


@leaving_together
def _work(rank: int, folder: str, options: dict) -> None:
    join_pair(rank, folder)
    model = DistributedDataParallel(mlp(torch.float64), **options)
    scores = _train(model, slice(rank * 6, rank * 6 + 6), bridge=True)
    torch.save((scores, model.module.state_dict()), Path(folder) / f"rank{rank}.pt")


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}], ids=["plain", "find-unused"])
def test_two_ranks_equal_one_process(tmp_path: Path, options: dict) -> None:
    run_ranks(_work, str(tmp_path), options)
    single = mlp(torch.float64)
    expected = _train(single, slice(0, 12), bridge=False)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    for step, want in enumerate(expected):
        joined = torch.cat([scores[step] for scores, _ in ranks])
        torch.testing.assert_close(joined, want, rtol=1e-9, atol=1e-12)
    for _, state in ranks:
        for name, tensor in single.state_dict().items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-9, atol=1e-12)
