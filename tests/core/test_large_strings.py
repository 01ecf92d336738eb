"""Texts of many rows: of a wide type in memory, of their own in files."""

import pyarrow as pa

from sbert_core.large_strings import take_narrow, widen_array, widen_schema


def test_wide_texts_that_fit_are_published_in_one_piece():
    wide = widen_array(pa.chunked_array([["b", "a"], ["c"]]))
    made = take_narrow(wide, pa.array([2, None, 0]), pa.string())
    assert (made.type, made.num_chunks, made.to_pylist()) == (pa.string(), 1, ["c", None, "b"])
    numbers = take_narrow(pa.array([5, 6]), pa.array([1, 0]), pa.int64())
    assert numbers.to_pylist() == [6, 5]
    schema = widen_schema(pa.schema({"id": pa.string(), "row": pa.int64(), "hash": pa.binary()}))
    assert schema.types == [pa.large_string(), pa.int64(), pa.large_binary()]
