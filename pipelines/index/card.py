"""The index card: what the index holds, what it misses, how fast it is."""

import math
from typing import Any

import numpy as np

FAR_ROWS = 40_000_000
FAR_SHARD_ROWS = 1_000_000


def card_of(facts: dict[str, Any], measures: list[dict[str, Any]], seconds: float) -> dict:
    """facts: those of the manifest. Times are of this machine, one thread, ten hits."""
    effort = facts["search"]["effort"]
    speeds = [measure["speed"][str(effort)] for measure in measures]
    batch = sum(speed["batch"] for speed in speeds)
    length = min(len(speed["single"]) for speed in speeds)
    single = np.sum([speed["single"][:length] for speed in speeds], axis=0) * 1000
    p50, p99 = (float(np.percentile(single, p)) for p in (50, 99))
    factor, how = _growth(facts)
    return {
        **facts,
        "build_seconds": round(seconds, 2),
        "queries_per_second": round(1 / batch, 1) if batch else None,
        "single_query_ms": {"p50": p50, "p99": p99, "rows": facts["rows"]},
        "extrapolated_query_ms": {
            "p50": p50 * factor,
            "p99": p99 * factor,
            "rows": FAR_ROWS,
            "how": how,
        },
    }


def _growth(facts: dict[str, Any]) -> tuple[float, str]:
    """How much longer a search takes among 40M rows."""
    rows, shards = max(2, facts["rows"]), max(1, facts["shards"])
    if facts["kind"] != "hnsw":
        return FAR_ROWS / rows, "not measured: time grows with the rows"
    far_shards = FAR_ROWS // FAR_SHARD_ROWS
    depth = math.log(FAR_SHARD_ROWS) / math.log(max(2, rows / shards))
    return (
        far_shards / shards * max(1.0, depth),
        f"not measured: {far_shards} shards of 1M rows one after another on one thread, each "
        "slower than here by the logarithm of its rows",
    )
