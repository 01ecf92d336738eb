"""Scores of a cross-encoder for queries and the texts of their hits."""

from collections.abc import Sequence

from pipelines.artifacts.models import resolve_model
from sbert_core.corpus.text_lookup import TextLookup
from sbert_core.encoder.cross_encoder import CrossEncoder


def score_pairs(
    model: str, queries: Sequence[str], texts: Sequence[str | None], source: TextLookup
) -> list[float]:
    """A score for each query and text.

    source: where the texts were read, for the reason why one is missing. ValueError if one is, or
    if the model has several classes instead of one score.
    """
    if any(text is None for text in texts):
        why = "; ".join(source.notes) or f"{source.root} holds no such text"
        raise ValueError(f"rerank needs the texts of all hits; {why}: embed the corpus again")
    encoder = CrossEncoder.load(resolve_model(model))
    pairs = [(query, str(text)) for query, text in zip(queries, texts, strict=True)]
    if not pairs:
        return []
    scores = encoder.predict(pairs)
    if scores.ndim > 1:
        raise ValueError(
            f"{model} gives {scores.shape[1]} classes, not a score; rerank with a cross-encoder "
            "that has one output"
        )
    return [float(score) for score in scores]
