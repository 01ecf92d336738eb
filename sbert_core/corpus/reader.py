"""Read rows of a corpus: text, id and carried columns.

In:  a CorpusReader, a file and a row range.
Out: CorpusRows: row numbers, ids, texts and carried columns of the rows that pass the filter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import pyarrow as pa

from sbert_core.arrays import BoolArray, UInt64Array
from sbert_core.corpus.columns import FIELD
from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.parquet import (
    Text,
    escape_invalid_utf8,
    hash_texts,
    reject_invalid_utf8,
    render_texts,
    stream_rows,
)
from sbert_core.corpus.row_filter import RowFilter
from sbert_core.corpus.units import Unit
from sbert_core.storage import storage_at


class IdKind(StrEnum):
    """Where ids come from."""

    COLUMN = "column"
    POSITION = "position"
    CONTENT = "content"


@dataclass(frozen=True)
class CorpusRows:
    """Some rows of one file, in order. ids: None where they are made from the content."""

    path: str
    row: np.ndarray
    ids: pa.Array | None
    texts: list[Text]
    carried: dict[str, pa.Array]

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def hashes(self) -> tuple[BoolArray, UInt64Array]:
        """Which texts are valid, and the content hashes of all as (n, 2), zeros where invalid."""
        return hash_texts(self.texts)

    def cut(self, first: int, end: int) -> "CorpusRows":
        """Those from place `first` to `end`."""
        return CorpusRows(
            path=self.path,
            row=self.row[first:end],
            ids=None if self.ids is None else self.ids[first:end],
            texts=self.texts[first:end],
            carried={name: column[first:end] for name, column in self.carried.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusReader:
    """Which columns of a corpus are text, id and payload, and where its files are.

    template: the text of a row, columns in braces. where: rows to keep.
    carry: the column behind each published name.
    partition_types: Arrow types of hive partition columns.
    staging, staged: folder of Parquet copies, and the copy of each file that is not Parquet.
    """

    root: str
    template: str
    id_kind: IdKind
    id_column: str | None
    carry: dict[str, str]
    where: RowFilter | None
    partition_types: dict[str, str]
    staging: str = ""
    staged: dict[str, str]

    @property
    def text_columns(self) -> list[str]:
        """Columns of the template."""
        return list(dict.fromkeys(FIELD.findall(self.template)))

    @property
    def columns(self) -> list[str]:
        """Every column that is read."""
        ids = [self.id_column] if self.id_column is not None else []
        where = self.where.columns if self.where else ()
        return list(dict.fromkeys([*self.text_columns, *ids, *self.carry.values(), *where]))

    def stream(self, path: str, first: int, num_rows: int) -> Iterator[CorpusRows]:
        """Rows first..first+num_rows of a file that pass the filter, some thousand at a time."""
        partitions = CorpusFile(path, 0, "").partitions
        stored = [name for name in self.columns if name not in self.partition_types]
        place, name = (
            (self.staging, self.staged[path]) if path in self.staged else (self.root, path)
        )
        row = first
        for batch in stream_rows(storage_at(place), name, first, num_rows, stored):
            columns: dict[str, pa.Array] = {name: batch.column(name) for name in stored}
            for key, kind in self.partition_types.items():
                if key in self.columns:
                    value = pa.scalar(partitions[key], pa.string()).cast(kind)
                    columns[key] = pa.repeat(value, batch.num_rows)
            yield self._rows(path, np.arange(row, row + batch.num_rows), columns)
            row += batch.num_rows

    def read(self, path: str, first: int, num_rows: int) -> CorpusRows:
        """The same rows in one piece."""
        return concat_rows(list(self.stream(path, first, num_rows)))

    def read_units(self, units: Sequence[Unit]) -> Iterator[tuple[Unit, CorpusRows]]:
        """Each unit with its rows.

        Units that follow each other in a file are read in one go: a row group is decoded from its
        start.
        """
        for run in _runs(units):
            first, last = run[0].first_row, run[-1]
            waiting: list[CorpusRows] = []
            for rows in self.stream(last.path, first, last.first_row + last.num_rows - first):
                while len(rows) and rows.row[-1] >= run[0].first_row + run[0].num_rows:
                    end = int(np.searchsorted(rows.row, run[0].first_row + run[0].num_rows))
                    yield run.pop(0), concat_rows([*waiting, rows.cut(0, end)])
                    waiting, rows = [], rows.cut(end, len(rows))
                waiting.append(rows)
            for unit in run:  # a filter may leave the last ones without a row
                yield unit, concat_rows(waiting)
                waiting = [waiting[-1].cut(0, 0)]

    def _rows(self, path: str, row: np.ndarray, columns: dict[str, pa.Array]) -> CorpusRows:
        if self.where is not None:
            kept = np.flatnonzero(self.where.mask(columns, f"{path}: where"))
            row = row[kept]
            columns = {name: column.take(pa.array(kept)) for name, column in columns.items()}
        published = {column: _without_dictionary(columns[column]) for column in self.carry.values()}
        ids = None
        if self.id_column is not None:
            published[self.id_column] = _without_dictionary(columns[self.id_column])
            ids = escape_invalid_utf8(published[self.id_column])
        elif self.id_kind is IdKind.POSITION:
            ids = pa.array([f"{path}#{number}" for number in row], pa.string())
        texts = reject_invalid_utf8(render_texts(columns, self.template), published)
        carried = {name: published[column] for name, column in self.carry.items()}
        return CorpusRows(path=path, row=row, ids=ids, texts=texts, carried=carried)


def _without_dictionary(column: pa.Array) -> pa.Array:
    """The values of a dictionary column: dictionaries of different files do not concatenate."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def concat_rows(pieces: Sequence[CorpusRows]) -> CorpusRows:
    """Consecutive rows of one file in one piece, from at least one."""
    if len(pieces) == 1:
        return pieces[0]
    ids = [piece.ids for piece in pieces if piece.ids is not None]
    return CorpusRows(
        path=pieces[0].path,
        row=np.concatenate([piece.row for piece in pieces]),
        ids=pa.concat_arrays(ids) if ids else None,
        texts=[text for piece in pieces for text in piece.texts],
        carried={
            name: pa.concat_arrays([piece.carried[name] for piece in pieces])
            for name in pieces[0].carried
        },
    )


def _runs(units: Sequence[Unit]) -> list[list[Unit]]:
    """Units in lists of those that follow each other in one file."""
    runs: list[list[Unit]] = []
    for unit in units:
        last = runs[-1][-1] if runs else None
        if last and (last.path, last.first_row + last.num_rows) == (unit.path, unit.first_row):
            runs[-1].append(unit)
        else:
            runs.append([unit])
    return runs
