"""Estimate what a run would do and how long it would take: `--plan`."""

import time
from dataclasses import dataclass

import numpy as np

from pipelines.embed.sample import sample_texts
from pipelines.embed.scan import ScanResult
from pipelines.runtime.session import num_cores

SAMPLE_TEXTS = 512
# A whole job differs from a measurement on a few texts by start-up, luck and other users.
RANGE = (0.8, 1.6)
ROW_BYTES = 60  # id, hash and counts beside the vector


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedEstimate:
    """What a run would do. seconds: from and to; bytes_out: size of the vectors."""

    files: int
    units: int
    rows: int
    distinct: int
    reused: int
    to_embed: int
    tokens: int
    seconds: tuple[float, ...]
    actors: int
    bytes_out: int


def estimate_embed(scan: ScanResult) -> EmbedEstimate:
    """Measure the model on a sample of texts and extrapolate to the scanned corpus."""
    model, spec, counts = scan.identity.model, scan.identity.spec, scan.counts
    texts = sample_texts(scan.identity, scan.plan, scan.plan.new_units, SAMPLE_TEXTS)
    num_chars = sum(len(text) for text in texts if isinstance(text, str))
    start = time.perf_counter()
    tokens = int(model.encode(texts).num_tokens.sum())
    speed = tokens / (time.perf_counter() - start)
    to_embed = sum(counts.own_chars.values()) * tokens / max(1, num_chars)
    row_bytes = model.dim * np.dtype(spec.dtype).itemsize + ROW_BYTES
    return EmbedEstimate(
        files=len(scan.plan.files),
        units=len(scan.plan.units),
        rows=scan.num_rows_in,
        distinct=counts.num_distinct,
        reused=counts.num_reused + scan.plan.num_linked_rows,
        to_embed=sum(counts.own_rows.values()),
        tokens=round(to_embed),
        seconds=tuple(to_embed / max(1.0, speed) * share for share in RANGE),
        actors=spec.actors or num_cores(),
        bytes_out=scan.num_rows_in * row_bytes,
    )
