"""Hits of shards merged into a table, and files of queries, without Ray."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.search.batch import BatchHit, merge_shards, read_queries
from workers.index.search import ShardHits


def shard_hits(cos, ids):
    """ids: by query and place, None where there is no hit."""
    return ShardHits(np.array(cos, np.float32), {"id": [i for row in ids for i in row]})


def test_merge_shards_orders_by_query_cosine_and_id():
    shards = [
        shard_hits([[0.75, 0.5], [0.25, -np.inf]], [["c", "b"], ["x", None]]),
        shard_hits([[0.5, 0.5], [-np.inf, -np.inf]], [["a", "d"], [None, None]]),
    ]
    assert merge_shards(shards, 2, 3) == [
        BatchHit(0, 0.75, {"id": "c"}),
        BatchHit(0, 0.5, {"id": "a"}),
        BatchHit(0, 0.5, {"id": "b"}),
        BatchHit(1, 0.25, {"id": "x"}),
    ]


def test_read_queries_takes_ids_of_the_file_or_row_numbers(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "plain.parquet")
    plain = read_queries(str(tmp_path / "plain.parquet"), "text", None)
    assert (plain.ids.to_pylist(), plain.texts) == ([0, 1], ["a", "b"])
    named = pa.table({"id": ["x", "y"], "q": pa.array(["c", "d"]).dictionary_encode()})
    pq.write_table(named, tmp_path / "named.parquet")
    found = read_queries(str(tmp_path / "named.parquet"), "q", None)
    assert (found.ids.to_pylist(), found.texts) == (["x", "y"], ["c", "d"])
    assert read_queries(str(tmp_path / "named.parquet"), "id", "q").ids.to_pylist() == ["c", "d"]


@pytest.mark.parametrize("texts", [["a", " "], ["a", None], []])
def test_read_queries_without_text_are_refused(texts, tmp_path):
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), tmp_path / "q.parquet")
    with pytest.raises(ValueError, match=r"q\.parquet"):
        read_queries(str(tmp_path / "q.parquet"), "text", None)
    with pytest.raises(ValueError, match="'other'"):
        read_queries(str(tmp_path / "q.parquet"), "other", None)
