"""Reasons why a labelled row is left out of the training shards."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Exclusion(StrEnum):
    """Kinds of reasons. The members are keys of a manifest: their spelling never changes."""

    REPEATS = "repeats"  # the same texts and label as an earlier row
    CONFLICTS = "conflicts"  # the same texts as an earlier row, but another label
    EXCLUDED = "excluded"  # a text of a file the user excluded
    SKIPPED = "skipped"  # a label the user skips


# The sentences in quarantine files: their wording is part of published bytes.
SENTENCES = {
    Exclusion.REPEATS: "repeats {}",
    Exclusion.CONFLICTS: "contradicts {}",
    Exclusion.EXCLUDED: "a text occurs in {}",
    Exclusion.SKIPPED: "label {} is skipped",
}


@dataclass(frozen=True, slots=True)
class ExclusionReason:
    """Why one row is left out. `subject`: the earlier row, the excluded file, or the label."""

    kind: Exclusion
    subject: str

    @property
    def sentence(self) -> str:
        """The reason as it is written beside the row."""
        return SENTENCES[self.kind].format(self.subject)


def count_exclusions(reasons: Iterable[ExclusionReason]) -> dict[Exclusion, int]:
    """Rows of each kind, zeros included, in the order of `Exclusion`."""
    counts = dict.fromkeys(Exclusion, 0)
    for reason in reasons:
        counts[reason.kind] += 1
    return counts
