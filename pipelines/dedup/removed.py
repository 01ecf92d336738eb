"""Clusters of one file -> its removed rows beside the kept row each resembles.

In:  the vectors and clusters of a corpus of one file.
Out: a file of the same format and columns, and `witness`, `witness_text`, `cosine`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from pipelines.artifacts.ids import read_columns
from pipelines.artifacts.reader import ClustersArtifact, VectorsArtifact
from sbert_core.corpus.files import Corpus, Format
from sbert_core.corpus.formats import read_table

ADDED_COLUMNS = ("witness", "witness_text", "cosine")


@dataclass(frozen=True, slots=True)
class RemovedCount:
    """Rows removed, of all rows of the file."""

    removed: int
    rows: int


def write_removed(
    corpus: Corpus,
    text_column: str,
    vectors: VectorsArtifact,
    clusters: ClustersArtifact,
    target: Path,
) -> RemovedCount:
    """Write the removed rows to `target`, whole or not at all."""
    [file] = corpus.files
    rows = read_columns(vectors, ["id", "row"])
    ids, row_of = rows["id"].combine_chunks(), rows["row"].combine_chunks()
    decided = read_columns(clusters, ["id", "keep", "witness", "cos_to_witness"])
    gone = decided.filter(pc.invert(decided["keep"]))
    removed_rows, witness_rows = (
        row_of.take(pc.index_in(gone[name], ids).combine_chunks()) for name in ("id", "witness")
    )
    table = read_table(corpus.storage, file)
    removed = table.take(removed_rows)
    added = (gone["witness"], table[text_column].take(witness_rows), gone["cos_to_witness"])
    for name, column in zip(ADDED_COLUMNS, added, strict=True):
        free_name = name if name not in table.column_names else f"{name}_of_dedup"
        removed = removed.append_column(free_name, column)
    part = target.with_name(f".{target.name}.part")
    with pa.output_stream(part, compression=file.compression) as sink:
        WRITERS[file.format](removed, sink)
    part.replace(target)
    return RemovedCount(removed.num_rows, table.num_rows)


def _write_parquet(table: pa.Table, sink: pa.NativeFile) -> None:
    pq.write_table(table, sink, compression="zstd")


def _write_csv(table: pa.Table, sink: pa.NativeFile) -> None:
    pyarrow.csv.write_csv(table, sink)


def _write_tsv(table: pa.Table, sink: pa.NativeFile) -> None:
    """The reader takes quotes as characters, so tabs and line ends become spaces instead."""
    columns = [[_on_one_line(value) for value in column.to_pylist()] for column in table.columns]
    lines = ["\t".join(table.column_names), *("\t".join(row) for row in zip(*columns, strict=True))]
    sink.write(("\n".join(lines) + "\n").encode())


def _on_one_line(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())


def _write_jsonl(table: pa.Table, sink: pa.NativeFile) -> None:
    for row in table.to_pylist():
        sink.write((json.dumps(row, ensure_ascii=False, default=str) + "\n").encode())


WRITERS: dict[Format, Callable[[pa.Table, pa.NativeFile], None]] = {
    Format.PARQUET: _write_parquet,
    Format.CSV: _write_csv,
    Format.TSV: _write_tsv,
    Format.JSONL: _write_jsonl,
}
