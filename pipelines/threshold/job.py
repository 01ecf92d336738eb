"""Vectors or pairs -> what a threshold would mean: chance pairs, pairs to read, scores by labels.

In:  vectors, or pairs and the vectors they were found in; labelled pairs if there are some.
Out: a report. Nothing is written and no Ray is started: a sample of rows is enough.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.artifacts.ids import IdIndex, read_wide_columns
from pipelines.artifacts.kinds import PAIRS
from pipelines.artifacts.reader import Artifact, PairsArtifact, VectorsArtifact
from pipelines.artifacts.sample_texts import SampleTexts
from pipelines.runtime.readable import ReadableReport
from pipelines.threshold.spec import ThresholdSpec
from sbert_core.arrays import BoolArray, Float32Array, Int32Array, Int64Array
from sbert_core.corpus.labelled import find_column, read_labelled
from sbert_core.evaluation.pair_classification import pair_scores
from sbert_core.join.bounded import Edges, paired_cosines
from sbert_core.join.random_pairs import sample_cosines
from sbert_core.vectors.row_ranges import row_numbers, sample_rows
from sbert_core.vectors.table import VectorTable

LEVELS = (0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
SAMPLED_ROWS = 8192  # which make 33 million pairs
LABELS = {"1": True, "0": False, "1.0": True, "0.0": False, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class SamplePair:
    """Two rows to read. Texts: None where the corpus has changed."""

    cos: float
    id_a: object
    id_b: object
    text_a: str | None
    text_b: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What a threshold would mean; fields that were not measured are None.

    pairs: found, or called the same by labels. expected: pairs of all rows by chance.
    """

    cos: float
    pairs: int | None = None
    chance_per_million: float | None = None
    expected: int | None = None
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    samples: tuple[SamplePair, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChanceSample:
    """Rows drawn at random. all_pairs: of all rows; `expected` of a level is scaled up to them."""

    rows: int
    mean_cos: float
    all_pairs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdReport(ReadableReport):
    """Levels from low to high.

    chance: of levels measured by chance. labelled_pairs and best, the level of the highest F1: of
    levels measured by labels.
    """

    levels: tuple[Level, ...]
    chance: ChanceSample | None = None
    labelled_pairs: int | None = None
    best: Level | None = None


class BadLabels(ValueError):
    """Labelled pairs that cannot be scored. path: of the file."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"labelled {path}{reason}")
        self.path = path


def run(spec: ThresholdSpec) -> ThresholdReport:
    """Measure every level by labels if there are some, else by chance.

    BadLabels where the labels cannot be used.
    """
    source, pairs = Artifact.open(spec.source), None
    if source.manifest.kind == PAIRS.name:
        pairs = Artifact.pairs(spec.source)
        vectors = Artifact.vectors(pairs.manifest.inputs.a.vectors)
    else:
        vectors = Artifact.vectors(spec.source)
    if spec.labelled is not None:
        return _measure_labels(spec.labelled, vectors)
    return _measure_chance(spec, vectors, pairs)


# -- by chance -------------------------------------------------------------------------------------


def _measure_chance(
    spec: ThresholdSpec, vectors: VectorsArtifact, pairs: PairsArtifact | None
) -> ThresholdReport:
    """Pairs of random rows, and pairs to read: of all rows if those were found."""
    table = vectors.table()
    chosen = sample_rows(table.row_ranges, SAMPLED_ROWS, (spec.seed,))
    sampled = np.concatenate([table.decode(part) for part in chosen])
    sample = sample_cosines(sampled, LEVELS[0])
    rows = IdIndex.of(vectors)
    if pairs is None:
        numbers = np.argsort(rows.place)[row_numbers(table.row_ranges, chosen)]
        near = Edges(numbers[sample.pairs.a], numbers[sample.pairs.b], sample.pairs.cos)
    else:
        near = _read_pairs(pairs, rows)
    shown = SamplePairs(vectors, rows, spec.samples)
    all_pairs = vectors.rows * (vectors.rows - 1) // 2
    least = LEVELS[0] if pairs is None else pairs.manifest.settings.threshold
    levels = []
    for level in (level for level in LEVELS if level >= least):
        share = sample.share_above(level)
        found = None if pairs is None else int((near.cos >= np.float32(level)).sum())
        levels.append(
            Level(
                cos=level,
                pairs=found,
                chance_per_million=1e6 * share,
                expected=round(share * all_pairs),
                samples=shown.just_above(near, level),
            )
        )
    chance = ChanceSample(rows=len(sampled), mean_cos=sample.mean, all_pairs=all_pairs)
    return ThresholdReport(levels=tuple(levels), chance=chance)


class SamplePairs:
    """Chooses pairs to read and looks up their texts. number: of pairs at a level."""

    def __init__(self, vectors: VectorsArtifact, rows: IdIndex, number: int) -> None:
        self.texts = SampleTexts(vectors, rows)
        self.rows = rows
        self.number = number

    def just_above(self, near: Edges, level: float) -> tuple[SamplePair, ...]:
        """The pairs of smallest cosine that reach a level."""
        reach = np.flatnonzero(near.cos >= np.float32(level))
        few = reach[np.lexsort((near.b[reach], near.a[reach], near.cos[reach]))][: self.number]
        numbers = [*near.a[few].tolist(), *near.b[few].tolist()]
        texts = self.texts.for_rows(numbers)
        ids = self.rows.ids.take(pa.array(numbers, pa.int64())).to_pylist()
        half = len(few)
        return tuple(
            SamplePair(float(near.cos[few[n]]), ids[n], ids[half + n], texts[n], texts[half + n])
            for n in range(half)
        )


def _read_pairs(pairs: PairsArtifact, rows: IdIndex) -> Edges:
    table = read_wide_columns(pairs, ["id_a", "id_b", "cos"])
    return Edges(rows.lookup(table["id_a"]), rows.lookup(table["id_b"]), table["cos"].to_numpy())


# -- by labels -------------------------------------------------------------------------------------


def _measure_labels(path: str, vectors: VectorsArtifact) -> ThresholdReport:
    """Precision, recall and F1 of calling pairs above a cosine the same."""
    table = read_labelled(path).combine_chunks()
    for name in ("id_a", "id_b", "label"):
        find_column(table, (name,), f"labelled {path}")
    if not table.num_rows:
        raise BadLabels(path, " has no rows; give some pairs")
    rows = IdIndex.of(vectors)
    places = [rows.place[_find_ids(path, table, name, rows)] for name in ("id_a", "id_b")]
    truth = _parse_labels(path, table)
    cos = paired_cosines(*(_read_vectors(vectors.table(), own) for own in places))
    return ThresholdReport(
        levels=tuple(_labelled_level(cos, truth, level) for level in LEVELS),
        labelled_pairs=len(cos),
        best=_labelled_level(cos, truth, pair_scores(cos, truth).f1_threshold),
    )


def _find_ids(path: str, table: pa.Table, name: str, rows: IdIndex) -> Int32Array:
    number = rows.lookup(table[name].cast(rows.ids.type))
    if (number < 0).any():
        unknown = table[name][int(np.flatnonzero(number < 0)[0])].as_py()
        raise BadLabels(
            path, f": {name} {unknown!r} is not among the vectors; remove its pair or embed it"
        )
    return number


def _parse_labels(path: str, table: pa.Table) -> BoolArray:
    words = [str(value).lower() for value in table["label"].to_pylist()]
    unknown = next((word for word in words if word not in LABELS), None)
    if unknown is not None:
        raise BadLabels(path, f": label {unknown!r}; give 1 (same) or 0")
    truth = np.array([LABELS[word] for word in words])
    if truth.all() or not truth.any():
        raise BadLabels(path, f": all labels are {words[0]}; give some of both")
    return truth


def _read_vectors(table: VectorTable, places: Int64Array) -> Float32Array:
    """Vectors of rows by position, in the order of `places`."""
    wanted, back = np.unique(places, return_inverse=True)
    found, start = [], 0
    for part in table.row_ranges:
        own = wanted[(wanted >= start) & (wanted < start + part.num_rows)] - start
        if len(own):
            found.append(table.decode(part.take(own)))
        start += part.num_rows
    return np.concatenate(found)[back]


def _labelled_level(cos: Float32Array, truth: BoolArray, level: float) -> Level:
    is_called = cos >= np.float32(level)
    hits = int((is_called & truth).sum())
    num_called, num_true = int(is_called.sum()), int(truth.sum())
    return Level(
        cos=level,
        pairs=num_called,
        precision=hits / num_called if num_called else 1.0,
        recall=hits / num_true,
        f1=2 * hits / (num_called + num_true),
    )
