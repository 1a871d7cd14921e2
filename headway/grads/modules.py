"""Modules without a rule: replayed as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from headway.grads.fallback import Function, Leaves, ReplayedCall, Surroundings, shape_pattern, with_tensors
from headway.grads.observe import observe
from headway.grads.sites import Call, OwnerSite


class ModuleSite(OwnerSite):
    """A module without a rule and without children: replayed as a whole."""

    def prepare(self, call: Call) -> None:
        """See `OwnerSite.prepare`: a replay draws the random numbers that the call is about to draw."""
        call.surroundings = Surroundings.of(self.engine.parameters[self.names[0]].device)

    def listen(self, call: Call, args: Any, kwargs: Any, output: Any) -> Any:
        """See `OwnerSite.listen`."""
        assert call.surroundings is not None
        leaves, spec = tree_flatten((call.args, call.kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        tensors = [leaves[i] for i in places]
        if self.sees_no_samples(tensors):
            return self.share(call, output)
        outputs, out_spec = tree_flatten(output)
        wanted = [i for i, leaf in enumerate(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not wanted:
            return output
        if self._ignores_samples(call, [outputs[i] for i in wanted], wanted):
            return self.share(call, output)
        alone = [None if i in places else leaf for i, leaf in enumerate(leaves)]

        def replay(parameters: Leaves, tensors: Sequence[Tensor], index: Tensor) -> list[Tensor]:
            args, kwargs = tree_unflatten(with_tensors(alone, places, tensors), spec)
            state = {local: parameters[name] for local, name in self.own.items()}
            state |= {name: buffer.clone() for name, buffer in self.module.named_buffers()}
            again = tree_flatten(self.again(state, args, kwargs))[0]
            return [again[i] for i in wanted]

        parameters = {name: self.engine.parameters[name] for name in self.names}
        kind = (self.path, tuple(places), shape_pattern([tensor.shape for tensor in tensors]))
        function = Function(self.path, replay, parameters, kind, self.engine.splits, call.surroundings.settled())
        own = [outputs[i] for i in wanted]
        call_again = ReplayedCall(self.engine, function, own, tensors)
        outputs = with_tensors(outputs, wanted, observe(call_again, own, tensors))
        return tree_unflatten(outputs, out_spec)

    def _ignores_samples(self, call: Call, outputs: Sequence[Tensor], wanted: Sequence[int]) -> bool:
        """Whether a call looks at the shapes of samples alone, such as a table of positions that is given the tokens.

        Its outputs have one row for all samples, and are the same for the samples in the opposite order.
        """
        engine, hint = self.engine, self.engine.batch_hint
        if hint is None or hint == 1 or engine.layouts.declared(self.path) is not None:
            return False
        if any(output.dim() < 2 or len(output) != 1 for output in outputs):
            return False

        def turned(leaf: Any) -> Any:
            carries = isinstance(leaf, Tensor) and (leaf.requires_grad or engine.is_input(leaf))
            return leaf.flip(0) if carries and leaf.dim() else leaf

        args, kwargs = tree_map(turned, (call.args, call.kwargs))
        state = {local: engine.parameters[name].detach() for local, name in self.own.items()}
        assert call.surroundings is not None
        with engine.paused(), torch.no_grad(), call.surroundings.restored():
            again = tree_flatten(self.again(state, args, kwargs))[0]
        return all(torch.equal(again[i], output) for i, output in zip(wanted, outputs, strict=True))
