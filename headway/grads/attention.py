"""nn.MultiheadAttention as a unit.

The module keeps its projections as bare parameters and never calls its `out_proj` child, so nothing below
it can be hooked. While it is watched, its forward is replaced by the same computation made of layers that
can: a packed input projection and the output projection, both plain Linear layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.errors import LayoutError, RuleError
from headway.grads.compound import Stacked
from headway.grads.linear import linear, outer_footprint, outer_product, several_positions, sum_positions
from headway.grads.observe import observe
from headway.grads.passes import Contribution
from headway.grads.persample import Dense, PerSample, promote
from headway.grads.registry import Inputs, Rule
from headway.grads.rule_sites import RuleSite
from headway.grads.sites import Part, PartForms, UnitSite

if TYPE_CHECKING:
    from headway.grads.engine import Engine

_LINEAR = Rule(linear, outer_footprint, simultaneous=several_positions)


class PackedProjection(nn.Module):
    """The three input projections of self-attention as one Linear over the attention's own parameters."""

    def __init__(self, engine: Engine, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.weight = engine.in_use(attention.in_proj_weight)
        self.bias = engine.in_use(attention.in_proj_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side: [B, T, 3 E]."""
        return F.linear(x, self.weight, self.bias)


class Projection(RuleSite):
    """A projection inside an attention, which has put the samples first itself."""

    def contribution(self, saved: Inputs, grad: Tensor, samples: int) -> Contribution:
        """See `RuleSite.contribution`."""
        return self.of_rows(saved, grad, samples, self.size)


class AttentionSite(UnitSite):
    """A watched nn.MultiheadAttention."""

    module: nn.MultiheadAttention

    def __init__(self, engine: Engine, path: str, module: nn.MultiheadAttention, own: Mapping[str, str]) -> None:
        super().__init__(engine, path, module, own)
        weight: Tensor | None = module.in_proj_weight
        self.packed: PackedProjection | None = None if weight is None else PackedProjection(engine, module)
        self._parts: list[RuleSite] = []
        self._watch(self.packed, {"weight": "in_proj_weight", "bias": "in_proj_bias"}, "in_proj")
        self._watch(module.out_proj, {"weight": "out_proj.weight", "bias": "out_proj.bias"}, "out_proj")

    def _watch(self, layer: nn.Module | None, places: Mapping[str, str], name: str) -> None:
        self.engine.layouts.belongs(f"{self.path}.{name}", self.path)
        own = {local: self.own[place] for local, place in places.items() if place in self.own}
        if layer is not None and own:
            self._parts.append(Projection(self.engine, f"{self.path}.{name}", layer, own, _LINEAR))

    def attach(self) -> list[Any]:
        """See `Site.attach`."""
        return [*super().attach(), *(handle for part in self._parts for handle in part.attach())]

    def release_places(self) -> None:
        """See `Site.release_places`."""
        super().release_places()
        for part in self._parts:
            part.release_places()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attention in parts; its own forward where nobody listens."""
        module = self.module
        if not self.engine.listening():
            options = (key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
            return type(module).forward(module, query, key, value, *options)
        if query.dim() != 3:
            raise LayoutError(
                f"{self.path}: expected a query of 3 dimensions with a batch, got shape {list(query.shape)}; "
                f"add a dimension for the samples"
            )
        if is_causal and attn_mask is None:
            raise RuleError(f"{self.path}: expected an attn_mask with is_causal=True, got none; torch wants both")
        same = query is key and key is value
        if not module.batch_first:
            query = query.transpose(0, 1)
            key, value = (query, query) if same else (key.transpose(0, 1), value.transpose(0, 1))
        q, k, v = self._project(query, key, value, same)
        k, v = self._extend(k, v)
        mask = _merge_masks(attn_mask, key_padding_mask, q, k.shape[1], module)
        dropout = module.dropout if module.training else 0.0
        if need_weights:
            mixed, weights = _attend_with_weights(q, k, v, mask, dropout, module)
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            extended = module.bias_k is not None or module.add_zero_attn
            causal = is_causal and key_padding_mask is None and not extended
            q, k, v = (_split_heads(x, module.num_heads) for x in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, None if causal else mask, dropout, causal)
            weights = None
        output = module.out_proj(mixed.transpose(1, 2).flatten(2))
        if module.training:  # the memory order of the module's own output, for equal dropout masks behind it
            output = output.transpose(0, 1).contiguous().transpose(0, 1)
        return (output if module.batch_first else output.transpose(0, 1)), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor, same: bool) -> Sequence[Tensor]:
        """Queries, keys and values [B, T, E]."""
        module = self.module
        if same and self.packed is not None:
            projected: Tensor = self.packed(query)
            return projected.chunk(3, dim=-1)
        if self.packed is not None:
            weights: Sequence[Tensor] = module.in_proj_weight.chunk(3)
        else:
            weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        bias: Tensor | None = module.in_proj_bias
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        inputs = (query, key, value)
        outputs = [F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]
        names = ("in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        return self._observed(names, _separate_projections, outputs, inputs)

    def _observed(
        self, names: Sequence[str], forms: PartForms, outputs: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Listen to outputs that some of the module's own parameters have made."""
        own = {local: self.own[local] for local in names if local in self.own}
        if not own:
            return outputs
        self.engine.count_use(list(own.values()))
        return observe(Part(self, own, forms, f"{self.path}.in_proj"), outputs, inputs)

    def _extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append the learned and the zero key and value, where the module has them."""
        module = self.module
        if module.bias_k is not None and module.bias_v is not None:
            biases = [bias.expand(len(k), 1, -1) for bias in (module.bias_k, module.bias_v)]
            extra = self._observed(("bias_k", "bias_v"), _learned_key, biases, ())
            k, v = torch.cat([k, extra[0]], 1), torch.cat([v, extra[1]], 1)
        if module.add_zero_attn:
            zero = k.new_zeros(len(k), 1, k.shape[2])
            k, v = torch.cat([k, zero], 1), torch.cat([v, zero], 1)
        return k, v


def _separate_projections(inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> dict[str, PerSample]:
    """Input projections of cross-attention: three inputs, weights packed or apart."""
    pairs = [promote(a, b) for a, b in zip(inputs, grads, strict=True)]
    outer = [outer_product(a, b) for a, b in pairs]
    return {
        "in_proj_weight": Stacked(outer, [b.shape[-1] for _, b in pairs]),
        "in_proj_bias": Dense(torch.cat([sum_positions(b).grads for _, b in pairs], 1)),
        "q_proj_weight": outer[0],
        "k_proj_weight": outer[1],
        "v_proj_weight": outer[2],
    }


def _learned_key(inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> dict[str, PerSample]:
    """The learned extra key and value."""
    return {"bias_k": Dense(promote(grads[0])[0]), "bias_v": Dense(promote(grads[1])[0])}


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, E] -> [B, heads, T, E / heads]."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask to add to the scores; a boolean one marks what is not to be seen."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))


def _merge_masks(
    attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, keys: int, module: nn.MultiheadAttention
) -> Tensor | None:
    """One additive mask that broadcasts over [B, heads, queries, keys], or None."""
    merged: Tensor | None = None
    if attn_mask is not None:
        merged = _additive(attn_mask, q.dtype)
        if merged.dim() == 3:
            merged = merged.unflatten(0, (len(q), module.num_heads))
    if padding is not None:
        hidden = _additive(padding, q.dtype)[:, None, None, :]
        merged = hidden if merged is None else merged + hidden
    if merged is not None and merged.shape[-1] < keys:  # learned and zero keys are always seen
        merged = F.pad(merged, (0, keys - merged.shape[-1]))
    return merged


def _attend_with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, module: nn.MultiheadAttention
) -> tuple[Tensor, Tensor]:
    """Mixed values [B, heads, T, E / heads] and the weights [B, heads, T, S] that mixed them."""
    q, k, v = (_split_heads(x, module.num_heads) for x in (q, k, v))
    scores = (q * q.shape[-1] ** -0.5) @ k.mT
    weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
    weights = F.dropout(weights, dropout) if dropout else weights
    return weights @ v, weights
