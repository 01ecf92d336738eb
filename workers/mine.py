"""Tasks of `mine`: texts of a shard -> vectors; vectors of all shards -> a shard with negatives."""

import io
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.encoder import Encoder
from sbert_core.storage import Storage, storage_at
from sbert_core.training.examples import NEGATIVE, text_keys
from sbert_core.training.hard_negatives import Answers, Guards, HardNegatives
from sbert_core.vectors.part import put_table
from workers.common.model_cache import fetched

QUERY_BLOCK = 1024
CANDIDATE_BLOCK = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class MineJob:
    """What is the same for all shards of one split.

    shards: names of the split's files in `source`, in order.
    """

    source: str
    out: str
    work: str
    generation: str
    model: str
    shards: tuple[str, ...]
    num_negatives: int
    guards: Guards

    @property
    def storage(self) -> Storage:
        return storage_at(self.out)

    def rows(self, shard: int) -> pa.Table:
        with pq.ParquetFile(
            pa.BufferReader(storage_at(self.source).buffer(self.shards[shard]))
        ) as file:
            return file.read()

    def array_name(self, shard: int, kind: str) -> str:
        return f"{self.work}/{kind}/{self.shards[shard].rpartition('/')[2]}.npy"

    def array(self, shard: int, kind: str) -> np.ndarray:
        return np.load(io.BytesIO(self.storage.read(self.array_name(shard, kind))))

    def keep(self, shard: int, kind: str, values: np.ndarray) -> None:
        sink = io.BytesIO()
        np.save(sink, values)
        self.storage.put(self.array_name(shard, kind), sink.getvalue())


def embed_shard(job: MineJob, shard: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of a shard's queries and answers, kept in files; their keys."""
    rows = job.rows(shard)
    texts = {"query": rows["query"].to_pylist(), "positive": rows["positive"].to_pylist()}
    if job.storage.stat(job.array_name(shard, "positive")) is None:
        encoder = Encoder.load(fetched(job.model), threads=1)
        prompts = {"query": encoder.query_prompt, "positive": encoder.document_prompt}
        for role in ("query", "positive"):  # the second says that both are there
            job.keep(shard, role, encoder.encode(texts[role], prompt=prompts[role]))
    return text_keys(texts["query"]), text_keys(texts["positive"])


def mine_shard(
    job: MineJob,
    shard: int,
    keys: list[tuple[np.ndarray, np.ndarray]],
    is_candidate: list[np.ndarray],
) -> tuple[dict, int, dict | None]:
    """Write a shard with negatives; its file, how many rows have too few, and those rows' file."""
    query, answer = job.array(shard, "query"), job.array(shard, "positive")
    answers = Answers(np.concatenate([q for q, _ in keys]), np.concatenate([a for _, a in keys]))
    place_QK = np.empty((len(query), job.num_negatives), np.int64)
    first_place = np.cumsum([0, *(len(q) for q, _ in keys)])
    for start in range(0, len(query), QUERY_BLOCK):
        block = slice(start, start + QUERY_BLOCK)
        found = HardNegatives(
            query[block], answer[block], keys[shard][0][block], answers,
            job.num_negatives, job.guards,
        )  # fmt: skip
        for other in range(len(job.shards)):
            vectors = job.array(other, "positive")
            chosen = np.flatnonzero(is_candidate[other])
            for first in range(0, len(chosen), CANDIDATE_BLOCK):
                rows = chosen[first : first + CANDIDATE_BLOCK]
                found.add(vectors[rows], keys[other][1][rows], first_place[other] + rows)
        place_QK[block] = found.place_QK
    return _written(job, shard, place_QK, first_place)


def _written(
    job: MineJob, shard: int, place_QK: np.ndarray, first_place: np.ndarray
) -> tuple[dict, int, dict | None]:
    has_all = (place_QK >= 0).all(axis=1)
    rows = job.rows(shard)
    kept = rows.filter(pa.array(has_all))
    places = place_QK[has_all]
    texts = _texts_at(job, places.reshape(-1), first_place)
    for number in range(job.num_negatives):
        column = pa.array(texts[number :: job.num_negatives], pa.string())
        kept = kept.append_column(f"{NEGATIVE}{number + 1}", column)
    names = ["query", "positive", *(f"{NEGATIVE}{n + 1}" for n in range(job.num_negatives))]
    kept = kept.select([*names, *(n for n in kept.column_names if n not in names)])
    label = job.shards[shard].rpartition("/")[2].rpartition("-")[0]
    made = put_table(job.storage, f"data/{job.generation}/{label}", kept)
    bad = rows.filter(pa.array(~has_all))
    if not bad.num_rows:
        return made, 0, None
    reason = pa.array(["too few candidates pass the guards"] * bad.num_rows, pa.string())
    left_out = put_table(
        job.storage, f"_quarantine/{job.generation}/{label}", bad.append_column("reason", reason)
    )
    return made, bad.num_rows, left_out


def _texts_at(job: MineJob, places: np.ndarray, first_place: np.ndarray) -> list[str]:
    """Answers at places of the whole split, one shard's texts in memory at a time."""
    shard = np.searchsorted(first_place, places, side="right") - 1
    texts: list[str] = [""] * len(places)
    for number in np.unique(shard).tolist():
        mine = np.flatnonzero(shard == number)
        column = job.rows(number)["positive"].take(pa.array(places[mine] - first_place[number]))
        for place, text in zip(mine.tolist(), column.to_pylist(), strict=True):
            texts[place] = text
    return texts
