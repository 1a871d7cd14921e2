"""The mixture study: which signal and rule find the sources that are worth their samples, and at which cost."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway import selection, signals
from headway.meter import Meter
from headway.runs import Run, RunSpec
from headway.runs.experiments import Context
from headway.selection.rules import Rule
from headway.signals import Reference, Signal
from headway.study.mixture_sources import MIXTURES
from headway.study.protocols.mixtures import FIXED, Method, MixtureProtocol
from headway.study.resumable import ResumableRun, one_thread, seconds_of

EXPERIMENT = "mixture"
PLAIN_STEPS = 3
"""Plain steps whose time is measured at each validation, to compare that of the method's steps with."""


def specs(
    mixtures: Iterable[str], methods: Iterable[str], seeds: Iterable[int], protocol: MixtureProtocol
) -> list[RunSpec]:
    """All combinations, as runs."""
    mixtures, methods = list(mixtures), list(methods)
    for name in mixtures:
        MIXTURES.find(name)
    for name in methods:
        Method.read(name)
    params = {"steps": protocol.steps}
    common: dict[str, Any] = {"experiment": EXPERIMENT, "params": params, "protocol": protocol.to_dict()}
    return [
        RunSpec(condition=mixture, method=method, seed=seed, **common)
        for seed, mixture, method in product(seeds, mixtures, methods)
    ]


def run(run: Run, context: Context) -> None:
    """Carry out a locked run, from its last checkpoint if it has one."""
    resumable = ResumableRun(run, context)
    with one_thread():
        trial = _make(run.spec)
        state = resumable.restored()
        if state is not None:
            trial.load_state_dict(state)
        total = trial.protocol.steps
        resumable.begin(trial.step, total, trial.step)
        while trial.step < total:
            if context.should_stop():
                resumable.stop(trial.step, trial.state_dict)
            trial.train_batch()
            if trial.is_due():
                row = trial.validate()
                run.log(row)
                resumable.progress(trial.step, {"validation": row["loss"]})
            resumable.save(trial.step, trial.state_dict)
        resumable.finish(trial.model.state_dict())


def estimate(spec: RunSpec, context: Context) -> float:
    """Seconds that a run takes on one core, from a few batches and a validation."""
    with one_thread():
        trial = _make(spec)
        trial.train_batch()
        batch, test = seconds_of(trial.train_batch, 10), seconds_of(trial.validate)
    return trial.protocol.steps * batch + trial.protocol.validations * test


def _make(spec: RunSpec) -> MixtureTrial:
    return MixtureTrial(spec.condition, Method.read(spec.method), MixtureProtocol.from_dict(spec.protocol), spec.seed)


def losses_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per sample [B]: cross-entropy of classes [B], or half the squared error of targets [B, 1]."""
    if targets.dim() == 2:
        return (outputs - targets).square().squeeze(1) / 2
    return F.cross_entropy(outputs, targets, reduction="none")


def _signal(name: str, protocol: MixtureProtocol, sources: int, reference: Reference, last: str) -> Signal | None:
    """A signal that needs a meter; None for the loss and its gain. The last layer's parameters have a pattern."""
    beta = protocol.beta
    relative: dict[str, Any] = {"beta": beta, "floor": 1.0, "unit": "relative"}
    known: Mapping[str, Callable[[], Signal]] = {
        "gmc": lambda: signals.GMC(**relative),
        "gmc_small": lambda: signals.GMC(beta=beta),
        "gmc_last": lambda: signals.GMC(**relative, where=last),
        "group_gmc": lambda: signals.GroupGMC(groups=sources, **relative, where=last),
        "norm_all": signals.NormAll,
        "norm_last": signals.NormLast,
        "dot": lambda: signals.DotProduct(**relative),
        "projection": lambda: signals.Projection(beta=beta, absolute=False),
        "learnability": lambda: signals.Learnability(groups=sources),
        "delta_loss": lambda: signals.DeltaLoss(groups=sources, window=500),
        "alignment": lambda: signals.Alignment(reference),
    }
    return known[name]() if name in known else None


_RULES: Mapping[str, Callable[[], Rule]] = {
    "weights": selection.MultiplicativeWeights,
    "paced": selection.MultiplicativeWeights,
    "policy": selection.PolicyGradient,
    "exp3s": selection.EXP3S,
    "tscl": selection.TSCL,
    "ado": selection.ADO,
    "group_dro": lambda: selection.GroupDRO(rate=0.01),
    "self_paced": lambda: selection.SelfPaced(steps=200),
}


