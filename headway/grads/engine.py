"""The engine: hooks on a model that reduce every sample's gradient during the one backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from headway.errors import ModelError, warn
from headway.grads.attention import AttentionSite
from headway.grads.experts import ExpertsSite, is_experts
from headway.grads.fallback import Function, Splits
from headway.grads.hooks import Hook
from headway.grads.layout import Layout, Layouts
from headway.grads.modules import ModuleSite
from headway.grads.normalisation import refuse_batch_statistics
from headway.grads.passes import Pass
from headway.grads.persample import Reduction
from headway.grads.recurrent import CELL_PARAMETERS, CellSite, RecurrentSite
from headway.grads.registry import has_usual_names, kind_of, rule_for
from headway.grads.rule_sites import RuleSite
from headway.grads.scratch import Scratch
from headway.grads.sharded import ShardedPass, Sharding
from headway.grads.sites import Container, Site
from headway.grads.uses import Uses

if TYPE_CHECKING:
    from headway.grads.triton_kernels import TritonKernels

_ATTACHED: weakref.WeakKeyDictionary[nn.Module, Engine] = weakref.WeakKeyDictionary()
"""The engine that is attached to a module: there can be only one, since it trains what it scores."""

_PLAIN_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Containers whose own forward, if they have one, uses no parameter."""

_RECURRENCES = (nn.RNN.forward, nn.GRU.forward, nn.LSTM.forward)
"""What is replayed as a recurrence; a subclass with a forward of its own is a module like any other."""

_CELLS = (nn.RNNCell, nn.GRUCell, nn.LSTMCell)


