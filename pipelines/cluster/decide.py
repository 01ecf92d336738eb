"""Edges, keep rules and earlier clusters -> decisions at one threshold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.artifacts.edges import filter_by_cosine
from pipelines.artifacts.errors import GateFailed
from pipelines.artifacts.ids import IdIndex, rule_columns
from pipelines.cluster.identity import ClusterIdentity
from pipelines.cluster.previous import PreviousClusters, compare_decisions
from pipelines.cluster.spec import ClusterMethod
from sbert_core.arrays import BoolArray, Int32Array, Int64Array
from sbert_core.clusters.components import find_chained_component, label_components
from sbert_core.clusters.duplicate_groups import collapse_groups, expand_decision
from sbert_core.clusters.keep_rules import parse_rules, rank_rows, required_columns
from sbert_core.clusters.labels import ClusterLabels
from sbert_core.clusters.leaders import Decision, select_leaders
from sbert_core.join.bounded import Edges

PAIRS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ThresholdClusters:
    """The clusters at one threshold.

    num_protected_pairs: edges between protected rows, which are all kept; protected_pairs: (P, 2),
    some of them. changes: against the earlier clusters, of an update. against_fresh: counts beside
    those of a run without earlier clusters, if it was requested.
    """

    threshold: float
    decision: Decision
    clusters: ClusterLabels
    num_protected_pairs: int
    protected_pairs: Int32Array
    changes: pa.Table | None = None
    against_fresh: dict[str, int] | None = None


class Decider:
    """Decides rows at any threshold; holds what all thresholds share.

    groups: rows of each group of equal vectors that has one row in the pairs.
    """

    def __init__(
        self, identity: ClusterIdentity, rows: IdIndex, groups: Sequence[Int32Array]
    ) -> None:
        self.identity = identity
        self.rows = rows
        self.groups = groups
        self.rules = parse_rules(identity.spec.keep)
        self.table = rule_columns(
            required_columns(self.rules), identity.vectors, rows, identity.spec.metadata
        )
        self.is_protected = _find_protected_rows(identity, rows)

    def decide(
        self, edges: Edges, threshold: float, previous: PreviousClusters | None
    ) -> ThresholdClusters:
        """Decide which rows are kept. previous: clusters whose kept rows come first.

        GateFailed if components chain too many rows together.
        """
        edges = filter_by_cosine(edges, threshold)
        was_kept = (
            np.zeros(len(self.rows), bool) if previous is None else previous.kept_rows(self.rows)
        )
        decision = self._select_leaders(edges, was_kept)
        label = decision.canonical
        if self.identity.spec.method is ClusterMethod.COMPONENTS:
            label = self._label_components(edges, decision)
        changes = fresh = None
        if previous is not None:
            changes = previous.find_changes(self.rows, decision, threshold)
        if self.identity.spec.compare_fresh:
            anew = (
                decision
                if previous is None
                else self._select_leaders(edges, np.zeros_like(was_kept))
            )
            fresh = compare_decisions(decision, anew)
        return ThresholdClusters(
            threshold,
            decision,
            ClusterLabels.from_decision(decision, label, self.is_protected, was_kept),
            *self._find_protected_pairs(edges),
            changes,
            fresh,
        )

    def _find_protected_pairs(self, edges: Edges) -> tuple[int, Int32Array]:
        """How many edges join two protected rows, and some of them."""
        both = np.flatnonzero(self.is_protected[edges.a] & self.is_protected[edges.b])
        number = len(both)
        pairs = [np.stack([edges.a[both], edges.b[both]], axis=1)[:PAIRS_SHOWN]]
        for members in self.groups:
            own = members[self.is_protected[members]]
            number += len(own) * (len(own) - 1) // 2
            few = own[:PAIRS_SHOWN]
            pairs.append(few[np.stack(np.triu_indices(len(few), 1), axis=1)])
        return number, np.concatenate(pairs)[:PAIRS_SHOWN]

    def _select_leaders(self, edges: Edges, was_kept: BoolArray) -> Decision:
        first = [some for some in (self.is_protected, was_kept) if some.any()]
        rank = rank_rows(self.rules, self.table, self.rows.ids, first)
        protected = int(self.is_protected.sum())
        collapsed = collapse_groups(edges, self.groups, rank, protected)
        decision = select_leaders(collapsed, rank, protected)
        return expand_decision(decision, collapsed, self.groups, rank, protected)

    def _label_components(self, edges: Edges, decision: Decision) -> Int64Array:
        links = [edges, *(_star(members) for members in self.groups)]
        whole = Edges(*(np.concatenate([getattr(e, n) for e in links]) for n in ("a", "b", "cos")))
        label = label_components(whole, len(self.rows))
        share = self.identity.spec.max_cluster_share
        if (worst := find_chained_component(label, decision.canonical, share)) is not None:
            name = self.rows.ids[worst.label].as_py()
            raise GateFailed(
                f"the cluster of {name!r} chains {worst.rows:,} rows together, {worst.chained:,} "
                f"of which do not resemble its main row; more than --max-cluster-share {share:g}: "
                "raise the threshold, use --method leaders or allow more"
            )
        return label


def _star(members: Int32Array) -> Edges:
    """Edges from the first of a group of equal rows to all others."""
    first = np.full(len(members) - 1, members[0], np.int32)
    return Edges(first, members[1:].astype(np.int32), np.ones(len(first), np.float32))


def _find_protected_rows(identity: ClusterIdentity, rows: IdIndex) -> BoolArray:
    """Which rows `--protect` names; ValueError for ids that the vectors lack."""
    is_protected, place = np.zeros(len(rows), bool), identity.spec.protect
    if not identity.protected:
        return is_protected
    try:
        ids = pa.array(identity.protected, pa.string()).cast(rows.ids.type)
    except pa.ArrowInvalid as error:
        raise ValueError(f"protect {place}: {error}; ids are {rows.ids.type}") from None
    number = rows.lookup(ids)
    unknown = [identity.protected[n] for n in np.flatnonzero(number < 0)[:3].tolist()]
    if unknown:
        raise ValueError(
            f"protect {place} names {(number < 0).sum():,} ids that the vectors lack, "
            f"as {', '.join(unknown)}; remove them from the list, or embed their rows"
        )
    is_protected[number] = True
    return is_protected
