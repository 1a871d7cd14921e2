"""A zoo of models, one for each layer, option and way of wiring that the engine must get right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Case:
    """A model and the inputs of one batch; `loss` makes [B] of the output."""

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    samples: int = 5
    loss: Callable[[Any, int], Tensor] | None = None
    layout: Any = field(default=None, hash=False)
    kwargs: Callable[[int], dict[str, Any]] = field(default=lambda n: {})
    train: bool = True
    """Training mode; eval mode otherwise."""


def weighted_loss(output: Any, samples: int) -> Tensor:
    """A loss per sample with a different, non-linear pull at every output."""
    tensors = [t for t in torch.utils._pytree.tree_leaves(output) if isinstance(t, Tensor) and t.is_floating_point()]
    losses = 0
    for tensor in tensors:
        flat = tensor.reshape(samples, -1)
        ramp = torch.linspace(-1, 1, flat.shape[1], dtype=flat.dtype)
        losses = losses + (flat * ramp + 0.3 * flat**2).sum(1)
    return losses


def second_dim_loss(output: Any, samples: int) -> Tensor:
    """The same where samples are in dimension 1."""
    return weighted_loss(output.transpose(0, 1), samples)


CASES: list[Case] = []


def case(name: str, inputs: Callable[[int], tuple[Any, ...]], **options: Any) -> Callable[[Any], Any]:
    """Add the decorated model, or a function that makes one."""

    def add(model: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        CASES.append(Case(name, model, inputs, **options))
        return model

    return add


def x(*shape: int) -> Callable[[int], tuple[Tensor]]:
    """Random inputs [B, *shape]."""
    return lambda n: (torch.randn(n, *shape),)


def ids(*shape: int, top: int = 11) -> Callable[[int], tuple[Tensor]]:
    """Random indices [B, *shape]."""
    return lambda n: (torch.randint(0, top, (n, *shape)),)


def simple(name: str, make: Callable[[], nn.Module], inputs: Callable[[int], tuple[Any, ...]], **options: Any) -> None:
    """Add a model."""
    CASES.append(Case(name, make, inputs, **options))


# Linear and Bilinear
simple("linear", lambda: nn.Linear(6, 4), x(6))
simple("linear, no bias", lambda: nn.Linear(6, 4, bias=False), x(6))
simple("linear, one sample", lambda: nn.Linear(6, 4), x(6), samples=1)
simple("linear, wide to narrow", lambda: nn.Linear(30, 2), x(30))
simple("linear, positions", lambda: nn.Linear(6, 4), x(7, 6))
simple("linear, one position", lambda: nn.Linear(6, 4), x(1, 6))
simple("linear, grid of positions", lambda: nn.Linear(6, 4), x(3, 2, 6))
simple("linear, positions, one sample", lambda: nn.Linear(6, 4), x(7, 6), samples=1)
simple("linear, many positions", lambda: nn.Linear(3, 2), x(40, 3))
simple("bilinear", lambda: nn.Bilinear(4, 3, 5), lambda n: (torch.randn(n, 4), torch.randn(n, 3)))
simple(
    "bilinear, positions",
    lambda: nn.Bilinear(4, 3, 5),
    lambda n: (torch.randn(n, 6, 4), torch.randn(n, 6, 3)),
)
simple(
    "bilinear, swapped kwargs",
    lambda: nn.Bilinear(4, 3, 5),
    lambda n: (),
    kwargs=lambda n: {"input2": torch.randn(n, 3), "input1": torch.randn(n, 4)},
)

# Convolutions
simple("conv1d", lambda: nn.Conv1d(3, 4, 3), x(3, 9))
simple("conv1d, stride dilation padding", lambda: nn.Conv1d(4, 6, 3, 2, 2, 2, groups=2), x(4, 11))
simple("conv2d", lambda: nn.Conv2d(3, 4, 3, padding=1), x(3, 6, 5))
simple("conv2d, no bias, stride", lambda: nn.Conv2d(3, 4, (3, 2), stride=(2, 1), bias=False), x(3, 7, 6))
simple("conv2d, dilation", lambda: nn.Conv2d(2, 3, 3, dilation=(2, 1), padding=(1, 2)), x(2, 8, 7))
simple("conv2d, groups", lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), x(4, 5, 5))
simple("conv2d, depthwise", lambda: nn.Conv2d(4, 8, 3, groups=4), x(4, 6, 6))
simple("conv2d, 1x1", lambda: nn.Conv2d(4, 3, 1), x(4, 4, 4))
simple("conv2d, one output position", lambda: nn.Conv2d(3, 4, 5), x(3, 5, 5))
simple("conv2d, circular", lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), x(2, 5, 5))
simple("conv2d, reflect", lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), x(2, 5, 5))
simple("conv2d, replicate", lambda: nn.Conv2d(2, 3, 3, padding=(1, 2), padding_mode="replicate"), x(2, 5, 5))
simple("conv2d, padding same", lambda: nn.Conv2d(2, 3, (3, 5), dilation=(2, 1), padding="same"), x(2, 5, 6))
simple("conv2d, padding valid", lambda: nn.Conv2d(2, 3, 2, padding="valid"), x(2, 5, 6))
simple("conv3d", lambda: nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=1), x(2, 3, 4, 3))
simple("conv3d, groups", lambda: nn.Conv3d(2, 4, 2, groups=2), x(2, 3, 3, 3))
simple("conv transpose 1d", lambda: nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, output_padding=1), x(3, 5))
simple("conv transpose 2d", lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), x(4, 4, 3))
simple(
    "conv transpose 2d, output padding over stride",
    lambda: nn.ConvTranspose2d(2, 3, 3, stride=1, dilation=2, output_padding=1),
    x(2, 4, 4),
)
simple("conv transpose 3d", lambda: nn.ConvTranspose3d(2, 3, 2, padding=1, dilation=2), x(2, 3, 3, 4))

# Embeddings
simple("embedding", lambda: nn.Embedding(11, 4), ids(7))
simple("embedding, one index", lambda: nn.Embedding(11, 4), ids())
simple("embedding, grid", lambda: nn.Embedding(11, 4), ids(3, 2))
simple("embedding, padding", lambda: nn.Embedding(11, 4, padding_idx=2), ids(9, top=4))
simple("embedding, sparse", lambda: nn.Embedding(11, 4, sparse=True), ids(7))
simple("embedding bag", lambda: nn.EmbeddingBag(11, 4, mode="sum"), ids(7))

# Normalisations and activations
simple("layer norm", lambda: nn.LayerNorm(6), x(6))
simple("layer norm, positions", lambda: nn.LayerNorm(6), x(5, 6))
simple("layer norm, two dims", lambda: nn.LayerNorm((5, 6)), x(3, 5, 6))
simple("layer norm, no bias", lambda: nn.LayerNorm(6, bias=False), x(5, 6))
simple("rms norm", lambda: nn.RMSNorm(6), x(5, 6))
simple("rms norm, eps", lambda: nn.RMSNorm(6, eps=0.1), x(6))
simple("group norm", lambda: nn.GroupNorm(2, 6), x(6, 4, 3))
simple("group norm, flat", lambda: nn.GroupNorm(2, 6), x(6))
simple("instance norm 1d", lambda: nn.InstanceNorm1d(3, affine=True), x(3, 8))
simple("instance norm 2d", lambda: nn.InstanceNorm2d(3, affine=True), x(3, 4, 4))
simple("instance norm 3d", lambda: nn.InstanceNorm3d(2, affine=True), x(2, 3, 3, 3))
simple(
    "instance norm, running statistics",
    lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    x(3, 4, 4),
    train=False,
)
simple("batch norm 1d, eval", lambda: nn.BatchNorm1d(5), x(5), train=False)
simple("batch norm 2d, eval", lambda: nn.BatchNorm2d(3), x(3, 4, 4), train=False)
simple("prelu", lambda: nn.PReLU(), x(4, 3))
simple("prelu, channels", lambda: nn.PReLU(4), x(4, 3, 2))
simple("prelu, features", lambda: nn.PReLU(4), x(4))

# Recurrence
for kind in (nn.RNN, nn.GRU, nn.LSTM):
    simple(
        f"{kind.__name__}",
        lambda k=kind: k(3, 4, batch_first=True),
        x(6, 3),
        loss=lambda o, n: weighted_loss(o[0], n),
    )
simple(
    "RNN, relu, no bias",
    lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False, batch_first=True),
    x(6, 3),
    loss=lambda o, n: weighted_loss(o[0], n),
)
simple(
    "LSTM, two layers, both directions, projection",
    lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True, proj_size=2),
    x(5, 3),
    loss=lambda o, n: weighted_loss(o[0], n) + weighted_loss(o[1][1].transpose(0, 1), n),
)
simple(
    "GRU, sequence first, initial state",
    lambda: nn.GRU(3, 4, 2),
    lambda n: (torch.randn(6, n, 3), torch.randn(2, n, 4)),
    loss=lambda o, n: weighted_loss(o[0].transpose(0, 1), n) + weighted_loss(o[1].transpose(0, 1), n),
)
simple(
    "LSTM cell",
    lambda: nn.LSTMCell(3, 4),
    x(3),
    loss=lambda o, n: weighted_loss(o[0], n) + weighted_loss(o[1], n),
)


@case("cell called in a loop", x(5, 3))
class Unrolled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 4)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.head(h)


# Attention
class SelfAttention(nn.Module):
    def __init__(self, weights: bool = False, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)
        self.weights = weights

    def forward(self, x: Tensor, **masks: Any) -> Tensor:
        output, weights = self.attention(x, x, x, need_weights=self.weights, **masks)
        return output if weights is None else output + weights.sum() * 0 + weights.mean(-1, keepdim=True)


simple("attention", SelfAttention, x(5, 8))
simple("attention, weights", lambda: SelfAttention(weights=True), x(5, 8))
simple("attention, no bias", lambda: SelfAttention(bias=False), x(5, 8))
simple("attention, learned and zero key", lambda: SelfAttention(add_bias_kv=True, add_zero_attn=True), x(5, 8))
simple(
    "attention, masks",
    SelfAttention,
    x(5, 8),
    kwargs=lambda n: {
        "attn_mask": torch.triu(torch.ones(5, 5, dtype=torch.bool), 1),
        "key_padding_mask": torch.arange(5).expand(n, 5) > 3,
    },
)
simple("attention, dropout", lambda: SelfAttention(dropout=0.4), x(5, 8))
simple("attention, dropout, weights", lambda: SelfAttention(weights=True, dropout=0.4), x(5, 8))


@case("attention across", lambda n: (torch.randn(n, 4, 8), torch.randn(n, 6, 8)))
class CrossAttention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.attention(x, memory, memory)[0]


simple(
    "attention across, own widths",
    lambda: CrossAttention(kdim=6, vdim=6),
    lambda n: (torch.randn(n, 4, 8), torch.randn(n, 3, 6)),
)
simple(
    "attention, sequence first",
    lambda: nn.MultiheadAttention(8, 2),
    lambda n: (torch.randn(6, n, 8), torch.randn(7, n, 8), torch.randn(7, n, 8)),
    loss=lambda o, n: second_dim_loss(o[0], n),
)
simple("encoder layer", lambda: nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), x(5, 8))
simple(
    "encoder layer, dropout",
    lambda: nn.TransformerEncoderLayer(8, 2, 12, 0.3, batch_first=True),
    x(5, 8),
)
simple(
    "encoder layer, norm first, gelu",
    lambda: nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", norm_first=True, batch_first=True),
    x(5, 8),
)
simple(
    "encoder layer, eval",
    lambda: nn.TransformerEncoderLayer(8, 2, 12, batch_first=True),
    x(5, 8),
    train=False,
)
simple(
    "encoder layer, sequence first",
    lambda: nn.TransformerEncoderLayer(8, 2, 12, 0.0),
    lambda n: (torch.randn(7, n, 8),),
    loss=second_dim_loss,
)
simple(
    "decoder layer",
    lambda: nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True),
    lambda n: (torch.randn(n, 4, 8), torch.randn(n, 6, 8)),
)
simple(
    "transformer encoder of two layers",
    lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True), 2, enable_nested_tensor=False
    ),
    x(5, 8),
)


# Biases whose gradient is zero whatever the data: what is computed for them is rounding
@case("attention by hand", x(6, 8))
class AttentionByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))


@case("attention pooling", x(9, 8))
class AttentionPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score, self.head = nn.Linear(8, 1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((torch.softmax(self.score(x), 1) * x).sum(1))


def conv_and_instance_norm() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5))


simple("convolution and instance norm", conv_and_instance_norm, x(3, 6, 6))
simple(
    "convolution and group norm of single channels",
    lambda: nn.Sequential(nn.Conv1d(2, 4, 2), nn.GroupNorm(4, 4)),
    x(2, 7),
)

# Wiring
simple("mlp, inplace relu", lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)), x(6))
simple(
    "cnn, inplace relu",
    lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(27, 2)),
    x(2, 5, 5),
)
simple(
    "mlp, dropout",
    lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)),
    x(6),
)
simple(
    "frozen first layer",
    lambda: _freeze(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), "0."),
    x(6),
)
simple(
    "frozen weight, trained bias",
    lambda: _freeze(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), "0.weight"),
    x(6),
)
simple(
    "frozen conv weight",
    lambda: _freeze(nn.Sequential(nn.Conv1d(2, 3, 2), nn.Conv1d(3, 2, 2)), "1.weight"),
    x(2, 6),
)


def _freeze(model: nn.Module, prefix: str) -> nn.Module:
    for name, parameter in model.named_parameters():
        if name.startswith(prefix):
            parameter.requires_grad_(False)
    return model


@case("residual", x(6))
class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(6), nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(F.gelu(self.a(self.norm(x))))


@case("module called twice", x(6))
class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


@case("module called twice, positions", x(4, 6))
class TwicePositions(Twice):
    pass


@case("convolution called twice", x(3, 6, 6))
class TwiceConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.tanh(self.layer(x)))


@case("layer norm called twice", x(3, 6))
class TwiceNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer(self.norm(x)))


@case("shared weight, own biases", x(6))
class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))


@case("same module under two names", x(6))
class Aliased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.b = self.a

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.a(x)))


@case("tied embedding and head", ids(6))
class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5)
        self.middle = nn.Linear(5, 5)
        self.head = nn.Linear(5, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.middle(self.embedding(ids))))


@case("tied head through F.linear", ids(6))
class TiedFunctional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 5)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.embedding(ids)), self.embedding.weight)


@case("siamese", lambda n: (torch.randn(n, 6), torch.randn(n, 6)))
class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.encoder(left) * self.encoder(right)


# Parameters used directly
@case("vision transformer", x(3, 4, 4))
class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 2, 2)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.positions = nn.Parameter(torch.randn(1, 5, 8))
        self.block = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), patches], dim=1) + self.positions
        return self.head(self.block(tokens)[:, 0])


@case("positions added in place", x(4, 6))
class InPlacePositions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 2)
        self.positions = nn.Parameter(torch.randn(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x += self.positions
        return self.second(x)


class Assigned(nn.Module):
    """Writes a token, or what becomes of it, into hidden states."""

    def __init__(self, write: Callable[[Tensor, Tensor, Tensor], None], *shape: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 2)
        self.token = nn.Parameter(torch.randn(*(shape or (6,))))
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        self.write(hidden, x[..., 0] > 0.3, self.token)
        return self.second(hidden.tanh())


def _write(index: Callable[[Tensor, Tensor], Any], value: Callable[[Tensor, Tensor], Tensor] | None = None) -> Any:
    def write(hidden: Tensor, mask: Tensor, token: Tensor) -> None:
        hidden[index(hidden, mask)] = token if value is None else value(token, hidden[index(hidden, mask)])

    return write


def _last(hidden: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    return torch.arange(len(hidden)), mask.sum(1).clamp(max=hidden.shape[1] - 1)


ASSIGNED: dict[str, tuple[Any, ...]] = {
    "a mask": (_write(lambda h, mask: mask),),
    "a mask, full shape": (_write(lambda h, mask: mask, lambda t, into: t.expand(into.shape)),),
    "a mask, more dimensions": (_write(lambda h, mask: mask), 1, 6),
    "an integer": (_write(lambda h, mask: (slice(None), 0)),),
    "an integer, expanded": (_write(lambda h, mask: (slice(None), -1), lambda t, into: t.expand(len(into), -1)),),
    "an integer, computed": (_write(lambda h, mask: (slice(None), 0), lambda t, into: (t.exp() * t[0]).sin()),),
    "a slice": (_write(lambda h, mask: (slice(None), slice(1, 3))), 2, 6),
    "a slice, expanded": (_write(lambda h, mask: (..., slice(1, 3)), lambda t, into: t[:2].expand(into.shape)),),
    "a place for each sample": (_write(_last),),
    "one sample alone": (_write(lambda h, mask: 0),),
    "a scalar": (_write(lambda h, mask: mask, lambda t, into: t[3]),),
}
for where, (write, *shape) in ASSIGNED.items():
    simple(f"assigned to {where}", lambda w=write, s=shape: Assigned(w, *s), x(4, 6))


@case("assigned, samples second", lambda n: (torch.randn(4, n, 6),), loss=second_dim_loss)
class AssignedSecond(Assigned):
    def __init__(self) -> None:
        super().__init__(_write(lambda h, mask: mask))


@case("assigned, flat", x(3, 6), layout="flat")
class AssignedFlat(Assigned):
    def __init__(self) -> None:
        super().__init__(_write(lambda h, mask: mask))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, 1)).unflatten(0, (len(x), -1))


@case("assigned twice, to zeros, and used", x(4, 6))
class AssignedTwice(Assigned):
    def __init__(self) -> None:
        super().__init__(_write(lambda h, mask: mask))

    def forward(self, x: Tensor) -> Tensor:
        extra = torch.zeros_like(x)
        extra[:, 1:] = self.token
        extra[x > 0] = self.token[0]
        return super().forward(x * self.token) + self.second(extra)


@case("assigned to a tensor of parameters", x(4, 6))
class AssignedTable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.token = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(6))
        self.layer = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        table = self.table * 2
        table[0] = 0
        table[torch.tensor([True, False, True, False])] = self.token.exp()
        return self.layer(torch.tanh(x * table))


class ChangedBehind(nn.Module):
    """Uses a parameter in an operation whose input is changed in place afterwards, as autograd allows."""

    def __init__(self, use: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.shift = nn.Parameter(torch.randn(4, 6))
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        used = self.use(x, self.shift)
        x += self.second(used)
        return x


for name, use in {
    "add": lambda x, shift: x + shift,
    "add from the left": lambda x, shift: shift + x,
    "subtract": lambda x, shift: x - 2 * shift,
    "subtract from": lambda x, shift: torch.sub(shift, x, alpha=0.3),
    "cat": lambda x, shift: torch.cat([shift.expand(len(x), -1, -1), x], dim=1).unflatten(1, (2, 4)).sin().sum(1),
    "stack": lambda x, shift: torch.stack([x, shift.expand(len(x), -1, -1)], dim=1).sin().sum(1),
    "where": lambda x, shift: torch.where(x > 0, shift, x),
    "expand as": lambda x, shift: shift[0].expand_as(x),
}.items():
    simple(f"changed in place behind {name}", lambda u=use: ChangedBehind(u), x(4, 6))


@case("a slice replaced by its sum with a parameter", x(4, 6))
class SliceSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.token = nn.Linear(6, 6), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer(x).clone()
        hidden[:, 0] = hidden[:, 0] + self.token
        hidden[:, 1] -= self.token
        return hidden.tanh()


@case("gpt with position embedding", ids(7))
class TinyGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 8), nn.Embedding(16, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1])
        return self.head(self.block(self.tokens(ids) + self.positions(positions)))


@case("gpt, positions with a batch dimension of one", ids(7))
class TinyGPTRow(TinyGPT):
    def forward(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1]).unsqueeze(0)
        return self.head(self.tokens(ids) + self.positions(positions))


simple("gpt, as many positions as samples", TinyGPT, ids(5), layout={"positions": "shared"})


@case("learned scale and shift", x(4, 6))
class ScaleShift(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.scale + self.shift) * self.scale


@case("container with direct parameters used twice", x(6))
class DirectTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.gain = nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * self.gain.exp()) * self.gain.view(1, 6)


@case("direct matrix product", x(4, 6))
class DirectMatrix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.weight = nn.Parameter(torch.randn(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(torch.tanh(x @ self.weight)) @ self.weight.T


@case("learned queries", x(4, 8))
class Queries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(3, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        queries = self.norm(self.queries).unsqueeze(0).expand(len(x), -1, -1)
        return self.attention(queries, x, x)[0]


@case("expanded parameter through a layer", x(6))
class ExpandedThroughLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(6))
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.start.expand(len(x), -1)) * self.layer(x)


simple(
    "weight norm",
    lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 2)),
    x(6),
)


@case("einsum with parameters", x(4, 6))
class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.core = nn.Parameter(torch.randn(4, 6, 3))
        self.out = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.einsum("btd,tde->be", x, self.core))


@case("parameter through .to and .contiguous", x(4, 6))
class Converted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.positions = nn.Parameter(torch.randn(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.positions.to(x.dtype).contiguous()


@case("embedding called twice", ids(4))
class TwiceEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.table(ids) * self.table(ids.flip(1)).cos()


def _pruned() -> nn.Module:
    layer = nn.Linear(6, 4)
    prune.random_unstructured(layer, "weight", 0.3)
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(4, 2))


simple("pruned layer", _pruned, x(6))


# Modules without a rule
class Swish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.beta = nn.Parameter(torch.tensor([0.8, 1.2]))

    def forward(self, x: Tensor, *, shift: Tensor | None = None) -> Tensor:
        y = x * torch.sigmoid(self.beta[0] * x) * self.beta[1]
        return y if shift is None else y + shift * self.beta[0]


simple("custom module", lambda: nn.Sequential(nn.Linear(6, 5), Swish(), nn.Linear(5, 2)), x(6))
simple("custom module, kwargs", Swish, x(4), kwargs=lambda n: {"shift": torch.randn(n, 4)})
simple(
    "custom module, inplace behind",
    lambda: nn.Sequential(Swish(), nn.ReLU(inplace=True), nn.Linear(6, 2)),
    x(6),
)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Any]:
        y = inputs["x"] @ self.weight
        return {"y": y, "more": [y.square(), (inputs["z"] @ self.weight,)], "n": 3}


simple("nested inputs and outputs", Pair, lambda n: ({"x": torch.randn(n, 6), "z": torch.randn(n, 6)},))


class Subclass(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.weight.sum()


simple("subclass of a known layer", lambda: Subclass(6, 3), x(6))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x.square() * w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return 2 * x * w * grad, (x.square() * grad).sum(0)


class CustomFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return Square.apply(x, self.w)


simple("autograd function without vmap", CustomFunction, x(6))


# Layouts and checkpoints
class Flattened(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(0, 1)).view(len(x), -1)


simple("flattened positions", Flattened, x(3, 6), layout={"layer": "flat"})
simple("flattened positions, one each", Flattened, x(1, 6), layout="flat")


class Frames(nn.Module):
    """Runs a model on every frame of a sample: [B, T, ...] -> [B * T, ...] and back."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.flatten(0, 1)).unflatten(0, (len(x), -1))


