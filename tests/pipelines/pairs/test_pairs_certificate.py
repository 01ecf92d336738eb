"""When the certificate of an approximate join is good enough, and its JSON."""

import json

import pytest

from pipelines.artifacts.certificate import Band, Certificate, max_missed
from sbert_core.json_record import decode


def recall_fields(found, missed, most_missed):
    total = found + missed
    value = found / total if total else 1.0
    return {"found": found, "missed": missed, "most_missed": most_missed, "value": value, "low": 0}


def certificate(found, missed, most_missed, rows, bands=()):
    fields = recall_fields(found, missed, most_missed)
    return Certificate(
        **fields, sampled=0, confidence=0.95, rows_sampled=rows, rows=rows, bands=tuple(bands)
    )


def band(found, missed, most_missed, sampled):
    return Band(start=0.9, **recall_fields(found, missed, most_missed), sampled=sampled)


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
    assert own.reaches(0.99) == is_enough


def test_assured_recall_is_the_lower_limit_where_pairs_are_many():
    many = certificate(9000, 100, 1000, 50_000)
    assert many.assured_recall == pytest.approx(0.9) and not many.is_rare
    few = certificate(10, 0, 30, 50_000)
    assert few.assured_recall == pytest.approx(1 - 30 / 5000) and few.is_rare


RECALL = {"found": 90, "missed": 10.5, "most_missed": 30.0, "value": 0.9, "low": 0.75, "high": 1.0}
RECALL |= {"sampled": 40}
FIELDS = {"confidence": 0.95, "rows_sampled": 8, "rows": 9, "bands": [{"from": 0.9, **RECALL}]}


@pytest.mark.parametrize("has_limit", [True, False])  # certificates of version 0.1 lack it
def test_certificate_from_json_gives_the_same_bytes_again(has_limit):
    fields = {**RECALL, **FIELDS, "margin": 0.25, "cells": 12}
    if not has_limit:
        fields.pop("most_missed")
    own = decode(Certificate, fields, "certificate.json")
    assert own.to_json() == (json.dumps(fields, indent=1) + "\n").encode()
    assert max_missed(own) == pytest.approx(30.0)
