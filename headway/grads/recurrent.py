"""nn.RNN, nn.GRU and nn.LSTM as units.

Their kernels are closed, so the recurrence is replayed step by step during the backward pass, for the
whole batch at once, with the gradients at the gates' inputs read off. From there on every weight is a
Linear over time steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from headway.errors import RuleError
from headway.grads.fallback import close
from headway.grads.folding import by_sample
from headway.grads.linear import outer_product, sum_positions
from headway.grads.observe import observe
from headway.grads.persample import PerSample, promote
from headway.grads.sites import Call, OwnerSite

Trace = dict[str, tuple[Tensor, list[Tensor]]]
"""Weight -> inputs [B, T, d] of its linear map, and the outputs: one [B, T, p], or one [B, p] per step."""


class RecurrentSite(OwnerSite):
    """A watched recurrent module."""

    module: nn.RNNBase

    def prepare(self, call: Call) -> None:
        """Refuse what cannot be replayed."""
        module = self.module
        if any(isinstance(arg, PackedSequence) for arg in [*call.args, *call.kwargs.values()]):
            raise RuleError(
                f"{self.path}: expected a padded tensor, got a PackedSequence; pass padded sequences and "
                f"leave the padding out of the losses"
            )
        if module.dropout > 0 and module.training and module.num_layers > 1:
            raise RuleError(
                f"{self.path}: expected dropout=0 between the layers, got {module.dropout}, which cannot be "
                f"replayed; stack single-layer modules with nn.Dropout between them"
            )

    def listen(self, call: Call, args: Any, kwargs: Any, output: Any) -> Any:
        """See `OwnerSite.listen`."""
        bound = inspect.signature(self.module.forward).bind(*args, **kwargs).arguments
        sequence, state = bound["input"], bound.get("hx")
        if sequence.dim() != 3:
            raise RuleError(
                f"{self.path}: expected a batch of sequences (3 dimensions), got shape {list(sequence.shape)}; "
                f"add a dimension for the samples"
            )
        states = () if state is None else state if isinstance(state, tuple) else (state,)
        outputs, last = output
        lasts = last if isinstance(last, tuple) else (last,)
        self.engine.count_use(self.names)
        replayed = RecurrentCall(self)
        if self.engine.checking:
            replayed.kept = outputs.detach().clone()
        observed = observe(replayed, [outputs, *lasts], [sequence, *states])
        return observed[0], (observed[1:] if isinstance(last, tuple) else observed[1])


class RecurrentCall:
    """One call of a recurrent module; after `collect`, its contribution."""

    def __init__(self, site: RecurrentSite) -> None:
        """Note the parameters."""
        self.site = site
        self.kept: Tensor | None = None
        self.params = tuple(site.own.values())
        self.footprint = max(site.engine.parameters[name].numel() for name in self.params)
        self._gradients: dict[str, tuple[Tensor, Tensor]] = {}

    def collect(self, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        engine = self.site.engine
        if engine.current is None or engine.is_paused:
            return
        module = self.site.module
        batch = 0 if module.batch_first else 1
        each = engine.layouts.require_rows(self.site.path, saved[0].shape, engine.current.samples, batch)
        sequence, *states = promote(*saved)
        cotangents = promote(*grads)
        device = sequence.device.type
        with engine.paused(), torch.enable_grad(), torch.autocast(device, enabled=False):
            outputs, trace = replay(module, sequence, states)
            points = [point for _, outputs_of in trace.values() for point in outputs_of]
            found = iter(torch.autograd.grad(outputs, points, cotangents, allow_unused=True, materialize_grads=True))
        kept, self.kept = self.kept, None
        if kept is not None and not close(outputs[0].detach(), kept):
            raise RuleError(
                f"{self.site.path}: expected the recurrence of {type(module).__name__}, got other outputs; "
                f"give it a rule with register_rule"
            )
        for name, (inputs, points) in trace.items():
            at_outputs = [next(found) for _ in points]
            b = at_outputs[0] if at_outputs[0].dim() == 3 else torch.stack(at_outputs, 1)
            self._gradients[name] = (inputs.detach(), b)
        engine.current.add(by_sample(self, each, engine.parameters))

    def block(self, start: int, stop: int) -> Mapping[str, PerSample]:
        """See `Contribution.block`."""
        forms: dict[str, PerSample] = {}
        for local, name in self.site.own.items():
            weight = local.replace("bias", "weight")
            a, b = (tensor[start:stop] for tensor in self._gradients[weight])
            forms[name] = sum_positions(b) if local.startswith("bias") else outer_product(a, b)
        return forms


def replay(module: nn.RNNBase, sequence: Tensor, states: Sequence[Tensor]) -> tuple[list[Tensor], Trace]:
    """Run a recurrent module in plain operations.

    Args:
        module: an nn.RNN, nn.GRU or nn.LSTM.
        sequence: inputs, [B, T, d] or [T, B, d] as the module wants them.
        states: initial states [layers * directions, B, h], or nothing for zeros.

    Returns:
        The module's outputs, flat (outputs, last states), and for each weight the inputs and outputs of
        its linear map, samples first.
    """
    x = sequence if module.batch_first else sequence.transpose(0, 1)
    trace: Trace = {}
    lasts: list[list[Tensor]] = []
    directions = 2 if module.bidirectional else 1
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"l{layer}" + ("_reverse" if direction else "")
            index = layer * directions + direction
            start = [state[index] for state in states]
            out, last = _run_layer(module, x.flip(1) if direction else x, start, suffix, trace)
            outputs.append(out.flip(1) if direction else out)
            lasts.append(last)
        x = torch.cat(outputs, dim=2)
    stacked = [torch.stack(column) for column in zip(*lasts, strict=True)]
    return [x if module.batch_first else x.transpose(0, 1), *stacked], trace


def _point(gates: Tensor) -> Tensor:
    """A tensor whose gradient will be asked for."""
    return gates if gates.requires_grad else gates.requires_grad_()


def _run_layer(
    module: nn.RNNBase, x: Tensor, start: Sequence[Tensor], suffix: str, trace: Trace
) -> tuple[Tensor, list[Tensor]]:
    """One layer in one direction: outputs [B, T, h] and last states [B, h]."""

    def parameter(name: str) -> Tensor | None:
        value = getattr(module, f"{name}_{suffix}", None)
        return None if value is None else value.detach().to(x.dtype)

    w_ih, w_hh, w_hr = parameter("weight_ih"), parameter("weight_hh"), parameter("weight_hr")
    b_ih, b_hh = parameter("bias_ih"), parameter("bias_hh")
    assert w_ih is not None and w_hh is not None
    from_input = _point(F.linear(x, w_ih, b_ih))
    width = w_hh.shape[1]
    h = start[0] if start else x.new_zeros(len(x), width)
    cell = start[1] if len(start) > 1 else x.new_zeros(len(x), module.hidden_size)
    before, from_state, raw, projected = [], [], [], []
    for t in range(x.shape[1]):
        before.append(h)
        from_state.append(_point(F.linear(h, w_hh, b_hh)))
        h, cell = _cell(module, from_input[:, t], from_state[-1], h, cell)
        if w_hr is not None:
            raw.append(h)
            h = _point(F.linear(h, w_hr))
        projected.append(h)
    trace[f"weight_ih_{suffix}"] = (x, [from_input])
    trace[f"weight_hh_{suffix}"] = (torch.stack(before, 1), from_state)
    if w_hr is not None:
        trace[f"weight_hr_{suffix}"] = (torch.stack(raw, 1), projected)
    return torch.stack(projected, 1), [h, cell] if module.mode == "LSTM" else [h]


def _cell(module: nn.RNNBase, zi: Tensor, zh: Tensor, h: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One step from the gates' two inputs [B, gates * h] to the new states."""
    if module.mode == "LSTM":
        i, f, g, o = (zi + zh).chunk(4, dim=1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell
    if module.mode == "GRU":
        (ri, ui, ni), (rh, uh, nh) = zi.chunk(3, dim=1), zh.chunk(3, dim=1)
        update = (ui + uh).sigmoid()
        candidate = (ni + (ri + rh).sigmoid() * nh).tanh()
        return (1 - update) * candidate + update * h, cell
    return (torch.tanh if module.mode == "RNN_TANH" else torch.relu)(zi + zh), cell
