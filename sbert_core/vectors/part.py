"""The part file and the quarantine of a unit, from its rows and the vectors they own or borrow.

In:  PartRows, the owner of each row's vector, and the blocks of all owners.
Out: two Arrow tables: rows in input order, each with its vector; and rows without, with reasons.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sbert_core.arrays import concat_ranges
from sbert_core.corpus.columns import CHUNK_COLUMNS, RESERVED_COLUMNS
from sbert_core.corpus.parquet import HASH_BYTES, count_chars
from sbert_core.corpus.reader import CorpusRows
from sbert_core.data_file import DataFile
from sbert_core.storage import Storage
from sbert_core.text import invalid_reason
from sbert_core.vectors.block import VectorBlock, vector_matrix
from sbert_core.vectors.reader import hash_in_name, read_column_names, read_part

HASH = pa.binary(HASH_BYTES)


@dataclass(frozen=True, slots=True)
class VectorOwners:
    """Where the vector of each valid row is: unit and row of its owner.

    occurrence: how many times the text occurred before.
    """

    unit: np.ndarray
    row: np.ndarray
    occurrence: np.ndarray


@dataclass(frozen=True, slots=True)
class PartRows:
    """What a part states of its rows beside vectors: all but the texts, which are not kept.

    ids: None where they are made from the content. hashes: (n, 2). reasons: why a row's text is
    invalid, by its place.
    """

    path: str
    row: np.ndarray
    ids: pa.Array | None
    hashes: np.ndarray
    num_chars: np.ndarray
    reasons: dict[int, str]
    carried: dict[str, pa.Array]

    @classmethod
    def of(cls, rows: CorpusRows) -> "PartRows":
        """Those of rows that were read."""
        reasons = {i: why for i, text in enumerate(rows.texts) if (why := invalid_reason(text))}
        return cls(
            path=rows.path,
            row=rows.row,
            ids=None if rows.ids is None else _compact(rows.ids),
            hashes=rows.hashes[1],
            num_chars=count_chars(rows.texts),
            reasons=reasons,
            carried={name: _compact(column) for name, column in rows.carried.items()},
        )

    def __len__(self) -> int:
        return len(self.row)


def _compact(column: pa.Array) -> pa.Array:
    """A copy of its own: a slice is pickled with all it was cut from."""
    return pa.concat_arrays([column, column[:0]])


@dataclass(frozen=True, slots=True)
class PartTables:
    """A unit's rows with a vector (`table`), and those without. num_documents: rows with one."""

    table: pa.Table
    quarantine: pa.Table
    num_documents: int


def build_part(
    rows: PartRows,
    owner: VectorOwners,
    blocks: Iterable[tuple[int, VectorBlock]],
    *,
    unit: str,
    has_chunks: bool,
) -> PartTables:
    """Join every row with its vector.

    owner: of the rows whose text is valid, in order.
    blocks: by unit number, of all owners, at least one; only one is in memory at a time.
    unit: name for the quarantine. has_chunks: documents may have several vectors.
    """
    reasons = dict(rows.reasons)
    valid = np.array([i for i in range(len(rows)) if i not in reasons], dtype=np.int64)
    assert len(valid) == len(owner.unit), "an owner for every valid row"
    counts, merged, missing = _gather_vectors(owner, blocks)
    reasons |= {int(valid[place]): why for place, why in missing.items()}
    has_vector = counts > 0
    documents = valid[has_vector]
    document = np.repeat(np.arange(len(documents)), counts[has_vector])
    ids = _document_ids(rows, valid, owner)
    table = _part_table(rows, documents, document, merged, ids, has_chunks)
    bad = sorted(reasons)
    return PartTables(table, _quarantine_table(rows, bad, reasons, ids, unit), len(documents))


