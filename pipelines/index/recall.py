"""What shards found against what there is -> the effort to search with, and its recall.

With a target the first half of the queries chooses the effort and the second half states the
recall: a figure that was chosen by is not one to quote.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipelines.artifacts.errors import TargetMissed
from sbert_core.index.recall import Recall, query_recalls, recall_of
from workers.index.shard import merged_cosines

PLACES = (1, 10, 100)
TARGET_PLACE = 10
SAMPLES = ("inside", "held")


@dataclass(frozen=True, slots=True)
class Measured:
    """The effort to search with, and the recall by sample and place."""

    effort: int
    recall: dict[str, dict[int, Recall]]

    def facts(self) -> dict[str, Any]:
        return {
            sample: {str(k): asdict(recall) for k, recall in found.items()}
            for sample, found in self.recall.items()
        }


class Findings:
    """Recalls of single queries at each effort, by sample."""

    def __init__(
        self, exact: Sequence[tuple[np.ndarray, np.ndarray]], shards: Sequence[dict[str, Any]]
    ) -> None:
        self._shards = shards
        self._exact = {
            sample: merged_cosines(found[place] for found in exact)
            for place, sample in enumerate(SAMPLES)
            if exact[0][place].size
        }

    def recalls(self, sample: str, effort: int, k: int) -> np.ndarray:
        found = merged_cosines(shard[sample][effort] for shard in self._shards)
        return query_recalls(found, self._exact[sample], k)

    def measured(self, efforts: Sequence[int], target: float | None) -> Measured:
        if target is None:
            return Measured(efforts[0], self._stated(efforts[0], slice(None)))
        best: Measured | None = None
        for effort in efforts:
            tuned = self._stated(effort, slice(0, None, 2))
            stated = Measured(effort, self._stated(effort, slice(1, None, 2)))
            if all(_reaches(found, target) for found in (tuned, stated.recall)):
                return stated
            best = stated
        assert best is not None
        reached = {sample: found[TARGET_PLACE] for sample, found in best.recall.items()}
        words = ", ".join(f"{r.low:.4f} to {r.high:.4f} ({s})" for s, r in reached.items())
        raise TargetMissed(
            f"recall@{TARGET_PLACE} is {words} at effort {best.effort}, below the target of "
            f"{target:g}; raise --m or --ef-construction, or choose another --kind; nothing was "
            "published"
        )

    def _stated(self, effort: int, part: slice) -> dict[str, dict[int, Recall]]:
        return {
            sample: {k: recall_of(self.recalls(sample, effort, k)[part], k) for k in PLACES}
            for sample in self._exact
        }


def _reaches(recall: dict[str, dict[int, Recall]], target: float) -> bool:
    return all(found[TARGET_PLACE].low >= target for found in recall.values())
