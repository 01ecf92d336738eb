"""Arrow strings with 64-bit offsets for work in memory; files keep the types they have.

Offsets of Arrow's `string` have 32 bits: an array holds 2 GiB, some 45 million ids of 47 bytes, and
combining or taking more fails. `large_string` has 64.
"""

import pyarrow as pa
import pyarrow.compute as pc

WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
NARROW_BYTES = 2**31 - 1


def widen_type(kind: pa.DataType) -> pa.DataType:
    """The type with 64-bit offsets; types other than `string` and `binary` stay."""
    return WIDE.get(kind, kind)


def widen_schema(schema: pa.Schema) -> pa.Schema:
    """`widen_type` for every field."""
    return pa.schema([field.with_type(widen_type(field.type)) for field in schema])


def widen_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Combine a column into one array with 64-bit offsets, whatever its total length."""
    column = column.cast(widen_type(column.type))
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def take_narrow(texts: pa.Array, places: pa.Array, kind: pa.DataType) -> pa.ChunkedArray:
    """Take texts by index and cast them to `kind`, in one chunk if they fit into 2 GiB.

    A null index gives a null.
    """
    return pa.chunked_array(_take_chunks(texts, places, kind), kind)


def _take_chunks(texts: pa.Array, places: pa.Array, kind: pa.DataType) -> list[pa.Array]:
    taken = texts.take(places)
    is_narrow = taken.type == kind
    if is_narrow or (pc.sum(pc.binary_length(taken)).as_py() or 0) <= NARROW_BYTES:
        return [taken.cast(kind)]
    del taken  # a slice of it would keep offsets that do not fit
    half = len(places) // 2
    return [
        *_take_chunks(texts, places[:half], kind),
        *_take_chunks(texts, places[half:], kind),
    ]
