"""What is run: protocols, the controlled study, exploration, and the registries by which users add to them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.study.doorkey import register_env
    from headway.study.requests import Request, register_request
    from headway.study.signals import register_signal

__all__ = ["Request", "register_env", "register_request", "register_signal"]

_HOMES = {
    "Request": "requests",
    "register_env": "doorkey",
    "register_request": "requests",
    "register_signal": "signals",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: protocols are read without torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headway.study' has no attribute {name!r}")
    return getattr(import_module(f"headway.study.{_HOMES[name]}"), name)
