"""Memory and planning time of the embed job as the corpus grows, with a tiny encoder.

Run by `make bench-scale`. For each number of rows a synthetic corpus is written (one row in five
repeats an earlier text), `sbert embed` runs on it in a process of its own, and the private memory
of that process and of its Ray workers is sampled from outside. `--plan` measures planning alone.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.encoders import WORDS, tiny_model, tiny_tokenizer

FILE_ROWS = 500_000
SAMPLE_SECONDS = 0.5
# How the processes of a job call themselves.
KINDS = {
    "driver": (b"driver",),
    "actor": (b"UnitEmbedder",),
    "task": (b"ray::scan", b"ray::assign", b"ray::gather", b"ray::lend", b"ray::fill"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 2_000_000])
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--unit-rows", type=int, default=16_384)
    parser.add_argument("--folder", type=Path, help="for temporary files")
    options = parser.parse_args()
    print("| rows | seconds | peak private MB: driver | embed actor | scan, lend or fill task |")
    print("|---:|---:|---:|---:|---:|")
    for num_rows in options.rows:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            work = Path(folder)
            write_corpus(work / "corpus", num_rows)
            tiny_model("bert").save_pretrained(work / "model")
            tiny_tokenizer().save_pretrained(work / "model")
            words = ["embed", work / "corpus", "--model", work / "model", "--out", work / "out"]
            words += ["--unit-rows", options.unit_rows, *(["--plan"] if options.plan else [])]
            seconds, peaks, said = watched([str(word) for word in words])
            cells = [f"{peaks[kind] / 1e6:.0f}" for kind in KINDS]
            print(f"| {num_rows:,} | {seconds:.0f} | {' | '.join(cells)} |", flush=True)
            print(said, file=sys.stderr, flush=True)


def write_corpus(folder: Path, num_rows: int) -> None:
    """Short texts, made in columns: no row of Python."""
    folder.mkdir()
    words = np.array(WORDS)
    rng = np.random.default_rng(0)
    for number, first in enumerate(range(0, num_rows, FILE_ROWS)):
        size = min(FILE_ROWS, num_rows - first)
        ids = np.arange(first, first + size)
        named = np.where(rng.random(size) < 0.2, rng.integers(0, first + size, size), ids)
        parts = [words[named * factor % len(words)] for factor in (1, 7, 31, 101)]
        text = [f"{a} {b} {c} {d} {n}" for a, b, c, d, n in zip(*parts, named, strict=True)]
        table = pa.table({"id": ids, "text": text})
        pq.write_table(table, folder / f"{number:04d}.parquet", row_group_size=100_000)


def watched(
    words: list[str], kinds: dict[str, tuple[bytes, ...]] = KINDS
) -> tuple[float, dict[str, int], str]:
    """Seconds, and the most private memory seen in any one process of each kind."""
    start = time.perf_counter()
    sbert = Path(sys.executable).parent / "sbert"
    process = subprocess.Popen([sbert, *words], stdout=subprocess.PIPE, text=True)
    peaks = dict.fromkeys(kinds, 0)
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            for pid in descendants(process.pid):
                title = b"driver" if pid == process.pid else read(pid, "cmdline")
                kind = next((k for k, own in kinds.items() if any(m in title for m in own)), None)
                if kind is not None:
                    peaks[kind] = max(peaks[kind], private_bytes(pid))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    said = process.communicate()[0]
    seconds = time.perf_counter() - start
    stop.set()
    thread.join()
    assert process.returncode == 0, "the job failed"
    return seconds, peaks, said


def descendants(root: int) -> list[int]:
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (stat := read(int(folder.name), "stat")):
            parents[int(folder.name)] = int(stat.rpartition(b")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def private_bytes(pid: int) -> int:
    lines = read(pid, "smaps_rollup").splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(b"Private_"))


def read(pid: int, name: str) -> bytes:
    try:
        return (Path("/proc") / str(pid) / name).read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
