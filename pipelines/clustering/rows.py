"""Rows of a vectors artifact, numbered by id, with the columns that rules ask for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.artifacts import Artifact, DataFile
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.formats import whole_table
from sbert_core.storage import storage_at
from sbert_core.vectors.reading import check_part, columns_schema


@dataclass(frozen=True, slots=True)
class Rows:
    """ids: rising. place: where each row stands in the artifact."""

    ids: pa.Array
    place: np.ndarray

    @classmethod
    def of(cls, vectors: Artifact) -> "Rows":
        ids = read_column(vectors, "id")
        order = pc.sort_indices(ids)
        return cls(ids.take(order), order.to_numpy().astype(np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def numbers(self, ids: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """The number of each id; -1 for an unknown one."""
        if isinstance(ids, pa.ChunkedArray):
            ids = ids.combine_chunks()
        if pa.types.is_integer(self.ids.type):
            known, asked = self.ids.to_numpy(), pc.fill_null(ids, 0).to_numpy(zero_copy_only=False)
            found = np.searchsorted(known, asked)
            found[found == len(known)] = 0
            is_known = (known[found] == asked) & ids.is_valid().to_numpy(zero_copy_only=False)
            return np.where(is_known, found, -1).astype(np.int32)
        found = pc.fill_null(pc.index_in(ids, self.ids), -1)
        return found.to_numpy(zero_copy_only=False).astype(np.int32)


def check_parts(artifact: Artifact, files: Sequence[DataFile]) -> None:
    """Refuse files that are not those the manifest lists."""
    storage = storage_at(artifact.uri)
    for file in files:
        check_part(storage, file.path, file.sha256)


def read_column(artifact: Artifact, name: str) -> pa.Array:
    """One column of all rows, in order."""
    return read_columns(artifact, [name])[name].combine_chunks()


def read_columns(artifact: Artifact, names: Sequence[str]) -> pa.Table:
    # The manifest has types as words, and not every type has one Arrow understands.
    schema = columns_schema(storage_at(artifact.uri), artifact.manifest.files[0].path)
    return pa.Table.from_batches(
        artifact.read(names), pa.schema([schema.field(name) for name in names])
    )


def rule_columns(
    names: Sequence[str], vectors: Artifact, rows: Rows, metadata: str | None
) -> pa.Table:
    """Columns by row: those of the vectors, the others of the metadata, null for ids it lacks."""
    carried = [name for name in names if name in vectors.manifest.schema]
    missing = [name for name in names if name not in vectors.manifest.schema]
    found: dict[str, pa.ChunkedArray] = {}
    if carried:
        table = read_columns(vectors, carried).take(pa.array(rows.place))
        found |= {name: table[name] for name in carried}
    if missing and metadata is None:
        have = ", ".join(sorted(set(vectors.manifest.schema) - {"vector"}))
        raise ValueError(
            f"the vectors carry no column {missing[0]!r}; they have: {have}. Embed with --carry "
            f"{missing[0]}, or name a corpus that has it with --metadata"
        )
    if missing and metadata is not None:
        found |= _metadata(metadata, missing, vectors, rows)
    return pa.table(found)


def _metadata(
    place: str, names: Sequence[str], vectors: Artifact, rows: Rows
) -> dict[str, pa.ChunkedArray]:
    corpus = find_corpus(place)
    id_name = vectors.manifest.made_from["id_column"] or "id"
    wanted = [id_name, *names]
    tables = [
        whole_table(corpus.storage, file, wanted, [id_name]).select(wanted) for file in corpus.files
    ]
    table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    number = pc.index_in(rows.ids, table[id_name].cast(rows.ids.type).combine_chunks())
    return {name: table[name].take(number) for name in names}
