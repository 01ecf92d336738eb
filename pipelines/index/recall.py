"""Cosines found by shards against exact ones -> the effort to search with, and its recall.

With a target, one half of the queries chooses the effort and the other half states the recall: a
sample that chose the effort overstates it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.artifacts.errors import TargetMissed
from pipelines.artifacts.kinds import RecallAtK
from sbert_core.arrays import Float64Array
from sbert_core.index.recall import Recall, estimate_recall, query_recalls
from workers.index.measure import ExactCosines, ShardMeasure, merge_cosines

PLACES = (1, 10, 100)
TARGET_PLACE = 10
INSIDE, HELD = "inside", "held"  # keys in card.json

RecallBySample = dict[str, dict[int, Recall]]


@dataclass(frozen=True, slots=True)
class EffortRecall:
    """An effort to search with, and its recall by sample of queries and by k."""

    effort: int
    recall: RecallBySample

    def to_records(self) -> dict[str, dict[str, RecallAtK]]:
        """The recall as the manifest and the card state it."""
        return {
            sample: {
                str(k): RecallAtK(
                    value=own.value, low=own.low, high=own.high, num_queries=own.num_queries
                )
                for k, own in by_k.items()
            }
            for sample, by_k in self.recall.items()
        }


class RecallTable:
    """Recalls of single queries at each effort, by sample.

    exact: the true cosines, part by part. shards: what each shard found. A sample without queries
    is left out.
    """

    def __init__(self, exact: Sequence[ExactCosines], shards: Sequence[ShardMeasure]) -> None:
        self._found = {
            INSIDE: [shard.inside for shard in shards],
            HELD: [shard.held for shard in shards],
        }
        parts = {INSIDE: [own.inside for own in exact], HELD: [own.held for own in exact]}
        self._exact = {
            sample: merge_cosines(cosines) for sample, cosines in parts.items() if cosines[0].size
        }

    def choose_effort(self, efforts: Sequence[int], target: float | None) -> EffortRecall:
        """The first effort whose recall@10 surely reaches the target; the first without one.

        TargetMissed if none does.
        """
        if target is None:
            return EffortRecall(efforts[0], self._estimate(efforts[0]))
        best: EffortRecall | None = None
        for effort in efforts:
            tuned = self._estimate(effort, first=0, step=2)
            stated = EffortRecall(effort, self._estimate(effort, first=1, step=2))
            if _reaches(tuned, target) and _reaches(stated.recall, target):
                return stated
            best = stated
        assert best is not None
        reached = {sample: by_k[TARGET_PLACE] for sample, by_k in best.recall.items()}
        words = ", ".join(f"{r.low:.4f} to {r.high:.4f} ({s})" for s, r in reached.items())
        raise TargetMissed(
            f"recall@{TARGET_PLACE} is {words} at effort {best.effort}, below the target of "
            f"{target:g}; raise --m or --ef-construction, or choose another --kind; nothing was "
            "published"
        )

    def _estimate(self, effort: int, first: int = 0, step: int = 1) -> RecallBySample:
        """Recall at an effort, by every `step`-th query from the first."""
        return {
            sample: {
                k: estimate_recall(self._query_recalls(sample, effort, k)[first::step], k)
                for k in PLACES
            }
            for sample in self._exact
        }

    def _query_recalls(self, sample: str, effort: int, k: int) -> Float64Array:
        found = merge_cosines(by_effort[effort] for by_effort in self._found[sample])
        return query_recalls(found, self._exact[sample], k)


def _reaches(recall: RecallBySample, target: float) -> bool:
    return all(by_k[TARGET_PLACE].low >= target for by_k in recall.values())
