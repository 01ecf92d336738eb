"""A cross-encoder's score for pairs in the band where a cosine alone is not sure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from sbert_core.corpus.text_lookup import PLACE, CorpusTexts
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.vectors.table import VectorTable
from workers.common.model_cache import fetched
from workers.pairs.join_job import JoinJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranker:
    """Adds a column `rerank`, null outside the band. corpora: what the manifests say, by side."""

    model: str
    low: float
    high: float
    corpora: Mapping[str, Mapping[str, Any]]

    def __call__(
        self, job: JoinJob, a: np.ndarray, b: np.ndarray, is_swapped: np.ndarray, pairs: pa.Table
    ) -> pa.Table:
        """a, b: the rows of the pairs; the text of id_a is the first the model reads."""
        cos = pairs["cos"].to_numpy()
        inside = np.flatnonzero((cos >= np.float32(self.low)) & (cos <= np.float32(self.high)))
        scores = np.zeros(len(cos), np.float32)
        if len(inside):
            texts = [self._texts(s, rows[inside]) for s, rows in ((job.a, a), (job.b, b))]
            both = zip(*texts, is_swapped[inside].tolist(), strict=True)
            found = _opened(self.model).predict([(y, x) if swap else (x, y) for x, y, swap in both])
            if found.ndim > 1:
                raise ValueError(
                    f"{self.model} gives {found.shape[1]} classes, not a score; rerank with a "
                    "cross-encoder that has one output"
                )
            scores[inside] = found
        is_outside = np.ones(len(cos), bool)
        is_outside[inside] = False
        return pairs.append_column("rerank", pa.array(scores, pa.float32(), mask=is_outside))

    def _texts(self, side: VectorTable, rows: np.ndarray) -> list[str]:
        corpus = CorpusTexts(self.corpora[side.name])
        texts = corpus.of(side.columns(rows, side.known(PLACE)))
        if any(text is None for text in texts):
            why = "; ".join(corpus.notes) or f"{corpus.root} holds no such text"
            raise ValueError(f"rerank needs the texts of all pairs; {why}: embed the corpus again")
        return [str(text) for text in texts]


@cache
def _opened(model: str) -> CrossEncoder:
    return CrossEncoder.load(fetched(model), threads=1)
