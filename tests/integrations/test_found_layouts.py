"""Models of transformers whose samples no shape shows, as they come, against autograd on single samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway import Meter, NormAll
from headway.errors import LayoutError

from ..grads.oracle import is_exact, own_norms

transformers = pytest.importorskip("transformers")

TEXT = {"vocab_size": 40, "num_attention_heads": 4, "max_position_embeddings": 32}
ENCODER = {"encoder_layers": 1, "encoder_ffn_dim": 24, "encoder_attention_heads": 4}
DECODER = {"decoder_layers": 1, "decoder_ffn_dim": 24, "decoder_attention_heads": 4}
IMAGE = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
DEBERTA = {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"], "share_att_key": True}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "OPTForCausalLM": (
        "OPTConfig",
        {**TEXT, "hidden_size": 16, "word_embed_proj_dim": 16, "ffn_dim": 24, "num_hidden_layers": 2},
    ),
    "BartForConditionalGeneration": (
        "BartConfig",
        {"vocab_size": 40, "d_model": 16, "max_position_embeddings": 32, **ENCODER, **DECODER},
    ),
    "T5ForConditionalGeneration": (
        "T5Config",
        {"vocab_size": 40, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4},
    ),
    "DebertaV2ForSequenceClassification": (
        "DebertaV2Config",
        {**TEXT, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, **DEBERTA},
    ),
    "SwinForImageClassification": ("SwinConfig", IMAGE),
    "Swinv2ForImageClassification": ("Swinv2Config", IMAGE),
}


def made(name: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """A small model with random weights, and its losses [3]."""
    torch.manual_seed(0)
    config, settings = MODELS[name]
    model = getattr(transformers, name)(getattr(transformers, config)(**settings)).double()
    ids, targets = torch.randint(2, 40, (3, 7)), torch.randint(2, 40, (3, 5))
    if "Image" in name:
        inputs: dict[str, Tensor] = {"pixel_values": torch.randn(3, 3, 32, 32).double()}
    elif "Generation" in name:
        inputs = {"input_ids": ids, "decoder_input_ids": targets}
    else:
        inputs = {"input_ids": ids}

    def losses() -> Tensor:
        torch.manual_seed(1)  # the same dropout each time
        out = model(**inputs).logits
        return (
            F.cross_entropy(out.flatten(0, -2), out.detach().argmin(-1).flatten(), reduction="none").view(3, -1).mean(1)
        )

    return model.train(), losses


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_no_layout_has_to_be_given(name: str) -> None:
    model, losses = made(name)
    expected = own_norms(model, losses)
    with Meter(model, NormAll(), check="always") as meter:
        for _ in range(2):  # the second batch reads what the first has found
            assert is_exact(meter.backward(losses()), expected, 1e-6 if name.startswith("T5") else 1e-9)


def test_nothing_is_tried_without_a_check() -> None:
    model, losses = made("OPTForCausalLM")
    with Meter(model, NormAll(), check="never") as meter, pytest.raises(LayoutError, match="'flat'"):
        meter.backward(losses())
