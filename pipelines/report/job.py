"""A run or artifacts -> one page to look at, and the same facts as JSON.

In:  the folder of a run, or any artifacts.
Out: an HTML file that needs no network, and `.json` beside it.
"""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines.report import browser, lengths, similarity, tables, text_map
from pipelines.report.cluster_table import ClusterTable
from pipelines.report.sources import ReportSources
from pipelines.report.spec import ReportSpec
from sbert_core.json_record import encode
from sbert_core.report.facts import ClusterList, ReportFacts, TextMap
from sbert_core.report.page import render_page
from sbert_core.storage import storage_at

log = logging.getLogger(__name__)

COMMANDS = {"pairs": "sbert pairs", "clusters": "sbert cluster"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResult:
    """The files that were written. page: HTML. facts: JSON. bytes: of the page."""

    page: str
    facts: str
    bytes: int


def run(spec: ReportSpec) -> ReportResult:
    """Write the page to --out and its facts beside it."""
    facts = collect_facts(ReportSources.find(spec.sources), spec)
    html = render_page(facts).encode()
    folder, slash, name = spec.out.rpartition("/")
    storage = storage_at(folder or (slash or "."))
    stem = name.removesuffix(".html")
    storage.put(name, html)
    text = json.dumps(encode(facts), indent=1, default=str) + "\n"
    storage.put(f"{stem}.json", text.encode())
    path = f"{folder}{slash}{stem}.json"
    return ReportResult(page=spec.out, facts=path, bytes=len(html))


def collect_facts(found: ReportSources, spec: ReportSpec) -> ReportFacts:
    """Everything the page shows; its notes name what is left out."""
    log.info("report: reading %s", ", ".join(found.artifacts) or "scores")
    clusters, points = ClusterList(), TextMap()
    if found.clusters is not None and found.vectors is not None:
        table = ClusterTable.read(found.clusters, found.vectors)
        clusters = browser.make_cluster_list(table, spec.clusters, spec.seed)
        topics = found.topic_names()
        points = text_map.make_text_map(table, found.vectors, topics, spec.sample, spec.seed)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return ReportFacts(
        title=spec.title or "Sentence vectors and near-duplicates",
        subtitle=f"Made {now} by sbert report",
        headline=tables.make_headline(found),
        gates=tables.make_gate_lines(found),
        lengths=lengths.make_length_histogram(found),
        throughput=lengths.make_throughput(found),
        similarity=similarity.make_histogram(found, spec.seed),
        curve=similarity.make_curve(found),
        clusters=clusters,
        map=points,
        quarantine=browser.make_quarantine_list(found),
        training=tables.make_training_curves(found),
        scores=tables.make_score_tables(found),
        index=tables.make_index_tables(found),
        certificate=tables.make_certificate_tables(found),
        stages=tables.make_stage_tables(found),
        notes=_make_notes(found, clusters, points),
    )


def _make_notes(found: ReportSources, clusters: ClusterList, points: TextMap) -> tuple[str, ...]:
    """Lines at the foot of the page."""
    generations = {kind: own.manifest.generation for kind, own in found.artifacts.items()}
    kinds = ", ".join(f"{kind} {own}" for kind, own in sorted(generations.items()))
    return (
        *(
            f"The {kind} are older than the vectors and are left out: run {COMMANDS[kind]}."
            for kind in found.stale_kinds
        ),
        f"Generations: {kinds}." if kinds else "",
        *(f"Shown: {note}." for note in (clusters.note, points.note) if note),
    )
