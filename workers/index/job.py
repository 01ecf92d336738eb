"""What all tasks of `sbert index` share: settings, reading of vectors, queries for recall."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sbert_core.arrays import Float32Array, Int64Array
from sbert_core.data_file import ListedFile
from sbert_core.index.kinds import IndexKind
from sbert_core.storage import Storage, storage_at
from sbert_core.vectors.reader import VECTOR, decode_unit_vectors, read_row_range
from sbert_core.vectors.row_ranges import RowRange
from workers.common.files import put_hashed_file


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexJob:
    """Settings shared by all tasks of one build.

    run: key of its progress board. vectors, out: URIs of the artifacts. folder: where the
    generation's files go in `out`. trained: file of the empty FAISS index all shards begin with.
    """

    run: str
    vectors: str
    out: str
    folder: str
    kind: IndexKind
    dim: int
    scale: float | None
    seed: int
    trained: ListedFile | None

    @property
    def storage(self) -> Storage:
        """Storage of the index."""
        return storage_at(self.out)

    @property
    def source(self) -> Storage:
        """Storage of the vectors artifact."""
        return storage_at(self.vectors)

    def read_table(
        self, piece: RowRange, columns: list[str] | None = None, sha256: str = ""
    ) -> pa.Table:
        """Rows of the vectors artifact. sha256: to check the file against, if not empty."""
        return read_row_range(self.source, piece, columns, sha256)

    def unit_vectors(self, table: pa.Table, piece: RowRange) -> Float32Array:
        """The vectors of a table that `read_table` returned, of length one."""
        return decode_unit_vectors(table, self.scale, f"{self.vectors}/{piece.path}")

    def put_file(self, name: str, source: Path, suffix: str) -> ListedFile:
        """Store a local file of the index, under a name that holds its hash."""
        return put_hashed_file(self.storage, f"{self.folder}/{name}", source, suffix)


@dataclass(frozen=True, slots=True)
class RecallQueries:
    """Two samples that recall is measured with.

    inside: vectors of rows of the corpus. held: vectors of rows that are inserted only after they
    have been searched for. held_rows: which rows those are, by sha256 of their part.
    """

    inside: Float32Array
    held: Float32Array
    held_rows: dict[str, Int64Array]

    def held_rows_in(self, piece: RowRange) -> Int64Array:
        """Numbers of the held-out rows in the file of a piece."""
        return self.held_rows.get(piece.sha256, np.empty(0, np.int64))


def read_vectors(job: IndexJob, piece: RowRange) -> Float32Array:
    """Unit vectors of the piece's rows."""
    return job.unit_vectors(job.read_table(piece, ["id", VECTOR]), piece)
