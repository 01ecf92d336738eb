import pytest

from sbert_core.text import invalid_reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null"),
        (3, "not a string but int"),
        (b"bytes", "not a string but bytes"),
        (float("nan"), "not a string but float"),
        ("", "empty"),
        (" \t\n\u3000", "blank"),
        ("ab\ud800c", "lone surrogate at character 2"),
    ],
)
def test_unusable_values_have_a_reason(value, reason):
    assert invalid_reason(value) == reason


@pytest.mark.parametrize("text", ["a", "\x00x", "🙂", "안녕", "שלום", "x" * 1_000_000, "👩‍👩‍👧"])
def test_texts_of_any_script_are_usable(text):
    assert invalid_reason(text) is None
