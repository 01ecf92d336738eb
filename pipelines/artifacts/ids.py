"""Rows of a vectors artifact, numbered by id, and columns of any artifact by row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.artifacts.reader import AnyArtifact, VectorsArtifact
from sbert_core.arrays import Int32Array, Int64Array
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.formats import read_table
from sbert_core.data_file import DataFile
from sbert_core.large_strings import take_narrow, widen_array, widen_schema
from sbert_core.storage import storage_at
from sbert_core.vectors.reader import check_part, read_part_schema


@dataclass(frozen=True, slots=True)
class IdIndex:
    """Rows numbered in the order of their ids.

    ids: rising, of a wide type. place: the position of each row in the artifact. id_type: of the
    artifact.
    """

    ids: pa.Array
    place: Int64Array
    id_type: pa.DataType

    @classmethod
    def of(cls, vectors: VectorsArtifact) -> "IdIndex":
        """Read and sort the ids of all rows."""
        ids = read_wide_columns(vectors, ["id"])["id"].combine_chunks()
        order = pc.sort_indices(ids)
        id_type = _schema(vectors, ["id"]).field("id").type
        return cls(ids.take(order), order.to_numpy().astype(np.int64), id_type)

    def __len__(self) -> int:
        return len(self.ids)

    def lookup(self, ids: pa.Array | pa.ChunkedArray) -> Int32Array:
        """The row number of each id, int32; -1 for an unknown one."""
        ids = widen_array(ids)
        if pa.types.is_integer(self.ids.type):
            known, asked = self.ids.to_numpy(), pc.fill_null(ids, 0).to_numpy(zero_copy_only=False)
            found = np.searchsorted(known, asked)
            found[found == len(known)] = 0
            is_known = (known[found] == asked) & ids.is_valid().to_numpy(zero_copy_only=False)
            return np.where(is_known, found, -1).astype(np.int32)
        found = pc.fill_null(pc.index_in(ids, self.ids), -1)
        numbers: Int32Array = found.to_numpy(zero_copy_only=False).astype(np.int32)
        return numbers

    def published_ids(self, numbers: Int64Array | pa.Array) -> pa.ChunkedArray:
        """Ids of some rows, of the type they have in the artifact; null for null."""
        places = pa.array(numbers) if isinstance(numbers, np.ndarray) else numbers
        return take_narrow(self.ids, places, self.id_type)


def check_parts(artifact: AnyArtifact, files: Sequence[DataFile]) -> None:
    """Check the sha256 of files of an artifact; BrokenPart names one that differs."""
    storage = storage_at(artifact.uri)
    for file in files:
        check_part(storage, file.path, file.sha256)


def read_column(artifact: AnyArtifact, name: str) -> pa.Array:
    """One column of all rows, in order."""
    return read_columns(artifact, [name])[name].combine_chunks()


def read_columns(artifact: AnyArtifact, names: Sequence[str]) -> pa.Table:
    """Some columns of all rows, in order."""
    return pa.Table.from_batches(artifact.read(names), _schema(artifact, names))


def read_wide_columns(artifact: AnyArtifact, names: Sequence[str]) -> pa.Table:
    """The same, of types that hold the texts of any number of rows in one array."""
    schema = widen_schema(_schema(artifact, names))
    return pa.Table.from_batches((batch.cast(schema) for batch in artifact.read(names)), schema)


def _schema(artifact: AnyArtifact, names: Sequence[str]) -> pa.Schema:
    # The manifest has types as texts, and Arrow cannot parse those of every type.
    schema = read_part_schema(storage_at(artifact.uri), artifact.manifest.files[0].path)
    return pa.schema([schema.field(name) for name in names])


def rule_columns(
    names: Sequence[str], vectors: VectorsArtifact, rows: IdIndex, metadata: str | None
) -> pa.Table:
    """Columns of keep rules by row: of the vectors where they have them, else of the metadata.

    metadata: a corpus with ids; null for ids it lacks. ValueError for a column that neither has.
    """
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
    place: str, names: Sequence[str], vectors: VectorsArtifact, rows: IdIndex
) -> dict[str, pa.ChunkedArray]:
    corpus = find_corpus(place)
    id_name = vectors.manifest.inputs.id_column or "id"
    wanted = [id_name, *names]
    tables = [
        read_table(corpus.storage, file, wanted, [id_name]).select(wanted) for file in corpus.files
    ]
    table = pa.concat_tables(tables, promote_options="permissive")
    table = table.cast(widen_schema(table.schema))
    number = pc.index_in(rows.ids, table[id_name].cast(rows.ids.type).combine_chunks())
    return {name: table[name].take(number) for name in names}
