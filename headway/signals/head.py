"""GMC of groups by one linear layer and the optimizer's own moments, where a step is too cheap for a meter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import LossError, SignalError, StateError
from headway.grads.accounting import check_losses
from headway.grads.hooks import Hook
from headway.grads.persample import widened
from headway.signals.base import Batch
from headway.signals.groups import advanced, check_evidence, hedged
from headway.signals.losses import check_groups

PATIENCE = 100
"""Batches that the optimizer may take to its first step, as gradients may be accumulated."""


class HeadMeter:
    """Scores samples by the last layer alone, in place of a `Meter` with `GroupGMC`.

        meter = headway.HeadMeter(model.head, optimizer, groups=len(sources))
        for x, y, source in loader:
            losses = F.cross_entropy(model(x), y, reduction="none")
            scores = meter.backward(losses, groups=source)    # None for batches that are not scored
            optimizer.step()
            optimizer.zero_grad()
            sampler.update(source, scores)

    With inputs a and gradients b at the layer's outputs, a sample's gradient of the weight is the outer product of b
    and a. Its score is that of `GroupGMC` for this weight, with W = m / max(v, mean of v) and m and v those of the
    optimizer: |b| |W| |a| / sqrt(d) times hedge + (1 - hedge) p, p the evidence that b W a is above zero on average
    over the group. So it keeps no moments, and a batch that is not scored costs a plain backward pass. Unlike
    `Meter`, it compares nothing with autograd, and takes no compiled model.

    Args:
        layer: a linear layer that is called once for a batch, with one row per sample; in general the model's last.
        optimizer: one that keeps `exp_avg` and `exp_avg_sq` of the layer's weight, such as Adam or AdamW.
        groups: the number of groups (sources).
        every: score each k-th batch.
        hedge: what a group without evidence keeps of its scores, in [0, 1].
        errors: so many standard errors above zero count as full evidence.
        smoothing: of the evidence, from one scored batch to the next, in [0, 1).

    Raises:
        SignalError: the arguments make no sense.
    """

    def __init__(
        self,
        layer: nn.Linear,
        optimizer: torch.optim.Optimizer,
        groups: int,
        *,
        every: int = 12,
        hedge: float = 0.7,
        errors: float = 3.0,
        smoothing: float = 0.6,
    ) -> None:
        if not isinstance(layer, nn.Linear):
            raise SignalError(f"expected a linear layer, got {type(layer).__name__}; use Meter with GroupGMC")
        if groups < 1 or every < 1:
            raise SignalError(f"expected groups and every of at least 1, got {groups} and {every}")
        check_evidence(hedge, errors, smoothing)
        if not any(layer.weight is own for group in optimizer.param_groups for own in group["params"]):
            raise SignalError("expected an optimizer that trains the layer's weight, got one without it")
        self._layer, self._optimizer, self._groups = layer, optimizer, groups
        self.every, self.hedge, self.errors, self.smoothing = every, hedge, errors, smoothing
        self._batches = 0
        self._caught: list[tuple[Tensor, Tensor]] = []
        self._known = torch.zeros(groups, 2, dtype=torch.float64, device=layer.weight.device)
        self._handle = layer.register_forward_hook(Hook(self._listen))

    def _listen(self, layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if self._batches % self.every == 0 and output.requires_grad and args:
            output.register_hook(partial(self._catch, args[0].detach()))

    def _catch(self, inputs: Tensor, grad: Tensor) -> None:
        self._caught.append((inputs, grad))

    def backward(self, losses: Tensor, *, groups: Tensor) -> Tensor | None:
        """Run the backward pass of the mean loss, and score the samples of each k-th batch.

        Args:
            losses: one loss per sample [B], with the graph that leads to the model.
            groups: the group of each sample [B].

        Returns:
            One score per sample [B], or None.

        Raises:
            LossError: losses of another shape, or a layer that was not called once with a row per sample.
            SignalError: groups out of range, or an optimizer without moments.
        """
        check_losses(losses, groups)
        self._caught.clear()  # passes of somebody else
        losses.mean().backward()
        scored = self._batches % self.every == 0
        self._batches += 1
        return self._score(losses.detach(), groups) if scored else None

    @torch.no_grad()
    def _score(self, losses: Tensor, groups: Tensor) -> Tensor:
        caught, self._caught = self._caught, []
        check_groups(Batch(losses, groups), self._groups)
        samples = losses.shape[0]
        if len(caught) != 1 or any(tensor.dim() != 2 or len(tensor) != samples for tensor in caught[0]):
            got = [list(inputs.shape) for inputs, _ in caught]
            raise LossError(
                f"expected one call of the layer with inputs [{samples}, {self._layer.in_features}], got "
                f"{got or 'none'}; make the meter before the forward pass, or use Meter with GroupGMC"
            )
        a, b = (tensor.to(widened(tensor.dtype)) for tensor in caught[0])
        weights = self._weights().to(a).t()
        groups = groups.to(b.device).long()
        self._known = advanced(self._known.to(b.device), torch.linalg.vecdot(a @ weights, b), groups, self.smoothing)
        coupling = torch.linalg.vecdot(a.abs() @ weights.abs(), b.abs())
        factor = samples / weights.numel() ** 0.5  # b is the gradient of the mean loss
        return coupling * hedged(self._known, self.hedge, self.errors, factor).to(coupling)[groups]

    def _weights(self) -> Tensor:
        """W; zeros before the optimizer's first step."""
        state = self._optimizer.state.get(self._layer.weight)
        if not state and self._batches <= PATIENCE:
            return torch.zeros_like(self._layer.weight)
        if not state or "exp_avg" not in state or "exp_avg_sq" not in state:
            kind = type(self._optimizer).__name__
            raise SignalError(
                f"expected an optimizer with exp_avg and exp_avg_sq, such as Adam, got {kind}; use Meter with GroupGMC"
            )
        m: Tensor = state["exp_avg"]
        v: Tensor = state["exp_avg_sq"]
        return m / torch.maximum(v, v.mean())

    def detach(self) -> None:
        """Remove the hook."""
        self._handle.remove()

    def state_dict(self) -> dict[str, Any]:
        """What later scores depend on, besides the model and its optimizer."""
        return {"batches": self._batches, "evidence": self._known.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            StateError: it has another number of groups.
        """
        if state["evidence"].shape != self._known.shape:
            raise StateError(f"expected a state of {self._groups} groups, got {len(state['evidence'])}")
        self._batches, self._known = state["batches"], state["evidence"].clone()
