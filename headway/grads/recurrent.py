"""nn.RNN, nn.GRU and nn.LSTM as units, and their cells.

Their kernels are closed. During the backward pass every layer runs again, for the whole batch at once: its states
give the gates of all steps in two products, and a loop over the steps, backwards, gives the gradients at the gates'
inputs. From there on every weight is a Linear over time steps. A cell is one step; it is run in plain operations
from the start, so that nothing has to be run again.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from headway.errors import RuleError
from headway.grads.fallback import close
from headway.grads.linear import outer_product, sum_positions
from headway.grads.observe import observe
from headway.grads.passes import Contribution, Pass
from headway.grads.persample import PerSample, promote
from headway.grads.sites import Call, OwnerSite, Part, UnitSite

Pair = tuple[Tensor, Tensor]
"""The inputs [B, T, d] of a weight's linear map, and the gradients at its outputs [B, T, p]."""


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
        call_again = RecurrentCall(self, [outputs.detach().clone()] if self.engine.checking else None)
        observed = observe(call_again, [outputs, *lasts], [sequence, *states])
        return observed[0], (observed[1:] if isinstance(last, tuple) else observed[1])


class RecurrentCall:
    """A listener on one call of a recurrent module."""

    def __init__(self, site: RecurrentSite, kept: list[Tensor] | None) -> None:
        self.engine, self.path, self.names = site.engine, site.path, site.names
        self._site, self._kept = site, kept

    def collect(self, current: Pass, saved: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """See `Listener.collect`."""
        engine, site, module = self.engine, self._site, self._site.module
        batch = 0 if module.batch_first else 1
        each = engine.layouts.require_rows(self.path, saved[0].shape, current.samples, batch)
        with engine.paused(), torch.no_grad(), torch.autocast(saved[0].device.type, enabled=False):
            outputs, found = gate_gradients(module, promote(*saved), promote(*grads))
        kept, self._kept = engine.layouts.in_order(self._kept), None
        if kept is not None and not close(outputs, kept[0]):
            raise RuleError(
                f"{self.path}: expected the recurrence of {type(module).__name__}, got other outputs; "
                f"give it a rule with register_rule"
            )

        def block(start: int, stop: int) -> dict[str, PerSample]:
            forms: dict[str, PerSample] = {}
            for local, name in site.own.items():
                a, b = (tensor[start:stop] for tensor in found[local.replace("bias", "weight")])
                forms[name] = sum_positions(b) if local.startswith("bias") else outer_product(a, b)
            return forms

        footprint = max(engine.parameters[name].numel() for name in self.names)
        current.add(Contribution(self.names, footprint, block).folded(each, site.size))


def gate_gradients(
    module: nn.RNNBase, saved: Sequence[Tensor], grads: Sequence[Tensor]
) -> tuple[Tensor, dict[str, Pair]]:
    """Run a recurrent module again, and backwards.

    Args:
        module: an nn.RNN, nn.GRU or nn.LSTM.
        saved: its inputs, [B, T, d] or [T, B, d] as the module wants them, and the initial states
            [layers * directions, B, h], or nothing for zeros.
        grads: the gradients at its outputs and at its last states.

    Returns:
        The module's outputs, and for each weight the inputs and the output gradients of its linear map.
    """
    sequence, *states = saved
    directions = 2 if module.bidirectional else 1
    x = sequence if module.batch_first else sequence.transpose(0, 1)
    layers: list[list[Layer]] = []
    for index in range(module.num_layers):
        suffixes = [f"l{index}", f"l{index}_reverse"][:directions]
        starts = [[state[index * directions + k] for state in states] for k in range(directions)]
        layers.append([Layer(module, x, *one) for one in zip(starts, suffixes, strict=True)])
        x = torch.cat([layer.outputs for layer in layers[-1]], dim=2)
    outputs = x if module.batch_first else x.transpose(0, 1)
    found: dict[str, Pair] = {}
    grad = grads[0] if module.batch_first else grads[0].transpose(0, 1)
    for index in reversed(range(module.num_layers)):
        inputs = []
        for k, (layer, part) in enumerate(zip(layers[index], grad.chunk(directions, dim=2), strict=True)):
            lasts = [last[index * directions + k] for last in grads[1:]]
            inputs.append(layer.backwards(part, lasts, found, wanted=index > 0))
        grad = inputs[0] if len(inputs) == 1 else inputs[0] + inputs[1]
    return outputs, found


class Layer:
    """One layer of a recurrent module in one direction: the gates of all steps, and the way back through them.

    Args:
        module: the recurrent module.
        x: inputs [B, T, d].
        start: initial states [B, h], or nothing for zeros.
        suffix: how its parameters' names end.

    Attributes:
        outputs: [B, T, h].
    """

    def __init__(self, module: nn.RNNBase, x: Tensor, start: Sequence[Tensor], suffix: str) -> None:
        self._mode, self._suffix, self._reverse = module.mode, suffix, suffix.endswith("_reverse")
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        found = [getattr(module, f"{name}_{suffix}", None) for name in names]
        own = [None if one is None else one.detach().to(x.dtype) for one in found]
        w_ih, w_hh, b_ih, b_hh, self._w_hr = own
        assert w_ih is not None and w_hh is not None
        self._w_ih, self._w_hh = w_ih, w_hh
        self._x = x.flip(1) if self._reverse else x
        width = w_hh.shape[1]
        sizes = (width, module.hidden_size)[: 2 if self._mode == "LSTM" else 1]
        self._start = list(start) or [x.new_zeros(len(x), size) for size in sizes]
        states = [state.unsqueeze(0).contiguous() for state in self._start]
        run = getattr(torch._VF, self._mode.lower())
        weights = [one for one in own if one is not None]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # weights that are not in one piece of memory
            hx = states if self._mode == "LSTM" else states[0]
            h: Tensor = run(self._x, hx, weights, module.bias, 1, 0.0, False, False, True)[0]
        self.outputs = h.flip(1) if self._reverse else h
        self._before = torch.cat([self._start[0].unsqueeze(1), h[:, :-1]], 1)
        self._h = h
        self._gates = F.linear(self._x, w_ih, b_ih), F.linear(self._before, w_hh, b_hh)

    def backwards(self, grad: Tensor, lasts: Sequence[Tensor], found: dict[str, Pair], wanted: bool) -> Tensor:
        """Go back from the gradients at the outputs [B, T, h] and at the last states [B, h].

        `found` takes the linear maps of the layer's weights. The gradients at the inputs [B, T, d] are given back if
        they are `wanted` by a layer below.
        """
        grad = grad.flip(1) if self._reverse else grad
        steps = {"LSTM": self._lstm, "GRU": self._gru}.get(self._mode, self._rnn)
        at_input, at_state = steps(grad, lasts, found)
        found[f"weight_ih_{self._suffix}"] = (self._x, at_input)
        found[f"weight_hh_{self._suffix}"] = (self._before, at_state)
        if not wanted:
            return grad
        below = at_input @ self._w_ih
        return below.flip(1) if self._reverse else below

    def _rnn(self, grad: Tensor, lasts: Sequence[Tensor], found: dict[str, Pair]) -> tuple[Tensor, Tensor]:
        """h = f(z): dz = dh f'(z)."""
        slope = 1 - self._h.square() if self._mode == "RNN_TANH" else (self._h > 0).to(grad)
        dz, dh = torch.empty_like(slope), lasts[0]
        for t in reversed(range(grad.shape[1])):
            dz[:, t] = (dh + grad[:, t]) * slope[:, t]
            dh = dz[:, t] @ self._w_hh
        return dz, dz

    def _gru(self, grad: Tensor, lasts: Sequence[Tensor], found: dict[str, Pair]) -> tuple[Tensor, Tensor]:
        """h' = (1 - u) n + u h with n = tanh(ni + r nh): all gradients at the gates are dh' times a constant."""
        (ri, ui, ni), (rh, uh, nh) = (gates.chunk(3, dim=2) for gates in self._gates)
        r, u = (ri + rh).sigmoid(), (ui + uh).sigmoid()
        n = (ni + r * nh).tanh()
        new = (1 - u) * (1 - n.square())
        at_state = torch.stack([new * nh * r * (1 - r), (self._before - n) * u * (1 - u), new * r], 2)
        dh, dhs = lasts[0], torch.empty_like(n)
        for t in reversed(range(grad.shape[1])):
            dhs[:, t] = dh = dh + grad[:, t]
            dh = torch.addmm(dh * u[:, t], (dh.unsqueeze(1) * at_state[:, t]).flatten(1), self._w_hh)
        dz = at_state.mul_(dhs.unsqueeze(2))
        return torch.stack([dz[:, :, 0], dz[:, :, 1], dhs * new], 2).flatten(2), dz.flatten(2)

    def _lstm(self, grad: Tensor, lasts: Sequence[Tensor], found: dict[str, Pair]) -> tuple[Tensor, Tensor]:
        """c' = f c + i g, h = o tanh(c'): the gradients at i, f, g are dc' times a constant, that at o is one of dh."""
        zi, zf, zg, zo = (self._gates[0] + self._gates[1]).chunk(4, dim=2)
        i, f, g, o = zi.sigmoid(), zf.sigmoid(), zg.tanh(), zo.sigmoid()
        cells = torch.empty_like(i)
        cell, added = self._start[1], i * g
        for t in range(grad.shape[1]):
            cells[:, t] = cell = torch.addcmul(added[:, t], f[:, t], cell)
        before = torch.cat([self._start[1].unsqueeze(1), cells[:, :-1]], 1)
        squashed = cells.tanh()
        of_cell = torch.stack([g * i * (1 - i), before * f * (1 - f), i * (1 - g.square())], 2)
        of_state, through = squashed * o * (1 - o), o * (1 - squashed.square())
        dz, projected = torch.empty_like(self._gates[0]).unflatten(2, (4, -1)), torch.empty_like(self._h)
        dh, dc = lasts
        for t in reversed(range(grad.shape[1])):
            dh = dh + grad[:, t]
            if self._w_hr is not None:
                projected[:, t] = dh
                dh = dh @ self._w_hr
            dc = torch.addcmul(dc, dh, through[:, t])
            torch.mul(dc.unsqueeze(1), of_cell[:, t], out=dz[:, t, :3])
            torch.mul(dh, of_state[:, t], out=dz[:, t, 3])
            dh, dc = dz[:, t].flatten(1) @ self._w_hh, dc * f[:, t]
        if self._w_hr is not None:
            found[f"weight_hr_{self._suffix}"] = (o * squashed, projected)
        return dz.flatten(2), dz.flatten(2)


CELL_PARAMETERS = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}
"""What a cell has; pruning and old weight_norm rename them."""


