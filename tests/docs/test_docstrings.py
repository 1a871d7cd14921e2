"""`help()` explains every argument of what users configure, inherited ones included."""

from __future__ import annotations

import dataclasses
import re

import pytest

import headway
import headway.selection

CONFIGURED = {
    f"{module.__name__}.{name}": value
    for module in (headway, headway.selection)
    for name in module.__all__
    if isinstance(value := getattr(module, name), type) and dataclasses.is_dataclass(value)
}


@pytest.mark.parametrize("name", CONFIGURED)
def test_every_field_is_explained(name: str) -> None:
    documented = set(re.findall(r"^ +(\w+(?:, \w+)*): ", CONFIGURED[name].__doc__, re.MULTILINE))
    fields = {field.name for field in dataclasses.fields(CONFIGURED[name]) if field.init}
    assert fields <= {word for words in documented for word in words.split(", ")}