def _gather_vectors(
    owner: VectorOwners, blocks: Iterable[tuple[int, VectorBlock]]
) -> tuple[np.ndarray, VectorBlock, dict[int, str]]:
    """Number of vectors of each row, the vectors in order of rows, and why rows have none."""
    counts = np.zeros(len(owner.unit), np.int64)
    pieces: list[tuple[np.ndarray, VectorBlock]] = []
    missing: dict[int, str] = {}
    for number, block in blocks:
        mine = np.flatnonzero(owner.unit == number)
        first, end = block.spans(owner.row[mine])
        counts[mine] = end - first
        pieces.append((mine, block.take(concat_ranges(first, end - first))))
        for place in mine[first == end].tolist():
            missing[place] = block.reasons[int(owner.row[place])]
    example, total = pieces[0][1], int(counts.sum())
    vectors = np.empty((total, example.vectors.shape[1]), example.vectors.dtype)
    columns = {name: np.empty(total, np.int64) for name in example.columns}
    starts = np.cumsum(counts) - counts
    for mine, piece in pieces:
        places = concat_ranges(starts[mine], counts[mine])
        vectors[places] = piece.vectors
        for name, values in piece.columns.items():
            columns[name][places] = values
    return counts, VectorBlock(columns, vectors, {}), missing


def _document_ids(rows: PartRows, valid: np.ndarray, owner: VectorOwners) -> pa.Array:
    """Ids of all rows; an id made from content gets the number of the repeat."""
    if rows.ids is not None:
        return rows.ids
    ids: list[str | None] = [None] * len(rows)
    names = _hash_column(rows, valid).to_pylist()
    for i, name, occurrence in zip(valid.tolist(), names, owner.occurrence.tolist(), strict=True):
        ids[i] = f"{name.hex()}-{occurrence + 1}" if occurrence else name.hex()
    return pa.array(ids, pa.string())


def _hash_column(rows: PartRows, places: np.ndarray) -> pa.Array:
    """Content hashes of some rows with valid texts."""
    raw = rows.hashes[places].astype(">u8").tobytes()
    return pa.FixedSizeBinaryArray.from_buffers(HASH, len(places), [None, pa.py_buffer(raw)])


def _part_table(
    rows: PartRows,
    documents: np.ndarray,
    document: np.ndarray,
    block: VectorBlock,
    ids: pa.Array,
    has_chunks: bool,
) -> pa.Table:
    chosen = pa.array(documents[document])
    hashes = _hash_column(rows, documents)
    num_chars = pa.array(rows.num_chars[documents], pa.int64())
    doc_ids = ids.take(chosen)
    lost = block.columns["num_lost_tokens"]
    vector = pa.FixedSizeListArray.from_arrays(
        pa.array(block.vectors.reshape(-1)), block.vectors.shape[1]
    )
    columns = {
        "id": doc_ids,
        "vector": vector,
        "content_hash": hashes.take(pa.array(document)),
        "file": pa.repeat(pa.scalar(rows.path, pa.string()), len(document)),
        "row": pa.array(rows.row[documents[document]], pa.int64()),
        "num_chars": num_chars.take(pa.array(document)),
        "num_tokens": pa.array(block.columns["num_tokens"], pa.int32()),
        "num_lost_tokens": pa.array(lost, pa.int32()),
        "truncated": pa.array(lost > 0),
    }
    if has_chunks:
        chunk = block.columns["chunk"]
        spelled = doc_ids.cast(pa.string())
        columns["id"] = pc.binary_join_element_wise(spelled, pa.array(chunk).cast(pa.string()), "#")
        columns |= {
            "doc_id": doc_ids,
            "chunk": pa.array(chunk, pa.int32()),
            "start_char": pa.array(block.columns["start_char"], pa.int64()),
            "end_char": pa.array(block.columns["end_char"], pa.int64()),
        }
    assert not set(RESERVED_COLUMNS) & rows.carried.keys(), (
        "names are checked before anything is read"
    )
    columns |= {name: column.take(chosen) for name, column in rows.carried.items()}
    return pa.table(columns)


