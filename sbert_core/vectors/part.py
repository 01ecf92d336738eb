"""Rows of a unit and the vectors they own or borrow -> the unit's part and quarantine.

In:  Rows, Claims, and Blocks of every owner.
Out: two Arrow tables: rows in input order, each with its vector; and rows without, with reasons.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sbert_core.arrays import ranges
from sbert_core.corpus.columns import CHUNK_COLUMNS, OWN_COLUMNS
from sbert_core.corpus.parquet import HASH_BYTES, content_hash
from sbert_core.corpus.reader import Rows
from sbert_core.storage import Storage
from sbert_core.text import invalid_reason
from sbert_core.vectors.block import Block, vectors_of
from sbert_core.vectors.reader import columns_of, hash_in, part_table

HASH = pa.binary(HASH_BYTES)


@dataclass(frozen=True, slots=True)
class Owner:
    """Where each valid row's vector is: a block and the row in it."""

    unit: np.ndarray
    row: np.ndarray
    occurrence: np.ndarray


@dataclass(frozen=True, slots=True)
class Part:
    """A unit's rows with a vector, and those without."""

    table: pa.Table
    quarantine: pa.Table
    num_documents: int


def part_of(
    rows: Rows, owner: Owner, blocks: Iterable[tuple[int, Block]], *, unit: str, has_chunks: bool
) -> Part:
    """Put every row beside its vector.

    owner: for the rows whose text is valid, in order.
    blocks: of all owners, at least one; each is let go before the next is asked for.
    """
    reasons = {i: why for i, text in enumerate(rows.texts) if (why := invalid_reason(text))}
    valid = np.array([i for i in range(len(rows)) if i not in reasons], dtype=np.int64)
    assert len(valid) == len(owner.unit), "a claim for every valid row"
    counts, merged, missing = _gathered(owner, blocks)
    reasons |= {int(valid[place]): why for place, why in missing.items()}
    has_vector = counts > 0
    documents = valid[has_vector]
    document = np.repeat(np.arange(len(documents)), counts[has_vector])
    ids = _document_ids(rows, valid, owner)
    table = _table(rows, documents, document, merged, ids, has_chunks)
    bad = sorted(reasons)
    return Part(table, _quarantine(rows, bad, reasons, ids, unit), len(documents))


def _gathered(
    owner: Owner, blocks: Iterable[tuple[int, Block]]
) -> tuple[np.ndarray, Block, dict[int, str]]:
    """How many vectors each row has, the vectors in order of rows, and why rows have none."""
    counts = np.zeros(len(owner.unit), np.int64)
    pieces: list[tuple[np.ndarray, Block]] = []
    missing: dict[int, str] = {}
    for number, block in blocks:
        mine = np.flatnonzero(owner.unit == number)
        first, end = block.spans(owner.row[mine])
        counts[mine] = end - first
        pieces.append((mine, block.taken(ranges(first, end - first))))
        for place in mine[first == end].tolist():
            missing[place] = block.reasons[int(owner.row[place])]
    example, total = pieces[0][1], int(counts.sum())
    vectors = np.empty((total, example.vectors.shape[1]), example.vectors.dtype)
    facts = {name: np.empty(total, np.int64) for name in example.facts}
    starts = np.cumsum(counts) - counts
    for mine, piece in pieces:
        places = ranges(starts[mine], counts[mine])
        vectors[places] = piece.vectors
        for name, values in piece.facts.items():
            facts[name][places] = values
    return counts, Block(facts, vectors, {}), missing


def _document_ids(rows: Rows, valid: np.ndarray, owner: Owner) -> pa.Array:
    """Ids of all rows; those made of content number the repeats of a text."""
    if rows.ids is not None:
        return rows.ids
    ids: list[str | None] = [None] * len(rows)
    for i, occurrence in zip(valid.tolist(), owner.occurrence.tolist(), strict=True):
        name = content_hash(str(rows.texts[i])).hex()
        ids[i] = f"{name}-{occurrence + 1}" if occurrence else name
    return pa.array(ids, pa.string())


