"""The mixture study: which signal and rule find the sources that are worth their samples, and at which cost."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.meter import Meter
from headway.runs import Run, RunSpec
from headway.runs.experiments import Context
from headway.selection import (
    ADO,
    EXP3S,
    TSCL,
    GroupDRO,
    Mixture,
    MultiplicativeWeights,
    PolicyGradient,
    SelfPaced,
)
from headway.selection.rules import Rule
from headway.signals import (
    GMC,
    Alignment,
    DeltaLoss,
    DotProduct,
    GroupGMC,
    HeadMeter,
    Learnability,
    NormAll,
    NormLast,
    Projection,
    Reference,
    Signal,
    prediction_gain,
)
from headway.study.keeper import Keeper, one_thread, seconds_of
from headway.study.mixture_sources import MIXTURES, Pool, make_pool
from headway.study.protocols.mixtures import FIXED, Method, MixtureProtocol

EXPERIMENT = "mixture"
PLAIN_STEPS = 3
"""Plain steps whose time is measured at each validation, to compare that of the method's steps with."""


def specs(
    mixtures: Iterable[str], methods: Iterable[str], seeds: Iterable[int], protocol: MixtureProtocol
) -> list[RunSpec]:
    """All combinations, as runs."""
    mixtures, methods, seeds = list(mixtures), list(methods), list(seeds)
    for name in mixtures:
        MIXTURES.find(name)
    for name in methods:
        Method.read(name)
    return [
        RunSpec(
            experiment=EXPERIMENT,
            condition=mixture,
            method=method,
            seed=seed,
            params={"steps": protocol.steps},
            protocol=protocol.to_dict(),
        )
        for seed in seeds
        for mixture in mixtures
        for method in methods
    ]


def run(run: Run, context: Context) -> None:
    """Carry out a claimed run, from its last checkpoint if it has one."""
    keeper = Keeper(run, context)
    with one_thread():
        trial = _make(run.spec)
        state = keeper.restored()
        if state is not None:
            trial.load_state_dict(state)
        total = trial.protocol.steps
        keeper.begin(trial.step, total, trial.step)
        while trial.step < total:
            if context.should_stop():
                keeper.stop(trial.step, trial.state_dict())
            trial.train_batch()
            if trial.is_due():
                row = trial.validate()
                run.log(row)
                keeper.progress(trial.step, {"validation": row["loss"]})
            keeper.save(trial.step, trial.state_dict)
        keeper.finish(trial.model.state_dict())


def estimate(spec: RunSpec, context: Context) -> float:
    """Seconds that a run takes on one core, from a few batches and a validation."""
    with one_thread():
        trial = _make(spec)
        trial.train_batch()
        batch, test = seconds_of(trial.train_batch, 10), seconds_of(trial.validate)
    return trial.protocol.steps * batch + trial.protocol.validations * test


def _make(spec: RunSpec) -> Trial:
    return Trial(spec.condition, Method.read(spec.method), MixtureProtocol.from_dict(spec.protocol), spec.seed)


def losses_of(outputs: Tensor, targets: Tensor) -> Tensor:
    """One loss per sample [B]: cross-entropy of classes [B], or half the squared error of targets [B, 1]."""
    if targets.dim() == 2:
        return (outputs - targets).square().squeeze(1) / 2
    return F.cross_entropy(outputs, targets, reduction="none")


_SIGNALS: Mapping[str, Callable[[MixtureProtocol, int, Reference, str], Signal]] = {
    "gmc": lambda p, sources, reference, last: GMC(beta=p.beta, floor=1.0, unit="relative"),
    "gmc_small": lambda p, sources, reference, last: GMC(beta=p.beta),
    "gmc_last": lambda p, sources, reference, last: GMC(beta=p.beta, floor=1.0, unit="relative", where=last),
    "group_gmc": lambda p, sources, reference, last: GroupGMC(
        groups=sources, beta=p.beta, floor=1.0, unit="relative", where=last
    ),
    "norm_all": lambda p, sources, reference, last: NormAll(),
    "norm_last": lambda p, sources, reference, last: NormLast(),
    "dot": lambda p, sources, reference, last: DotProduct(beta=p.beta, floor=1.0, unit="relative"),
    "projection": lambda p, sources, reference, last: Projection(beta=p.beta, absolute=False),
    "learnability": lambda p, sources, reference, last: Learnability(groups=sources),
    "delta_loss": lambda p, sources, reference, last: DeltaLoss(groups=sources, window=500),
    "alignment": lambda p, sources, reference, last: Alignment(reference),
}
"""The signals that need a meter, with the pattern of the last layer's parameters; the loss and its gain do without."""

