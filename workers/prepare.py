"""Tasks of `prepare`: labelled files -> checked rows -> shards.

In:  one file, or the rows of all files that make one shard.
Out: Parquet in the job's work folder, and what the driver needs to split and deal the rows.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.formats import whole_table
from sbert_core.corpus.parquet import decoded, is_text, opened
from sbert_core.storage import Storage, storage_at
from sbert_core.training.examples import (
    ExampleFormat,
    LabelRules,
    columns_of,
    examples_of,
    text_keys,
)
from sbert_core.vectors.part import parquet_bytes, put_table


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleJob:
    """Everything that is the same for all files.

    tokenizer: a tokenizer.json, to count tokens with.
    """

    out: str
    work: str
    kind: ExampleFormat
    columns: tuple[str, ...]
    rules: LabelRules
    tokenizer: str | None

    @property
    def storage(self) -> Storage:
        return storage_at(self.out)

    def rows_name(self, number: int) -> str:
        return f"{self.work}/rows/{number:06d}.parquet"


@dataclass(frozen=True, slots=True)
class FileRows:
    """What the driver learns of a file's rows."""

    keys: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray | None


def read_examples(job: ExampleJob, root: str, file: CorpusFile, number: int) -> FileRows:
    """Check a file's rows and keep them in normal form."""
    table = whole_table(storage_at(root), file)
    where = f"{root}/{file.path}"
    columns = columns_of(table.column_names, job.kind, job.columns, where)
    rows = examples_of(table, job.kind, columns, job.rules, where)
    texts = [rows[name].to_pylist() for name in rows.column_names if name not in ("label", "row")]
    lengths = _lengths(texts, job.tokenizer)
    rows = rows.append_column("file", pa.array([file.path] * rows.num_rows, pa.string()))
    rows = rows.append_column("length", pa.array(lengths, pa.int32()))
    job.storage.put(job.rows_name(number), parquet_bytes(rows).to_pybytes())
    labels = rows["label"].to_numpy() if columns.label is not None else None
    keys = np.stack([text_keys(role) for role in texts], axis=1)
    return FileRows(keys, lengths, labels)


def _lengths(texts: list[list[str]], tokenizer: str | None) -> np.ndarray:
    """Tokens of all texts of a row; characters if there is no tokenizer."""
    total = np.zeros(len(texts[0]), np.int64)
    if tokenizer is None:
        for role in texts:
            total += np.fromiter(map(len, role), np.int64, len(role))
        return total
    fast = Tokenizer.from_str(tokenizer)
    fast.no_truncation()
    fast.no_padding()
    for role in texts:
        found = fast.encode_batch_fast(role)
        total += np.fromiter((len(encoding.ids) for encoding in found), np.int64, len(found))
    return total


def text_keys_of(root: str, file: CorpusFile) -> np.ndarray:
    """Keys of every text in a file: its text columns, whatever they are called."""
    table = whole_table(storage_at(root), file)
    keys = [
        text_keys([text for text in decoded(column) if isinstance(text, str)])
        for column in table.columns
        if is_text(column.type)
    ]
    if not keys:
        raise ValueError(f"{root}/{file.path} has no column of texts to exclude; check the file")
    return np.unique(np.concatenate(keys))


def write_rows(
    job: ExampleJob,
    pieces: list[tuple[int, np.ndarray]],
    name: str,
    classes: list[str] | None,
    extra: dict[str, list[str]],
) -> dict:
    """Rows of several files as one file under a name that holds its hash.

    classes: labels become places in this list. extra: further columns.
    """
    tables = []
    for number, rows in pieces:
        with opened(job.storage, job.rows_name(number)) as file:
            tables.append(file.read().take(pa.array(rows)))
    table = pa.concat_tables(tables)
    if classes is not None:
        places = pc.index_in(table["label"], pa.array(classes)).cast(pa.int32())
        table = table.set_column(table.column_names.index("label"), "label", places)
    for column, values in extra.items():
        table = table.append_column(column, pa.array(values, pa.string()))
    return put_table(job.storage, name, table)
