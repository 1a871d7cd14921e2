"""Mixtures of experts of transformers as they come, against autograd on one sample at a time."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import transformers
from transformers import Trainer, TrainingArguments
from transformers.integrations import moe

import headway
from headway import GMC, Meter, NormAll, Projection
from headway.errors import LayoutError, RuleError, VerificationError
from headway.grads.experts import ExpertsSite
from headway.integrations.transformers import SourceTrainer
from tests.grads.oracle import own_norms

VOCABULARY, LENGTH, SAMPLES = 23, 7, 5
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts_per_tok": 2, "head_dim": 4,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 4,
    "num_key_value_heads": 4, "n_routed_experts": 4, "moe_intermediate_size": 12, "first_k_dense_replace": 1,
    "n_group": 1, "topk_group": 1,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "Mixtral": {"num_local_experts": 4},
    "Qwen2Moe": {"num_experts": 4, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 12},
    "Qwen3Moe": {"num_experts": 4, "moe_intermediate_size": 12},
    "Olmoe": {"num_experts": 4},
    "GptOss": {"num_local_experts": 4, "layer_types": ["full_attention"] * 2},  # transposed weights, with biases
    "DeepseekV3": LATENT,  # the router sees [B, T, d]
}
EVERYWHERE = [(kind, how) for kind in KINDS for how in ("eager", "grouped_mm")]


def model(kind: str, how: str = "eager", **changes: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **KINDS[kind], **changes})
    made = getattr(transformers, f"{kind}ForCausalLM")._from_config(config, experts_implementation=how)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(1.0, 0.2) if parameter.dim() == 1 else parameter.normal_(0.0, 0.3)
    return made


def tokens(seed: int, samples: int = SAMPLES) -> Tensor:
    return torch.randint(3, VOCABULARY, (samples, LENGTH), generator=torch.Generator().manual_seed(seed))


def losses(logits: Tensor, x: Tensor) -> Tensor:
    each = F.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten(), reduction="none")
    return each.view(len(x), -1).mean(1)


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own grouped product takes no float64; transformers has another for such cases."""
    monkeypatch.setattr(moe, "_can_use_grouped_mm", lambda *args: False)


SIGNALS = [
    GMC(beta=0.9, floor=1e-4, bias_correction=False),
    NormAll(),
    Projection(beta=0.9, bias_correction=False, absolute=False),
]


