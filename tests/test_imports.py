"""Hold the import directions between the parts of headway.

A part is a module or package directly under ``headway/``. The table says which other parts each may import;
every import statement counts, also inside a function or under TYPE_CHECKING.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "headway"

CORE = {"errors", "registry", "ranks", "moments", "grads", "signals", "meter", "selection"}
USES_METER = {"meter", "signals", "moments", "registry", "errors"}
ABOVE = {"runs", "data", "rl", "study", "analysis", "telemetry", "integrations", "commands", "__init__"}
EVERYTHING = CORE | ABOVE

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "registry": {"errors"},
    "moments": {"errors"},
    "runs": {"errors"},
    "data": {"errors"},
    "ranks": {"errors"},
    "grads": {"ranks", "errors"},
    "signals": {"grads", "moments", "errors"},
    "meter": {"signals", "grads", "moments", "errors"},
    "selection": {"meter", "signals", "ranks", "errors"},
    "rl": USES_METER,
    "study": USES_METER | {"grads", "rl", "selection", "data", "runs"},
    "analysis": {"runs", "study", "telemetry", "errors"},
    "telemetry": {"selection", "runs", "ranks", "errors"},
    "integrations": USES_METER | {"grads", "rl", "selection", "telemetry", "__init__"},
    "commands": EVERYTHING,
    "__init__": CORE | {"telemetry"},
    "__main__": {"commands"},
}
# Only inside a function, so that `headway --help` is quick.
LAZY = {
    "telemetry": {"runs"},  # for Parquet alone
}
OPTIONAL = Path("grads/triton_kernels.py")  # imported by Meter(kernels="triton") alone
WITHOUT_TORCH = {"errors", "registry", "runs", "analysis"}  # errors too: both of the others may import it


@dataclass(frozen=True)
class Import:
    """One imported dotted name; lazy means that importing the module does not run it."""

    line: int
    name: str
    lazy: bool

    @property
    def top(self) -> str:
        return self.name.split(".")[0]


def part_of(file: Path) -> str:
    """The part that a file (relative to the package) belongs to: grads/engine.py -> grads."""
    return file.parts[0].removesuffix(".py")


def imports(source: str, file: Path) -> list[Import]:
    """Every import of a file (relative to the package), with relative names made absolute."""
    package = ("headway", *file.parent.parts)
    return list(_walk(ast.parse(source), package, lazy=False))


def _walk(node: ast.AST, package: tuple[str, ...], lazy: bool) -> Iterator[Import]:
    for name in _names(node, package):
        yield Import(node.lineno, name, lazy)
    if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
        for child in node.body:
            yield from _walk(child, package, lazy=True)
        for child in node.orelse:
            yield from _walk(child, package, lazy)
        return
    lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, package, lazy)


def _names(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """The dotted names that one node imports: none unless it is an import or import_module("literal")."""
    match node:
        case ast.Import(names=aliases):
            return [alias.name for alias in aliases]
        case ast.ImportFrom(module=module, names=aliases, level=level):
            base = list(package[: len(package) - level + 1]) if level else []
            base += module.split(".") if module else []
            return [".".join([*base, alias.name]) for alias in aliases]
        case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
            if ast.unparse(func) in {"importlib.import_module", "import_module", "__import__"}:
                return [name]
    return []


def target_part(name: str) -> str:
    """The part that a dotted name under headway leads to; a re-exported name leads to __init__."""
    _, *inside = name.split(".")
    is_part = len(inside) > 1 or (inside and inside[0] in ALLOWED)
    return inside[0] if is_part else "__init__"


def problem(part: str, found: Import, file: Path = Path()) -> str | None:
    """Why this part may not import that name, or None when it may."""
    if found.top == "headway":
        target = target_part(found.name)
        if target == part:
            return None
        if part == "analysis" and target == "study" and not found.name.startswith("headway.study.protocols"):
            return "forbidden edge analysis -> study (analysis may import study.protocols alone, which needs no torch)"
        if part == "analysis" and target == "telemetry" and "monitor" in found.name.lower():
            return "forbidden edge analysis -> telemetry.monitor (which needs torch; states and writers do not)"
        if target not in ALLOWED[part]:
            allowed = ", ".join(sorted(ALLOWED[part])) or "no other part"
            return f"forbidden edge {part} -> {target} ({part} may import: {allowed})"
        if target in LAZY.get(part, ()) and not found.lazy:
            return f"edge {part} -> {target} must be lazy: import it inside the function that needs it"
        return None
    if part in WITHOUT_TORCH and found.top == "torch":
        return f"forbidden edge {part} -> torch ({part} works without torch)"
    known = {"torch", "typing_extensions"}  # which torch itself depends on
    known |= {"triton"} if file == OPTIONAL else set()
    if part in CORE and found.top not in known and found.top not in sys.stdlib_module_names:
        return f"forbidden edge {part} -> {found.top} (the core may import torch and the standard library)"
    return None


def problems(source: str, file: Path) -> list[str]:
    """Every forbidden import of a file (relative to the package), each as "file:line: edge"."""
    part = part_of(file)
    if part not in ALLOWED:
        return [f"headway/{file.as_posix()}:1: {part} is not a known part (known: {', '.join(ALLOWED)})"]
    found = [(each.line, problem(part, each, file)) for each in imports(source, file)]
    messages = [f"headway/{file.as_posix()}:{line}: {why}" for line, why in found if why]
    return list(dict.fromkeys(messages))  # one statement may import several names from one part


def test_every_import_follows_the_design() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no modules under {PACKAGE}"
    found = [line for file in files for line in problems(file.read_text("utf-8"), file.relative_to(PACKAGE))]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "source", "edge"),
    [
        ("moments.py", "import headway.grads", "moments -> grads"),
        ("moments.py", "from .grads.engine import Engine", "moments -> grads"),
        ("moments.py", "from . import errors, meter", "moments -> meter"),
        ("grads/rules/linear.py", "from ...signals import GMC", "grads -> signals"),
        ("grads/engine.py", "from headway import Meter", "grads -> __init__"),
        ("grads/engine.py", "def f():\n    import headway.meter", "grads -> meter"),
        ("signals/gmc.py", "if TYPE_CHECKING:\n    from ..meter import Meter", "signals -> meter"),
        ("selection/actor.py", "from headway.grads import register_rule", "selection -> grads"),
        ("rl/ppo.py", "from headway.selection import Actor", "rl -> selection"),
        ("analysis/stats.py", "from headway.study import controlled", "analysis -> study"),
        ("analysis/rows.py", "from headway.telemetry import SourceMonitor", "analysis -> telemetry.monitor"),
        ("__init__.py", "from .study import controlled", "__init__ -> study"),
        ("study/controlled.py", "import headway.commands.run", "study -> commands"),
        ("runs/ray.py", "from headway.data import load", "runs -> data"),
        ("meter.py", "import numpy as np", "meter -> numpy"),
        ("signals/norms.py", "def f():\n    from scipy import stats", "signals -> scipy"),
        ("runs.py", "import torch.nn as nn", "runs -> torch"),
        ("analysis/stats.py", "import importlib\nimportlib.import_module('torch')", "analysis -> torch"),
        ("meter.py", "from headway.novel import a, b", "meter -> novel"),
        ("novel.py", "", "novel is not a known part"),
    ],
)
def test_a_forbidden_edge_is_named_with_file_and_line(file: str, source: str, edge: str) -> None:
    (message,) = problems(source, Path(file))
    line = max(1, len(source.splitlines()))  # each example offends on its last line
    assert message.startswith(f"headway/{file}:{line}: ")
    assert edge in message


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("grads/engine.py", "import torch\nfrom .registry import Registry\nfrom ..errors import RuleError"),
        ("grads/__init__.py", "from .engine import Engine\nfrom headway.errors import RuleError"),
        ("meter.py", "import math\nimport torch.nn as nn\nfrom headway import grads, signals"),
        ("__init__.py", "from .meter import Meter\nfrom importlib.metadata import version"),
        ("commands/run.py", "from headway.study import controlled\nfrom headway.analysis import stats"),
        ("analysis/names.py", "from headway.study.protocols import names"),
        ("analysis/rows.py", "from headway.telemetry.writers import COLUMNS"),
        ("integrations/sb3.py", "import stable_baselines3\nimport headway\nfrom headway.rl import reward"),
        ("runs.py", "import hashlib\nimport json\nfrom headway.errors import StateError"),
    ],
)
def test_an_allowed_edge_is_accepted(file: str, source: str) -> None:
    assert problems(source, Path(file)) == []


LATE = [path for path in PACKAGE.rglob("__init__.py") if "\ndef __getattr__" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", LATE, ids=[str(path.parent.relative_to(ROOT)) for path in LATE])
def test_type_checkers_know_all_names_that_are_imported_late(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assigned = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert set(ast.literal_eval(assigned["__all__"])) - imported - set(assigned) == set()
