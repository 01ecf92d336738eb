"""`sbert report` of artifacts that were not made from the same vectors."""

import json

import numpy as np
import pytest
from support.clustering import clustered, paired
from support.synthetic import write_vectors

from pipelines.report import job as report_job
from pipelines.report.sources import ReportSources
from pipelines.report.spec import ReportSpec

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


def facts_of(folder, name):
    made = report_job.run(ReportSpec(sources=(str(folder),), out=str(folder.parent / name)))
    with open(made.facts) as file:
        return json.load(file)


def test_report_pairs_and_clusters_older_than_vectors_are_left_out(tmp_path, ray_address):
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.standard_normal((50, 64)), 3, axis=0).astype(np.float32)
    run = tmp_path / "run"
    write_vectors(run / "vectors", [rows])
    paired(run / "vectors", run / "pairs", ray_address)
    clustered(run / "pairs", run / "clusters")
    fresh = facts_of(run, "fresh.html")
    assert fresh["curve"] and fresh["clusters"]["total"] == 50
    assert "pairs found" in fresh["similarity"]["sets"]
    write_vectors(run / "vectors", [rows[:100]])  # rows of pairs are gone
    stale = facts_of(run, "stale.html")
    assert (stale["curve"], stale["clusters"]["total"]) == ([], 0)
    assert list(stale["similarity"]["sets"]) == ["random pairs"]
    assert {"rows embedded"} == {own["label"] for own in stale["headline"]} - {"in quarantine"}
    assert ReportSources.find([str(run)]).stale_kinds == ("pairs", "clusters")
    paired(run / "vectors", run / "pairs", ray_address)
    assert ReportSources.find([str(run)]).stale_kinds == ("clusters",)
    half = facts_of(run, "half.html")
    assert half["curve"] and half["clusters"]["total"] == 0
