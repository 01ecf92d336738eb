"""Search over windows of long documents, against the characters the vectors artifact names."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.embedding import embed, rows_of, sentences, table_of, write_corpus

from pipelines.index import job as index_job
from pipelines.index.spec import IndexSpec
from pipelines.search import job as search_job
from pipelines.search.spec import SearchSpec
from sbert_core.encoder.cross_encoder import CrossEncoder

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


def test_search_over_windows_shows_and_reranks_the_window_that_was_found(
    bert_folder, pair_folder, tmp_path, ray_address
):
    documents = [" ".join(sentences(12, seed=seed)) for seed in range(4)]
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(documents)})
    options = {"long": "chunks", "max_length": 20, "address": ray_address}
    embed(corpus, tmp_path / "v", bert_folder, **options)
    windows = {
        row["id"]: documents[row["row"]][row["start_char"] : row["end_char"]]
        for row in table_of(tmp_path / "v").to_pylist()
    }
    assert len(windows) > 12 and len(set(windows.values())) == len(windows)
    vectors, out = str(tmp_path / "v"), str(tmp_path / "i")
    index_job.run(IndexSpec(vectors=vectors, out=out, recall_sample=5, address=ray_address))
    hits = search_job.run(SearchSpec(index=out, text="the hot word", k=5)).hits
    assert [hit.text for hit in hits] == [windows[hit.id] for hit in hits]

    torch.manual_seed(0)
    cross = CrossEncoder.load(pair_folder("bert"), num_outputs=1)
    cross.save(tmp_path / "cross")
    reranked = {"index": out, "k": 5, "rerank": str(tmp_path / "cross")}
    hits = search_job.run(SearchSpec(text="the hot word", **reranked)).hits
    scores = cross.predict([("the hot word", windows[hit.id]) for hit in hits])
    np.testing.assert_allclose([hit.rerank for hit in hits], scores, atol=1e-5)
    pq.write_table(pa.table({"text": ["the hot word"]}), tmp_path / "q.parquet")
    files = {"queries": str(tmp_path / "q.parquet"), "out": str(tmp_path / "hits.parquet")}
    search_job.run(SearchSpec(**files, address=ray_address, **reranked))
    many = pq.read_table(tmp_path / "hits.parquet")
    assert many["id"].to_pylist() == [hit.id for hit in hits]
    np.testing.assert_allclose(many["rerank"].to_numpy(), scores, atol=1e-5)
