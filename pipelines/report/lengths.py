"""Vectors artifact -> lengths of its texts, and how fast they were embedded."""

import numpy as np

from pipelines.artifacts.ids import read_column
from pipelines.report.sources import ReportSources
from sbert_core.report.facts import LengthHistogram, Throughput

EDGES = (0, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 8192)


def make_length_histogram(found: ReportSources) -> LengthHistogram | None:
    """Texts by number of tokens; None without vectors, or if they do not state it."""
    if found.vectors is None or "num_tokens" not in found.vectors.manifest.schema:
        return None
    tokens = read_column(found.vectors, "num_tokens").to_numpy(zero_copy_only=False)
    used = [edge for edge in EDGES if edge <= max(1, int(tokens.max(initial=0)))]
    counts = np.histogram(tokens, [*used, np.inf])[0]
    run = found.vectors_run
    note = f"median {np.median(tokens):,.0f}, longest {tokens.max():,}"
    if padding := run.padding_avoided:
        share = padding / (padding + run.tokens)
        note += f"; padding avoided: {padding:,} tokens ({share:.0%} of plain batches of 32)"
    return LengthHistogram(
        labels=tuple(str(edge) for edge in used), counts=tuple(counts.tolist()), note=note
    )


def make_throughput(found: ReportSources) -> Throughput | None:
    """Tokens per second over the run; None if fewer than two points were recorded."""
    run = found.vectors_run
    if len(run.speeds) < 2:
        return None
    note = f"{run.tokens_per_second:,.0f} tokens/s on {run.num_actors} actors on the whole"
    return Throughput(points=run.speeds, note=note)