class FramesTwice(Frames):
    """The same on two clips of different length, so that every weight has two uses."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([super().forward(x), super().forward(x[:, 1:].cos())], dim=1)


def _video() -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(2, 4, 3, padding=1, groups=2),
        nn.GroupNorm(2, 4),
        nn.PReLU(4),
        nn.Conv2d(4, 4, 2, bias=False),
        nn.BatchNorm2d(4).eval(),
        nn.Tanh(),
        nn.ConvTranspose2d(4, 2, 2),
        nn.Tanh(),
        nn.InstanceNorm2d(2, affine=True),
        nn.Tanh(),
        nn.LayerNorm(4),
        nn.Flatten(),
        nn.Linear(32, 3),
    )


for kind, frames in ((Frames, 3), (Frames, 1), (FramesTwice, 3)):
    simple(
        f"video, {kind.__name__}, {frames}",
        lambda k=kind: k(*_video()),
        x(frames, 2, 4, 4),
        layout={"body.*": "flat"},
        train=False,
    )


@case("cnn and lstm over frames", x(3, 2, 4, 4), layout={"cnn": "flat"})
class CnnLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cnn, self.lstm, self.head = nn.Conv2d(2, 3, 3), nn.LSTM(12, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        frames = torch.relu(self.cnn(x.flatten(0, 1))).flatten(1)
        return self.head(self.lstm(frames.unflatten(0, (len(x), -1)))[0][:, -1])


class Sentences(nn.Module):
    """A recurrent module over the words of every sentence of a document."""

    def __init__(self, kind: type[nn.RNNBase], batch_first: bool, calls: int = 1) -> None:
        super().__init__()
        self.words = kind(3, 4, batch_first=batch_first, bidirectional=True)
        self.calls = calls

    def forward(self, x: Tensor) -> Tensor:
        words = x.flatten(0, 1)
        total = torch.zeros(())
        for call in range(self.calls):
            sequence = words * (call + 1)
            out, last = self.words(sequence if self.words.batch_first else sequence.transpose(0, 1))
            out = out if self.words.batch_first else out.transpose(0, 1)
            last = last[0] if isinstance(last, tuple) else last
            total = total + out.sum(1) + last.transpose(0, 1).flatten(1)
        return total.unflatten(0, (len(x), -1))


for recurrent, first, calls, sentences in (
    (nn.RNN, True, 1, 3),
    (nn.GRU, False, 1, 3),
    (nn.GRU, True, 2, 3),
    (nn.LSTM, False, 2, 1),
):
    simple(
        f"sentences, {recurrent.__name__}, {sentences}, {calls} calls, {'samples' if first else 'words'} first",
        lambda k=recurrent, f=first, c=calls: Sentences(k, f, c),
        x(sentences, 4, 3),
        layout={"words": "flat"},
    )


class Windows(nn.Module):
    """Attention within the windows of a sample, to itself or across."""

    def __init__(self, across: bool, calls: int = 1, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)
        self.across, self.calls = across, calls

    def forward(self, x: Tensor) -> Tensor:
        windows = x.flatten(0, 1)
        for _ in range(self.calls):
            memory = windows[:, :-1].sin() if self.across else windows
            windows = self.attention(windows, memory, memory)[0]
        return windows.unflatten(0, (len(x), -1))


for across in (True, False):
    for windows, calls in ((3, 1), (1, 1), (3, 2)):
        simple(
            f"windows, {'across' if across else 'self'}, {windows}, {calls} calls",
            lambda a=across, c=calls: Windows(a, c),
            x(windows, 4, 8),
            layout={"attention": "flat"},
        )
simple(
    "windows, learned key, own widths",
    lambda: Windows(True, add_bias_kv=True, kdim=8, vdim=8),
    x(3, 4, 8),
    layout={"attention*": "flat"},
)
simple("flat, module without a rule", lambda: Frames(Swish(), nn.Linear(6, 2)), x(3, 6), layout="flat")
simple("flat, module without a rule, twice", lambda: FramesTwice(Swish(), nn.Linear(6, 2)), x(3, 6), layout="flat")
simple("flat, function without vmap", lambda: Frames(CustomFunction()), x(3, 6), layout="flat")


@case("flat, parameters used directly", x(3, 6), layout="flat")
class DirectFlat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.before, self.gain = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))
        self.table = nn.Parameter(torch.randn(5, 6))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.layer(x.flatten(0, 1) * self.before) * self.gain
        return F.linear(rows.tanh(), self.table).unflatten(0, (len(x), -1)) * self.gain[0]


simple("flat, parameters used directly, one row", DirectFlat, x(1, 6), layout="flat")


@case("vision transformer over frames", x(3, 3, 4, 4), layout="flat")
class VideoTransformer(VisionTransformer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, 1)).unflatten(0, (len(x), -1))


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.body = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.body, self.first(x), use_reentrant=self.reentrant)


simple("checkpoint", lambda: Checkpointed(False), x(6))
simple("checkpoint, positions", lambda: Checkpointed(False), x(3, 6))
simple("checkpoint, reentrant", lambda: Checkpointed(True), x(6))


class CheckpointedMethod(nn.Module):
    """A checkpoint around a method that uses a parameter directly, and every kind of site."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 4)
        self.scale, self.shift = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(4, 6))
        self.recurrent, self.swish = nn.GRU(6, 6, batch_first=True), Swish()
        self.positions = nn.Embedding(7, 6)

    def middle(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x)) * self.scale + self.positions(torch.arange(4))
        return self.swish(self.recurrent(x)[0] + self.shift)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.middle, x * self.scale, use_reentrant=False)
        return self.last(checkpoint(self.middle, x, use_reentrant=False))


simple("checkpoint of a method", CheckpointedMethod, x(4, 6))


class CheckpointedBlocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(DirectTwice() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


simple("checkpoint of blocks with direct parameters", CheckpointedBlocks, x(6))
