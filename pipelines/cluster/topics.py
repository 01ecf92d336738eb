"""Vectors and their texts -> topics to browse by."""

from dataclasses import dataclass

import numpy as np

from pipelines.artifacts.ids import IdIndex
from pipelines.artifacts.reader import VectorsArtifact
from pipelines.artifacts.sample_texts import SampleTexts
from pipelines.artifacts.sidecars import Topic
from sbert_core.arrays import Int32Array
from sbert_core.clusters.topics import ROWS_PER_TOPIC, TopicModel, extract_keywords
from sbert_core.join.bounded import normalize_rows
from sbert_core.vectors.row_ranges import sample_rows

TEXTS_PER_TOPIC = 100


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The topic of each row, by position in the artifact, and a description of each topic."""

    topic: Int32Array | None
    described: tuple[Topic, ...]

    @classmethod
    def none(cls) -> "TopicAssignment":
        """Where no topics were requested."""
        return cls(None, ())


def assign_topics(
    vectors: VectorsArtifact, rows: IdIndex, number: int, seed: int
) -> TopicAssignment:
    """Fit `number` topics to a sample of the vectors and assign every row to one."""
    number = min(number, vectors.rows)
    side = vectors.table()
    sample = sample_rows(vectors.row_ranges, number * ROWS_PER_TOPIC, (seed,))
    topics = TopicModel.fit(
        np.concatenate([normalize_rows(side.decode(piece)) for piece in sample]), number, seed
    )
    topic = np.concatenate(
        [topics.assign(normalize_rows(side.decode(p))) for p in vectors.row_ranges]
    )
    samples = SampleTexts(vectors, rows)
    by_place = np.argsort(rows.place)
    rng = np.random.default_rng(seed)
    texts = []
    for own in range(number):
        members = np.flatnonzero(topic == own)
        few = rng.choice(members, min(len(members), TEXTS_PER_TOPIC), replace=False)
        found = samples.for_rows(by_place[np.sort(few)].tolist())
        texts.append([text for text in found if text is not None])
    count = np.bincount(topic, minlength=number).tolist()
    described = tuple(
        Topic(topic=own, rows=count[own], words=tuple(words))
        for own, words in enumerate(extract_keywords(texts))
    )
    return TopicAssignment(topic, described)
