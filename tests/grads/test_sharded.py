"""Models that fully_shard has sharded over 2 and, in the long form, 4 processes give the scores and moments of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from headway import GMC, Meter, NormAll
from headway.errors import ModelError, SignalError
from headway.grads.registry import kind_of, rule_for
from tests.ranks import run_ranks

pytest.importorskip("transformers")
sharded = pytest.importorskip("tests.grads.sharded")
errors = pytest.importorskip("tests.grads.sharded_errors")

Ranks = Callable[[int], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """What each of 2 or 4 processes has found in all scenarios; they are started once for all tests."""
    folder = tmp_path_factory.mktemp("sharded")
    done: dict[int, list[dict[str, Any]]] = {}

    def run(world: int) -> list[dict[str, Any]]:
        for size in (2, 4):
            if size <= world and size not in done:
                run_ranks(errors.work, size, str(folder), world=size)
                done[size] = [torch.load(folder / f"{size} {rank}.pt", weights_only=True) for rank in range(size)]
        return done[world]

    run.folder = folder  # type: ignore[attr-defined]
    return run


def assert_same(got: dict[str, Any], want: dict[str, Any], tolerance: float) -> None:
    """Every tensor of one process is that of many, relative to its largest number."""
    assert got.keys() == want.keys()
    assert want
    for name, tensor in want.items():
        if isinstance(tensor, torch.Tensor):
            # the first batch has no moments yet, and after one update a soft gate takes them for noise
            assert tensor.abs().max() > 0 or name.startswith(("0", "1 gmc.soft")), name
            assert float((got[name] - tensor).abs().max()) <= tolerance * float(tensor.abs().max()), name
        else:
            assert got[name] == tensor, name


LONG = pytest.mark.soak
IN_SINGLE = {"llama_single": 1e-6, "gpt2_single": 1e-6}
APART = (
    *("errors", "disagreements", "own_signals", "undone", "other_states", "number_refused"),
    *("memory", "gradients", "low_precision", "saved", "resumed"),
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch.compile looks at it
@pytest.mark.parametrize(
    ("world", "scenario"),
    [
        pytest.param(world, one, marks=LONG if world == 4 else ())
        for world, scenarios in errors.SCENARIOS.items()
        for one in scenarios
        if one.__name__ not in APART
    ],
)
def test_ranks_give_the_scores_moments_and_parameters_of_one_process(
    world: int, scenario: Callable[..., dict[str, Any]], ranks: Ranks
) -> None:
    want, name = scenario(sharded.Place(0, 1, "")), scenario.__name__
    for found in ranks(world):
        assert_same(found[name], want, IN_SINGLE.get(name, 1e-9))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # what the test wants in one process
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=LONG), 1])
def test_a_checkpoint_of_two_ranks_continues_in_any_number_of_processes(world: int, ranks: Ranks) -> None:
    ranks(2)
    alone = sharded.Place(0, 1, str(ranks.folder))  # type: ignore[attr-defined]
    model = sharded.llama()
    meter = Meter(model, sharded.few())
    steps = [sharded.step(alone, model, meter, number) for number in range(4)]
    want = {f"{n} {k}": v for n in (2, 3) for k, v in steps[n].items()} | sharded.moments_of(meter)
    everyone = [{"resumed": sharded.resumed(alone)}] if world == 1 else ranks(world)
    for found in everyone:
        assert_same(found["resumed"], want, 1e-9)


@pytest.mark.slow
def test_gradients_are_those_of_a_sharded_model_without_a_meter(ranks: Ranks) -> None:
    for found in ranks(2):
        assert all(found["gradients"].values())
        assert len(found["gradients"]) > 90


@pytest.mark.slow
def test_parameters_gathered_in_bfloat16_are_scored_up_to_its_rounding(ranks: Ranks, tmp_path: Path) -> None:
    want = sharded.low_precision(sharded.Place(0, 1, str(tmp_path)))
    for found in ranks(2):
        assert_same(found["low_precision"], want, 1e-2)


@pytest.mark.slow
def test_an_error_of_one_rank_is_an_error_of_all_and_training_goes_on(ranks: Ranks) -> None:
    first, *others = (found["errors"] for found in ranks(2))
    elsewhere = "ModelError: expected no error on any rank, got one on rank 0; see the output there"
    assert first["shape"].startswith("LossError: expected one loss per sample")
    assert first["count"].startswith("LayoutError: lm_head: expected")
    assert "add up to autograd's under random weights" in first["mixed"]
    want = errors.llama_after_errors(sharded.Place(0, 1, ""))
    for found in (first, *others):
        assert_same({name: found[name] for name in want}, want, 1e-9)
    for found in others:
        assert (found["shape"], found["count"], found["mixed"]) == (elsewhere, elsewhere, first["mixed"])


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_after_an_error_nothing_of_its_micro_batch_is_left(world: int, ranks: Ranks) -> None:
    for found in ranks(world):
        assert [name for name, same in found["undone"].items() if not same] == []
        assert len(found["undone"]) == 2 * 63


@pytest.mark.slow
def test_ranks_that_call_other_layers_are_told_before_anything_is_exchanged(ranks: Ranks) -> None:
    got = {
        "swapped": ("right.weight", "left.weight"),
        "fewer": ("head.weight", "right.weight"),
        "more": ("left.weight (several calls)", "left.weight"),
        "unused": ("left.weight in the losses", "right.weight in the losses"),
    }
    want = errors.disagreements(sharded.Place(0, 1, ""))
    for rank, found in enumerate(found["disagreements"] for found in ranks(2)):
        for way, here in got.items():
            for call in ("backward", "score"):
                assert found[f"{way} {call}"].startswith(
                    f"ModelError: expected all ranks to call the same layers in the same order, got {here[rank]} on "
                    f"rank {rank}, and something else on rank {1 - rank}; call every layer on all ranks"
                )
        assert_same({name: found[name] for name in want}, want, 1e-9)


@pytest.mark.slow
def test_an_error_in_a_signal_of_ones_own_is_an_error_of_all_ranks(ranks: Ranks) -> None:
    first, second = (found["own_signals"] for found in ranks(2))
    want = errors.own_signals(sharded.Place(0, 1, ""))
    for where in ("init", "reductions", "before", "scores", "swallowed", "observe"):
        assert first[where].startswith("ModelError: expected no error on any rank, got one on rank 1;")
        assert second[where] == f"ZeroDivisionError: {where}"
    for found in (first, second):
        assert found["shape"].startswith("ModelError: expected the same sums and reductions on all ranks")
        assert_same({name: found[name] for name in want}, want, 1e-9)


@pytest.mark.slow
def test_states_of_another_kind_are_refused_with_the_way_out_which_works(ranks: Ranks) -> None:
    first, second = (found["other_states"] for found in ranks(2))
    for found in (first, second):
        for key in ("moments", "memory"):
            assert found[key].startswith(
                "StateError: model.embed_tokens.weight: expected a whole tensor, got a DTensor"
            )
            assert "torch.distributed.checkpoint (no_dist=True for one process)" in found[key]
        assert "expected a whole tensor, or a DTensor with placements" in found["mesh"]
        assert (found["same"], found["round"], found["memory round"]) == (True, True, True)
    assert first["rank"].endswith("got one on rank 1; see the output there")
    assert second["rank"] == "StateError: expected a number of batches from 0, got -1"


@LONG
def test_a_number_of_ranks_to_reshard_over_is_refused(ranks: Ranks) -> None:
    for found in ranks(4):
        assert "expected reshard_after_forward to be True or False" in found["number_refused"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, pytest.param(4, marks=LONG)])
def test_memory_falls_with_the_number_of_ranks(world: int, ranks: Ranks) -> None:
    """Moments and ratios are three times this rank's parameters; no more than one layer's weights are ever whole."""
    whole = sharded.memory(sharded.Place(0, 1, ""))
    most = max(p.numel() * p.itemsize for p in sharded.llama().parameters())
    padding = 3 * 22 * 128  # tensors begin at multiples of 16 numbers
    uneven = 1 + 0.2  # the first rank has more rows of what cannot be shared evenly
    for found in ranks(world):
        assert found["memory"]["own"] <= whole["own"] / world * uneven + padding
        assert 0 < found["memory"]["largest"] <= most


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded_mlp() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    fully_shard(model[0])
    return fully_shard(model)


@pytest.mark.usefixtures("alone")
def test_one_process_can_be_sharded_too() -> None:
    torch.manual_seed(0)
    model = sharded_mlp()
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    meters = [Meter(one, GMC(beta=0.5), check="always") for one in (model, plain)]
    for _ in range(3):
        x = torch.randn(5, 4)
        scores, want = (m.backward(m.model(x).square().sum(1)) for m in meters)
        torch.testing.assert_close(scores, want)
    assert repr(meters[0]).startswith("Meter(FSDPSequential")
    assert kind_of(model[0]) is nn.Linear
    assert rule_for(model[0]) is rule_for(plain[0])


@pytest.mark.usefixtures("alone")
def test_a_meter_that_came_before_fully_shard_says_so() -> None:
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    meter = Meter(model, GMC())
    fully_shard(model)
    with pytest.raises(ModelError, match=r"got fully_shard after it; call detach\(\), and make the meter after"):
        meter.backward(model(torch.randn(3, 4)).square().sum(1))


def partly(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    fully_shard(model[0])
    return model


def split(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    weight = distribute_tensor(model[0].weight.detach(), init_device_mesh("cpu", (1,)), [Shard(0)])
    model[0].weight = nn.Parameter(weight)
    return model


def split_and_sharded(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("shard", "split"))
    parallelize_module(model, mesh["split"], {"0": ColwiseParallel()})
    return fully_shard(model, mesh=mesh["shard"])


def offloaded(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    return fully_shard(model, offload_policy=CPUOffloadPolicy(pin_memory=False))


def on_meta(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(model.to("meta"))


class FullyShardedDataParallel(nn.Module):
    """Has the name of torch's, which does not run on the CPU alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (
            FullyShardedDataParallel,
            r"got FullyShardedDataParallel; use torch\.distributed\.fsdp\.fully_shard \(FSDP2\)",
        ),
        (partly, r"1\.weight: expected every trained parameter to be sharded, got a whole one"),
        (split, r"0\.weight: expected a parameter that is whole, or that fully_shard alone has sharded, got another"),
        (split_and_sharded, r"0\.weight: expected a parameter that is whole, or that fully_shard alone has sharded"),
        (offloaded, r"0\.weight: expected shards on the device, got CPUOffloadPolicy"),
        (on_meta, r"0\.weight: expected an initialised parameter, got one on the meta device"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_name(wrap: Callable[[nn.Module], nn.Module], message: str) -> None:
    model = wrap(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    with pytest.raises(ModelError, match=message):
        Meter(model, GMC())


@pytest.mark.usefixtures("alone")
def test_frozen_parts_need_not_be_sharded() -> None:
    model = partly(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    model[1].requires_grad_(False)
    meter = Meter(model, NormAll(), check="always")
    assert (meter.backward(model(torch.randn(3, 4)).square().sum(1)) > 0).all()


@pytest.mark.usefixtures("alone")
def test_verify_is_refused_with_the_way_out() -> None:
    with pytest.raises(ModelError, match="expected whole parameters with verify=True, got shards; pass check='always'"):
        Meter(sharded_mlp(), GMC(), verify=True)


@pytest.mark.usefixtures("alone")
def test_weights_of_another_shape_are_refused_by_name() -> None:
    sharding = Meter(sharded_mlp(), GMC())._sharding
    assert sharding is not None
    with pytest.raises(
        SignalError, match=r"0\.weight: expected the shard of a weight, shape \[4, 4\], got shape \[3\]"
    ):
        sharding.joined("0.weight", torch.zeros(3))