class Engine:
    """Per-sample reductions of a model's gradients.

    The engine holds hooks, no numbers of its own. Between `attach` and `detach`, a forward pass with
    gradients enabled is observed while `armed`; `run` opens the pass whose backward is reduced.

    Args:
        model: the model, not wrapped.
        names: the parameters to score, as in `model.named_parameters()`.
        layout: where the samples are, see `Layouts`.
        simultaneous: let layers with several positions sum their weight's gradient from the per-sample
            gradients, which saves a product per layer.
        kernels: what reduces such layers on a device.
        sharding: how the model is sharded, if it is.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Collection[str],
        layout: Layout | Mapping[str, Layout] | None = None,
        simultaneous: bool = True,
        kernels: TritonKernels | None = None,
        sharding: Sharding | None = None,
    ) -> None:
        self.model = model
        self.layouts = Layouts(layout)
        self.simultaneous = simultaneous and sharding is None
        self.sharding = sharding
        own = {name: parameter for name, parameter in model.named_parameters() if name in names}
        self.parameters: dict[str, nn.Parameter] = {name: self.in_use(parameter) for name, parameter in own.items()}
        self.attached = False
        self.armed = True
        self.checking = True
        self._new: set[Hashable] = set()  # calls of the last forward that are compared with their replays
        self.current: Pass | None = None
        self.depth = 0
        self._saw_autocast: torch.dtype | None = None
        self._device_type = next((p.device.type for p in self.parameters.values()), "cpu")
        self._paused = False
        self._deaf = False
        self._followed = False
        self._names = {id(p): name for named in (own, self.parameters) for name, p in named.items()}
        self._sizes = {name: parameter.numel() for name, parameter in self.parameters.items()}
        self._inputs: set[int] = set()
        self.uses = Uses(model, self._names)
        self.has_kernels = kernels is not None
        self._scratch = Scratch(kernels)
        self.splits: Splits = {}
        self.apart: dict[Hashable, bool] = {}
        self.ruled: dict[Hashable, bool] = {}
        self._sites: list[Site] = []
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Register the hooks; an engine that is attached to any of the same modules has to give way."""
        for module in self.model.modules():
            other = _ATTACHED.get(module)
            if other is not None:
                warn(
                    f"another meter is attached to {type(module).__name__}; it is detached now (one meter can have "
                    f"several signals)"
                )
                other.detach()
        for module in self.model.modules():
            _ATTACHED[module] = self
        self.attached = True
        for site in self._make_sites():
            self._sites.append(site)
            self._handles += site.attach()

    def check_attached(self) -> None:
        """Before a pass: put parameters back that an interrupted forward has left replaced.

        Raises:
            ModelError: the hooks are gone.
        """
        if not self.attached:
            raise ModelError(
                "expected an attached meter, got one that was detached, replaced by another meter on the same model, "
                "or copied; make a new one and load_state_dict() what this one's state_dict() gives"
            )
        if self.depth:
            for site in self._sites:
                site.release_places()
            self.depth = 0

    def detach(self) -> None:
        """Remove every trace from the model."""
        self.attached = False
        for module in self.model.modules():
            if _ATTACHED.get(module) is self:
                del _ATTACHED[module]
        for handle in self._handles:
            handle.remove()
        for site in self._sites:
            site.release()
        self._handles.clear()
        self._sites.clear()
        self._scratch.release()

    def __getstate__(self) -> dict[str, Any]:
        """A copy is detached: the hooks stay with this model, see `headway.grads.hooks`."""
        fresh: dict[str, Any] = {"attached": False, "current": None, "depth": 0, "splits": {}, "apart": {}, "ruled": {}}
        return {**self.__dict__, **fresh, "_scratch": Scratch(), "_sites": [], "_handles": [], "_new": set()}

    def _make_sites(self) -> Iterator[Site]:
        """One site for each module that has to be watched."""
        units: set[str] = set()
        for path, module in self.model.named_modules():
            if any(path.startswith(unit) for unit in units):
                continue
            if isinstance(module, _BatchNorm) and self.parameters:
                self._handles.append(module.register_forward_pre_hook(Hook(self._guard(path or "model"))))
            own, kind = self._scored(module), kind_of(module)
            if (isinstance(module, nn.RNNBase) or kind is nn.MultiheadAttention) and not module.batch_first:
                self.layouts.positions_first_seen = path
            rule = rule_for(module)
            site: Any = None
            if isinstance(module, nn.RNNBase) and kind.forward in _RECURRENCES and rule is None:
                site = RecurrentSite
            elif kind in _CELLS and rule is None and own.keys() <= CELL_PARAMETERS:
                site = CellSite
            elif kind is nn.MultiheadAttention:
                site, own = AttentionSite, self._scored(module, recurse=True)
                units |= {f"{path}." if path else ""} if own else set()
            elif rule is not None and has_usual_names(module, own):
                site = partial(RuleSite, rule=rule)
            elif own and is_experts(module, own):
                site = ExpertsSite
            elif next(module.children(), None) is None:
                site = ModuleSite
            elif kind not in _PLAIN_CONTAINERS and self.parameters:
                yield Container(self, path, module)
            if own and site is not None:
                yield site(self, path, module, own)

    def _scored(self, module: nn.Module, recurse: bool = False) -> dict[str, str]:
        """The names in the model of a module's scored parameters, by their names in the module."""
        found = module.named_parameters(recurse=recurse, remove_duplicate=False)
        return {local: self._names[id(parameter)] for local, parameter in found if id(parameter) in self._names}

    def _guard(self, path: str) -> Any:
        def refuse(module: nn.Module, args: Any) -> None:
            if self.listening():
                refuse_batch_statistics(path, module)

        return refuse

    # What sites ask

    def listening(self) -> bool:
        """Whether a forward pass is to be observed."""
        return self.armed and not self._paused and torch.is_grad_enabled()

    @property
    def collecting(self) -> Pass | None:
        """The pass that gradients which come in belong to, or None if they are somebody else's."""
        return None if self.is_paused else self.current

    @property
    def is_paused(self) -> bool:
        """Whether gradients that come in are somebody else's."""
        return self._paused or self._deaf

    @property
    def in_backward(self) -> bool:
        """Whether a backward pass is under way, in which checkpoints run their part of the forward again."""
        return self.current is not None or self._deaf

    def in_use(self, parameter: Tensor) -> Any:
        """The tensor that stands in a parameter's place while its module runs: another one if it is sharded."""
        return parameter if self.sharding is None else self.sharding.in_use(parameter)

    def name_of(self, parameter: Tensor) -> str | None:
        """The name of a scored parameter, or None."""
        return self._names.get(id(parameter))

    def count_use(
        self, names: Sequence[str], place: str = "", tensors: Sequence[Tensor] = (), call: Hashable = None
    ) -> None:
        """Note that parameters take part in a forward; a recomputation during the backward is not a new use.

        Args:
            names: the parameters.
            place: what uses them, as layouts name it.
            tensors: the tensors of the call in which the samples will have to be found, its output first.
            call: what tells it from other calls at the place.
        """
        if torch.is_autocast_enabled(self._device_type):
            self._saw_autocast = torch.get_autocast_dtype(self._device_type)
        if not self.in_backward:
            self.uses.add(names, place, tensors, call)

    def note_following(self) -> None:
        """Note that an operation on parameters was observed; a checkpoint may run it again outside of any module."""
        self._followed = True

    def is_new(self, function: Function) -> bool:
        """Whether a call that will be replayed is to be compared with the replay, for which its outputs are kept.

        A call that has drawn random numbers always is: in another batch it may draw them for each sample. What was new
        in a forward is so until its pass ends: a checkpoint that runs it again has to keep what it kept the first time.
        """
        is_new = self.checking or function.call not in self.splits or bool(function.surroundings.random)
        if is_new and not self.in_backward:
            self._new.add(function.call)
        return is_new or function.call in self._new

    def carries_samples(self, tensor: Tensor) -> bool:
        """Whether a tensor that no parameter has made depends on the samples, as far as can be told.

        Activations require gradients; inputs have the batch's length. Buffers of the model do not count.
        """
        if isinstance(tensor, nn.Parameter):
            return False
        if tensor.requires_grad or self.batch_hint is None:
            return True
        if self.batch_hint not in tensor.shape[:2] or (tensor.shape[0] == 1 and self.batch_hint > 1):
            return False
        buffers = {buffer.untyped_storage()._cdata for buffer in self.model.buffers()}
        return tensor.untyped_storage()._cdata not in buffers

    def is_input(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of the model's inputs, or a view of one."""
        return tensor.untyped_storage()._cdata in self._inputs

    @property
    def batch_hint(self) -> int | None:
        """The number of samples that the model's inputs show, during its forward; None if they do not show it.

        Outside of the model's forward nothing is known of the calls of its parts.
        """
        return self.layouts.shown or None if self.depth or self.in_backward else None

    def set_batch_hint(self, tree: Any) -> None:
        """Read the number of samples off the model's first input.

        Single numbers and square matrices (masks, adjacencies) count only where there is nothing else.
        """
        tensors = [tensor for tensor in _tensors(tree) if tensor.dim() > 0]
        telling = (t for t in tensors if t.shape != (1,) and not (t.dim() == 2 and t.shape[0] == t.shape[1]))
        first = next(telling, tensors[0] if tensors else None)
        self._inputs = {tensor.untyped_storage()._cdata for tensor in tensors}
        second = self.layouts.declared("") == "positions-first"
        self.layouts.shown = 0 if first is None else first.shape[1 if second and first.dim() > 1 else 0]

    # What the meter asks

    def dtypes(self) -> set[torch.dtype]:
        """The dtypes that take part without being seen in the losses' graph: parameters, autocast, TF32."""
        found = {parameter.dtype for parameter in self.model.parameters()}
        if self._saw_autocast is not None:
            found.add(self._saw_autocast)
        if self._device_type == "cuda" and (torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32):
            found.add(torch.float16)  # TF32 has its mantissa
        return found

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run the model's modules without observing them."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """Ignore the gradients that come in, in a backward pass of somebody else.

        Checkpoints run their part of the forward again and expect to see what they saw the first time, so it is
        observed as before.
        """
        self._deaf = True
        try:
            with self._standing_in():
                yield
        finally:
            self._deaf = False

    @contextmanager
    def _standing_in(self) -> Iterator[None]:
        """Leave aliases in the parameters' places during a backward, if forwards have used parameters directly.

        A checkpoint that runs a method again does it outside of the modules that put the aliases there.
        """
        containers = [site for site in self._sites if isinstance(site, Container)] if self._followed else []
        self.depth += bool(containers)
        try:
            for container in containers:
                container.replace()
            yield
        finally:
            self.depth -= bool(containers)
            for container in containers:
                container.release_places()

    @contextmanager
    def run(self, samples: int, plan: Mapping[str, Sequence[Reduction]], check: Tensor | None = None) -> Iterator[Pass]:
        """Open a pass; the backward inside the block is reduced into it. See `Pass` for `check`."""
        own = (samples, plan, self.uses.once, self._scratch, check, self._sizes)
        self.current = Pass(*own) if self.sharding is None else ShardedPass(self.sharding, *own)
        self.layouts.forget_tried()  # of a pass that ended in an error
        self.layouts.trying = check is not None
        try:
            with self._standing_in():
                yield self.current
            with self.paused(), torch.no_grad():
                self.current.finish()
            self._scratch.forget()
        finally:
            self.current = None
            self._new.clear()
            self.uses.forget()


def _tensors(tree: Any) -> Iterator[Tensor]:
    """The tensors in nested arguments, also in mappings of any type, dataclasses and namespaces."""
    for leaf in tree_leaves(tree):
        inner = [leaf]
        if isinstance(leaf, Mapping):
            inner = tree_leaves(dict(leaf))
        elif isinstance(leaf, SimpleNamespace):
            inner = tree_leaves(vars(leaf))
        elif is_dataclass(leaf):
            inner = tree_leaves([getattr(leaf, field.name) for field in fields(leaf)])
        yield from (value for value in inner if isinstance(value, Tensor))
