"""Tasks of `prepare`: labelled files -> checked rows -> shards.

In:  one file, or the rows of all files that make one shard.
Out: Parquet in the job's work folder or in the artifact, and the keys, lengths and labels by which
     the driver splits the rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from sbert_core.arrays import Float64Array, Int64Array, ObjectArray, UInt64Array
from sbert_core.choices import ExampleFormat
from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.formats import read_table
from sbert_core.corpus.parquet import decode_texts, is_text_type, open_parquet
from sbert_core.data_file import DataFile
from sbert_core.storage import Storage, storage_at
from sbert_core.training.examples import (
    LabelRules,
    find_example_columns,
    normalize_examples,
    text_keys,
)
from sbert_core.vectors.part import parquet_bytes, put_table


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareJob:
    """Settings shared by all files.

    out, work: the artifact, and the job's work folder inside it.
    columns: names of the user's columns; empty to find them.
    tokenizer: contents of a tokenizer.json; None counts characters instead of tokens.
    """

    out: str
    work: str
    kind: ExampleFormat
    columns: tuple[str, ...]
    rules: LabelRules
    tokenizer: str | None

    @property
    def storage(self) -> Storage:
        """Where the artifact lies."""
        return storage_at(self.out)

    def rows_name(self, number: int) -> str:
        """File of an input file's rows in normal form."""
        return f"{self.work}/rows/{number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class FileExamples:
    """One entry per row of a file: keys of its texts (row x role), its length, its label."""

    keys: UInt64Array
    lengths: Int64Array
    labels: ObjectArray | Float64Array | None


def read_examples(job: PrepareJob, root: str, file: CorpusFile, number: int) -> FileExamples:
    """Check the rows of input file `number` and write them in normal form.

    Raises ValueError for rows that do not fit the format (see training.examples).
    """
    table = read_table(storage_at(root), file)
    where = f"{root}/{file.path}"
    columns = find_example_columns(table.column_names, job.kind, job.columns, where)
    rows = normalize_examples(table, job.kind, columns, job.rules, where)
    texts = [rows[name].to_pylist() for name in rows.column_names if name not in ("label", "row")]
    lengths = _lengths(texts, job.tokenizer)
    rows = rows.append_column("file", pa.array([file.path] * rows.num_rows, pa.string()))
    rows = rows.append_column("length", pa.array(lengths, pa.int32()))
    job.storage.put(job.rows_name(number), parquet_bytes(rows).to_pybytes())
    labels = rows["label"].to_numpy() if columns.label is not None else None
    keys = np.stack([text_keys(role) for role in texts], axis=1)
    return FileExamples(keys, lengths, labels)


def _lengths(texts: list[list[str]], tokenizer: str | None) -> Int64Array:
    """Tokens of all texts of a row; characters without a tokenizer."""
    total = np.zeros(len(texts[0]), np.int64)
    if tokenizer is None:
        for role in texts:
            total += np.fromiter(map(len, role), np.int64, len(role))
        return total
    fast = Tokenizer.from_str(tokenizer)
    fast.no_truncation()
    fast.no_padding()
    for role in texts:
        encodings = fast.encode_batch_fast(role)
        total += np.fromiter((len(e.ids) for e in encodings), np.int64, len(encodings))
    return total


def read_text_keys(root: str, file: CorpusFile) -> UInt64Array:
    """Keys of every text in a file, in all columns of texts; ValueError if it has none."""
    table = read_table(storage_at(root), file)
    keys = [
        text_keys([text for text in decode_texts(column) if isinstance(text, str)])
        for column in table.columns
        if is_text_type(column.type)
    ]
    if not keys:
        raise ValueError(f"{root}/{file.path} has no column of texts to exclude; check the file")
    return np.unique(np.concatenate(keys))


def write_rows(
    job: PrepareJob,
    pieces: list[tuple[int, Int64Array]],
    name: str,
    classes: list[str] | None,
    extra: dict[str, list[str]],
) -> DataFile:
    """Write rows of several input files as one file, whose name ends in its hash.

    pieces: numbers of input files, and the rows to take of each.
    classes: labels become positions in this list. extra: further columns by name.
    """
    tables = []
    for number, rows in pieces:
        with open_parquet(job.storage, job.rows_name(number)) as file:
            tables.append(file.read().take(pa.array(rows)))
    table = pa.concat_tables(tables)
    if classes is not None:
        numbers = pc.index_in(table["label"], pa.array(classes)).cast(pa.int32())
        table = table.set_column(table.column_names.index("label"), "label", numbers)
    for column, values in extra.items():
        table = table.append_column(column, pa.array(values, pa.string()))
    return put_table(job.storage, name, table)
