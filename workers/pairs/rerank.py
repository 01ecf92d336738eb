"""A cross-encoder's score for pairs in the band of cosines where it is worth its cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from sbert_core.arrays import Int64Array
from sbert_core.corpus.source import CorpusSource
from sbert_core.corpus.text_lookup import LOCATION_COLUMNS, TextLookup
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.vectors.table import VectorTable
from workers.common.model_cache import fetch_model
from workers.pairs.join_job import JoinJob
from workers.pairs.write import IdPairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Reranker:
    """Adds a column `rerank`, null outside the band. corpora: where the texts are, by side."""

    model: str
    low: float
    high: float
    corpora: Mapping[str, CorpusSource]

    def __call__(self, job: JoinJob, pairs: IdPairs) -> pa.Table:
        """The pairs' table with scores; the model reads the text of id_a first.

        ValueError for a model with several outputs, and where a text cannot be read.
        """
        cos = pairs.table["cos"].to_numpy()
        inside = np.flatnonzero((cos >= np.float32(self.low)) & (cos <= np.float32(self.high)))
        scores = np.zeros(len(cos), np.float32)
        if len(inside):
            sides = ((job.a, pairs.a), (job.b, pairs.b))
            texts = [self._texts(side, rows[inside]) for side, rows in sides]
            both = zip(*texts, pairs.is_swapped[inside].tolist(), strict=True)
            ordered = [(y, x) if swap else (x, y) for x, y, swap in both]
            found = _load_cross_encoder(self.model).predict(ordered)
            if found.ndim > 1:
                raise ValueError(
                    f"{self.model} gives {found.shape[1]} classes, not a score; rerank with a "
                    "cross-encoder that has one output"
                )
            scores[inside] = found
        is_outside = np.ones(len(cos), bool)
        is_outside[inside] = False
        return pairs.table.append_column("rerank", pa.array(scores, pa.float32(), mask=is_outside))

    def _texts(self, side: VectorTable, rows: Int64Array) -> list[str]:
        corpus = TextLookup(self.corpora[side.name])
        texts = corpus.for_rows(side.columns(rows, side.existing_columns(LOCATION_COLUMNS)))
        if any(text is None for text in texts):
            why = "; ".join(corpus.notes) or f"{corpus.root} holds no such text"
            raise ValueError(f"rerank needs the texts of all pairs; {why}: embed the corpus again")
        return [str(text) for text in texts]


@cache
def _load_cross_encoder(model: str) -> CrossEncoder:
    return CrossEncoder.load(fetch_model(model), threads=1)
