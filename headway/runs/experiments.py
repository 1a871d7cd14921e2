"""Experiments by name, what their runs may use, plugins, and the instructions that runs are computed with.

Only the names of modules are kept, so that a worker process can import them too. A plugin is a module of another
package that registers signals, datasets, environments or methods.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, cast

from headway.errors import ExperimentError, HeadwayError, UsageError
from headway.runs.provenance import code_fingerprint
from headway.runs.run import Run
from headway.runs.spec import RunSpec

WEIGHTS_FILE = "final.pt"
"""Where a run keeps its final weights, if it is to."""


def _never() -> bool:  # a lambda cannot be pickled
    return False


@dataclass(frozen=True)
class Context:
    """What a run may use besides its spec; none of it changes a number.

    Attributes:
        data_dir: where datasets are looked for first.
        device: where the tensors live.
        keep_weights: save the final weights with the run.
        checkpoint_seconds: the least time between two checkpoints.
        should_stop: asked between batches; when it says yes, the run checkpoints and stops.
        report: called with (step, total, losses) between epochs.
        threads: cores that a run may use.
        datasets: those that are in memory already, by name; the others are loaded.
        plugins: modules that are imported before the run, wherever it is carried out.
    """

    data_dir: Path | None = None
    device: str = "cpu"
    keep_weights: bool = False
    checkpoint_seconds: float = 10.0
    should_stop: Callable[[], bool] = _never
    report: Callable[[int, int, dict[str, float]], None] | None = None
    threads: int = 1
    datasets: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()


class Stopped(HeadwayError):  # noqa: N818 - it is a request, not an error
    """A run was asked to stop, and has left a checkpoint."""


_MODULES = {
    "controlled": "headway.study.controlled",
    "doorkey": "headway.study.doorkey",
    "mixture": "headway.study.mixture",
    "arena": "headway.study.arena",
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
    """Add an experiment: its name, and that of its `ExperimentModule`, which is imported when it is first needed."""
    if _MODULES.get(name, module) != module:
        raise ExperimentError(f"expected a new name for the experiment {module}, got {name!r} of {_MODULES[name]}")
    _MODULES[name] = module


def registered_experiments() -> dict[str, str]:
    """The modules of all experiments, by name."""
    return dict(_MODULES)


def needed_datasets(specs: Iterable[RunSpec]) -> list[str]:
    """The names of the datasets that runs need, as their experiments' function `datasets` tells; not all have one."""
    asked = ((getattr(find_experiment(spec.experiment), "datasets", None), spec) for spec in specs)
    return list(dict.fromkeys(name for ask, spec in asked if ask for name in ask(spec)))


def load_datasets(specs: Iterable[RunSpec], data_dir: Path | None) -> dict[str, Any]:
    """Load the datasets that runs need, by name; the experiments know how."""
    modules: dict[str, Any] = {}
    for spec in specs:
        modules.update(dict.fromkeys(needed_datasets([spec]), find_experiment(spec.experiment)))
    return {name: module.load_dataset(name, data_dir) for name, module in modules.items()}


def find_experiment(name: str) -> ExperimentModule:
    """Import an experiment."""
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
    it keeps. So whoever computes something before a run begins should call this first. Where the system does not tell
    what the processor can do, nothing happens.
    """
    try:
        lines = processor.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    if any("avx512f" in line.split() for line in lines if line.startswith("flags")):
        for name, value in COMMON.items():
            os.environ.setdefault(name, value)


GROUP = "headway.plugins"
"""The group of entry points by which an installed package names its plugin."""
_loaded: dict[str, str] = {}


def load_plugins(modules: Iterable[str] = ()) -> None:
    """Import the plugins of installed packages, and modules besides; each is imported once per process.

    Args:
        modules: dotted names; also modules in the folder at hand are found.

    Raises:
        UsageError: one cannot be imported.
    """
    names = [entry.value.partition(":")[0] for entry in metadata.entry_points(group=GROUP)]
    here = str(Path.cwd())
    for name in dict.fromkeys((*names, *modules)):
        if name in _loaded:
            continue
        if here not in sys.path:
            sys.path.append(here)  # last: what is installed comes first
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever the module does
            raise UsageError(
                f"expected a plugin that can be imported, got {name}: {type(error).__name__}: {error}; install its "
                f"package wherever runs are carried out, or leave --plugin {name} out"
            ) from error
        _loaded[name] = _identity(name)


def plugin_facts() -> dict[str, str]:
    """What provenance says of the plugins that this process has loaded; nothing if there are none."""
    return {"plugins": ", ".join(f"{name} {identity}" for name, identity in _loaded.items())} if _loaded else {}


def _identity(name: str) -> str:
    """The version of a module's package, if it is installed, and a hash of its files."""
    package = name.partition(".")[0]
    owners = metadata.packages_distributions().get(package, [])
    file = Path(sys.modules[package].__file__ or "")
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    digest = hashlib.sha256()
    for each in files:
        digest.update(each.read_bytes().replace(b"\r\n", b"\n"))
    return " ".join([*(metadata.version(owner) for owner in owners), digest.hexdigest()[:12]])
