"""How the artifacts in this folder were made: by the commands of commit 18f8697.

    git clone . /tmp/old && cd /tmp/old && git checkout 18f8697 && make install
    PYTHONPATH=tests python tests/support/old/make.py /tmp/old/.venv/bin/sbert

Identities hold the whole path of a corpus and the modification times of its files, so everything is
made in PLACE, with the time MODIFIED on every input; a test lays a copy there again. Written once:
artifacts made by a later commit would show nothing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from support.encoders import WORDS, tiny_model, tiny_tokenizer

PLACE = Path("/tmp/sbert-mill-old")
MODIFIED = 1_700_000_000  # seconds; whole ones survive every file system
INPUTS = ("corpus", "notes.csv", "scored.csv", "ranking.csv", "model")
COMMANDS = {
    "shards": "prepare scored.csv --format scored --columns a,b,score --dev-fraction 0.2 "
    "--shards 2 --out shards",
    "ranking": "prepare ranking.csv --format ranking --columns query,answer --shards 2 "
    "--out ranking",
    "mined": "mine ranking --model model --margin 0 --ceiling 0.999 --out mined",
    "encoder": "train shards --base model --objective cosine --out encoder",
    "cross": "train shards --base model --cross-encoder --out cross",
    "vectors": "embed corpus --model model --carry group --out vectors",
    "int8": "embed corpus --model model --dtype int8 --out int8",
    "template": "embed corpus --model encoder --text '{group}: {text}' --dtype float16 "
    "--where 'year >= 2001' --out template",
    "content": "embed notes.csv --model model --id content --out content",
    "chunks": "embed notes.csv --model model --long chunks --max-length 16 --out chunks",
    "hnsw": "index vectors --out hnsw",
    "faiss": "index vectors --kind faiss:IVF2,Flat --out faiss",
    "pairs": "pairs vectors --threshold 0.98 --rerank cross --band 0.98:0.99 --out pairs",
    "nearest": "pairs vectors --top-k 2 --out nearest",
    "cells": "pairs vectors --threshold 0.98 --method ivf --recall 0.9 --out cells",
    "between": "pairs vectors --against int8 --threshold 0.99 --out between",
    "clusters": "cluster pairs --keep 'group=b>a,longest' --out clusters",
    "topics": "cluster cells --threshold 0.98 --threshold 0.99 --method components --topics 2 "
    "--max-cluster-share 1 --out topics",
    "clean": "apply clusters corpus --out clean",
}


def sentence(number: int, length: int) -> str:
    """Words that depend on the number alone."""
    return " ".join(
        WORDS[(number * 7 + word * (number % 5 + 3)) % len(WORDS)] for word in range(length)
    )


def write_inputs(place: Path, model: Path) -> None:
    """A corpus with repeats, near-duplicates and a row without text; labelled pairs; an encoder."""
    texts: list[str | None] = [sentence(number, 5 + number % 9) for number in range(36)]
    texts[7] = texts[3]
    texts[20] = f"{texts[4]} so"
    texts[30] = f"{texts[4]} like"
    texts[11] = None
    (place / "corpus" / "lang=en").mkdir(parents=True)
    for name, first, last in (("corpus/lang=en/a.parquet", 0, 20), ("corpus/b.parquet", 20, 36)):
        rows = range(first, last)
        columns = {
            "id": [f"r{number:02d}" for number in rows],
            "text": texts[first:last],
            "group": ["ab"[number % 2] for number in rows],
            "year": [2000 + number % 4 for number in rows],
        }
        pq.write_table(pa.table(columns), place / name)
    notes = [sentence(number, 30 if number % 6 == 0 else 8) for number in range(18)]
    notes[9] = notes[2]
    pa_csv.write_csv(pa.table({"text": notes}), place / "notes.csv")
    left = [sentence(number, 6) for number in range(40)]
    right = [sentence(number + number % 3, 6) for number in range(40)]
    scores = [round(1 - number % 3 / 2, 1) for number in range(40)]
    pa_csv.write_csv(pa.table({"a": left, "b": right, "score": scores}), place / "scored.csv")
    answers = [f"{text} would write" for text in left]
    ranking = pa.table({"query": left[:16], "answer": answers[:16]})
    pa_csv.write_csv(ranking, place / "ranking.csv")
    shutil.copytree(model, place / "model")


def set_times(place: Path) -> None:
    """The same time of modification on every input, wherever it was copied to."""
    for name in INPUTS:
        for path in [place / name, *(place / name).rglob("*")]:
            os.utime(path, (MODIFIED, MODIFIED))


def main() -> None:
    """Write the inputs and run every command; copy what came out beside this script."""
    sbert, here = sys.argv[1], Path(__file__).parent
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    tiny_model("bert").save_pretrained(PLACE / "plain")
    tiny_tokenizer().save_pretrained(PLACE / "plain")
    write_inputs(PLACE, PLACE / "plain")
    shutil.rmtree(PLACE / "plain")
    set_times(PLACE)
    for command in COMMANDS.values():
        subprocess.run(f"{sbert} {command}", shell=True, cwd=PLACE, check=True)
    shutil.copytree(PLACE, here / "made", dirs_exist_ok=True)


if __name__ == "__main__":
    main()
