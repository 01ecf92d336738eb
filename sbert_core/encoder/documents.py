"""Documents of any length -> vectors: one each, or one per window.

In:  an encoder, texts, and what to do with long ones.
Out: Documents: vectors with the document, window and characters they stand for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sbert_core.encoder.chunking import Long, Span, pooled, windows_of
from sbert_core.encoder.encode import Progress
from sbert_core.encoder.encoder import Encoder
from sbert_core.text import invalid_reason


@dataclass(frozen=True, slots=True)
class Documents:
    """One row per vector, sorted by document and window. Invalid documents have a reason."""

    vectors: np.ndarray
    document: np.ndarray
    chunk: np.ndarray
    start_char: np.ndarray
    end_char: np.ndarray
    num_tokens: np.ndarray
    num_lost_tokens: np.ndarray
    reasons: dict[int, str]
    num_unknown_tokens: int
    distinct_lengths: np.ndarray  # of what passed the model


def encoded_documents(
    encoder: Encoder,
    texts: Sequence[object],
    *,
    long: Long = Long.TRUNCATE,
    prompt: str | None = None,
    progress: Progress | None = None,
) -> Documents:
    """Vectors of all documents; windows shared by several are encoded once.

    A document with a window that cannot be encoded has no vector at all, but a reason.
    """
    spans = [_spans(encoder, text, long, prompt) for text in texts]
    document = np.repeat(np.arange(len(texts)), [len(own) for own in spans])
    pieces = [
        text if len(own) == 1 else str(text)[start:end]
        for text, own in zip(texts, spans, strict=True)
        for start, end in own
    ]
    encoded = encoder.encode_report(pieces, prompt=prompt, progress=progress)
    reasons = {int(document[piece]): why for piece, why in encoded.reasons.items()}
    kept = np.flatnonzero(~np.isin(document, list(reasons)))
    place = np.array([span for own in spans for span in own], np.int64).reshape(-1, 2)
    facts = Documents(
        vectors=encoded.vectors[kept],
        document=document[kept],
        chunk=_numbers_within(document)[kept],
        start_char=place[kept, 0],
        end_char=place[kept, 1],
        num_tokens=encoded.num_tokens[kept],
        num_lost_tokens=encoded.num_lost_tokens[kept],
        reasons=reasons,
        num_unknown_tokens=encoded.num_unknown_tokens,
        distinct_lengths=encoded.distinct_lengths,
    )
    return _pooled(facts) if long is Long.POOL else facts


def _spans(encoder: Encoder, text: object, long: Long, prompt: str | None) -> list[Span]:
    if long is Long.TRUNCATE or invalid_reason(text) is not None:
        return [(0, len(text) if isinstance(text, str) else 0)]
    assert isinstance(text, str)
    tokens = encoder.token_places(text)
    room = encoder.window_tokens(prompt)
    if len(tokens.spans) <= room:
        return [(0, len(text))]
    return list(windows_of(tokens.spans, tokens.words, room))


def _numbers_within(document: np.ndarray) -> np.ndarray:
    """0, 1, 2 ... among the pieces of each document."""
    first = np.searchsorted(document, document)
    return np.arange(len(document)) - first


def _pooled(pieces: Documents) -> Documents:
    """One vector per document."""
    documents, first = np.unique(pieces.document, return_index=True)
    end = np.append(first, len(pieces.document))[1:]
    vectors = pieces.vectors[first]
    for number in np.flatnonzero(end - first > 1).tolist():
        own = slice(first[number], end[number])
        vectors[number] = pooled(pieces.vectors[own], pieces.num_tokens[own])
    return replace(
        pieces,
        vectors=vectors,
        document=documents,
        chunk=np.zeros(len(documents), np.int64),
        start_char=pieces.start_char[first],
        end_char=pieces.end_char[end - 1],
        num_tokens=np.add.reduceat(pieces.num_tokens, first),
        num_lost_tokens=np.add.reduceat(pieces.num_lost_tokens, first),
    )
