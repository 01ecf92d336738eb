"""Reports of jobs -> the words a user reads at the end."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.demo import DemoReport
    from pipelines.embedding.estimate import EmbedEstimate
    from pipelines.embedding.summary import EmbedReport
    from pipelines.prepare import PrepareReport
    from pipelines.train import TrainReport

SNIPPET_CHARS = 80


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
    unsorted, by_length = report.padding_shares
    lines = [
        "",
        f"{report.num_rows:,} docstrings, {report.num_distinct:,} distinct, "
        f"{report.num_tokens:,} tokens, {report.num_truncated:,} texts truncated",
        f"throughput       {report.tokens_per_second:,.0f} tokens/s on {report.num_actors} "
        f"actors in {report.seconds:.1f} s",
        f"repeats          {report.num_tokens_saved:,} tokens saved ({report.saved_share:.1%}): "
        "each distinct text is encoded once",
        f"padding avoided  {report.num_padding_unsorted:,} tokens ({unsorted:.0%} of plain "
        f"batches of 32; {by_length:.0%} if those are sorted by length)",
        "",
        f"the {len(report.pairs)} most similar texts that are not the same:",
    ]
    for pair in report.pairs:
        text_a, text_b = _differing_snippets(pair.text_a, pair.text_b)
        lines += [
            f"  {pair.cos:.4f}  {text_a}  [{pair.id_a}]",
            f"          {text_b}  [{pair.id_b}]",
        ]
    return "\n".join([*lines, "", f"report -> {report.path}"])


def _differing_snippets(text_a: str, text_b: str) -> tuple[str, str]:
    """One line of each text around the first place where they differ."""
    line_a, line_b = " ".join(text_a.split()), " ".join(text_b.split())
    num_common = len(os.path.commonprefix([line_a, line_b]))
    start = max(0, num_common - SNIPPET_CHARS // 2)

    def snippet(line: str) -> str:
        end = start + SNIPPET_CHARS
        return f"{'...' * (start > 0)}{line[start:end]}{'...' * (end < len(line))}"

    return snippet(line_a), snippet(line_b)
