"""A transcript: embed, kill -9 in the middle, the same command again, sha256 of everything.

Run by `make bench-kill`.
"""

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.reader import Artifact
from sbert_core.corpus.docstrings import collect_docstrings, library_folders

SBERT = Path(sys.executable).parent / "sbert"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--texts", type=int, default=1500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = collect_docstrings(library_folders(), options.texts)
        table = pa.table({"id": [row.id for row in rows], "text": [row.text for row in rows]})
        pq.write_table(table, folder / "corpus.parquet")
        command = "sbert embed corpus.parquet --model demo --unit-rows 128 --out {}/"
        say(command.format("undisturbed"))
        embedded(folder, "undisturbed").wait()
        say(command.format("killed") + " &")
        job = embedded(folder, "killed")
        while not list((folder / "killed").glob("_work/*/stash/*")) and job.poll() is None:
            time.sleep(0.2)
        say("kill -9 $!")
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        say(command.format("killed"))
        done = embedded(folder, "killed")
        print(done.communicate()[0].strip(), flush=True)
        hashes = {}
        for out in ("undisturbed", "killed"):
            say(f"cat {out}/_manifest.json {out}/data/*/* | sha256sum")
            hashes[out] = published(folder / out)
            print(hashes[out])
        assert len(set(hashes.values())) == 1, "the bytes differ"


def say(command: str) -> None:
    print(f"$ {command}", flush=True)


def embedded(folder: Path, out: str) -> subprocess.Popen[str]:
    words = ["embed", "corpus.parquet", "--model", "demo", "--unit-rows", "128", "--out", out]
    return subprocess.Popen(
        [SBERT, *words], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )


def published(out: Path) -> str:
    total = hashlib.sha256((out / "_manifest.json").read_bytes())
    for file in sorted(Artifact.open(out).manifest.listed, key=lambda own: own.path):
        total.update((out / file.path).read_bytes())
    return total.hexdigest()


if __name__ == "__main__":
    main()