def _table(
    rows: Rows,
    documents: np.ndarray,
    document: np.ndarray,
    block: Block,
    ids: pa.Array,
    has_chunks: bool,
) -> pa.Table:
    chosen = pa.array(documents[document])
    texts = [str(rows.texts[i]) for i in documents.tolist()]
    hashes = pa.array([content_hash(text) for text in texts], HASH)
    num_chars = pa.array([len(text) for text in texts], pa.int64())
    doc_ids = ids.take(chosen)
    lost = block.facts["num_lost_tokens"]
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
        "num_tokens": pa.array(block.facts["num_tokens"], pa.int32()),
        "num_lost_tokens": pa.array(lost, pa.int32()),
        "truncated": pa.array(lost > 0),
    }
    if has_chunks:
        chunk = block.facts["chunk"]
        spelled = doc_ids.cast(pa.string())
        columns["id"] = pc.binary_join_element_wise(spelled, pa.array(chunk).cast(pa.string()), "#")
        columns |= {
            "doc_id": doc_ids,
            "chunk": pa.array(chunk, pa.int32()),
            "start_char": pa.array(block.facts["start_char"], pa.int64()),
            "end_char": pa.array(block.facts["end_char"], pa.int64()),
        }
    assert not set(OWN_COLUMNS) & rows.carried.keys(), "names are checked before anything is read"
    columns |= {name: column.take(chosen) for name, column in rows.carried.items()}
    return pa.table(columns)


def _quarantine(
    rows: Rows, bad: list[int], reasons: dict[int, str], ids: pa.Array, unit: str
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
    """Fixed writer settings: the same table gives the same bytes.

    Vectors are noise to a compressor and stay plain; everything else is zstd.
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
) -> dict[str, Any]:
    """Write a table under a name that holds its hash: nobody can write another one there."""
    data = parquet_bytes(table, metadata).to_pybytes()
    sha256 = hashlib.sha256(data).hexdigest()
    path = f"{name}-{sha256[:16]}.parquet"
    storage.put(path, data)
    return {"path": path, "rows": table.num_rows, "sha256": sha256, "bytes": len(data)}


def block_of_part(storage: Storage, name: str) -> Block:
    """A written part as a source of vectors. A document's row is the place of its first vector."""
    columns = ["vector", "num_tokens", "num_lost_tokens"]
    has_chunks = "chunk" in columns_of(storage, name)
    table = part_table(storage, name, [*columns, *CHUNK_COLUMNS[1:]] if has_chunks else columns)
    place = np.arange(table.num_rows)
    facts = {
        "row": place,
        "chunk": np.zeros_like(place),
        "start_char": np.zeros_like(place),
        "end_char": np.zeros_like(place),
    }
    if has_chunks:
        facts |= {name: table[name].to_numpy().astype(np.int64) for name in CHUNK_COLUMNS[1:]}
        facts["row"] = np.maximum.accumulate(np.where(facts["chunk"] == 0, place, 0))
    for name in columns[1:]:
        facts[name] = table[name].to_numpy().astype(np.int64)
    return Block(facts, vectors_of(table["vector"]), {})


def document_hashes(storage: Storage, name: str) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """Of each document in a part: its place, its content hash as two uint64, its id.

    What is taken over is checked here: a part's name holds its hash.
    """
    has_chunks = "chunk" in columns_of(storage, name)
    columns = ["content_hash", *(["chunk", "doc_id"] if has_chunks else ["id"])]
    table = part_table(storage, name, columns, hash_in(name))
    place = np.arange(table.num_rows)
    if has_chunks:
        place = np.flatnonzero(table["chunk"].to_numpy() == 0)
    raw = b"".join(table["content_hash"].take(pa.array(place)).to_pylist())
    hashes = np.frombuffer(raw, ">u8").reshape(-1, 2).astype(np.uint64)
    ids = table["doc_id" if has_chunks else "id"].combine_chunks().take(pa.array(place))
    return place, hashes, ids


def quarantined_ids(storage: Storage, name: str) -> pa.Array:
    """Ids of the rows in a quarantine file."""
    return part_table(storage, name, ["id"], hash_in(name))["id"].combine_chunks()