class CellSite(UnitSite):
    """A watched nn.RNNCell, nn.GRUCell or nn.LSTMCell: its two linear maps are listened to."""

    module: nn.RNNCellBase

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The cell in plain operations, in torch's own order."""
        module, is_lstm = self.module, isinstance(self.module, nn.LSTMCell)
        if not self.engine.listening() or input.dim() != 2:
            return type(module).forward(module, input, hx)
        if hx is None:
            zeros = input.new_zeros(len(input), module.hidden_size)
            hx = (zeros, zeros) if is_lstm else zeros
        h, cell = hx if is_lstm else (hx, None)
        zi = F.linear(input, module.weight_ih, module.bias_ih)
        zh = F.linear(h, module.weight_hh, module.bias_hh)
        self.engine.count_use(self.names, self.path, [zi])
        widths = [(a.shape[1], b.shape[1]) for a, b in ((input, zi), (h, zh))]
        part = Part(self, self.own, _cell_forms, footprint=sum(sum(own) + min(own) for own in widths))
        zi, zh = observe(part, [zi, zh], [input, h])
        if isinstance(module, nn.LSTMCell):
            i, f, g, o = (zh + zi).chunk(4, dim=1)
            assert cell is not None
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            return o.sigmoid() * cell.tanh(), cell
        if isinstance(module, nn.GRUCell):
            reset, update, _ = (zh + zi).chunk(3, dim=1)
            new = (zi.chunk(3, dim=1)[2] + zh.chunk(3, dim=1)[2] * reset.sigmoid()).tanh()
            return (h - new) * update.sigmoid() + new
        return (torch.tanh if module.nonlinearity == "tanh" else torch.relu)(zh + zi)


def _cell_forms(inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> dict[str, PerSample]:
    """The two linear maps of a cell: of its input, and of its state."""
    forms: dict[str, PerSample] = {}
    for suffix, a, b in zip(("ih", "hh"), inputs, grads, strict=True):
        a, b = promote(a, b)
        forms[f"weight_{suffix}"], forms[f"bias_{suffix}"] = outer_product(a, b), sum_positions(b)
    return forms
