"""Rows of a vectors artifact, numbered by id, with the columns that rules ask for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.artifacts.manifest import DataFile
from pipelines.artifacts.reader import Artifact
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.formats import whole_table
from sbert_core.large_strings import take_narrow, wide_array, wide_schema
from sbert_core.storage import storage_at
from sbert_core.vectors.reader import check_part, columns_schema


@dataclass(frozen=True, slots=True)
class Rows:
    """ids: rising, of a wide type. id_type: of the artifact. place: where each row stands in it."""

    ids: pa.Array
    place: np.ndarray
    id_type: pa.DataType

    @classmethod
    def of(cls, vectors: Artifact) -> "Rows":
        ids = read_wide_columns(vectors, ["id"])["id"].combine_chunks()
        order = pc.sort_indices(ids)
        id_type = _schema(vectors, ["id"]).field("id").type
        return cls(ids.take(order), order.to_numpy().astype(np.int64), id_type)

    def __len__(self) -> int:
        return len(self.ids)

    def numbers(self, ids: pa.Array | pa.ChunkedArray) -> np.ndarray:
        """The number of each id; -1 for an unknown one."""
        ids = wide_array(ids)
        if pa.types.is_integer(self.ids.type):
            known, asked = self.ids.to_numpy(), pc.fill_null(ids, 0).to_numpy(zero_copy_only=False)
            found = np.searchsorted(known, asked)
            found[found == len(known)] = 0
            is_known = (known[found] == asked) & ids.is_valid().to_numpy(zero_copy_only=False)
            return np.where(is_known, found, -1).astype(np.int32)
        found = pc.fill_null(pc.index_in(ids, self.ids), -1)
        return found.to_numpy(zero_copy_only=False).astype(np.int32)

    def published_ids(self, numbers: np.ndarray | pa.Array) -> pa.ChunkedArray:
        """Ids of some rows, of the artifact's own type; null for null."""
        places = pa.array(numbers) if isinstance(numbers, np.ndarray) else numbers
        return take_narrow(self.ids, places, self.id_type)


def check_parts(artifact: Artifact, files: Sequence[DataFile]) -> None:
    """Refuse files that are not those the manifest lists."""
    storage = storage_at(artifact.uri)
    for file in files:
        check_part(storage, file.path, file.sha256)


def read_column(artifact: Artifact, name: str) -> pa.Array:
    """One column of all rows, in order."""
    return read_columns(artifact, [name])[name].combine_chunks()


def read_columns(artifact: Artifact, names: Sequence[str]) -> pa.Table:
    return pa.Table.from_batches(artifact.read(names), _schema(artifact, names))


def read_wide_columns(artifact: Artifact, names: Sequence[str]) -> pa.Table:
    """The same, of types that hold the texts of any number of rows in one array."""
    schema = wide_schema(_schema(artifact, names))
    return pa.Table.from_batches((batch.cast(schema) for batch in artifact.read(names)), schema)


def _schema(artifact: Artifact, names: Sequence[str]) -> pa.Schema:
    # The manifest has types as words, and not every type has one Arrow understands.
    schema = columns_schema(storage_at(artifact.uri), artifact.manifest.files[0].path)
    return pa.schema([schema.field(name) for name in names])


def rule_columns(
    names: Sequence[str], vectors: Artifact, rows: Rows, metadata: str | None
) -> pa.Table:
    """Columns by row: those of the vectors, the others of the metadata, null for ids it lacks."""
    carried = [name for name in names if name in vectors.manifest.schema]
    missing = [name for name in names if name not in vectors.manifest.schema]
    found: dict[str, pa.ChunkedArray] = {}
    if carried:
        table = read_wide_columns(vectors, carried).take(pa.array(rows.place))
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
    table = pa.concat_tables(tables, promote_options="permissive")
    table = table.cast(wide_schema(table.schema))
    number = pc.index_in(rows.ids, table[id_name].cast(rows.ids.type).combine_chunks())
    return {name: table[name].take(number) for name in names}