class Oracle:
    """The three signals by autograd, on a copy of the model that runs one sample at a time in float64."""

    def __init__(self) -> None:
        self._m: dict[str, Tensor] = {}
        self._v: dict[str, Tensor] = {}

    def __call__(self, of: Any, x: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Scores by signal, and the gradient of the mean loss by parameter; moments without bias correction."""
        single = copy.deepcopy(of).double()
        single.set_experts_implementation("eager")
        rows = []
        for one in x.split(1):
            single.zero_grad()
            losses(single(one).logits, one).sum().backward()
            rows.append({n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in single.named_parameters()})
            single.zero_grad(set_to_none=True)
        grads = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        mean = {name: g.mean(0) for name, g in grads.items()}
        m = self._m or {name: torch.zeros_like(g) for name, g in mean.items()}
        v = self._v or {name: torch.zeros_like(g) for name, g in mean.items()}

        def added(term: Any) -> Tensor:
            return torch.stack([term(name, g).flatten(1).sum(1) for name, g in grads.items()]).sum(0)

        length = torch.stack([one.square().sum() for one in m.values()]).sum().sqrt()
        scores = {
            "gmc": added(lambda name, g: (g * m[name] / v[name].clamp(min=1e-4)).abs())
            / sum(g.numel() for g in mean.values()) ** 0.5,
            "norm_all": added(lambda name, g: g.abs()),
            "projection": added(lambda name, g: g * m[name]) / length.clamp(min=1e-30),
        }
        self._m = {name: 0.9 * m[name] + 0.1 * g for name, g in mean.items()}
        self._v = {name: 0.9 * v[name] + 0.1 * g.square() for name, g in mean.items()}
        return scores, mean


def worst(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((found.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def compare(of: nn.Module, tolerance: float, **options: Any) -> None:
    """Three batches, in which every sample's tokens go to other experts."""
    oracle = Oracle()
    with Meter(of, SIGNALS, check="always", **options) as meter:
        for seed in range(3):
            x = tokens(seed)
            expected, gradients = oracle(of, x)
            of.zero_grad()
            scores = meter.backward(losses(of(x).logits, x))
            for name, values in expected.items():
                assert worst(scores[name], values) < tolerance, (seed, name)
            for name, parameter in of.named_parameters():
                if parameter.grad is not None:
                    assert worst(parameter.grad, gradients[name]) < tolerance, (seed, name)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(("kind", "how"), EVERYWHERE)
def test_scores_are_those_of_single_samples(kind: str, how: str) -> None:
    compare(model(kind, how).double(), 1e-6)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("options", [{"simultaneous": False}, {"layout": {"*": "flat"}}], ids=str)
def test_with_other_options(options: dict[str, Any]) -> None:
    compare(model("Mixtral", "batched_mm").double(), 1e-6, **options)


@pytest.mark.parametrize("kind", ["Mixtral", "Qwen2Moe", "Qwen3Moe", "GptOss"])
def test_torchs_own_grouped_product(kind: str) -> None:
    """It takes float32, so that the scores agree up to float32's rounding."""
    compare(model(kind, "grouped_mm"), 1e-4)


@pytest.mark.parametrize("how", ["eager", "grouped_mm", "batched_mm"])
def test_the_backward_pass_may_run_inside_autocast(how: str) -> None:
    """There the products of the forward pass are in bfloat16, and so is the precision of the scores."""
    of, x = model("Mixtral", how), tokens(0)
    found = []
    for inside in (True, False):
        with Meter(of, NormAll()) as meter:
            with torch.autocast("cpu", torch.bfloat16):
                each = losses(of(x).logits.float(), x)
                scores = meter.backward(each) if inside else None
            found.append(meter.backward(each) if scores is None else scores)
        of.zero_grad()
    assert worst(found[0], found[1].double()) < 1e-2


@pytest.mark.usefixtures("in_float64")
def test_every_expert_has_a_site_of_its_own_and_frozen_ones_are_left_out() -> None:
    language = model("Mixtral", "grouped_mm").double()
    for name, parameter in language.named_parameters():
        parameter.requires_grad_(name.endswith("experts.down_proj"))
    x = tokens(0)
    expected = own_norms(language, lambda: losses(language(x).logits, x))
    with Meter(language, NormAll(), check="always") as meter:
        assert sum(isinstance(site, ExpertsSite) for site in meter._engine._sites) == 2
        assert worst(meter.backward(losses(language(x).logits, x)), expected) < 1e-6


@pytest.mark.usefixtures("in_float64")
def test_packed_sequences_are_scored_by_sample() -> None:
    """Samples of 3, 7 and 5 tokens in one row: the tokens of each are found at every expert."""
    language = model("Qwen3Moe", "grouped_mm", attn_implementation="eager").double()
    lengths = [3, 7, 5]
    parts = [tokens(seed, 1)[:, :length] for seed, length in enumerate(lengths)]
    x = torch.cat(parts, 1)
    places = torch.cat([torch.arange(length) for length in lengths]).unsqueeze(0)
    own = torch.arange(3).repeat_interleave(torch.tensor(lengths))
    seen = (own[:, None] == own[None, :]).tril()
    mask = torch.zeros(seen.shape).double().masked_fill(~seen, -1e30)[None, None]

    def of_rows(logits: Tensor) -> Tensor:
        """The loss of the token at its own place, which needs no shift within a sample."""
        return F.cross_entropy(logits[0], x[0], reduction="none")

    def alone(part: Tensor) -> Tensor:
        return F.cross_entropy(language(part).logits[0], part[0], reduction="none").mean()

    expected = own_norms(language, lambda: torch.stack([alone(part) for part in parts]))
    with Meter(language, NormAll(), check="always") as meter:
        segments = headway.segments(position_ids=places)
        with segments:
            logits = language(x, attention_mask=mask, position_ids=places).logits
        scores = meter.backward(segments.mean(of_rows(logits)))
    assert worst(scores, expected) < 1e-6


@pytest.mark.usefixtures("in_float64")
def test_gradient_checkpointing() -> None:
    language = model("Mixtral", "grouped_mm").double()
    language.activation_checkpointing_enable({"use_reentrant": False})
    language.train()
    compare(language, 1e-6)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("kind", ["Mixtral", "Qwen2Moe", "Qwen3Moe"])
def test_the_loss_that_balances_the_experts_is_refused_among_the_losses(kind: str) -> None:
    """It mixes the samples; as aux= it trains the model and is in no score."""
    language, x = model(kind, "grouped_mm", router_aux_loss_coef=0.5).double(), tokens(0)
    out = language(x, labels=x, output_router_logits=True)
    out.loss.backward()
    expected = {name: p.grad.clone() for name, p in language.named_parameters()}
    language.zero_grad()
    with Meter(language, NormAll(), check="always") as meter:
        alone = meter.score(losses(language(x).logits, x))
        out = language(x, output_router_logits=True)
        scores = meter.backward(losses(out.logits, x), aux=0.5 * out.aux_loss)
        assert worst(scores, alone) < 1e-9
        for name, parameter in language.named_parameters():
            assert worst(parameter.grad, expected[name]) < 1e-5, name  # the model's own loss is rounded to float32
        language.zero_grad()
        out = language(x, output_router_logits=True)
        with pytest.raises(VerificationError, match="aux="):
            meter.backward(losses(out.logits, x) + 0.5 * out.aux_loss)


class Texts(Dataset):
    """Random tokens."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        own = tokens(index, 1)[0]
        return {"input_ids": own, "labels": own}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_trainer_balances_the_experts_as_without_scores(tmp_path: Path, accumulation: int) -> None:
    settings = {
        "output_dir": str(tmp_path), "per_device_train_batch_size": 4, "max_steps": 4, "learning_rate": 1e-2,
        "report_to": [], "save_strategy": "no", "logging_strategy": "no", "use_cpu": True, "disable_tqdm": True,
        "dataloader_pin_memory": False, "gradient_accumulation_steps": accumulation, "optim": "sgd",
    }  # fmt: skip
    trained = []
    for kind in (Trainer, SourceTrainer):
        language = model("Mixtral", output_router_logits=True, router_aux_loss_coef=0.5)
        kind(language, TrainingArguments(**settings), train_dataset=Texts()).train()
        trained.append(dict(language.named_parameters()))
    for name, parameter in trained[0].items():
        torch.testing.assert_close(trained[1][name], parameter, rtol=1e-3, atol=1e-5)


def test_other_experts_are_refused_in_words() -> None:
    """JetMoE's experts are split by sizes of the whole batch, and have no module that shows the routing."""
    settings = {**SMALL, "num_local_experts": 4, "kv_channels": 4}
    torch.manual_seed(0)
    language = transformers.JetMoeForCausalLM(transformers.JetMoeConfig(**settings))
    x = tokens(0)
    with Meter(language, NormAll()) as meter, pytest.raises((LayoutError, RuleError), match="expected"):
        meter.backward(losses(language(x).logits, x))
