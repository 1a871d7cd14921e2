"""What is trained on sharded models in `test_sharded.py`: the same functions in one process and in several.

A scenario gets a `Place`, which shards the model, shares the batch out, and puts together what the ranks have. So its
results have to be the same wherever it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint import load as dcp_load
from torch.distributed.checkpoint import save as dcp_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

from headway import GMC, Alignment, Cosine, DotProduct, Meter, NormAll, NormLast, Projection, Reference
from headway.grads.segments import segments
from headway.integrations.training import metered_loss
from tests.models import Experts

VOCABULARY, LENGTH, SAMPLES, STEPS = 19, 6, 8, 3  # 19 rows cannot be shared evenly

Results = dict[str, Any]


class Place:
    """One process among some, or the only one.

    Attributes:
        rank: which.
        world: how many.
        folder: where all can write.
    """

    def __init__(self, rank: int, world: int, folder: str) -> None:
        self.rank, self.world, self.folder = rank, world, Path(folder)

    @property
    def part(self) -> slice:
        """The samples of this process."""
        each = SAMPLES // self.world
        return slice(self.rank * each, (self.rank + 1) * each)

    def shard(self, model: nn.Module, **options: Any) -> nn.Module:
        """Shard the blocks of a model, and what is left; alone it stays as it is."""
        if self.world > 1:
            for module in model.modules():
                if type(module).__name__ in ("LlamaDecoderLayer", "GPT2Block", "TransformerEncoderLayer"):
                    fully_shard(module, **options)
            fully_shard(model, **options)
        return model

    def join(self, scores: Tensor) -> Tensor:
        """The scores of all processes, in the order of the joined batch."""
        if self.world == 1:
            return scores
        parts = [torch.empty_like(scores) for _ in range(self.world)]
        dist.all_gather(parts, scores)
        return torch.cat(parts)


def whole(tensor: Tensor) -> Tensor:
    """A copy of a tensor that may be sharded."""
    found = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach().clone()


def llama(dtype: torch.dtype = torch.float64) -> nn.Module:
    """RMSNorm, SwiGLU, rotary positions, no bias; widths that 4 processes cannot share evenly."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1, "attn_implementation": "sdpa"}
    shape = {"hidden_size": 12, "intermediate_size": 21, "num_hidden_layers": 2, "max_position_embeddings": 16}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, use_cache=False, **heads, **shape)).to(dtype)


