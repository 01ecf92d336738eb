"""Vectors or pairs -> what a threshold would mean: chance pairs, pairs to read, scores by labels.

Nothing is written and no Ray is started: a sample answers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.artifacts.ids import Rows, read_wide_columns
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.sample_texts import Samples
from pipelines.threshold.spec import ThresholdSpec
from sbert_core.corpus.labelled import column, table_of
from sbert_core.evaluation.pair_classification import pair_scores
from sbert_core.join.bounded import cosines
from sbert_core.join.random_pairs import by_chance
from sbert_core.vectors.row_ranges import places_of, sampled
from sbert_core.vectors.table import VectorTable

LEVELS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
SAMPLED_ROWS = 8192
MATCHES = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class SamplePair:
    """Two rows to read."""

    cos: float
    id_a: Any
    id_b: Any
    text_a: str | None
    text_b: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What a threshold would mean. Fields that were not asked for are None."""

    cos: float
    pairs: int | None = None
    chance_per_million: float | None = None
    expected: int | None = None
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    samples: tuple[SamplePair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdReport:
    """best: with labels, the threshold of the highest F1."""

    notes: tuple[str, ...]
    levels: tuple[Level, ...]
    best: Level | None = None


def run(spec: ThresholdSpec) -> ThresholdReport:
    source = Artifact.open(spec.source)
    pairs = None
    if source.manifest.kind == "pairs":
        pairs = Artifact.pairs(spec.source)
        source = Artifact.vectors(pairs.manifest.made_from["a"]["vectors"])
    vectors = Artifact.vectors(source.uri)
    if spec.labelled is not None:
        return _by_labels(spec.labelled, vectors)
    return _by_chance(spec, vectors, pairs)


def _by_chance(spec: ThresholdSpec, vectors: Artifact, pairs: Artifact | None) -> ThresholdReport:
    """Pairs of random rows, and pairs to read: of all rows if those are known."""
    side = vectors.table()
    chosen = sampled(side.pieces, SAMPLED_ROWS, (spec.seed,))
    sample = np.concatenate([side.decoded(piece) for piece in chosen])
    chance = by_chance(sample, LEVELS[0])
    rows = Rows.of(vectors)
    shown = Shown(vectors, rows, spec.samples)
    every = vectors.rows * (vectors.rows - 1) // 2
    if pairs is None:
        number_of_place = np.argsort(rows.place)
        number = number_of_place[places_of(side.pieces, chosen)]
        known = (number[chance.near.a], number[chance.near.b], chance.near.cos)
    else:
        known = _known(pairs, rows)
    levels = []
    for level in LEVELS:
        if pairs is not None and level < pairs.manifest.spec["threshold"]:
            continue
        by_luck = int((chance.near.cos >= np.float32(level)).sum())
        share = by_luck / max(1, chance.num_pairs)
        levels.append(
            Level(
                cos=level,
                pairs=None if pairs is None else int((known[2] >= np.float32(level)).sum()),
                chance_per_million=1e6 * share,
                expected=round(share * every),
                samples=shown.just_above(*known, level),
            )
        )
    middle = float(chance.centres @ chance.count) / max(1, chance.num_pairs)
    notes = (
        f"{len(sample):,} rows drawn at random: the mean cosine of two of them is {middle:.3f}",
        f"all rows make {every:,} pairs; expected numbers are those of the sample, scaled up",
    )
    return ThresholdReport(notes=notes, levels=tuple(levels))


class Shown:
    """Pairs to read, with their texts."""

    def __init__(self, vectors: Artifact, rows: Rows, number: int) -> None:
        self.samples = Samples(vectors, rows)
        self.rows = rows
        self.number = number

    def just_above(
        self, a: np.ndarray, b: np.ndarray, cos: np.ndarray, level: float
    ) -> tuple[SamplePair, ...]:
        reach = np.flatnonzero(cos >= np.float32(level))
        few = reach[np.lexsort((b[reach], a[reach], cos[reach]))][: self.number]
        numbers = [*a[few].tolist(), *b[few].tolist()]
        texts = self.samples.of(numbers)
        ids = self.rows.ids.take(pa.array(numbers, pa.int64())).to_pylist()
        half = len(few)
        return tuple(
            SamplePair(float(cos[few[n]]), ids[n], ids[half + n], texts[n], texts[half + n])
            for n in range(half)
        )


def _known(pairs: Artifact, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = read_wide_columns(pairs, ["id_a", "id_b", "cos"])
    return rows.numbers(table["id_a"]), rows.numbers(table["id_b"]), table["cos"].to_numpy()


def _by_labels(place: str, vectors: Artifact) -> ThresholdReport:
    """Precision, recall and F1 of calling pairs above a cosine the same."""
    table = table_of(place).combine_chunks()
    for name in ("id_a", "id_b", "label"):
        column(table, (name,), f"labelled {place}")
    side, rows = vectors.table(), Rows.of(vectors)
    numbers = []
    for name in ("id_a", "id_b"):
        number = rows.numbers(table[name].cast(rows.ids.type))
        if (number < 0).any():
            row = int(np.flatnonzero(number < 0)[0])
            raise ValueError(
                f"labelled {place}: {name} {table[name][row].as_py()!r} is not among the vectors; "
                "remove its pair or embed it"
            )
        numbers.append(number)
    if not table.num_rows:
        raise ValueError(f"labelled {place} has no rows; give some pairs")
    words = [str(value).lower() for value in table["label"].to_pylist()]
    unknown = next((word for word in words if word not in MATCHES), None)
    if unknown is not None:
        raise ValueError(f"labelled {place}: label {unknown!r}; give 1 (same) or 0")
    truth = np.array([MATCHES[word] for word in words])
    if truth.all() or not truth.any():
        raise ValueError(f"labelled {place}: all labels are {words[0]}; give some of both")
    cos = cosines(*(_vectors_at(side, rows.place[number]) for number in numbers))
    levels = tuple(_scored(cos, truth, level) for level in LEVELS)
    best = _scored(cos, truth, pair_scores(cos, truth).f1_threshold)
    return ThresholdReport(notes=(f"{len(cos):,} labelled pairs",), levels=levels, best=best)


def _vectors_at(side: VectorTable, places: np.ndarray) -> np.ndarray:
    wanted, back = np.unique(places, return_inverse=True)
    found, start = [], 0
    for piece in side.pieces:
        own = wanted[(wanted >= start) & (wanted < start + piece.num_rows)] - start
        if len(own):
            found.append(side.decoded(piece.only(own)))
        start += piece.num_rows
    return np.concatenate(found)[back]


def _scored(cos: np.ndarray, truth: np.ndarray, level: float) -> Level:
    called = cos >= np.float32(level)
    hits = int((called & truth).sum())
    num_called, num_true = int(called.sum()), int(truth.sum())
    return Level(
        cos=level,
        pairs=num_called,
        precision=hits / num_called if num_called else 1.0,
        recall=hits / num_true,
        f1=2 * hits / (num_called + num_true),
    )
