"""Documents of any length -> vectors: one each, or one per window.

In:  an encoder, texts, and the policy for long ones.
Out: DocumentVectors: vectors with the document, window and characters each belongs to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from sbert_core.arrays import Int64Array
from sbert_core.choices import LongTexts
from sbert_core.encoder.chunking import Span, pool_windows, split_windows
from sbert_core.encoder.encode import Progress
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.prompts import num_text_tokens
from sbert_core.encoder.result import EncodedTexts, EncodeResult
from sbert_core.encoder.tokenizer import TextTokenizer, TokenTable
from sbert_core.encoder.windows import DistinctTexts, token_windows
from sbert_core.text import invalid_reason


@dataclass(frozen=True, slots=True)
class DocumentVectors:
    """One row per vector, sorted by document and window. Invalid documents have a reason.

    document, chunk: number of the text, and of the window inside it.
    start_char, end_char: the characters of the window.
    distinct_lengths: tokens of each distinct window that passed the model.
    """

    vectors: np.ndarray
    document: np.ndarray
    chunk: np.ndarray
    start_char: np.ndarray
    end_char: np.ndarray
    num_tokens: np.ndarray
    num_lost_tokens: np.ndarray
    reasons: dict[int, str]
    num_unknown_tokens: int
    distinct_lengths: np.ndarray


@dataclass(frozen=True, slots=True)
class DocumentPieces:
    """The windows that documents were cut into: the document of each, and its characters."""

    document: Int64Array
    chars: Int64Array

    def join(self, encoded: EncodeResult, long: LongTexts) -> DocumentVectors:
        """Vectors of the documents from those of their pieces."""
        reasons = {int(self.document[piece]): why for piece, why in encoded.reasons.items()}
        # A slice copies nothing.
        kept = np.flatnonzero(~np.isin(self.document, list(reasons))) if reasons else slice(None)
        found = DocumentVectors(
            vectors=encoded.vectors[kept],
            document=self.document[kept],
            chunk=_chunk_numbers(self.document)[kept],
            start_char=self.chars[kept, 0],
            end_char=self.chars[kept, 1],
            num_tokens=encoded.num_tokens[kept],
            num_lost_tokens=encoded.num_lost_tokens[kept],
            reasons=reasons,
            num_unknown_tokens=encoded.num_unknown_tokens,
            distinct_lengths=encoded.distinct_lengths,
        )
        return _pool_documents(found) if long is LongTexts.POOL else found


def encode_documents(
    encoder: Encoder,
    texts: Sequence[object],
    *,
    long: LongTexts = LongTexts.TRUNCATE,
    prompt: str | None = None,
    progress: Progress | None = None,
) -> DocumentVectors:
    """Vectors of all documents; windows shared by several are encoded once.

    long: whether a text beyond the model's length is truncated, pooled, or one row per window.
    prompt: goes in front of each window; None for the folder's default.
    A document with a window that cannot be encoded has a reason and no vectors.
    """
    prefix = encoder.resolve_prompt(prompt)
    pieces, windows = cut_documents(encoder.tokenizer, texts, long, prefix)
    return pieces.join(encoder.encode_report(windows, prompt=prefix, progress=progress), long)


@dataclass(frozen=True, slots=True)
class TokenizedDocuments:
    """Documents as far as a tokenizer alone can take them.

    distinct: which of the distinct windows each piece is. num_distinct: of these; tables: tokens.
    """

    pieces: DocumentPieces
    distinct: DistinctTexts
    num_distinct: int
    tables: tuple[TokenTable, ...]

    def join(self, encoded: EncodedTexts, long: LongTexts) -> DocumentVectors:
        """Vectors of the documents from those of the distinct windows."""
        return self.pieces.join(self.distinct.spread(encoded), long)


def tokenize_documents(
    tokenizer: TextTokenizer, texts: Sequence[object], long: LongTexts, prompt: str
) -> TokenizedDocuments:
    """The tokens of all documents, in the very windows that `encode_documents` has."""
    pieces, windows = cut_documents(tokenizer, texts, long, prompt)
    distinct, found = DistinctTexts.find(windows)
    tables = tuple(table.packed() for table in token_windows(tokenizer, found, prompt))
    return TokenizedDocuments(pieces, distinct, len(found), tables)


def cut_documents(
    tokenizer: TextTokenizer, texts: Sequence[object], long: LongTexts, prompt: str
) -> tuple[DocumentPieces, list[object]]:
    """Windows that fit the model's length, and where each is from."""
    spans = [_spans(tokenizer, text, long, prompt) for text in texts]
    document = np.repeat(np.arange(len(texts)), [len(windows) for windows in spans])
    pieces = [
        text if len(windows) == 1 else str(text)[start:end]
        for text, windows in zip(texts, spans, strict=True)
        for start, end in windows
    ]
    chars = np.fromiter(chain.from_iterable(chain.from_iterable(spans)), np.int64).reshape(-1, 2)
    return DocumentPieces(document, chars), pieces


def _spans(tokenizer: TextTokenizer, text: object, long: LongTexts, prompt: str) -> list[Span]:
    if long is LongTexts.TRUNCATE or invalid_reason(text) is not None:
        return [(0, len(text) if isinstance(text, str) else 0)]
    assert isinstance(text, str)
    tokens = tokenizer.token_spans(text)
    room = num_text_tokens(tokenizer, prompt)
    if len(tokens.spans) <= room:
        return [(0, len(text))]
    return list(split_windows(tokens.spans, tokens.words, room))


def _chunk_numbers(document: np.ndarray) -> np.ndarray:
    """0, 1, 2 ... among the windows of each document."""
    first = np.searchsorted(document, document)
    return np.arange(len(document)) - first


def _pool_documents(pieces: DocumentVectors) -> DocumentVectors:
    """One vector per document."""
    documents, first = np.unique(pieces.document, return_index=True)
    end = np.append(first, len(pieces.document))[1:]
    vectors = pieces.vectors[first]
    for number in np.flatnonzero(end - first > 1).tolist():
        rows = slice(first[number], end[number])
        vectors[number] = pool_windows(pieces.vectors[rows], pieces.num_tokens[rows])
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
