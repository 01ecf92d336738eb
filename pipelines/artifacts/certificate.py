"""What is known of an approximate join, and whether that is enough.

A share of pairs says nothing where there are next to none: a sample of any size leaves room for as
many missed pairs as were found. A corpus with fewer pairs than a tenth of its rows is therefore
judged as if it had that tenth: at --recall 0.99 at most one row in a thousand may have lost a pair.
The estimate itself must reach the target in any case.
"""

import json
import math
from dataclasses import dataclass, field

from sbert_core.json_record import Count, encode, optional

PAIRS_PER_ROW = 0.1  # below it the number of missed pairs is judged, not their share
BAND_PAIRS = 100  # true pairs a band must have in the sample to be held to the target


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Recall of pairs from one cosine up to the next band.

    missed: estimated; at most `most_missed`, which certificates of version 0.1 lack. low, high: the
    interval of the recall `value`. sampled: true pairs in the sample.
    """

    start: float = field(metadata={"key": "from"})
    found: Count
    missed: float
    most_missed: float | None = optional()
    value: float
    low: float
    high: float = 1.0
    sampled: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Recall of all pairs, as of a band, and of each band.

    confidence: of the interval. rows_sampled of rows were compared with all others. margin and
    cells: how the join visited its cells.
    """

    found: Count
    missed: float
    most_missed: float | None = optional()
    value: float
    low: float
    high: float = 1.0
    sampled: Count
    confidence: float
    rows_sampled: Count
    rows: Count
    bands: tuple[Band, ...]
    margin: float | None = optional()
    cells: Count | None = optional()

    @property
    def assured_recall(self) -> float:
        """The lowest recall the sample allows, of at least a tenth as many pairs as rows."""
        return _assured_recall(self, self.rows)

    @property
    def is_rare(self) -> bool:
        """Are there so few pairs that the number of missed ones says more than their share?"""
        return self.found + max_missed(self) < PAIRS_PER_ROW * self.rows

    def reaches(self, target: float) -> bool:
        """Is the recall at least the target, in all and in every band with enough sampled pairs?"""
        parts: list[Certificate | Band] = [self, *self._tested_bands]
        return all(min(part.value, _assured_recall(part, self.rows)) >= target for part in parts)

    def describe(self) -> str:
        """The recall, and that of the worst band, for a log line."""
        worst = min(self._tested_bands, key=lambda band: band.low, default=None)
        text = _describe_limits(self)
        return text if worst is None else f"{text}, from {worst.start:g} {_describe_limits(worst)}"

    def to_json(self) -> bytes:
        """The bytes of `certificate.json`."""
        return (json.dumps(encode(self), indent=1) + "\n").encode()

    @property
    def _tested_bands(self) -> list[Band]:
        return [band for band in self.bands if band.sampled >= BAND_PAIRS]


def max_missed(part: Certificate | Band) -> float:
    """The upper limit of missed pairs."""
    if part.most_missed is not None:
        return part.most_missed
    return part.found / part.low - part.found if part.low else math.inf


def _assured_recall(part: Certificate | Band, rows: int) -> float:
    if math.isinf(missed := max_missed(part)):
        return 0.0
    return 1 - missed / max(part.found + missed, PAIRS_PER_ROW * rows)


def _describe_limits(part: Certificate | Band) -> str:
    return (
        f"recall {part.value:.4f} (at least {part.low:.4f}, at most "
        f"{max_missed(part):,.0f} pairs missing)"
    )