def gpt2(dtype: torch.dtype = torch.float64) -> nn.Module:
    """LayerNorm, biases, learned positions, Conv1D, and a head that is tied to the embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    shape = {"n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, use_cache=False, **ends, **shape, **drops)).to(dtype)


class Mixer(nn.Module):
    """An encoder with nn.MultiheadAttention, a parameter that is used directly, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.positions = nn.Parameter(torch.randn(LENGTH - 1, 8))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 11, dropout=0.0, batch_first=True)
        self.twice = nn.Linear(8, 8)
        self.head = nn.Linear(8, VOCABULARY)
        self.double()

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [B, T] to scores [B, T, V]."""
        hidden: Tensor = self.encoder(self.embedding(tokens) + self.positions)
        scores: Tensor = self.head(self.twice(torch.tanh(self.twice(hidden))))
        return scores


def batch(step: int) -> Tensor:
    """Tokens [B, T]."""
    return torch.randint(0, VOCABULARY, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(step))


def losses_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """The mean loss of each sample [B]."""
    out = model(tokens[:, :-1])
    logits = out if isinstance(out, Tensor) else out.logits
    each = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return each.view(len(tokens), -1).mean(1)


def signals() -> list[Any]:
    """One of each kind, with small decay rates, so that a few steps count."""
    return [
        GMC(beta=0.5, name="gmc"),
        GMC(beta=0.5, floor=1e-6, unit="batch", name="gmc.batch"),
        GMC(beta=0.5, floor=0.1, unit="relative", name="gmc.relative"),
        GMC(beta=0.5, gate="soft", name="gmc.soft"),
        GMC(beta=0.5, floor=0.1, unit="relative", where=lambda name, p: p.numel() < 100, name="gmc.small"),
        DotProduct(beta=0.5),
        Cosine(beta=0.5),
        Cosine(beta=0.5, over="tensor", against="m/v", name="cosine.tensor"),
        Projection(beta=0.5),
        NormAll(),
        NormAll(norm="l2-squared", unit="batch", name="norm.batch"),
        NormLast(),
    ]


def few() -> list[Any]:
    """Enough where it is not the signals that matter."""
    return [GMC(beta=0.5, floor=0.1, unit="relative"), Cosine(beta=0.5), NormAll()]


def steady() -> list[Any]:
    """Those whose terms neither cancel, as in signed sums, nor are divided by next to nothing: float32 is enough."""
    return [GMC(beta=0.5, floor=0.1, unit="relative"), NormAll(), NormLast()]


def step(place: Place, model: nn.Module, meter: Meter[Any], number: int, rate: float = 0.2) -> dict[str, Tensor]:
    """Train on one batch; returns the scores of all processes."""
    scores = meter.backward(losses_of(model, batch(number)[place.part]))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= rate * parameter.grad
    model.zero_grad()
    return {name: place.join(score) for name, score in scores.items()}


def moments_of(meter: Meter[Any]) -> Results:
    """All moments of a meter, whole."""
    return {
        f"{key} {name}": whole(tensor)
        for saved in meter.state_dict()["moments"]
        for key in ("m", "v")
        for name, tensor in saved[key].items()
    }


def train(place: Place, model: nn.Module, meter: Meter[Any] | None = None, steps: int = STEPS) -> Results:
    """Scores of some steps, and the moments and parameters after them."""
    meter = Meter(model, few(), check="always") if meter is None else meter
    found: Results = {}
    for number in range(steps):
        found |= {f"{number} {name}": score for name, score in step(place, model, meter, number).items()}
    meter.detach()
    return {**found, **moments_of(meter), **{name: whole(p) for name, p in model.state_dict().items()}}


# Models


def llama_scores(place: Place) -> Results:
    """All signals."""
    model = place.shard(llama())
    return train(place, model, Meter(model, signals()))


def llama_single(place: Place) -> Results:
    """In float32."""
    model = place.shard(llama(torch.float32))
    return train(place, model, Meter(model, steady()), steps=2)


def gpt2_single(place: Place) -> Results:
    """In float32."""
    model = place.shard(gpt2(torch.float32))
    return train(place, model, Meter(model, steady()), steps=2)


def llama_kept(place: Place) -> Results:
    """Parameters that stay whole until the backward pass, and matrices of which ranks have columns where they can."""

    def placement(parameter: Tensor) -> Shard:
        return Shard(1 if parameter.dim() == 2 and parameter.shape[1] % 4 == 0 else 0)

    return train(place, place.shard(llama(), reshard_after_forward=False, shard_placement_fn=placement))


def llama_checkpointed(place: Place) -> Results:
    model = llama()
    model.activation_checkpointing_enable({"use_reentrant": False})
    return train(place, place.shard(model.train()))


def gpt2_scores(place: Place) -> Results:
    """All signals."""
    model = place.shard(gpt2())
    return train(place, model, Meter(model, signals()))


def mixer_scores(place: Place) -> Results:
    return train(place, place.shard(Mixer()))


def leaves_scores(place: Place) -> Results:
    """Layers that are sharded by themselves, or together with others."""
    model = Mixer()
    if place.world > 1:
        fully_shard(model.embedding)
        fully_shard(model.encoder.linear1)
        fully_shard([model.twice, model.head])
        fully_shard(model)
    return train(place, model)


class Adapter(nn.Module):
    """A frozen Linear with two small trained ones beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 3, bias=False)
        self.up = nn.Linear(3, base.out_features, bias=False)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both."""
        both: Tensor = self.base(x) + self.up(self.down(x))
        return both


def adapter_scores(place: Place) -> Results:
    """LoRA on a frozen Llama."""
    model = llama().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj = Adapter(layer.self_attn.q_proj)
        layer.mlp.up_proj = Adapter(layer.mlp.up_proj)
    return train(place, place.shard(model))


def expert_scores(place: Place) -> Results:
    """Experts for whom rows are gathered, other numbers of them on every rank."""
    return train(place, place.shard(Experts()))


def hybrid_scores(place: Place) -> Results:
    """Shards over pairs of processes, and replicas of the pairs."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")) if place.world == 4 else None
    return train(place, place.shard(llama(), mesh=mesh))


