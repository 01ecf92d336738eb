"""Vectors artifact -> lengths of its texts, and how fast they were embedded."""

from typing import Any

import numpy as np

from pipelines.artifacts.ids import read_column
from pipelines.report.sources import Found

EDGES = (0, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 8192)


def lengths_of(found: Found) -> dict[str, Any] | None:
    if found.vectors is None or "num_tokens" not in found.vectors.manifest.schema:
        return None
    tokens = read_column(found.vectors, "num_tokens").to_numpy(zero_copy_only=False)
    used = [edge for edge in EDGES if edge <= max(1, int(tokens.max(initial=0)))]
    counts = np.histogram(tokens, [*used, np.inf])[0]
    run = found.runs.get("vectors", {})
    padding = run.get("padding_avoided", 0)
    said = f"median {np.median(tokens):,.0f}, longest {tokens.max():,}"
    if padding:
        share = padding / (padding + run.get("tokens", 0))
        said += f"; padding avoided: {padding:,} tokens ({share:.0%} of plain batches of 32)"
    return {"labels": [str(edge) for edge in used], "counts": counts.tolist(), "said": said}


def throughput_of(found: Found) -> dict[str, Any] | None:
    run = found.runs.get("vectors", {})
    points = run.get("speeds") or []
    if len(points) < 2:
        return None
    said = f"{run['tokens_per_second']:,.0f} tokens/s on {run['num_actors']} actors on the whole"
    return {"points": points, "said": said}
