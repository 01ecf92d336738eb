"""What is known of an approximate join, and whether that is enough.

A share of pairs says nothing where there are next to none: a sample of any size leaves room for as
many missed pairs as were found. A corpus with fewer pairs than a tenth of its rows is therefore
judged as if it had that tenth: at --recall 0.99 at most one row in a thousand may have lost a pair.
The estimate itself must reach the target in any case.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

PAIRS_PER_ROW = 0.1  # below it the number of missed pairs is judged, not their share
BAND_PAIRS = 100  # true pairs a band must have in the sample to be held to the target


def assured_recall(certificate: Mapping[str, Any]) -> float:
    """The lowest recall the sample leaves room for, of no fewer pairs than a tenth of the rows."""
    return _assured(certificate, certificate["rows"])


def is_rare(certificate: Mapping[str, Any]) -> bool:
    """Are there so few pairs that the number of missed ones says more than their share?"""
    most = certificate["found"] + most_missed(certificate)
    return most < PAIRS_PER_ROW * certificate["rows"]


def most_missed(own: Mapping[str, Any]) -> float:
    """The upper limit of missed pairs; certificates of version 0.1 state the recall alone."""
    if "most_missed" in own:
        return own["most_missed"]
    return own["found"] / own["low"] - own["found"] if own["low"] else math.inf


def reaches(certificate: Mapping[str, Any], target: float) -> bool:
    """Overall, and in every band with enough sampled pairs to tell."""
    rows = certificate["rows"]
    return all(
        min(own["value"], _assured(own, rows)) >= target
        for own in (certificate, *_tested_bands(certificate))
    )


def summary_of(certificate: Mapping[str, Any]) -> str:
    worst = min(_tested_bands(certificate), key=lambda band: band["low"], default=None)
    text = _limits(certificate)
    return text if worst is None else f"{text}, from {worst['from']:g} {_limits(worst)}"


def certificate_json(certificate: Mapping[str, Any]) -> bytes:
    return (json.dumps(certificate, indent=1) + "\n").encode()


def _assured(own: Mapping[str, Any], rows: int) -> float:
    if math.isinf(missed := most_missed(own)):
        return 0.0
    return 1 - missed / max(own["found"] + missed, PAIRS_PER_ROW * rows)


def _tested_bands(certificate: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (band for band in certificate["bands"] if band["sampled"] >= BAND_PAIRS)


def _limits(own: Mapping[str, Any]) -> str:
    return (
        f"recall {own['value']:.4f} (at least {own['low']:.4f}, at most "
        f"{most_missed(own):,.0f} pairs missing)"
    )