def compiled_scores(place: Place) -> Results:
    """Blocks inside torch.compile."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(8, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 8)) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(VOCABULARY, 8), *blocks, nn.Linear(8, VOCABULARY)).double()
    if place.world > 1:
        for block in blocks:
            fully_shard(block)
        fully_shard(model)
    meter = Meter(model, few())
    for block in blocks:
        block.compile(backend="aot_eager")
    return train(place, model, meter)


# Ways to train


def accumulated(place: Place) -> Results:
    """Two micro-batches for each step; in several processes only the second one synchronises."""
    model = place.shard(llama())
    meter = Meter(model, [GMC(beta=0.5)], accumulate=2, check="always")
    found: Results = {}
    for number in range(STEPS):
        halves = batch(number).chunk(2)
        for half, tokens in enumerate(halves):
            if place.world > 1:
                model.set_requires_gradient_sync(half == 1)
            each = len(tokens) // place.world
            own = tokens[place.rank * each : (place.rank + 1) * each]
            found[f"{number} {half}"] = place.join(meter.backward(losses_of(model, own))["gmc"])
        found |= {f"{number} {name}": whole(p.grad) for name, p in model.named_parameters()}
        model.zero_grad()
    assert meter.moments().updates == STEPS
    return {**found, **moments_of(meter)}


def cut_short(place: Place) -> Results:
    """An accumulation that ends early, and whose gradients are filled with zeros instead of dropped."""
    model = place.shard(llama())
    meter = Meter(model, [GMC(beta=0.5)], accumulate=2)
    found: Results = {}
    for number, is_last in enumerate((False, True, False, False, True)):  # the third is an epoch's rest
        scores = meter.backward(losses_of(model, batch(number % STEPS)[place.part]))
        found[f"{number // 2} {number}"] = place.join(scores["gmc"])
        if is_last or number == 2:
            model.zero_grad(set_to_none=False)
    assert meter.moments().updates == 2
    return {**found, **moments_of(meter)}


def summed(place: Place) -> Results:
    """Losses that are added up, with a divisor that FSDP was told, so that `.grad` is the sum over all samples."""
    model = place.shard(llama())
    if place.world > 1:
        for module in model.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                module.set_gradient_divide_factor(1.0)
    meter = Meter(model, [GMC(beta=0.5), NormAll()], reduction="sum", check="always")
    found = {f"{n} {k}": v for n in range(STEPS) for k, v in step(place, model, meter, n, rate=0.02).items()}
    return {**found, **moments_of(meter)}


def in_a_framework(place: Place) -> Results:
    """A loop that multiplies the loss and calls `backward()` itself."""
    model = place.shard(llama())
    meter = Meter(model, GMC(beta=0.5))
    found: Results = {}
    for number in range(STEPS):
        scores: list[Tensor] = []
        losses = losses_of(model, batch(number)[place.part])
        (metered_loss(meter, losses, scores.append) * 0.5).backward()
        found[f"{number} scores"] = place.join(scores[0])
        found |= {f"{number} {name}": whole(p.grad) for name, p in model.named_parameters()}
        model.zero_grad()
    return {**found, **moments_of(meter)}


def with_aux(place: Place) -> Results:
    """A loss of the batch as a whole trains, and is part of no score."""
    model = place.shard(llama())
    meter = Meter(model, [NormAll(), GMC(beta=0.5)])
    found: Results = {}
    for number in range(2):
        tokens = batch(number)[place.part]
        logits = model(tokens[:, :-1]).logits
        losses = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)
        scores = meter.backward(losses, aux=logits.square().mean())
        found |= {f"{number} {name}": place.join(score) for name, score in scores.items()}
        found |= {f"{number} {name}": whole(p.grad) for name, p in model.named_parameters()}
        model.zero_grad()
    return {**found, **moments_of(meter)}


def left_out(place: Place) -> Results:
    """Every second batch is scored; `score` touches nothing."""
    model = place.shard(llama())
    meter = Meter(model, [GMC(beta=0.5)], every=2)
    found: Results = {}
    for number in range(STEPS):
        tokens = batch(number)[place.part]
        if number % 2 == 0:
            scores = meter.score(losses_of(model, tokens))
            assert all(parameter.grad is None for parameter in model.parameters())
            found[f"{number} score"] = place.join(scores["gmc"])
        scores = meter.backward(losses_of(model, tokens))
        assert (scores is None) == (number % 2 == 1)
        if scores is not None:
            found[str(number)] = place.join(scores["gmc"])
        model.zero_grad()
    return {**found, **moments_of(meter)}


def aligned(place: Place) -> Results:
    """Alignment with a reference that each process has a part of."""
    model = place.shard(llama())
    reference, given = Reference(), Reference()
    kinds = [Alignment(reference, measure=m, name=m) for m in ("dot", "cosine", "projection")]
    meter = Meter(model, [*kinds, Alignment(given, name="given"), GMC(beta=0.5)])
    found: Results = {}
    for number in range(2):
        reference.refresh(model, losses_of(model, batch(number + 100)[place.part]).mean())
        torch.manual_seed(number)
        given.set({name: torch.randn(p.shape) for name, p in model.named_parameters()})
        found |= {f"{number} {name}": score for name, score in step(place, model, meter, number).items()}
    return found


def packed(place: Place) -> Results:
    """Samples in one row, whose lengths differ."""
    model = place.shard(llama())
    meter = Meter(model, [GMC(beta=0.5), NormAll()])
    found: Results = {}
    for number in range(2):
        tokens = batch(number)[place.part]
        lengths = [3 + (place.part.start + i) % 3 for i in range(len(tokens))]
        rows = torch.cat([one[:length] for one, length in zip(tokens, lengths, strict=True)])
        places = torch.cat([torch.arange(length) for length in lengths])
        mask = torch.block_diag(*[torch.ones(n, n).tril() for n in lengths]).bool()[None, None]
        own = segments(position_ids=places)
        with own:
            logits = model(rows[None], attention_mask=mask, position_ids=places[None]).logits[0]
        scores = meter.backward(own.mean(F.cross_entropy(logits, rows, reduction="none")))
        found |= {f"{number} {name}": place.join(score) for name, score in scores.items()}
        model.zero_grad()
    return {**found, **moments_of(meter)}


def not_finite(place: Place) -> Results:
    """A NaN in one sample keeps the batch out of the moments, on all ranks."""
    model = place.shard(llama())
    meter = Meter(model, [GMC(beta=0.5)], check="never")
    for number in range(3):
        losses = losses_of(model, batch(number)[place.part])
        if number == 1 and place.rank == 0:
            losses = losses * torch.tensor([float("nan"), *[1.0] * (len(losses) - 1)])
        with pytest.warns(UserWarning, match="NaN or infinite gradient in") if number == 1 else nullcontext():
            meter.backward(losses)
        model.zero_grad()
    moments = meter.moments()
    return {**moments_of(meter), "counts": [moments.updates, moments.skipped, len(moments.skipped_names)]}


# Gradients


def gradients(place: Place) -> Results:
    """What the meter leaves in `.grad`, against the same model without a meter."""
    found: Results = {}
    policies = {"plain": {}, "mixed": {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}}
    for kind, options in policies.items():
        for make in (llama, gpt2):
            metered, plain = (place.shard(make(torch.float32), **options) for _ in range(2))
            meter = Meter(metered, [GMC(beta=0.5), NormAll()], check="always")
            for number in range(2):
                meter.backward(losses_of(metered, batch(number)[place.part]))
                losses_of(plain, batch(number)[place.part]).mean().backward()
            pairs = zip(metered.named_parameters(), plain.parameters(), strict=True)
            found |= {f"{kind} {make.__name__} {n}": torch.equal(whole(p.grad), whole(q.grad)) for (n, p), q in pairs}
    return found


def low_precision(place: Place) -> Results:
    """Parameters gathered in bfloat16; the checks hold in every batch."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    model = llama(torch.float32)
    if place.world == 1:
        dist.init_process_group("gloo", init_method=f"file://{place.folder}/alone", rank=0, world_size=1)
        for layer in model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    model = place.shard(model, mp_policy=policy)
    meter = Meter(model, [GMC(beta=0.5, floor=0.1, unit="relative"), NormAll()], check="always")
    found = {f"{n} {k}": v for n in range(2) for k, v in step(place, model, meter, n).items()}
    if place.world == 1:
        dist.destroy_process_group()
    return found


