"""Vectors and their texts -> topics to browse by."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.artifacts.ids import Rows
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.sample_texts import Samples
from sbert_core.clusters.topics import ROWS_PER_TOPIC, Topics, keywords
from sbert_core.join.bounded import unit_rows
from sbert_core.vectors.row_ranges import sampled

TEXTS_PER_TOPIC = 100


@dataclass(frozen=True, slots=True)
class Topical:
    """topic: by place in the artifact. described: for each topic its rows and words."""

    topic: np.ndarray | None
    described: list[dict[str, Any]]

    @classmethod
    def none(cls) -> "Topical":
        return cls(None, [])


def topics_of(vectors: Artifact, rows: Rows, number: int, seed: int) -> Topical:
    number = min(number, vectors.rows)
    side = vectors.table()
    sample = sampled(vectors.pieces, number * ROWS_PER_TOPIC, (seed,))
    topics = Topics.of(
        np.concatenate([unit_rows(side.decoded(piece)) for piece in sample]), number, seed
    )
    topic = np.concatenate([topics.nearest(unit_rows(side.decoded(p))) for p in vectors.pieces])
    samples = Samples(vectors, rows)
    by_place = np.argsort(rows.place)
    rng = np.random.default_rng(seed)
    texts = []
    for own in range(number):
        members = np.flatnonzero(topic == own)
        few = rng.choice(members, min(len(members), TEXTS_PER_TOPIC), replace=False)
        found = samples.of(by_place[np.sort(few)].tolist())
        texts.append([text for text in found if text is not None])
    count = np.bincount(topic, minlength=number).tolist()
    described = [
        {"topic": own, "rows": count[own], "words": words}
        for own, words in enumerate(keywords(texts))
    ]
    return Topical(topic, described)
