"""Progress of a job as Ray metrics, which Prometheus scrapes on every node with the prefix `ray_`.

The driver sets all of them, since it sees the whole job; an embedded Ray exports none.
`deploy/README.md` describes alerts and a dashboard.
"""

import threading
import time
from functools import cache

from ray.util.metrics import Gauge

from pipelines.runtime.logs import run_id
from pipelines.runtime.session import is_connected, is_embedded
from workers.common.memory import private_bytes

METRICS = {
    "sbert_rows_total": "Rows (or pairs) done in this run of the stage.",
    "sbert_tokens_total": "Tokens that passed the model in this run of the stage.",
    "sbert_tokens_per_second": "Tokens per second since the first work was seen.",
    "sbert_actor_busy_share": "Share of the actors' time in which their model was at work.",
    "sbert_queue_depth": "Units that no worker has begun.",
    "sbert_quarantined_rows_total": "Rows that were put aside in this run.",
    "sbert_units_done": "Units done in this run of the stage.",
    "sbert_units_total": "Units this run of the stage has to do.",
    "sbert_retries_total": "Units that were begun again after the death of a worker.",
    "sbert_driver_private_bytes": "Private memory of the driver.",
    "sbert_stage_seconds": "Seconds since the stage began its work.",
}
PREFIX = "sbert_"
BEAT_SECONDS = 5.0  # Ray 2.60 drops a series 15 s after it was last set; a unit may take minutes
_last: dict[str, dict[str, float]] = {}  # by stage
_beating = threading.Lock()


def observe(stage: str, **values: float) -> None:
    """Set metrics of a stage, by their names without the prefix; they stay until the job ends."""
    if not _is_exported():
        return
    _last.setdefault(stage, {}).update(values)
    _set(stage)
    if _beating.acquire(blocking=False):
        threading.Thread(target=_beat, daemon=True, name="metrics").start()


def _beat() -> None:
    """Export the last values again every 5 s: Ray drops a series after 15 s."""
    time.sleep(BEAT_SECONDS)
    while _is_exported():
        for stage in list(_last):
            _set(stage)
        time.sleep(BEAT_SECONDS)
    _last.clear()
    _beating.release()


def _is_exported() -> bool:
    return is_connected() and not is_embedded()


def _set(stage: str) -> None:
    values = {**_last.get(stage, {}), "driver_private_bytes": private_bytes()}
    for name, value in values.items():
        _gauge(f"{PREFIX}{name}").set(float(value), tags={"stage": stage, "run": run_id()})


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(name, description=METRICS[name], tag_keys=("stage", "run"))
