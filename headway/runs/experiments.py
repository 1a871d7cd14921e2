"""Experiments by name, and the instructions of the processor that they are computed with.

Only the names of their modules are kept, so that a worker process can import them too.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from headway.errors import ExperimentError
from headway.runs.context import Context
from headway.runs.provenance import code_fingerprint
from headway.runs.run import Run
from headway.runs.spec import RunSpec

_MODULES = {
    "controlled": "headway.study.controlled",
    "doorkey": "headway.study.doorkey",
}
COMMON = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""The variables that keep torch, and MKL and oneDNN within it, from AVX-512."""
_PROCESSOR = Path("/proc/cpuinfo")


class ExperimentModule(Protocol):
    """What the module of an experiment offers to the runner.

    One whose runs need datasets has two more functions: `datasets(spec)` gives their names, and
    `load_dataset(name, data_dir)` loads one.
    """

    def run(self, run: Run, context: Context) -> None:
        """Carry a locked run to its end: restore, train, log, checkpoint, finish."""
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


def load_datasets(specs: Iterable[RunSpec], data_dir: Path | None) -> dict[str, Any]:
    """Load the datasets that runs need, by name; the experiments know how.

    Raises:
        ExperimentError: a run is of no known experiment.
        DataError: a dataset cannot be loaded.
    """
    loaded: dict[str, Any] = {}
    for spec in specs:
        for name in needed_datasets([spec]):
            if name not in loaded:
                module: Any = find_experiment(spec.experiment)
                loaded[name] = module.load_dataset(name, data_dir)
    return loaded


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


def use_common_instructions(processor: Path = _PROCESSOR) -> None:
    """Do without AVX-512 in this process and in those that it starts.

    Sums over wider registers are sums in another order, so torch gives other last bits where there is AVX-512 than
    where there is not, and a chaotic run then ends with other numbers. Runs use what both kinds of machines have. For
    networks of the study's size that takes no more time.

    A variable that is set already stays as it is. Torch reads them at its first operation: what it has chosen by then
    it keeps. So whoever computes something before a run begins should call this first.

    Args:
        processor: where the system tells what the processor can do; where it does not, nothing happens.
    """
    if _has_avx512(processor):
        for name, value in COMMON.items():
            os.environ.setdefault(name, value)


def _has_avx512(processor: Path) -> bool:
    try:
        lines = processor.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any("avx512f" in line.split() for line in lines if line.startswith("flags"))