class MixtureTrial:
    """A model that learns from a mixture, and a method that sets the shares.

    Args:
        mixture: which mixture.
        method: how shares are set.
        protocol: all other choices.
        seed: of samples, model and draws; methods that are compared start from the same ones.
    """

    def __init__(self, mixture: str, method: Method, protocol: MixtureProtocol, seed: int) -> None:
        self.protocol, self.method = protocol, method
        self._generator = torch.Generator().manual_seed(seed)
        self.pool = MIXTURES.find(mixture)(self._generator)
        self.model = self.pool.model(protocol.hidden, self._generator)
        self._optimizer = self._adam(self.model)
        self._plain = copy.deepcopy(self.model)  # for `_time_plain`, with what belongs to it
        self._plain_optimizer = self._adam(self._plain)
        self._plain_generator = torch.Generator().manual_seed(seed)
        self._reference = Reference()
        sources = len(self.pool.names)
        signal = _signal(method.score, protocol, sources, self._reference, last=f"{len(self.model) - 1}.*")
        self._meter: Meter[Any] | signals.HeadMeter | None = None
        if signal is not None:
            self._meter = Meter(self.model, signal, every=method.every)
        elif method.score == "head":
            head = self.model[-1]
            assert isinstance(head, nn.Linear)
            self._meter = signals.HeadMeter(head, self._optimizer, sources, every=method.every)
        self.mixture = selection.Mixture(
            self.pool.names, _RULES[method.rule](), hold=method.hold, seed=seed, sync=False
        )
        self._shares = self._fixed().cumsum(0).clamp(max=1) if method.score in FIXED else None
        self.step = 0
        self._counts = torch.zeros(sources, dtype=torch.int64)
        self._seconds = 0.0

    def _adam(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(model.parameters(), self.protocol.learning_rate, fused=True)

    def _fixed(self) -> Tensor:
        """Shares that stay [S]."""
        weights = {"proportional": self.pool.sizes, "oracle": ~self.pool.noisy}.get(self.method.score)
        weights = torch.ones(len(self.pool.names)) if weights is None else weights
        return weights.double() / weights.sum()

    def train_batch(self) -> None:
        """Draw a batch by the present shares, learn from it, and let the shares follow its scores."""
        start = time.process_time()
        generator, method = self._generator, self.method
        uniforms = torch.rand(self.protocol.batch_size, generator=generator, dtype=torch.float64)
        fixed = self._shares
        sources = self.mixture.choose(uniforms) if fixed is None else torch.searchsorted(fixed, uniforms, right=True)
        x, y = self.pool.take(sources, generator)
        if method.score == "alignment" and self.step % self.protocol.refresh == 0:
            # the gradient of the mean validation loss over the learnable sources, on part of the samples
            parts = [(inputs[:64], labels[:64]) for _, inputs, labels in self.pool.validation]
            inputs, labels = (torch.cat(column) for column in zip(*parts, strict=True))
            self._reference.refresh(self.model, losses_of(self.model(inputs), labels).mean())
        losses = losses_of(self.model(x), y)
        if self._meter is None:
            losses.mean().backward()
            scores: Tensor | None = losses.detach()
        else:
            scores = self._meter.backward(losses, groups=sources)
        self._optimizer.step()
        self._optimizer.zero_grad()
        if fixed is None and self.step % method.every == 0:
            if method.score == "gain":
                scores = signals.prediction_gain(losses, lambda: losses_of(self.model(x), y))
            self.mixture.update(sources, scores)
        elif method.rule == "paced":
            self.mixture.update(sources, None)
        self.step += 1
        self._seconds += time.process_time() - start
        self._counts += torch.bincount(sources, minlength=len(self._counts))

    def is_due(self) -> bool:
        """Whether it is time for a validation."""
        return self.step % (self.protocol.steps // self.protocol.validations) == 0

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """A row of metrics. `seconds` and `plain_seconds` depend on the machine, and nothing depends on them."""
        own = [float("nan")] * len(self.pool.names)
        for number, x, y in self.pool.validation:
            own[number] = float(losses_of(self.model(x), y).double().mean())
        learnable = [own[number] for number, _, _ in self.pool.validation]
        taken = self.protocol.steps // self.protocol.validations
        row = {
            "step": self.step,
            "loss": sum(learnable) / len(learnable),
            "source_loss": own,
            "draw_share": (self._counts / self._counts.sum().clamp(min=1)).tolist(),
            "seconds": self._seconds / taken,
            "plain_seconds": self._time_plain(),
        }
        self._counts.zero_()
        self._seconds = 0.0
        return row

    @torch.enable_grad()
    def _time_plain(self) -> float:
        """Seconds of processor time of one step of a copy of the model without any method, here and now."""
        start, generator = time.process_time(), self._plain_generator
        for _ in range(PLAIN_STEPS):
            sources = torch.randint(len(self.pool.names), (self.protocol.batch_size,), generator=generator)
            x, y = self.pool.take(sources, generator)
            losses_of(self._plain(x), y).mean().backward()
            self._plain_optimizer.step()
            self._plain_optimizer.zero_grad()
        return (time.process_time() - start) / PLAIN_STEPS

    def _parts(self) -> dict[str, Any]:
        parts = {"model": self.model, "optimizer": self._optimizer, "mixture": self.mixture}
        return parts if self._meter is None else {**parts, "meter": self._meter}

    def state_dict(self) -> dict[str, Any]:
        """Everything that later numbers depend on."""
        return {
            **{name: part.state_dict() for name, part in self._parts().items()},
            "step": self.step,
            "generator": self._generator.get_state(),
            "counts": self._counts.clone(),
            "seconds": self._seconds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.step = state["step"]
        self._generator.set_state(state["generator"])
        self._counts.copy_(state["counts"])
        self._seconds = state.get("seconds", 0.0)
