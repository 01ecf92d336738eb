"""Texts of many rows in one Arrow array.

Offsets of Arrow's `string` have 32 bits: an array holds 2 GiB, some 45 million ids of 47 bytes, and
combining or taking more fails. `large_string` has 64. It is for work in memory alone: files keep
the types they have.
"""

import pyarrow as pa
import pyarrow.compute as pc

WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
NARROW_BYTES = 2**31 - 1


def wide_type(kind: pa.DataType) -> pa.DataType:
    return WIDE.get(kind, kind)


def wide_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(wide_type(field.type)) for field in schema])


def wide_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array of all texts, however long they are together."""
    column = column.cast(wide_type(column.type))
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def take_narrow(texts: pa.Array, places: pa.Array, kind: pa.DataType) -> pa.ChunkedArray:
    """Texts at some places, of a type as files have it: in one piece if it fits, else in several.

    Where a place is null there is no text.
    """
    return pa.chunked_array(_pieces(texts, places, kind), kind)


def _pieces(texts: pa.Array, places: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    taken = texts.take(places)
    is_narrow = taken.type == kind
    if is_narrow or (pc.sum(pc.binary_length(taken)).as_py() or 0) <= NARROW_BYTES:
        return [taken.cast(kind)]
    del taken  # a slice of it would keep offsets that do not fit
    half = len(places) // 2
    return [*_pieces(texts, places[:half], kind), *_pieces(texts, places[half:], kind)]
