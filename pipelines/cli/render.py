"""Reports of jobs that make an artifact or a model -> sentences."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.artifacts.certificate import max_missed

if TYPE_CHECKING:
    from pipelines.apply.job import ApplyReport
    from pipelines.artifacts.sidecars import ClusterSummary
    from pipelines.cluster.job import ClusterReport
    from pipelines.embed.estimate import EmbedEstimate
    from pipelines.embed.report import EmbedReport
    from pipelines.evaluate.job import EvaluateReport
    from pipelines.export.job import ExportReport
    from pipelines.index.job import IndexReport
    from pipelines.mine.job import MineReport
    from pipelines.pairs.job import PairsReport
    from pipelines.prepare.job import PrepareReport
    from pipelines.train.report import TrainReport

TOPICS_SHOWN = 20
SAMPLES = {"held": "held out", "inside": "in corpus"}  # of queries that measure recall


def render_prepare(report: "PrepareReport") -> str:
    left_out = (
        f"{report.repeats:,} repeats, {report.conflicts:,} contradictions, "
        f"{report.excluded:,} in excluded files, {report.skipped:,} skipped"
    )
    classes = f", classes {', '.join(report.classes)}" if report.classes else ""
    return (
        f"{'' if report.is_new else 'nothing to do, '}{report.train:,} rows to train on, "
        f"{report.dev:,} held out{classes}; left out: {left_out}\nshards -> {report.folder}"
    )


def render_mine(report: "MineReport") -> str:
    return (
        f"{'' if report.is_new else 'nothing to do, '}{report.rows:,} rows with "
        f"{report.negatives} negatives each, {report.left_out:,} left out (too few candidates)\n"
        f"shards -> {report.folder}"
    )


def render_train(reports: "Sequence[TrainReport]") -> str:
    """One paragraph for each seed."""
    return "\n".join(map(_render_training, reports))


def _render_training(report: "TrainReport") -> str:
    score = ""
    if report.best_score is not None:
        score = (
            f"; held-out {report.measure} {report.start_score:.2f} -> {report.best_score:.2f} "
            f"(epoch {report.best_epoch})"
        )
    return (
        f"{'' if report.is_new else 'nothing to do, '}{report.rows:,} rows in {report.steps:,} "
        f"steps on {report.workers} workers, {report.rows_per_second:,.1f} rows/s{score}\n"
        f"encoder -> {report.out}"
    )


def render_evaluate(report: "EvaluateReport") -> str:
    return report.table if report.out is None else f"{report.table}\nscores -> {report.out}"


def render_embed(report: "EmbedReport | EmbedEstimate") -> str:
    from pipelines.embed.estimate import EmbedEstimate

    if isinstance(report, EmbedEstimate):
        return _render_estimate(report)
    if not report.is_new:
        return f"nothing to do, {report.rows:,} vectors -> {report.folder}"
    saved = f"{report.reused:,} carried over, {report.repeats:,} repeats"
    speed = f"{report.tokens:,} tokens at {report.tokens_per_second:,.0f}/s, " * bool(report.tokens)
    return (
        f"{report.embedded:,} embedded, {saved}, {report.quarantined:,} quarantined, "
        f"{report.truncated:,} truncated; {speed}{report.seconds:.1f} s in all\n"
        f"{report.rows:,} vectors -> {report.folder}"
    )


def _render_estimate(plan: "EmbedEstimate") -> str:
    low, high = plan.seconds
    return (
        f"rows       {plan.rows:,} in {plan.units:,} units of {plan.files:,} files\n"
        f"texts      {plan.distinct:,} distinct, {plan.reused:,} carried over, "
        f"{plan.to_embed:,} to embed\n"
        f"tokens     about {plan.tokens:,} to embed\n"
        f"duration   {low:,.0f} to {high:,.0f} s on {plan.actors} actors like this machine's\n"
        f"output     about {plan.bytes_out:,} bytes\n"
        "nothing was written"
    )


def render_index(report: "IndexReport") -> str:
    """The index card, and what this run changed."""
    card, search = report.card, report.card.search
    effort = f", searched with {search.name} {search.effort}" if search.name else ""
    one, far = card.single_query_ms, card.extrapolated_query_ms
    speed = "" if card.queries_per_second is None else f"{card.queries_per_second:,} queries/s "
    lines = [
        f"rows        {card.rows:,}, {card.distinct:,} distinct vectors of {card.dim} "
        f"dimensions, {card.stale:.1%} stale",
        f"kind        {card.kind} in {card.shards} shards, {card.bytes:,} bytes{effort}",
        f"build       {card.build_seconds:,.1f} s",
        f"speed       {speed}in batches; one alone {one.p50:.2f} ms (p99 {one.p99:.2f}), "
        "one thread, ten hits",
        f"at 40M rows {far.p50:,.1f} ms (p99 {far.p99:,.1f}), extrapolated",
    ]
    for sample, recall in card.recall.items():
        values = [f"@{k} {r.value:.4f} ({r.low:.4f}-{r.high:.4f})" for k, r in recall.items()]
        lines.append(
            f"recall      {', '.join(values)}: {recall['10'].num_queries:,} queries "
            f"{SAMPLES[sample]}, 95 % intervals"
        )
    done = (
        f"{report.num_built} shards built, {report.num_added:,} rows added, "
        f"{report.num_removed:,} removed"
        if report.is_new
        else "nothing to do"
    )
    return "\n".join([*lines, f"{done}; index -> {report.folder}"])


def render_pairs(report: "PairsReport") -> str:
    groups = f", {report.groups:,} groups of more than 1,000 equal rows" if report.groups else ""
    done = f"in {report.seconds:,.1f} s" if report.is_new else "nothing to do"
    what = f"pairs with cosine >= {report.threshold:g}"
    if report.top_k is not None:
        what = f"pairs of rows with their {report.top_k} nearest"
    lines = [
        f"{report.pairs:,} {what} among {report.rows:,} rows ({report.distinct:,} distinct "
        f"vectors{groups}), {done}"
    ]
    if (found := report.certificate) is None:
        lines.append("exact: no pair is missing")
    else:
        share = "" if found.is_rare else f"recall {found.value:.4f}, at least {found.low:.4f}; "
        lines.append(
            f"{share}at most {max_missed(found):,.0f} pairs are missing, with confidence "
            f"{found.confidence:.4g}: {found.rows_sampled:,} rows looked up exactly"
        )
    if report.grown is not None:
        lines.append(
            f"{report.grown.new_rows:,} rows were new; pairs of the other "
            f"{report.grown.known_rows:,} were taken over"
        )
    return "\n".join([*lines, f"pairs -> {report.folder}"])


def render_cluster(report: "ClusterReport") -> str:
    """Rows kept and removed at each threshold, topics, and where the clusters are."""
    done = f"in {report.seconds:,.1f} s" if report.is_new else "nothing to do"
    lines = [line for summary in report.summaries for line in _summary_lines(summary)]
    for topic in report.topics[:TOPICS_SHOWN]:
        lines.append(f"  topic {topic.topic}: {topic.rows:,} rows, {' '.join(topic.words)}")
    lines.append(f"{report.method}, {done}")
    return "\n".join([*lines, f"clusters -> {report.folder}"])


def _summary_lines(summary: "ClusterSummary") -> list[str]:
    lines = [
        f"cosine >= {summary.threshold:g}: {summary.kept:,} of {summary.rows:,} rows kept, "
        f"{summary.removed:,} removed, each with a kept witness; {summary.clusters:,} clusters"
    ]
    sizes = [f"{size} rows: {n:,}" for size, n in summary.clusters_by_size.items() if size != "1"]
    lines.append(f"  {', '.join(sizes)}" if sizes else "  no two rows are alike")
    if summary.protected_pairs:
        lines.append(f"  {summary.protected_pairs:,} pairs of protected rows are alike: both kept")
    if summary.changes is not None:
        changes = [f"{count:,} {name}" for name, count in summary.changes.items()]
        lines.append(f"  since the last run: {', '.join(changes) or 'no row decided otherwise'}")
    if (fresh := summary.against_fresh) is not None:
        lines.append(
            f"  a fresh run would keep {fresh['kept_fresh']:,} and decide "
            f"{fresh['decided_otherwise']:,} rows otherwise"
        )
    return lines


def render_apply(report: "ApplyReport") -> str:
    done = "" if report.is_new else ", nothing to do"
    return (
        f"{report.rows:,} of {report.rows_in:,} rows kept in {report.files:,} files{done}\n"
        f"corpus -> {report.folder}"
    )


def render_export(report: "ExportReport") -> str:
    return f"{report.rows:,} vectors -> {report.out}"
