"""Embed in a loop for half an hour: memory of driver and head, processes and files must stay flat.

    python tests/chaos/soak.py [--seconds 1800]       `make soak`

One process is the driver of every run and stays connected, as a notebook or a service would (each
time it connects anew Ray keeps a socket open). The corpus changes each time, so every run scans,
embeds, fills and publishes. The first fifth is warming up; after it nothing may grow by more than
the stated amounts.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from ray.cluster_utils import Cluster
from support.embedding import embed, rows_of, sentences, write_corpus
from support.encoders import tiny_model, tiny_tokenizer
from support.kills import descendants

from pipelines.runtime.session import job_session

MOST_GROWN_MB = {"driver": 20.0, "gcs": 10.0, "raylet": 10.0}
# The head remembers 100,000 dead actors and tasks by itself; so few that half an hour fills them.
FORGETFUL = {
    "RAY_maximum_gcs_destroyed_actor_cached_count": "50",
    "RAY_task_events_max_num_task_in_gcs": "500",
}
KEPT_ROUNDS = 3  # corpora of this many rounds come back, so old vectors are reused too


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0)
    options = parser.parse_args()
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ.update(FORGETFUL)
    node = {"num_cpus": 2, "object_store_memory": 150 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        with tempfile.TemporaryDirectory() as folder, job_session(folder, cluster.address):
            rounds = soaked(cluster, Path(folder), options.seconds)
    finally:
        cluster.shutdown()
    sys.exit(0 if judged(rounds) else 1)


def soaked(cluster: Cluster, folder: Path, seconds: float) -> list[dict[str, float]]:
    model = folder / "model"
    tiny_model("bert").save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    [head] = cluster.list_all_nodes()
    ids = {
        name: head.all_processes[kind][0].process.pid
        for name, kind in (("gcs", "gcs_server"), ("raylet", "raylet"))
    }
    rounds: list[dict[str, float]] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        texts = sentences(800, seed=len(rounds) % KEPT_ROUNDS) + sentences(50, seed=len(rounds))
        corpus = write_corpus(folder / "in", {"x.parquet": rows_of(texts)})
        report = embed(corpus, folder / "out", model, unit_rows=128, address=cluster.address)
        assert report.rows == 850
        rounds.append(
            {
                "seconds": time.monotonic() - began,
                "driver": megabytes(os.getpid()),
                **{name: megabytes(pid) for name, pid in ids.items()},
                "processes": len(descendants([os.getpid(), *ids.values()])),
                "files": sum(1 for path in (folder / "out").rglob("*") if path.is_file()),
                "handles": len(os.listdir("/proc/self/fd")),
            }
        )
        if len(rounds) % 10 == 0:
            print({name: round(value, 1) for name, value in rounds[-1].items()}, flush=True)
    return rounds


def megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty"):
            return int(line.split()[1]) / 1024
    return 0.0


def judged(rounds: list[dict[str, float]]) -> bool:
    """Compare the last fifth with the second."""
    fifth = max(1, len(rounds) // 5)
    early, late = rounds[fifth : 2 * fifth], rounds[-fifth:]
    is_flat = True
    print(f"{len(rounds)} runs in {rounds[-1]['seconds']:,.0f} s")
    print("| | early | late | allowed |\n|---|---:|---:|---:|")
    for name in ("driver", "gcs", "raylet", "processes", "files", "handles"):
        before, after = (statistics.median(r[name] for r in some) for some in (early, late))
        most = MOST_GROWN_MB.get(name, 3.0)
        is_flat &= after - before <= most
        unit = " MB" if name in MOST_GROWN_MB else ""
        print(f"| {name} | {before:,.1f}{unit} | {after:,.1f}{unit} | + {most:g} |")
    print("flat" if is_flat else "something grows")
    return is_flat


if __name__ == "__main__":
    main()
