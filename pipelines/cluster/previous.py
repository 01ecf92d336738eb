"""Earlier clusters -> rows to keep first, and what is decided otherwise now.

Rows that were kept come first in the order, so the name of a cluster stays while its row is there.
The result may differ from that of a fresh run; `--compare-fresh` counts by how much.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.artifacts.ids import IdIndex, check_parts, read_wide_columns
from pipelines.artifacts.reader import ClustersArtifact
from sbert_core.arrays import BoolArray
from sbert_core.clusters.leaders import Decision
from sbert_core.large_strings import take_narrow


@dataclass(frozen=True, slots=True)
class PreviousClusters:
    """Decisions of an earlier run at one threshold, by id."""

    ids: pa.Array
    keep: BoolArray
    canonical: pa.Array

    @classmethod
    def read(cls, clusters: ClustersArtifact, threshold: float) -> "PreviousClusters":
        """Read the decisions of a published artifact at one of its thresholds."""
        check_parts(clusters, clusters.manifest.files)
        table = read_wide_columns(clusters, ["id", "threshold", "keep", "canonical"])
        own = table.filter(pc.equal(table["threshold"], pa.scalar(threshold, pa.float32())))
        keep = own["keep"].combine_chunks().to_numpy(zero_copy_only=False)
        return cls(own["id"].combine_chunks(), keep, own["canonical"].combine_chunks())

    def kept_rows(self, rows: IdIndex) -> BoolArray:
        """Which rows of the index were kept, bool."""
        number = rows.lookup(self.ids.filter(pa.array(self.keep)))
        is_kept = np.zeros(len(rows), bool)
        is_kept[number[number >= 0]] = True
        return is_kept

    def find_changes(self, rows: IdIndex, decision: Decision, threshold: float) -> pa.Table:
        """Earlier rows that are gone or have another canonical row now; new rows do not count.

        Columns: `id`, `threshold`, `change`, and the canonical row `before` and `after`.
        """
        number = rows.lookup(self.ids)
        is_gone = number < 0
        here = np.where(is_gone, 0, number)
        canonical = decision.canonical[here]
        after = rows.ids.take(pa.array(canonical))
        same = pc.equal(after, self.canonical).to_numpy(zero_copy_only=False)
        is_kept = decision.is_kept[here]
        word = np.full(len(number), "another keeper", object)
        word[is_kept & ~self.keep] = "now kept"
        word[~is_kept & self.keep] = "now removed"
        word[is_gone] = "gone"
        chosen = pa.array(np.flatnonzero(is_gone | ~same))
        after = pc.if_else(pa.array(is_gone), pa.scalar(None, after.type), after)
        names = {"id": self.ids, "before": self.canonical, "after": after}
        named = {name: take_narrow(ids, chosen, rows.id_type) for name, ids in names.items()}
        return pa.table(
            {
                "id": named["id"],
                "threshold": pa.repeat(pa.scalar(threshold, pa.float32()), len(chosen)),
                "change": pa.array(word, pa.string()).take(chosen),
                "before": named["before"],
                "after": named["after"],
            }
        )


def compare_decisions(decision: Decision, fresh: Decision) -> dict[str, int]:
    """Counts of an update beside those of a fresh run: `against_fresh` in summary.json."""
    return {
        "kept": int(decision.is_kept.sum()),
        "kept_fresh": int(fresh.is_kept.sum()),
        "decided_otherwise": int((decision.is_kept != fresh.is_kept).sum()),
    }
