"""Tasks of `mine`: texts of a shard -> vectors; vectors of all shards -> a shard with negatives."""

import io
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.arrays import BoolArray, Float32Array, Int64Array, UInt64Array
from sbert_core.choices import Precision
from sbert_core.data_file import DataFile
from sbert_core.encoder.encoder import Encoder
from sbert_core.storage import Storage, storage_at
from sbert_core.training.examples import NEGATIVE, text_keys
from sbert_core.training.hard_negatives import Guards, HardNegatives, KnownAnswers
from sbert_core.vectors.part import put_table
from workers.common.model_cache import fetch_model

QUERY_BLOCK = 1024
CANDIDATE_BLOCK = 8192
QUERY, ANSWER = "query", "positive"  # columns of a shard, and folders of their vectors
TOO_FEW = "too few candidates pass the guards"


class ShardKeys(NamedTuple):
    """Keys of a shard's queries and answers, one each per row."""

    query: UInt64Array
    answer: UInt64Array


@dataclass(frozen=True, slots=True)
class MinedShard:
    """The written shard, and the file of rows with too few candidates, if there are any."""

    file: DataFile
    left_out: DataFile | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MineJob:
    """Settings shared by all shards of one split.

    shards: names of the split's files in `source`, in order.
    work: folder inside `out` for vectors.
    """

    source: str
    out: str
    work: str
    generation: str
    model: str
    precision: Precision
    shards: tuple[str, ...]
    num_negatives: int
    guards: Guards

    @property
    def storage(self) -> Storage:
        """Where the new artifact lies."""
        return storage_at(self.out)

    def rows(self, shard: int) -> pa.Table:
        """The rows of a shard."""
        with pq.ParquetFile(
            pa.BufferReader(storage_at(self.source).buffer(self.shards[shard]))
        ) as file:
            return file.read()

    def array_name(self, shard: int, role: str) -> str:
        """File of the vectors of a shard's queries or answers."""
        return f"{self.work}/{role}/{self.shards[shard].rpartition('/')[2]}.npy"

    def read_vectors(self, shard: int, role: str) -> Float32Array:
        """Vectors that `write_vectors` wrote."""
        vectors: Float32Array = np.load(io.BytesIO(self.storage.read(self.array_name(shard, role))))
        return vectors

    def write_vectors(self, shard: int, role: str, vectors: Float32Array) -> None:
        """Keep the vectors of a shard's queries or answers."""
        sink = io.BytesIO()
        np.save(sink, vectors)
        self.storage.put(self.array_name(shard, role), sink.getvalue())


def embed_shard(job: MineJob, shard: int) -> ShardKeys:
    """Write the vectors of a shard's queries and answers; returns the keys of the texts."""
    rows = job.rows(shard)
    texts = {role: rows[role].to_pylist() for role in (QUERY, ANSWER)}
    # Queries are written first, so the file of answers means that both exist.
    if job.storage.stat(job.array_name(shard, ANSWER)) is None:
        encoder = Encoder.load(fetch_model(job.model), precision=job.precision, threads=1)
        prompts = {QUERY: encoder.query_prompt, ANSWER: encoder.document_prompt}
        for role in (QUERY, ANSWER):
            job.write_vectors(shard, role, encoder.encode(texts[role], prompt=prompts[role]))
    return ShardKeys(text_keys(texts[QUERY]), text_keys(texts[ANSWER]))


def mine_shard(
    job: MineJob, shard: int, keys: list[ShardKeys], is_candidate: list[BoolArray]
) -> MinedShard:
    """Find the hard negatives of a shard's queries among the answers of all shards; write it.

    keys: of every shard. is_candidate: of every shard, whether a row's answer is a candidate.
    """
    query = job.read_vectors(shard, QUERY)
    answer = job.read_vectors(shard, ANSWER)
    answers = KnownAnswers(
        np.concatenate([own.query for own in keys]), np.concatenate([own.answer for own in keys])
    )
    row_QK = np.empty((len(query), job.num_negatives), np.int64)
    first_row = np.cumsum([0, *(len(own.query) for own in keys)])
    for start in range(0, len(query), QUERY_BLOCK):
        block = slice(start, start + QUERY_BLOCK)
        hardest = HardNegatives(
            query[block], answer[block], keys[shard].query[block], answers,
            job.num_negatives, job.guards,
        )  # fmt: skip
        for other in range(len(job.shards)):
            vectors = job.read_vectors(other, ANSWER)
            candidates = np.flatnonzero(is_candidate[other])
            for first in range(0, len(candidates), CANDIDATE_BLOCK):
                rows = candidates[first : first + CANDIDATE_BLOCK]
                hardest.add(vectors[rows], keys[other].answer[rows], first_row[other] + rows)
        row_QK[block] = hardest.row_QK
    return _write_shard(job, shard, row_QK, first_row)


def _write_shard(job: MineJob, shard: int, row_QK: Int64Array, first_row: Int64Array) -> MinedShard:
    """Write a shard's rows with the texts of their negatives, and those that have too few.

    row_QK: rows of the whole split. first_row: number of each shard's first row in it.
    """
    has_all = (row_QK >= 0).all(axis=1)
    rows = job.rows(shard)
    kept = rows.filter(pa.array(has_all))
    texts = _read_answers(job, row_QK[has_all].reshape(-1), first_row)
    negatives = [f"{NEGATIVE}{number + 1}" for number in range(job.num_negatives)]
    for number, name in enumerate(negatives):
        column = pa.array(texts[number :: job.num_negatives], pa.string())
        kept = kept.append_column(name, column)
    names = [QUERY, ANSWER, *negatives]
    kept = kept.select([*names, *(n for n in kept.column_names if n not in names)])
    label = job.shards[shard].rpartition("/")[2].rpartition("-")[0]
    written = put_table(job.storage, f"data/{job.generation}/{label}", kept)
    bad = rows.filter(pa.array(~has_all))
    if not bad.num_rows:
        return MinedShard(written, None)
    bad = bad.append_column("reason", pa.array([TOO_FEW] * bad.num_rows, pa.string()))
    left_out = put_table(job.storage, f"_quarantine/{job.generation}/{label}", bad)
    return MinedShard(written, left_out)


def _read_answers(job: MineJob, rows: Int64Array, first_row: Int64Array) -> list[str]:
    """Answers at rows of the whole split, one shard's texts in memory at a time."""
    shard = np.searchsorted(first_row, rows, side="right") - 1
    texts: list[str] = [""] * len(rows)
    for number in np.unique(shard).tolist():
        positions = np.flatnonzero(shard == number)
        column = job.rows(number)[ANSWER].take(pa.array(rows[positions] - first_row[number]))
        for position, text in zip(positions.tolist(), column.to_pylist(), strict=True):
            texts[position] = text
    return texts
