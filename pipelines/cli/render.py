"""Reports of jobs -> the words a user reads at the end."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from pipelines.artifacts.certificate import is_rare, most_missed
from pipelines.runtime.terminal import one_line

if TYPE_CHECKING:
    from pipelines.apply.job import ApplyReport
    from pipelines.cluster.job import ClusterReport
    from pipelines.dedup.job import DedupReport
    from pipelines.demo.job import DemoReport
    from pipelines.embed.estimate import EmbedEstimate
    from pipelines.embed.report import EmbedReport
    from pipelines.index.job import IndexReport
    from pipelines.mine.job import MineReport
    from pipelines.pairs.job import PairsReport
    from pipelines.prepare.job import PrepareReport
    from pipelines.run.estimate import JobPlan
    from pipelines.run.job import RunReport
    from pipelines.search.job import SearchReport
    from pipelines.submit.job import Submitted
    from pipelines.threshold.job import Level, ThresholdReport
    from pipelines.train.job import TrainReport

SNIPPET_CHARS = 80
TOPICS_SHOWN = 20


def run_text(report: "RunReport") -> str:
    lines = [
        f"{stage.name:9} {stage.outcome:14} {stage.seconds:8,.1f} s" for stage in report.stages
    ]
    lines += [f"gate met  {gate}" for gate in report.gates]
    lines.append(f"{report.seconds:,.1f} s in all -> {report.out}")
    return "\n".join([*lines, f"report -> {report.page}"] if report.page else lines)


def job_plan_text(plan: "JobPlan") -> str:
    lines = []
    for stage in plan.stages:
        said = [stage.what]
        if stage.rows is not None:
            said.append(f"{stage.rows:,} rows")
        if stage.tokens is not None:
            said.append(f"{stage.tokens:,} tokens")
        if stage.seconds is not None:
            said.append(f"{_span(stage.seconds)} s")
        if stage.bytes is not None:
            said.append(f"{stage.bytes / 1e6:,.1f} MB")
        lines.append(f"{stage.name:9} {', '.join(said)}")
    kind = "GPU" if plan.is_gpu else "actor"
    unknown = [s.name for s in plan.stages if s.seconds is None and s.what != "nothing to do"]
    if unknown:
        lines.append(f"without   {', '.join(unknown)}:")
    lines.append(
        f"in all    {_span(plan.seconds)} s, {plan.bytes / 1e6:,.1f} MB on disk, "
        f"{plan.worker_hours[0]:.3g} to {plan.worker_hours[1]:.3g} {kind}-hours"
    )
    if plan.money is not None:
        lines.append(f"cost      {plan.money[0]:,.2f} to {plan.money[1]:,.2f}")
    return "\n".join(lines)


def _span(seconds: tuple[float, float]) -> str:
    return f"{seconds[0]:,.0f} to {seconds[1]:,.0f}"


def dedup_text(report: "DedupReport") -> str:
    return (
        f"{report.num_removed:,} of {report.rows:,} rows are near-duplicates (cosine >= "
        f"{report.threshold:g}), each with a kept witness; {report.seconds:,.1f} s\n"
        f"kept -> {report.kept}\nremoved -> {report.removed}\nreport -> {report.page}"
    )


def prepare_text(report: "PrepareReport") -> str:
    left_out = (
        f"{report.repeats:,} repeats, {report.conflicts:,} contradictions, "
        f"{report.excluded:,} in excluded files, {report.skipped:,} skipped"
    )
    classes = f", classes {', '.join(report.classes)}" if report.classes else ""
    return (
        f"{'nothing to do, ' * (not report.seconds)}{report.train:,} rows to train on, "
        f"{report.dev:,} held out{classes}; left out: {left_out}\nshards -> {report.folder}"
    )


def mine_text(report: "MineReport") -> str:
    return (
        f"{'nothing to do, ' * (not report.seconds)}{report.rows:,} rows with "
        f"{report.negatives} negatives each, {report.left_out:,} left out (too few candidates)\n"
        f"shards -> {report.folder}"
    )


def train_text(report: "TrainReport") -> str:
    score = ""
    if report.best_score is not None:
        score = (
            f"; held-out {report.measure} {report.start_score:.2f} -> {report.best_score:.2f} "
            f"(epoch {report.best_epoch})"
        )
    return (
        f"{'nothing to do, ' * (not report.is_new)}{report.rows:,} rows in {report.steps:,} steps "
        f"on {report.workers} workers, {report.rows_per_second:,.1f} rows/s{score}\n"
        f"encoder -> {report.out}"
    )


def embed_text(report: "EmbedReport") -> str:
    if not report.seconds:
        return f"nothing to do, {report.rows:,} vectors -> {report.folder}"
    saved = f"{report.reused:,} carried over, {report.repeats:,} repeats"
    speed = f"{report.tokens:,} tokens at {report.tokens_per_second:,.0f}/s, " * bool(report.tokens)
    return (
        f"{report.embedded:,} embedded, {saved}, {report.quarantined:,} quarantined, "
        f"{report.truncated:,} truncated; {speed}{report.seconds:.1f} s in all\n"
        f"{report.rows:,} vectors -> {report.folder}"
    )


def index_text(report: "IndexReport") -> str:
    card = report.card
    search = card["search"]
    effort = f", searched with {search['name']} {search['effort']}" if search["name"] else ""
    far = card["extrapolated_query_ms"]
    lines = [
        f"rows        {card['rows']:,}, {card['distinct']:,} distinct vectors of {card['dim']} "
        f"dimensions, {card['stale']:.1%} stale",
        f"kind        {card['kind']} in {card['shards']} shards, {card['bytes']:,} bytes{effort}",
        f"build       {card['build_seconds']:,.1f} s",
        f"speed       {card['queries_per_second']:,} queries/s in batches; one alone "
        f"{card['single_query_ms']['p50']:.2f} ms (p99 {card['single_query_ms']['p99']:.2f}), "
        "one thread, ten hits",
        f"at 40M rows {far['p50']:,.1f} ms (p99 {far['p99']:,.1f}), extrapolated",
    ]
    names = {"held": "held out", "inside": "in corpus"}
    for sample, found in card["recall"].items():
        said = ", ".join(
            f"@{k} {r['value']:.4f} ({r['low']:.4f}-{r['high']:.4f})" for k, r in found.items()
        )
        number = found["10"]["num_queries"]
        lines.append(f"recall      {said}: {number:,} queries {names[sample]}, 95 % intervals")
    done = (
        f"{report.num_built} shards built, {report.num_added:,} rows added, "
        f"{report.num_removed:,} removed"
        if report.is_new
        else "nothing to do"
    )
    return "\n".join([*lines, f"{done}; index -> {report.folder}"])


def pairs_text(report: "PairsReport") -> str:
    groups = f", {report.groups:,} groups of more than 1,000 equal rows" if report.groups else ""
    done = f"in {report.seconds:,.1f} s" if report.is_new else "nothing to do"
    what = f"pairs with cosine >= {report.threshold:g}"
    if report.top_k is not None:
        what = f"pairs of rows with their {report.top_k} nearest"
    lines = [
        f"{report.pairs:,} {what} among {report.rows:,} rows ({report.distinct:,} distinct "
        f"vectors{groups}), {done}"
    ]
    if (own := report.certificate) is None:
        lines.append("exact: no pair is missing")
    else:
        share = "" if is_rare(own) else f"recall {own['value']:.4f}, at least {own['low']:.4f}; "
        lines.append(
            f"{share}at most {most_missed(own):,.0f} pairs are missing, with confidence "
            f"{own['confidence']:.4g}: {own['rows_sampled']:,} rows looked up exactly"
        )
    if report.grown is not None:
        lines.append(
            f"{report.grown['new_rows']:,} rows were new; pairs of the other "
            f"{report.grown['known_rows']:,} were taken over"
        )
    return "\n".join([*lines, f"pairs -> {report.folder}"])


def cluster_text(report: "ClusterReport") -> str:
    done = f"in {report.seconds:,.1f} s" if report.is_new else "nothing to do"
    lines = []
    for own in report.summaries:
        lines.append(
            f"cosine >= {own['threshold']:g}: {own['kept']:,} of {own['rows']:,} rows kept, "
            f"{own['removed']:,} removed, each with a kept witness; {own['clusters']:,} clusters"
        )
        sizes = [
            f"{size} rows: {n:,}" for size, n in own["clusters_by_size"].items() if size != "1"
        ]
        lines.append(f"  {', '.join(sizes)}" if sizes else "  no two rows are alike")
        if own["protected_pairs"]:
            lines.append(
                f"  {own['protected_pairs']:,} pairs of protected rows are alike: both kept"
            )
        if "changes" in own:
            words = [f"{count:,} {word}" for word, count in own["changes"].items()]
            lines.append(f"  since the last run: {', '.join(words) or 'no row decided otherwise'}")
        if (fresh := own.get("against_fresh")) is not None:
            lines.append(
                f"  a fresh run would keep {fresh['kept_fresh']:,} and decide "
                f"{fresh['decided_otherwise']:,} rows otherwise"
            )
    for topic in report.topics[:TOPICS_SHOWN]:
        lines.append(
            f"  topic {topic['topic']}: {topic['rows']:,} rows, {' '.join(topic['words'])}"
        )
    lines.append(f"{report.method}, {done}")
    return "\n".join([*lines, f"clusters -> {report.folder}"])


def apply_text(report: "ApplyReport") -> str:
    done = "" if report.is_new else ", nothing to do"
    return (
        f"{report.rows:,} of {report.rows_in:,} rows kept in {report.files:,} files{done}\n"
        f"corpus -> {report.folder}"
    )


def threshold_text(report: "ThresholdReport", as_json: bool) -> str:
    if as_json:
        return json.dumps(asdict(report), ensure_ascii=False, indent=1, default=str)
    lines = list(report.notes)
    for level in report.levels:
        lines.append(f"cosine >= {level.cos:g}: {_level(level)}")
        for pair in level.samples:
            lines.append(f"  {pair.cos:.4f}  {_snippet(pair.text_a, pair.id_a)}")
            lines.append(f"          {_snippet(pair.text_b, pair.id_b)}")
    if report.best is not None:
        lines.append(
            f"best F1 {report.best.f1:.3f} at {report.best.cos:.4f} (precision "
            f"{report.best.precision:.3f}, recall {report.best.recall:.3f})"
        )
    return "\n".join(lines)


def _level(level: "Level") -> str:
    if level.f1 is not None:
        return f"precision {level.precision:.3f}, recall {level.recall:.3f}, F1 {level.f1:.3f}"
    found = "" if level.pairs is None else f"{level.pairs:,} pairs found; "
    return (
        f"{found}{level.chance_per_million:,.2f} of a million random pairs, "
        f"about {level.expected:,} in all"
    )


def _snippet(text: str | None, name: object) -> str:
    return one_line(" ".join(f"{name}: {text or ''}".split())[:SNIPPET_CHARS])


def search_text(report: "SearchReport") -> str:
    if report.out is not None:
        return f"hits of {report.num_queries:,} queries -> {report.out}"
    if not report.hits:
        return "nothing found"
    ids = [one_line(hit.id) for hit in report.hits]
    width = max(map(len, ids))
    has_rerank = report.hits[0].rerank is not None
    lines = [f"rank  cosine  {'rerank  ' * has_rerank}{'id':<{width}}  text"]
    for name, hit in zip(ids, report.hits, strict=True):
        rerank = f"{hit.rerank:6.4f}  " if hit.rerank is not None else ""
        text = "" if hit.text is None else _one_line(hit.text)
        lines.append(f"{hit.rank:4}  {hit.cos:6.4f}  {rerank}{name:<{width}}  {text}".rstrip())
    return "\n".join(lines)


def search_json(report: "SearchReport") -> str:
    if report.out is not None:
        return json.dumps({"queries": report.num_queries, "out": report.out})
    hits = [{k: v for k, v in asdict(hit).items() if v is not None} for hit in report.hits]
    return json.dumps(hits, indent=1, ensure_ascii=False, default=str)


def _one_line(text: str) -> str:
    """A text's beginning."""
    line = " ".join(text.split())
    return one_line(line if len(line) <= SNIPPET_CHARS else f"{line[:SNIPPET_CHARS]}...")


def plan_text(plan: "EmbedEstimate") -> str:
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


def demo_text(report: "DemoReport") -> str:
    after, before = list(report.scores.values())[:2]
    lines = ["", run_text(report.run), ""]
    for question, hits in report.answers.items():
        lines.append(f'"{question}"')
        lines += [f"  {cos:.3f}  {text[:SNIPPET_CHARS]}" for cos, text in hits]
    lines += [
        "",
        f"fine-tuning: nDCG@10 on held-out docstrings {before:.1f} before, {after:.1f} after",
        str(report.comparison),
        "",
        f"{report.removed:,} of {report.rows:,} docstrings are near-duplicates, each with a kept "
        f"witness; {report.seconds:,.0f} s in all",
        f"report -> {report.page}",
        f"next: edit {report.job} and run: sbert run {report.job}",
    ]
    return "\n".join(lines)


def submit_text(report: "Submitted") -> str:
    if report.exit_code is None:
        lines = [f"{word}: {command}" for word, command in report.commands.items()]
        return "\n".join([f"submitted -> {report.job_id}", *lines])
    return f"{report.job_id}: {report.reason or 'done'}"
