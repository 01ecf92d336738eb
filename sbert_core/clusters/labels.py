"""Decisions -> clusters with names, sizes and reasons."""

from dataclasses import dataclass

import numpy as np

from sbert_core.clusters.leaders import Decision

UNIQUE, FIRST, PROTECTED, KEPT_BEFORE, EQUAL, NEAR = range(6)
REASONS = ("unique", "representative", "protected", "kept before", "duplicate", "near-duplicate")


@dataclass(frozen=True, slots=True)
class ClusterLabels:
    """By row: name of its cluster, the cluster's size, and why the row is kept or removed.

    name: the smallest row of the cluster. reason: index into REASONS.
    """

    name: np.ndarray
    size: np.ndarray
    reason: np.ndarray

    @classmethod
    def from_decision(
        cls, decision: Decision, label: np.ndarray, is_protected: np.ndarray, was_kept: np.ndarray
    ) -> "ClusterLabels":
        """Name clusters and give reasons.

        label: any row number that rows of a cluster share. was_kept: rows kept by an earlier run.
        """
        num_rows = len(label)
        smallest = np.full(num_rows, num_rows, np.int64)
        np.minimum.at(smallest, label, np.arange(num_rows))
        name = smallest[label]
        size = np.bincount(name, minlength=num_rows)[name]
        kept = np.select(
            [is_protected, was_kept, size > 1], [PROTECTED, KEPT_BEFORE, FIRST], default=UNIQUE
        )
        removed = np.where(decision.cos == 1, EQUAL, NEAR)
        return cls(name, size, np.where(decision.is_kept, kept, removed).astype(np.int8))


def count_by_size(size: np.ndarray, name: np.ndarray) -> dict[str, int]:
    """Number of clusters by their rows: 1, 2, 3-4, 5-8, 9-16 ... Empty classes are left out."""
    own = size[name == np.arange(len(name))]  # one row of each cluster
    power = np.ceil(np.log2(own)).astype(np.int64)
    counts = np.bincount(power) if len(power) else np.empty(0, np.int64)
    classes = {}
    for exponent, count in enumerate(counts.tolist()):
        low, high = (2 ** (exponent - 1) + 1 if exponent > 0 else 1), 2**exponent
        if count:
            classes[str(high) if low == high else f"{low}-{high}"] = count
    return classes
