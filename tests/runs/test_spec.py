from __future__ import annotations

import copy
import dataclasses
import enum
import hashlib
import json
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.errors import HeadwayError, NewerSchemaError, SpecError
from headway.runs import RunSpec

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, categories=["L", "N", "P"]), min_size=1)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64) + 1, 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=20
)
MAPPINGS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), VALUES, max_size=6)
SPECS = st.builds(
    RunSpec,
    experiment=NAMES,
    condition=NAMES,
    method=NAMES,
    seed=st.integers(0, 2**63 - 1),
    params=MAPPINGS,
    protocol=MAPPINGS,
)


def make(**changes: Any) -> RunSpec:
    fields = {"experiment": "controlled", "condition": "noise", "method": "gmc", "seed": 7}
    return RunSpec(**{**fields, **changes})


def test_the_id_is_the_hash_of_canonical_json_and_stays() -> None:
    spec = make(params={"lr": 1e-3, "epochs": 100.0, "hidden": [256, 256]}, protocol={"floor": 1e-8})
    text = (
        '{"condition":"noise","experiment":"controlled","method":"gmc",'
        '"params":{"epochs":100,"hidden":[256,256],"lr":0.001},"protocol":{"floor":1e-08},"seed":7}'
    )
    assert spec.run_id == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert spec.run_id == "428bd1a0eaec3add"


def test_the_id_does_not_depend_on_the_order_of_keys() -> None:
    one = make(params={"a": 1, "b": {"x": 1, "y": 2}})
    two = make(params={"b": {"y": 2, "x": 1}, "a": 1})
    assert one.run_id == two.run_id
    assert one == two
    assert hash(one) == hash(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [(1, 1.0), (0.0, -0.0), (0, -0.0), (10**15, 1e15), (0.001, 1e-3), ([1], (1.0,)), (-3, -3.0)],
)
def test_equal_numbers_give_equal_ids(one: object, two: object) -> None:
    assert make(params={"x": one}).run_id == make(params={"x": two}).run_id


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, True),
        (0, False),
        (0, None),
        (1, "1"),
        (1e16, 10**16 + 1),
        (0.1, 0.1 + 2**-56),
        ([], {}),
        ("a", ["a"]),
    ],
)
def test_different_values_give_different_ids(one: object, two: object) -> None:
    assert make(params={"x": one}).run_id != make(params={"x": two}).run_id


@pytest.mark.parametrize("field", ["experiment", "method", "condition", "seed", "params", "protocol"])
def test_every_field_is_part_of_the_id(field: str) -> None:
    other = {"seed": 8, "params": {"x": 1}, "protocol": {"x": 1}}.get(field, "other")
    assert make(**{field: other}).run_id != make().run_id


@pytest.mark.slow
@given(SPECS)
def test_a_spec_comes_back_from_json(spec: RunSpec) -> None:
    back = RunSpec.from_json(spec.to_json())
    assert back == spec
    assert back.run_id == spec.run_id
    assert back.to_json() == spec.to_json()
    assert RunSpec.from_json(json.dumps(json.loads(spec.to_json()), sort_keys=True)) == spec


@pytest.mark.slow
@given(SPECS)
def test_a_spec_survives_pickling_and_copying(spec: RunSpec) -> None:
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec
    assert RunSpec(**dataclasses.asdict(spec)) == spec


def test_types_of_numbers_are_kept() -> None:
    back = RunSpec.from_json(make(params={"whole": 1.0, "integer": 1}).to_json())
    assert type(back.params["whole"]) is float
    assert type(back.params["integer"]) is int


def test_a_spec_cannot_be_changed_through_what_it_was_made_from() -> None:
    params = {"hidden": [1, 2], "nested": {"a": 1}}
    spec = make(params=params)
    before = spec.run_id
    params["hidden"].append(3)  # type: ignore[attr-defined]
    params["nested"]["a"] = 2  # type: ignore[call-overload, index]
    assert spec.params == {"hidden": (1, 2), "nested": {"a": 1}}
    assert dataclasses.replace(spec).run_id == before
    with pytest.raises(TypeError):
        spec.params["x"] = 1  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.seed = 1  # type: ignore[misc]


def test_both_kinds_of_experiment_fit_and_read_well() -> None:
    rl = RunSpec(experiment="doorkey", method="icm+gmc", seed=3, params={"env": "DoorKey", "noise": True})
    assert str(rl) == "doorkey/icm+gmc/seed 3"
    assert str(make()) == "controlled/noise/gmc/seed 7"


