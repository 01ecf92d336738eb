"""Edges, rules and history -> decisions at one threshold."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipelines.artifacts.edges import above
from pipelines.artifacts.errors import GateFailed
from pipelines.artifacts.ids import Rows, rule_columns
from pipelines.cluster.identity import Goal
from pipelines.cluster.previous import Before, difference
from sbert_core.clusters.components import components, giant
from sbert_core.clusters.duplicate_groups import spoken_for, with_members
from sbert_core.clusters.keep_rules import columns_of, keep_order, parse_rules
from sbert_core.clusters.labels import Clusters
from sbert_core.clusters.leaders import Decision, leaders
from sbert_core.join.bounded import Edges

PAIRS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Decided:
    """The clusters at one threshold, and how they came about."""

    threshold: float
    decision: Decision
    clusters: Clusters
    num_protected_pairs: int  # rows that are all kept although they are alike
    protected_pairs: np.ndarray  # (P, 2), some of them
    changes: pa.Table | None = None
    against_fresh: dict[str, int] | None = field(default=None)


class Decider:
    """Everything that all thresholds share."""

    def __init__(self, goal: Goal, rows: Rows, groups: Sequence[np.ndarray]) -> None:
        self.goal = goal
        self.rows = rows
        self.groups = groups
        self.rules = parse_rules(goal.spec.keep)
        self.table = rule_columns(columns_of(self.rules), goal.vectors, rows, goal.spec.metadata)
        self.is_protected = _protected_rows(goal, rows)

    def decide(self, edges: Edges, threshold: float, before: Before | None) -> Decided:
        edges = above(edges, threshold)
        was_kept = np.zeros(len(self.rows), bool) if before is None else before.kept(self.rows)
        decision = self._leaders(edges, was_kept)
        label = decision.canonical
        if self.goal.spec.method == "components":
            label = self._components(edges, decision)
        changes = fresh = None
        if before is not None:
            changes = before.changes(self.rows, decision, threshold)
        if self.goal.spec.compare_fresh:
            anew = decision if before is None else self._leaders(edges, np.zeros_like(was_kept))
            fresh = difference(decision, anew)
        return Decided(
            threshold,
            decision,
            Clusters.of(decision, label, self.is_protected, was_kept),
            *self._protected_pairs(edges),
            changes,
            fresh,
        )

    def _protected_pairs(self, edges: Edges) -> tuple[int, np.ndarray]:
        both = np.flatnonzero(self.is_protected[edges.a] & self.is_protected[edges.b])
        number = len(both)
        pairs = [np.stack([edges.a[both], edges.b[both]], axis=1)[:PAIRS_SHOWN]]
        for members in self.groups:
            own = members[self.is_protected[members]]
            number += len(own) * (len(own) - 1) // 2
            few = own[:PAIRS_SHOWN]
            pairs.append(few[np.stack(np.triu_indices(len(few), 1), axis=1)])
        return number, np.concatenate(pairs)[:PAIRS_SHOWN]

    def _leaders(self, edges: Edges, was_kept: np.ndarray) -> Decision:
        first = [some for some in (self.is_protected, was_kept) if some.any()]
        rank = keep_order(self.rules, self.table, self.rows.ids, first)
        protected = int(self.is_protected.sum())
        spoken = spoken_for(edges, self.groups, rank, protected)
        decision = leaders(spoken, rank, protected)
        return with_members(decision, spoken, self.groups, rank, protected)

    def _components(self, edges: Edges, decision: Decision) -> np.ndarray:
        links = [edges, *(_star(members) for members in self.groups)]
        whole = Edges(*(np.concatenate([getattr(e, n) for e in links]) for n in ("a", "b", "cos")))
        label = components(whole, len(self.rows))
        share = self.goal.spec.max_cluster_share
        if (worst := giant(label, decision.canonical, share)) is not None:
            name = self.rows.ids[worst.label].as_py()
            raise GateFailed(
                f"the cluster of {name!r} chains {worst.rows:,} rows together, {worst.chained:,} "
                f"of which do not resemble its main row; more than --max-cluster-share {share:g}: "
                "raise the threshold, use --method leaders or allow more"
            )
        return label


def _star(members: np.ndarray) -> Edges:
    """Edges that hold a group of equal rows together."""
    first = np.full(len(members) - 1, members[0], np.int32)
    return Edges(first, members[1:].astype(np.int32), np.ones(len(first), np.float32))


def _protected_rows(goal: Goal, rows: Rows) -> np.ndarray:
    is_protected = np.zeros(len(rows), bool)
    if not goal.protected:
        return is_protected
    try:
        ids = pa.array(goal.protected, pa.string()).cast(rows.ids.type)
    except pa.ArrowInvalid as error:
        raise ValueError(f"protect {goal.spec.protect}: {error}; ids are {rows.ids.type}") from None
    number = rows.numbers(ids)
    unknown = [goal.protected[n] for n in np.flatnonzero(number < 0)[:3].tolist()]
    if unknown:
        raise ValueError(
            f"protect {goal.spec.protect} names {(number < 0).sum():,} ids that the vectors lack, "
            f"as {', '.join(unknown)}; remove them from the list, or embed their rows"
        )
    is_protected[number] = True
    return is_protected
