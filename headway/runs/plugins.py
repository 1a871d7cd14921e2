"""Plugins: modules of other packages that register signals, datasets, environments or methods."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from headway.errors import UsageError

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
    for name in dict.fromkeys((*names, *modules)):
        if name not in _loaded:
            _import(name)
            _loaded[name] = _identity(name)


def plugin_facts() -> dict[str, str]:
    """What provenance says of the plugins that this process has loaded; nothing if there are none."""
    return {"plugins": ", ".join(f"{name} {identity}" for name, identity in _loaded.items())} if _loaded else {}


def _import(name: str) -> None:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last: what is installed comes first
    try:
        importlib.import_module(name)
    except Exception as error:  # whatever the module does
        raise UsageError(
            f"expected a plugin that can be imported, got {name}: {type(error).__name__}: {error}; install its package "
            f"wherever runs are carried out, or leave --plugin {name} out"
        ) from error


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