def _quarantine_table(
    rows: PartRows, bad: list[int], reasons: dict[int, str], ids: pa.Array, unit: str
) -> pa.Table:
    return pa.table(
        {
            "id": ids.take(pa.array(bad, pa.int64())),
            "unit": pa.array([unit] * len(bad), pa.string()),
            "file": pa.array([rows.path] * len(bad), pa.string()),
            "row": pa.array(rows.row[bad], pa.int64()),
            "reason": pa.array([reasons[i] for i in bad], pa.string()),
        }
    )


def parquet_bytes(table: pa.Table, metadata: dict[str, str] | None = None) -> pa.Buffer:
    """Parquet with fixed writer settings: the same table gives the same bytes.

    metadata: of the schema. Vectors do not compress and stay plain; everything else is zstd.
    """
    if metadata:
        table = table.replace_schema_metadata(metadata)
    names = [f"{f.name}.list.element" if f.name == "vector" else f.name for f in table.schema]
    compression = {name: "none" if name.startswith("vector.") else "zstd" for name in names}
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression=compression,
        use_dictionary=[
            name for name in names if not name.startswith(("vector.", "id", "content"))
        ],
        row_group_size=max(1, table.num_rows),
        data_page_version="1.0",
        write_page_checksum=True,
        write_statistics=[n for n in names if not n.startswith("vector.")],
    )
    return sink.getvalue()


def put_table(
    storage: Storage, name: str, table: pa.Table, metadata: dict[str, str] | None = None
) -> DataFile:
    """Write a table under `name` plus its hash, so that no other content can get this path."""
    data = parquet_bytes(table, metadata).to_pybytes()
    sha256 = hashlib.sha256(data).hexdigest()
    path = f"{name}-{sha256[:16]}.parquet"
    storage.put(path, data)
    return DataFile(path=path, rows=table.num_rows, sha256=sha256, bytes=len(data))


def read_part_block(storage: Storage, name: str) -> VectorBlock:
    """Vectors of a written part. The row of a document is the position of its first vector."""
    columns = ["vector", "num_tokens", "num_lost_tokens"]
    has_chunks = "chunk" in read_column_names(storage, name)
    table = read_part(storage, name, [*columns, *CHUNK_COLUMNS[1:]] if has_chunks else columns)
    place = np.arange(table.num_rows)
    values = {
        "row": place,
        "chunk": np.zeros_like(place),
        "start_char": np.zeros_like(place),
        "end_char": np.zeros_like(place),
    }
    if has_chunks:
        values |= {name: table[name].to_numpy().astype(np.int64) for name in CHUNK_COLUMNS[1:]}
        values["row"] = np.maximum.accumulate(np.where(values["chunk"] == 0, place, 0))
    for name in columns[1:]:
        values[name] = table[name].to_numpy().astype(np.int64)
    return VectorBlock(values, vector_matrix(table["vector"]), {})


def read_document_hashes(storage: Storage, name: str) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """Of each document in a part: its position, its content hash as two uint64, its id.

    The file is verified against the hash in its name, since its vectors will be reused.
    """
    has_chunks = "chunk" in read_column_names(storage, name)
    columns = ["content_hash", *(["chunk", "doc_id"] if has_chunks else ["id"])]
    table = read_part(storage, name, columns, hash_in_name(name))
    place = np.arange(table.num_rows)
    if has_chunks:
        place = np.flatnonzero(table["chunk"].to_numpy() == 0)
    raw = b"".join(table["content_hash"].take(pa.array(place)).to_pylist())
    hashes = np.frombuffer(raw, ">u8").reshape(-1, 2).astype(np.uint64)
    ids = table["doc_id" if has_chunks else "id"].combine_chunks().take(pa.array(place))
    return place, hashes, ids


def read_quarantined_ids(storage: Storage, name: str) -> pa.Array:
    """Ids of the rows in a quarantine file, verified against the hash in its name."""
    return read_part(storage, name, ["id"], hash_in_name(name))["id"].combine_chunks()