_RULES: Mapping[str, Callable[[], Rule]] = {
    "weights": MultiplicativeWeights,
    "paced": MultiplicativeWeights,
    "policy": PolicyGradient,
    "exp3s": EXP3S,
    "tscl": TSCL,
    "ado": ADO,
    "group_dro": lambda: GroupDRO(rate=0.01),
    "self_paced": lambda: SelfPaced(steps=200),
}


class Trial:
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
        self.pool = make_pool(mixture, self._generator)
        self.model = self.pool.model(protocol.hidden, self._generator)
        self._optimizer = self._adam(self.model)
        self._plain = _Plain(self.pool, copy.deepcopy(self.model), self._adam, protocol.batch_size, seed)
        self._reference = Reference()
        signal = _SIGNALS.get(method.score)
        sources = len(self.pool.names)
        last = f"{len(self.model) - 1}.*"
        own = None if signal is None else signal(protocol, sources, self._reference, last)
        self._meter: Meter[Any] | HeadMeter | None = None if own is None else Meter(self.model, own, every=method.every)
        if method.score == "head":
            head = self.model[-1]
            assert isinstance(head, nn.Linear)
            self._meter = HeadMeter(head, self._optimizer, sources, every=method.every)
        self.mixture = Mixture(self.pool.names, _RULES[method.rule](), hold=method.hold, seed=seed, sync=False)
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
            self._refresh()
        losses = losses_of(self.model(x), y)
        scores = self._backward(losses, sources)
        self._optimizer.step()
        self._optimizer.zero_grad()
        if fixed is None and self.step % method.every == 0:
            if method.score == "gain":
                scores = prediction_gain(losses, lambda: losses_of(self.model(x), y))
            self.mixture.update(sources, scores)
        elif method.rule == "paced":
            self.mixture.update(sources, None)
        self.step += 1
        self._seconds += time.process_time() - start
        self._counts += torch.bincount(sources, minlength=len(self._counts))

    def _backward(self, losses: Tensor, sources: Tensor) -> Tensor | None:
        if self._meter is None:
            losses.mean().backward()
            return losses.detach()
        scores: Tensor | None = self._meter.backward(losses, groups=sources)
        return scores

    def _refresh(self) -> None:
        """Take the gradient of the mean validation loss over the learnable sources, on part of the samples."""
        parts = [(x[:64], y[:64]) for _, x, y in self.pool.validation]
        x, y = (torch.cat(column) for column in zip(*parts, strict=True))
        self._reference.refresh(self.model, losses_of(self.model(x), y).mean())

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
            "plain_seconds": self._plain.time(),
        }
        self._counts.zero_()
        self._seconds = 0.0
        return row

    def state_dict(self) -> dict[str, Any]:
        """Everything that later numbers depend on."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "meter": None if self._meter is None else self._meter.state_dict(),
            "mixture": self.mixture.state_dict(),
            "generator": self._generator.get_state(),
            "counts": self._counts.clone(),
            "seconds": self._seconds,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._meter is not None:
            self._meter.load_state_dict(state["meter"])
        self.mixture.load_state_dict(state["mixture"])
        self._generator.set_state(state["generator"])
        self._counts.copy_(state["counts"])
        self._seconds = state.get("seconds", 0.0)


class _Plain:
    """Training without any method, on a copy of the model: what its steps cost on this machine at this moment."""

    def __init__(
        self, pool: Pool, model: nn.Module, adam: Callable[[nn.Module], torch.optim.Optimizer], batch: int, seed: int
    ) -> None:
        self._pool, self._model, self._optimizer, self._batch = pool, model, adam(model), batch
        self._generator = torch.Generator().manual_seed(seed)

    @torch.enable_grad()
    def time(self) -> float:
        """Seconds of processor time of one step."""
        start = time.process_time()
        for _ in range(PLAIN_STEPS):
            sources = torch.randint(len(self._pool.names), (self._batch,), generator=self._generator)
            x, y = self._pool.take(sources, self._generator)
            losses_of(self._model(x), y).mean().backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        return (time.process_time() - start) / PLAIN_STEPS
