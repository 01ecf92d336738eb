"""A vectors artifact as one table: any columns of any rows, by row number.

In:  the URI of an artifact and the row ranges of its files.
Out: tables, ids and decoded vectors of chosen rows; one file in memory at a time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.storage import storage_at
from sbert_core.vectors.reader import (
    VECTOR,
    decode_vectors,
    read_column_names,
    read_part,
    read_row_range,
)
from sbert_core.vectors.row_ranges import RowRange


@dataclass(frozen=True, slots=True)
class VectorTable:
    """The rows of a vectors artifact, numbered over all its files in order.

    name: what a join calls it, `a` or `b`. vectors: the artifact's URI. scale: of int8 vectors.
    """

    name: str
    vectors: str
    scale: float | None
    row_ranges: tuple[RowRange, ...]

    def table(self, rows: RowRange, columns: list[str], sha256: str = "") -> pa.Table:
        """Columns of some rows of one file. sha256: of the file, to verify it."""
        return read_row_range(storage_at(self.vectors), rows, columns, sha256)

    def decode(self, rows: RowRange, sha256: str = "") -> np.ndarray:
        """Float32 vectors of some rows of one file. sha256: of the file, to verify it.

        A job verifies a file where it first reads it.
        """
        table = self.table(rows, ["id", VECTOR], sha256)
        return decode_vectors(table, self.scale, f"{self.vectors}/{rows.path}")

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return sum(part.num_rows for part in self.row_ranges)

    def columns(self, rows: np.ndarray, names: list[str]) -> pa.Table:
        """Columns of rows by number, in the order of `rows`; one file in memory at a time."""
        wanted, back = np.unique(rows, return_inverse=True)
        found, start = [], 0
        for part in self.row_ranges:
            own = wanted[(wanted >= start) & (wanted < start + part.num_rows)] - start
            if len(own):
                table = read_part(storage_at(self.vectors), part.path, names)
                found.append(table.take(pa.array(own)))
            start += part.num_rows
        return pa.concat_tables(found).combine_chunks().take(pa.array(back))

    def existing_columns(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are columns of the artifact."""
        have = read_column_names(storage_at(self.vectors), self.row_ranges[0].path)
        return [name for name in names if name in have]

    def ids(self, rows: np.ndarray) -> pa.Array:
        """Ids of rows by number."""
        return self.columns(rows, ["id"])["id"].combine_chunks()
