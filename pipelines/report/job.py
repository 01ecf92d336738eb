"""A run or artifacts -> one page to look at, and the same facts as JSON.

In:  the folder of a run, or any artifacts.
Out: an HTML file that needs no network, and `.json` beside it.
"""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.report import browser, tables
from pipelines.report import lengths as texts
from pipelines.report import similarity as likeness
from pipelines.report.sources import Found
from pipelines.report.spec import ReportSpec
from sbert_core.json_schema import read_json
from sbert_core.report.page import page
from sbert_core.storage import storage_at

log = logging.getLogger(__name__)

COMMANDS = {"pairs": "sbert pairs", "clusters": "sbert cluster"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReport:
    """Where the page is."""

    page: str
    facts: str
    bytes: int


def run(spec: ReportSpec) -> ReportReport:
    found = Found.at(spec.sources)
    facts = facts_of(found, spec)
    made = page(facts).encode()
    folder, slash, name = spec.out.rpartition("/")
    storage = storage_at(folder or (slash or "."))
    stem = name.removesuffix(".html")
    storage.put(name, made)
    storage.put(f"{stem}.json", (json.dumps(facts, indent=1, default=str) + "\n").encode())
    at = f"{folder}{slash}{stem}.json"
    return ReportReport(page=spec.out, facts=at, bytes=len(made))


def facts_of(found: Found, spec: ReportSpec) -> dict[str, Any]:
    """Everything the page shows; what it leaves out is said."""
    log.info("report: reading %s", ", ".join(found.artifacts) or "scores")
    clusters: dict[str, Any] = {"items": [], "sizes": {}, "said": "", "total": 0}
    places: dict[str, Any] = {"points": [], "groups": [], "said": ""}
    if found.clusters is not None and found.vectors is not None:
        decided = browser.Decided.read(found.clusters, found.vectors)
        clusters = browser.clusters_of(decided, spec.clusters, spec.seed)
        names = topic_names(found)
        places = browser.map_of(decided, found.vectors, names, spec.sample, spec.seed)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    kinds = ", ".join(f"{kind} {own}" for kind, own in sorted(found.generations.items()))
    return {
        "title": spec.title or "Sentence vectors and near-duplicates",
        "subtitle": f"Made {made} by sbert report",
        "headline": tables.headline_of(found),
        "gates": tables.gates_of(found),
        "lengths": texts.lengths_of(found),
        "throughput": texts.throughput_of(found),
        "similarity": likeness.similarity_of(found, spec.seed),
        "curve": likeness.curve_of(found),
        "clusters": clusters,
        "map": places,
        "quarantine": browser.quarantine_of(found),
        "training": tables.trainings_of(found),
        "scores": tables.scores_of(found),
        "index": tables.index_of(found),
        "certificate": tables.certificate_of(found),
        "stages": tables.stages_of(found),
        "notes": [
            *(
                f"The {kind} are older than the vectors and are left out: run {COMMANDS[kind]}."
                for kind in found.left_out
            ),
            f"Generations: {kinds}." if kinds else "",
            *clusters_note(clusters, places),
        ],
    }


def topic_names(found: Found) -> list[str]:
    assert found.clusters is not None
    storage = storage_at(found.clusters.uri)
    if storage.stat("topics.json") is None:
        return []
    topics = read_json(storage, "topics.json", [{"words": [str]}])
    return [" ".join(topic["words"]) or "?" for topic in topics]


def clusters_note(clusters: dict[str, Any], places: dict[str, Any]) -> list[str]:
    return [f"Shown: {own['said']}." for own in (clusters, places) if own["said"]]
