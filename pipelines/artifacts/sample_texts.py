"""Texts of a few rows of a vectors artifact, to show to people."""

import numpy as np

from pipelines.artifacts.ids import Rows
from pipelines.artifacts.reader import Artifact
from sbert_core.corpus.text_lookup import PLACE, CorpusTexts

TEXT_CHARS = 240


class Samples:
    """Texts of a few rows of a vectors artifact."""

    def __init__(self, vectors: Artifact, rows: Rows) -> None:
        self.vectors = vectors
        self.rows = rows
        self.texts = CorpusTexts(vectors.manifest.made_from)

    def of(self, numbers: list[int]) -> list[str | None]:
        """None where the corpus is not what it was."""
        side = self.vectors.table()
        places = self.rows.place[np.array(numbers, np.int64)]
        if not len(places):
            return []
        found = self.texts.of(side.columns(places, side.known(PLACE)))
        return [text if text is None else text[:TEXT_CHARS] for text in found]
