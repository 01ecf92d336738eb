"""Texts of a few rows of a vectors artifact, for reports."""

import numpy as np

from pipelines.artifacts.ids import IdIndex
from pipelines.artifacts.reader import VectorsArtifact
from sbert_core.corpus.text_lookup import LOCATION_COLUMNS, TextLookup

TEXT_CHARS = 240


class SampleTexts:
    """Looks up texts of rows of a vectors artifact. rows: the index their numbers refer to."""

    def __init__(self, vectors: VectorsArtifact, rows: IdIndex) -> None:
        self.vectors = vectors
        self.rows = rows
        self.texts = TextLookup(vectors.manifest.inputs.texts)

    def for_rows(self, numbers: list[int]) -> list[str | None]:
        """The first 240 characters of each row's text; None where the corpus has changed."""
        side = self.vectors.table()
        places = self.rows.place[np.array(numbers, np.int64)]
        if not len(places):
            return []
        found = self.texts.for_rows(side.columns(places, side.existing_columns(LOCATION_COLUMNS)))
        return [text if text is None else text[:TEXT_CHARS] for text in found]
