"""JSON <-> dataclasses: what is encoded is decoded again, and what does not fit is named."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbert_core.json_record import MAX_INT, Count, decode, encode, optional


@dataclass(frozen=True, kw_only=True)
class Inner:
    start: float = field(metadata={"key": "from"})
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outer:
    rows: Count
    seed: int
    is_new: bool
    parts: dict[str, Inner]
    scale: float | None
    note: str | None = optional()
    anything: object = None


floats = st.floats(allow_nan=False, allow_infinity=False)
inners = st.builds(Inner, start=floats, names=st.lists(st.text()).map(tuple))
outers = st.builds(
    Outer,
    rows=st.integers(0, MAX_INT),
    seed=st.integers(-MAX_INT, MAX_INT),
    is_new=st.booleans(),
    parts=st.dictionaries(st.text(), inners, max_size=3),
    scale=st.none() | floats,
    note=st.none() | st.text(),
    anything=st.none() | st.integers() | st.lists(st.booleans()),
)


@given(outers)
def test_decode_reads_what_encode_wrote(record):
    text = json.dumps(encode(record))
    assert decode(Outer, json.loads(text), "place") == record


def test_encode_keeps_the_order_of_fields_and_leaves_optional_ones_out():
    inner = Inner(start=0.5)
    record = Outer(rows=1, seed=0, is_new=True, parts={"a": inner}, scale=None)
    found = encode(record)
    assert list(found) == ["rows", "seed", "is_new", "parts", "scale", "anything"]
    assert found["parts"] == {"a": {"from": 0.5, "names": []}} and found["scale"] is None


GOOD = {"rows": 1, "seed": -1, "is_new": False, "parts": {"a": {"from": 1}}, "scale": 2}


def test_decode_ignores_unknown_keys_and_fills_in_defaults():
    found = decode(Outer, {**GOOD, "later": 1}, "place")
    assert found.note is None and found.parts["a"] == Inner(start=1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rows", -1),
        ("rows", True),
        ("rows", 1.0),
        ("rows", 2**63),
        ("seed", "1"),
        ("is_new", 1),
        ("scale", float("nan")),
        ("scale", float("inf")),
        ("scale", "2"),
        ("parts", []),
        ("parts", {"a": {"from": 1, "names": "x"}}),
        ("parts", {"a": {"from": 1, "names": [1]}}),
        ("parts", {"a": {}}),
        ("note", 1),
    ],
)
def test_decode_names_the_place_of_what_does_not_fit(key, value):
    with pytest.raises(ValueError, match=f"place: {key}"):
        decode(Outer, {**GOOD, key: value}, "place")


@pytest.mark.parametrize("value", [None, [], "x", {}, {"rows": 1}])
def test_decode_refuses_what_is_not_the_object(value):
    with pytest.raises(ValueError, match="place"):
        decode(Outer, value, "place")
