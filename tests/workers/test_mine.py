"""Tasks of `mine`, called as plain functions."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.texts import sentences

from sbert_core.choices import Precision
from sbert_core.encoder.encoder import Encoder
from sbert_core.training.hard_negatives import Guards, is_first_occurrence
from workers.mine import TOO_FEW, MineJob, embed_shard, mine_shard

NUM_NEGATIVES = 2


@pytest.fixture(scope="module")
def texts():
    query, positive = sentences(24, seed=2, longest=8), sentences(24, seed=3, longest=8)
    positive[5] = positive[1]  # an answer of two queries is a negative of neither
    return query, positive


def make_job(tmp_path, bert_folder, texts, **guards):
    query, positive = texts
    names = []
    for number, rows in enumerate((slice(10), slice(10, 24))):
        names.append(f"data/g/train-{number:05d}-hash.parquet")
        path = tmp_path / "in" / names[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table(
            {"query": query[rows], "positive": positive[rows], "row": [*range(24)][rows]}
        )
        pq.write_table(table, path)
    return MineJob(
        source=str(tmp_path / "in"),
        out=str(tmp_path / "out"),
        work="_work/g",
        generation="g",
        model=str(bert_folder),
        precision=Precision.FLOAT32,
        shards=tuple(names),
        num_negatives=NUM_NEGATIVES,
        guards=Guards(**guards),
    )


def mine_all(job):
    keys = [embed_shard(job, shard) for shard in range(len(job.shards))]
    is_first = is_first_occurrence(np.concatenate([own.answer for own in keys]))
    is_candidate = np.split(is_first, [len(keys[0].answer)])
    return [mine_shard(job, shard, keys, is_candidate) for shard in range(len(job.shards))]


def read(job, file):
    return pq.read_table(pa.BufferReader(job.storage.buffer(file.path))).to_pylist()


def test_embed_shard_writes_vectors_once(tmp_path, bert_folder, texts):
    job = make_job(tmp_path, bert_folder, texts)
    keys = embed_shard(job, 0)
    vectors = Encoder.load(bert_folder).encode(texts[1][:10])
    np.testing.assert_allclose(job.read_vectors(0, "positive"), vectors, atol=1e-6)
    job.write_vectors(0, "positive", np.zeros((10, 32), np.float32))
    again = embed_shard(job, 0)
    assert not job.read_vectors(0, "positive").any()  # found, so not made again
    np.testing.assert_array_equal(again.query, keys.query)


def test_mined_negatives_equal_brute_force(tmp_path, bert_folder, texts):
    job = make_job(tmp_path, bert_folder, texts, margin=0.01, ceiling=0.99)
    shards = mine_all(job)
    rows = [row for shard in shards for row in read(job, shard.file)]
    left_out = [row for s in shards if s.left_out for row in read(job, s.left_out)]
    assert len(rows) + len(left_out) == 24
    query, positive = texts
    encoder = Encoder.load(bert_folder)
    q_ND, a_ND = encoder.encode(query), encoder.encode(positive)
    for row in rows:
        own = row["row"]
        is_allowed = (q_ND[own] @ a_ND.T <= q_ND[own] @ a_ND[own] - 0.01) & (
            a_ND[own] @ a_ND.T < 0.99
        )
        cos = {positive[n]: q_ND[own] @ a_ND[n] for n in np.flatnonzero(is_allowed)}
        cos.pop(positive[own], None)
        found = [cos[row[f"negative_{n}"]] for n in (1, 2)]
        assert found == pytest.approx(sorted(cos.values(), reverse=True)[:2], abs=1e-6)


def test_rows_without_enough_candidates_are_left_out_with_a_reason(tmp_path, bert_folder, texts):
    job = make_job(tmp_path, bert_folder, texts, margin=2.0)  # below every cosine
    for shard in mine_all(job):
        assert shard.file.rows == 0
        assert {row["reason"] for row in read(job, shard.left_out)} == {TOO_FEW}
