"""`help()` explains every argument of what users configure, inherited ones included."""

from __future__ import annotations

import dataclasses
import re

import pytest

import headway
import headway.selection
from headway.signals import BaseSignal

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


@pytest.mark.parametrize("own", ["A signal.", "A signal.\n\n    Attributes:\n        scale: its own words.\n    "])
def test_a_signal_of_a_user_explains_what_it_inherits(own: str) -> None:
    mine = type("Mine", (BaseSignal,), {"__doc__": own})
    assert mine.__doc__.startswith("A signal.\n\nAttributes:\n    ")
    for name in ("name", "where", "scale"):
        assert len(re.findall(rf"^    {name}: ", mine.__doc__, re.MULTILINE)) == 1
    assert ("its own words" in mine.__doc__) == ("its own words" in own)
