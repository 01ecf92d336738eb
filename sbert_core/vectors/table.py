"""A vectors artifact as one table: any columns of any rows, by row number.

In:  the URI of an artifact and the row ranges of its files.
Out: tables, ids and decoded vectors of chosen rows; one file in memory at a time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.storage import storage_at
from sbert_core.vectors.reader import VECTOR, columns_of, decoded_vectors, part_table, piece_table
from sbert_core.vectors.row_ranges import Piece


@dataclass(frozen=True, slots=True)
class VectorTable:
    """The rows of a vectors artifact, numbered over all its files in order.

    name: what a join calls it, `a` or `b`. vectors: the artifact's URI. scale: of int8 vectors.
    """

    name: str
    vectors: str
    scale: float | None
    pieces: tuple[Piece, ...]

    def table(self, piece: Piece, columns: list[str], sha256: str = "") -> pa.Table:
        return piece_table(storage_at(self.vectors), piece, columns, sha256)

    def decoded(self, piece: Piece, sha256: str = "") -> np.ndarray:
        """sha256: of the whole file; asked for where a job first reads it."""
        table = self.table(piece, ["id", VECTOR], sha256)
        return decoded_vectors(table, self.scale, f"{self.vectors}/{piece.path}")

    @property
    def num_rows(self) -> int:
        return sum(piece.num_rows for piece in self.pieces)

    def columns(self, rows: np.ndarray, names: list[str]) -> pa.Table:
        """Columns of rows by number, one file at a time."""
        wanted, back = np.unique(rows, return_inverse=True)
        found, start = [], 0
        for piece in self.pieces:
            own = wanted[(wanted >= start) & (wanted < start + piece.num_rows)] - start
            if len(own):
                table = part_table(storage_at(self.vectors), piece.path, names)
                found.append(table.take(pa.array(own)))
            start += piece.num_rows
        return pa.concat_tables(found).combine_chunks().take(pa.array(back))

    def known(self, names: Iterable[str]) -> list[str]:
        """Those of some columns that the artifact has."""
        have = columns_of(storage_at(self.vectors), self.pieces[0].path)
        return [name for name in names if name in have]

    def ids(self, rows: np.ndarray) -> pa.Array:
        return self.columns(rows, ["id"])["id"].combine_chunks()