class Colour(str, enum.Enum):
    RED = "red"


def test_subclasses_of_plain_types_become_plain() -> None:
    spec = make(params={"colour": Colour.RED})
    assert type(spec.params["colour"]) is str
    assert spec == make(params={"colour": "red"})


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}, b"bytes", 2**64, "\ud800", {1: 2}, {"\ud800": 1}])
@pytest.mark.parametrize(("params", "place"), [(lambda x: {"x": x}, "params.x"), (lambda x: {"a": [x]}, "params.a[0]")])
def test_what_json_cannot_hold_is_refused_by_its_place(value: Any, params: Callable[[Any], Any], place: str) -> None:
    with pytest.raises(SpecError, match=re.escape(place)):
        make(params=params(value))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("params", [[1]]),
        ("protocol", [None]),
        ("seed", [-1, 2**63, 1.0, True]),
        ("experiment", ["", "x" * 201]),
        ("method", ["a\nb", " a"]),
        ("condition", [3]),
    ],
)
def test_fields_of_another_kind_are_refused_by_name(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(SpecError, match=rf"expected .*\b{field}\b.*, got"):
            make(**{field: value})


def test_numpy_scalars_are_refused_with_the_way_out() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises(SpecError, match=r"got numpy\.int64; convert it first \(\.item\(\)"):
        make(params={"x": numpy.int64(3)})
    assert type(make(params={"x": numpy.float64(0.5)}).params["x"]) is float


def test_deep_nesting_is_refused() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    with pytest.raises(SpecError, match="at most 32 levels"):
        make(params={"x": deep})


def test_a_huge_spec_is_refused_before_it_is_stored() -> None:
    with pytest.raises(SpecError, match="at most 1048576 bytes"):
        make(params={"x": "a" * 2**20}).to_json()


GOOD = make(params={"lr": 0.5}).to_dict()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "expected a JSON object, got nothing"),
        *((text, re.escape(repr(text))) for text in ("{", "[]", "null")),
        (b"\xff{}", "byte 0xff at 0"),
        ('{"schema": NaN}', "NaN"),
        ('{"schema": 1, "schema": 1}', "'schema' is given twice"),
        *((text, "schema") for text in ("{}", '{"schema": true}', '{"schema": 0}')),
        ('{"schema": 1}', "no experiment, method, seed"),
        (json.dumps({**GOOD, "colour": 1}), "also colour"),
        (json.dumps({**GOOD, "seed": 8}), "run_id .* the file was edited or damaged"),
        (json.dumps({**GOOD, "seed": "7"}), "seed, got '7'"),
        (json.dumps({**GOOD, "run_id": 5}), "run_id"),
        (json.dumps(GOOD).replace("0.5", "1e999"), r"params\.lr, got inf"),
        ("[" * 100_000, "nesting"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "JSON|schema|nesting"),
        ('{"schema": ' + "9" * 5000 + "}", "expected"),
        (" " * (2**20 + 1), "1048576 bytes"),
    ],
)
def test_bad_text_is_refused_with_what_is_wrong_in_it(text: str | bytes, named: str) -> None:
    with pytest.raises(SpecError, match=named):
        RunSpec.from_json(text)


def test_a_spec_of_a_newer_version_says_so() -> None:
    with pytest.raises(NewerSchemaError, match="newer headway: schema 3, this version reads up to 1; upgrade"):
        RunSpec.from_json(json.dumps({"schema": 3, "something": "else"}))


@given(st.binary() | st.text().map(lambda text: text.encode(errors="replace")))
@example(b"\x00")
def test_arbitrary_bytes_never_raise_anything_else(data: bytes) -> None:
    with pytest.raises(SpecError):
        RunSpec.from_json(data)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*GOOD, "x"]), VALUES))
def test_arbitrary_fields_never_raise_anything_else(fields: dict[str, Any]) -> None:
    try:
        spec = RunSpec.from_dict(fields)
    except HeadwayError:
        return
    assert RunSpec.from_dict(spec.to_dict()) == spec


@given(st.data())
def test_a_flipped_bit_is_noticed_or_harmless(data: st.DataObject) -> None:
    text = bytearray(json.dumps(GOOD).encode())
    text[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        spec = RunSpec.from_json(bytes(text))
    except SpecError:
        return
    assert spec.run_id == GOOD["run_id"] or "run_id" not in json.loads(text)
