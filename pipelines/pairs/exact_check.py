"""True pairs of a sample of rows -> the margin an IVF join needs, and its certificate.

In:  all true pairs of the sampled rows, found by exact search, and which of them the join found.
Out: the margin at which a share of them is found; the recall of the join, by band of similarity.
"""

from dataclasses import asdict, dataclass

import numpy as np

from pipelines.artifacts.certificate import Band, Certificate
from sbert_core.arrays import BoolArray, Int64Array
from sbert_core.join.certificate import (
    BAND_WIDTH,
    MissedPairs,
    Population,
    RecallEstimate,
    VectorSample,
    cosine_bands,
    estimate_recall,
    pair_weights,
)
from sbert_core.join.ivf import margin_for_recall
from workers.pairs.ivf import ExactPairs

TUNED_PAIRS = 25  # true pairs a band must have in the sample to set the margin
MIN_WIDENING = 1e-4


@dataclass(frozen=True, slots=True)
class ExactCheck:
    """True pairs of sampled rows, and whether the join found them.

    Rows are numbered by place among the distinct rows of both sides. threshold: of the join.
    """

    population: Population
    sample: VectorSample
    pairs: ExactPairs
    is_found: BoolArray
    threshold: float

    def required_margin(self, recall: float, margin: float) -> float:
        """The margin at which that share is found: of all pairs and of each band.

        margin: of the join that was checked.
        """
        pairs = self.pairs
        weight = pair_weights(self.sample, self.population, pairs.row, pairs.partner)
        # A pair may be missed although its margin is reached: the home cell of a row between two
        # cells depends on the last bits. Such a pair requires more, so that every attempt widens.
        floor = max(margin, 0.0)
        needed = np.where(pairs.margin > floor, pairs.margin, 2 * floor + MIN_WIDENING)
        needed[self.is_found] = 0.0
        band = cosine_bands(pairs.cos, self.threshold)
        large = np.flatnonzero(np.bincount(band) >= TUNED_PAIRS).tolist()
        chosen = [np.ones(len(band), bool), *(band == number for number in large)]
        return max(margin_for_recall(needed[own], weight[own], recall) for own in chosen)

    def certify(
        self, found_by_band: Int64Array, alpha: float, margin: float, num_cells: int
    ) -> Certificate:
        """The certificate of a join with that margin and so many cells.

        found_by_band: pairs of rows that the join found. alpha: 1 - confidence.
        """
        band = cosine_bands(self.pairs.cos, self.threshold)
        everything = np.ones(len(band), bool)
        return Certificate(
            **asdict(self._estimate(everything, int(found_by_band.sum()), alpha)),
            confidence=1 - alpha,
            rows_sampled=len(self.sample.rows),
            rows=len(self.population.size),
            bands=tuple(
                Band(
                    start=round(self.threshold + number * BAND_WIDTH, 6),
                    **asdict(self._estimate(band == number, int(count), alpha)),
                )
                for number, count in enumerate(found_by_band.tolist())
            ),
            margin=margin,
            cells=num_cells,
        )

    def _estimate(self, is_chosen: BoolArray, num_found: int, alpha: float) -> RecallEstimate:
        """Recall of some of the pairs."""
        lost = is_chosen & ~self.is_found
        missed = MissedPairs(row=self.pairs.row[lost], partner=self.pairs.partner[lost])
        num_sampled = int(is_chosen.sum())
        return estimate_recall(
            self.sample, self.population, missed, num_found, num_sampled, alpha=alpha
        )