# Checkpoints


def saved(place: Place) -> Results:
    """Two steps, and a checkpoint."""
    model = place.shard(llama())
    meter = Meter(model, few())
    for number in range(2):
        step(place, model, meter, number)
    name = place.folder / f"checkpoint{place.world}"
    dcp_save({"model": model.state_dict(), "meter": meter.state_dict()}, checkpoint_id=name, no_dist=place.world == 1)
    return {}


def resumed(place: Place) -> Results:
    """The next two steps from the checkpoint of two processes."""
    model = place.shard(llama())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    meter = Meter(model, few())
    state = {"model": model.state_dict(), "meter": meter.state_dict()}
    dcp_load(state, checkpoint_id=place.folder / "checkpoint2", no_dist=place.world == 1)
    model.load_state_dict(state["model"])
    meter.load_state_dict(state["meter"])
    found = {f"{n} {k}": v for n in (2, 3) for k, v in step(place, model, meter, n).items()}
    return {**found, **moments_of(meter)}


def from_whole(place: Place) -> Results:
    """A state whose tensors are whole, as of one process, goes into shards."""
    model = llama()
    alone = Meter(model, few())
    for number in range(2):
        step(Place(0, 1, str(place.folder)), model, alone, number)
    alone.detach()
    meter = Meter(place.shard(model), few())
    meter.load_state_dict(alone.state_dict())
    return {f"{n} {k}": v for n in (2, 3) for k, v in step(place, model, meter, n).items()}


