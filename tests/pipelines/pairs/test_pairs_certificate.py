"""When the certificate of an approximate join is good enough."""

import pytest

from pipelines.artifacts.certificate import assured_recall, is_rare, reaches


def certificate(found, missed, most_missed, rows, bands=()):
    own = {"found": found, "most_missed": most_missed, "rows": rows, "bands": list(bands)}
    total = found + missed
    return own | {"value": found / total if total else 1.0}


def band(found, missed, most_missed, sampled):
    return certificate(found, missed, most_missed, 0) | {"sampled": sampled, "from": 0.9}


@pytest.mark.parametrize(
    ("own", "is_enough"),
    [
        (certificate(10_000, 50, 99, 1000), True),
        (certificate(10_000, 50, 110, 1000), False),
        (certificate(0, 0, 0, 1), True),
        (certificate(0, 0, 900, 1_000_000), True),  # no pair, and few may be missing
        (certificate(0, 0, 1100, 1_000_000), False),
        (certificate(5000, 20, 900, 1_000_000), True),  # few pairs, nearly all seen
        (certificate(5000, 200, 900, 1_000_000), False),  # few pairs, and too many seen to be lost
        (certificate(10_000, 50, 99, 1000, [band(300, 9, 20, 100)]), False),
        (certificate(10_000, 50, 99, 1000, [band(300, 9, 20, 99)]), True),  # too few to tell
        (certificate(10_000, 50, 99, 1000, [band(9000, 9, 20, 100)] * 2), True),
    ],
)
def test_certificate_reaches_a_target_of_99_percent(own, is_enough):
    assert reaches(own, 0.99) == is_enough


def test_assured_recall_is_the_lower_limit_where_pairs_are_many():
    many = certificate(9000, 100, 1000, 50_000)
    assert assured_recall(many) == pytest.approx(0.9) and not is_rare(many)
    few = certificate(10, 0, 30, 50_000)
    assert assured_recall(few) == pytest.approx(1 - 30 / 5000) and is_rare(few)
