"""Documents longer than the model: pooled windows and one row per window."""

import numpy as np
import pytest
from support.embedding import embed, rows_of, sentences, table_of, vectors_of, write_corpus

from pipelines.artifacts.reader import Artifact
from sbert_core.choices import LongTexts
from sbert_core.encoder.documents import encode_documents
from sbert_core.encoder.encoder import Encoder

LENGTH = 20


@pytest.fixture(scope="module")
def encoder(bert_folder):
    return Encoder.load(bert_folder, max_length=LENGTH)


def windows(encoder, text):
    found = encode_documents(encoder, [text], long=LongTexts.CHUNKS)
    return [text[a:b] for a, b in zip(found.start_char, found.end_char, strict=True)], found


def test_windows_overlap_cover_the_text_and_fit_the_model(encoder):
    text = " ".join(sentences(12, seed=2))
    pieces, found = windows(encoder, text)
    assert len(pieces) > 3
    assert found.start_char[0] == 0
    assert found.end_char[-1] == len(text)
    assert (found.start_char[1:] < found.end_char[:-1]).all()  # overlap
    assert found.num_lost_tokens.sum() == 0
    assert found.num_tokens.max() <= LENGTH
    for piece, start in zip(pieces, found.start_char, strict=True):
        assert start == 0 or text[start - 1] == " "  # cut between words
        assert not piece.endswith(" ")


def test_word_longer_than_a_window_is_cut_inside(encoder):
    pieces, found = windows(encoder, "x" * 60)
    assert len(pieces) > 2
    assert (found.start_char[1:] <= found.end_char[:-1]).all()  # no character is left out
    assert found.end_char[-1] == 60
    assert found.num_lost_tokens.sum() == 0


def test_pooled_vector_is_the_mean_by_tokens(encoder):
    text = " ".join(sentences(12, seed=2))
    pieces, found = windows(encoder, text)
    vectors = encoder.encode(pieces).astype(np.float64)
    mean = (vectors * found.num_tokens[:, None]).sum(0)
    pooled = encode_documents(encoder, ["the hot word", text, None], long=LongTexts.POOL)
    np.testing.assert_allclose(pooled.vectors[1], mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_array_equal(pooled.vectors[0], encoder.encode(["the hot word"])[0])
    assert pooled.document.tolist() == [0, 1]
    assert pooled.reasons == {2: "null"}
    assert pooled.num_tokens[1] == found.num_tokens.sum()


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_chunks_are_rows_and_documents_are_conserved(encoder, ray_address, bert_folder, tmp_path):
    texts = sentences(40, seed=3, longest=60)
    long = " ".join(texts[:8])
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of([*texts, long, None, long])})
    options = {"model": bert_folder, "address": ray_address, "max_length": LENGTH}
    for mode in ("chunks", "truncate"):
        embed(corpus, tmp_path / mode, **options, long=mode, unit_rows=16)
    table = table_of(tmp_path / "chunks")
    found = encode_documents(encoder, [*texts, long, long], long=LongTexts.CHUNKS)
    np.testing.assert_array_equal(vectors_of(table), found.vectors)
    assert table["chunk"].to_pylist() == found.chunk.tolist()
    assert table["start_char"].to_pylist() == found.start_char.tolist()
    ids = [f"r{row + (row > 40)}" for row in found.document]
    assert table["doc_id"].to_pylist() == ids
    assert table["id"].to_pylist() == [f"{i}#{c}" for i, c in zip(ids, found.chunk, strict=True)]
    manifest = Artifact.open(tmp_path / "chunks").manifest
    assert manifest.metrics.documents + manifest.quarantined == 43
    assert manifest.metrics.lost_tokens == 0
    cut = Artifact.open(tmp_path / "truncate").manifest.metrics
    want = Encoder.load(bert_folder, max_length=LENGTH).encode_report([*texts, long, long])
    assert cut.truncated == want.num_truncated
    assert cut.lost_tokens == want.num_lost_tokens.sum()
    # An update takes all windows of a document over.
    write_corpus(tmp_path / "in", {"y.parquet": rows_of([long, "the new word"], 100)})
    report = embed(corpus, tmp_path / "chunks", **options, long="chunks", unit_rows=16)
    assert report.embedded == 1
    new = table_of(tmp_path / "chunks").slice(table.num_rows)
    np.testing.assert_array_equal(vectors_of(new)[:-1], found.vectors[found.document == 40])