# Memory


def memory(place: Place) -> Results:
    """Bytes of moments and ratios on this rank, of the whole, and of the largest weights that were gathered."""
    model = place.shard(llama())
    meter = Meter(model, GMC(beta=0.5))
    meter.backward(losses_of(model, batch(0)[place.part]))
    moments = meter.moments()
    own = sum(flat.whole.nbytes for flat in (moments.m, moments.v, meter._scopes["gmc"].ratios))
    largest = meter._sharding.largest if place.world > 1 else 0
    parameters = sum(parameter.numel() * parameter.itemsize for parameter in model.parameters())
    return {"own": own, "largest": largest, "parameters": parameters}


IN_BOTH = (llama_scores, gpt2_scores, resumed, memory)
IN_TWO = (
    *(llama_single, gpt2_single, llama_kept, llama_checkpointed, mixer_scores, leaves_scores),
    *(adapter_scores, expert_scores),
    *(accumulated, cut_short, with_aux, summed, left_out, aligned, packed, not_finite, gradients, low_precision),
    *(from_whole, compiled_scores, in_a_framework),
)
SCENARIOS: Mapping[int, Sequence[Callable[[Place], Results]]] = {
    2: (saved, *IN_BOTH, *IN_TWO),
    4: (*IN_BOTH, hybrid_scores),  # after the others, whose checkpoint they resume from
}
