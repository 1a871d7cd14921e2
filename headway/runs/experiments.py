"""Experiments by name. Only their modules' names are kept, so that a worker process can import them too."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from headway.errors import ExperimentError
from headway.runs import Run, RunSpec
from headway.runs.context import Context
from headway.runs.provenance import code_fingerprint

_MODULES = {
    "controlled": "headway.study.controlled",
    "doorkey": "headway.study.doorkey",
}


class ExperimentModule(Protocol):
    """What the module of an experiment offers to the runner."""

    def run(self, run: Run, context: Context) -> None:
        """Carry a claimed run to its end: restore, train, log, checkpoint, finish."""
        ...

    def estimate(self, spec: RunSpec, context: Context) -> float:
        """Guess how many seconds the run takes on one core."""
        ...


def register_experiment(name: str, module: str) -> None:
    """Add an experiment.

    Args:
        name: what specs call it.
        module: the dotted name of its module, an `ExperimentModule`; it is imported when it is first needed.

    Raises:
        ExperimentError: the name belongs to another module.
    """
    if _MODULES.get(name, module) != module:
        raise ExperimentError(f"expected a new name for the experiment {module}, got {name!r} of {_MODULES[name]}")
    _MODULES[name] = module


def register_experiments(modules: Mapping[str, str]) -> None:
    """Add experiments, as `register_experiment` does."""
    for name, module in modules.items():
        register_experiment(name, module)


def registered_experiments() -> dict[str, str]:
    """The modules of all experiments, by name."""
    return dict(_MODULES)


def needed_datasets(specs: Iterable[RunSpec]) -> list[str]:
    """The names of the datasets that runs need, as their experiments' function `datasets` tells; not all have one.

    Raises:
        ExperimentError: a run is of no known experiment.
    """
    names: dict[str, None] = {}
    for spec in specs:
        ask = getattr(find_experiment(spec.experiment), "datasets", None)
        names.update(dict.fromkeys(ask(spec) if ask else ()))
    return list(names)


def find_experiment(name: str) -> ExperimentModule:
    """Import an experiment.

    Raises:
        ExperimentError: there is none of this name.
    """
    if name not in _MODULES:
        raise ExperimentError(f"expected an experiment among {', '.join(_MODULES)}, got {name!r}")
    module = importlib.import_module(_MODULES[name])
    code_fingerprint()  # of the files as they are now: a run tells at its end which code it was made with
    return cast(ExperimentModule, module)
