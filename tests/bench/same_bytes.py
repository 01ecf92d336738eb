"""Two versions of the commands on the same inputs: equal bytes, and the time of each.

    python tests/bench/same_bytes.py OLD NEW --texts corpus.parquet --rounds 3

OLD and NEW are `sbert` commands of two installations. Each runs all stages in the same folder, one
after the other, so that the paths in their manifests agree. Every data file must be equal by
sha256, and manifests but for the number of their format; where they differ, the keys are listed and
the exit code is 1. Times are those of the commands, the best of the rounds, and of the work alone
where a run states it.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sbert_core.corpus.docstrings import collect_docstrings, library_folders

STAGES = {
    "prepare": "prepare scored.parquet --format scored --columns a,b,score --out shards",
    "train": "train shards --base demo --objective cosine --max-length 32 --out encoder",
    "train cross": "train shards --base demo --cross-encoder --max-length 32 --out cross",
    "prepare ranking": "prepare ranking.parquet --format ranking --columns a,b --out ranking",
    "mine": "mine ranking --model demo --out mined",
    "embed": "embed corpus.parquet --model demo --carry group --out vectors",
    "embed int8": "embed corpus.parquet --model demo --dtype int8 --limit 2000 --out int8",
    "embed chunks": "embed corpus.parquet --model demo --long chunks --id content --max-length 32 "
    "--limit 500 --out chunks",
    "index hnsw": "index vectors --out hnsw",
    "index faiss": "index vectors --kind faiss:IVF64,Flat --out faiss",
    "pairs": "pairs vectors --threshold 0.8 --out pairs",
    "pairs ivf": "pairs vectors --threshold 0.8 --method ivf --recall 0.9 --out cells",
    "pairs rerank": "pairs vectors --threshold 0.9 --rerank cross --band 0.9:0.95 --out reranked",
    "top k": "pairs vectors --top-k 5 --out nearest",
    "cluster": "cluster pairs --keep longest --out clusters",
    "cluster topics": "cluster pairs --method components --topics 4 --max-cluster-share 1 "
    "--out topics",
    "apply": "apply clusters corpus.parquet --out clean",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--texts", type=Path, help="Parquet file with a column text")
    parser.add_argument("--num-texts", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    options = parser.parse_args()
    seconds: dict[str, dict[str, list[float]]] = {"old": {}, "new": {}}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_inputs(options, work)
        for _ in range(options.rounds):
            for version in ("old", "new"):
                run_stages(
                    getattr(options, version).absolute(), options.stages, work, seconds[version]
                )
                shutil.rmtree(work / version, ignore_errors=True)
                (work / "run").rename(work / version)
        is_equal = True
        for stage in options.stages:
            old, new = (min(seconds[version][stage]) for version in ("old", "new"))
            outputs = [work / version / STAGES[stage].split()[-1] for version in ("old", "new")]
            words = compare(*outputs)
            is_equal &= "DIFFER" not in words
            print(f"{stage:15} {old:7.2f} s {new:7.2f} s  x {new / old:.3f}  {words}")
    sys.exit(not is_equal)


def write_inputs(options: argparse.Namespace, work: Path) -> None:
    if options.texts is not None:
        texts = pq.read_table(options.texts, columns=["text"])["text"].to_pylist()
    else:
        texts = [row.text for row in collect_docstrings(library_folders(), options.num_texts)]
    texts = texts[: options.num_texts]
    ids = [f"r{n}" for n in range(len(texts))]
    groups = [f"g{n % 3}" for n in range(len(texts))]
    pq.write_table(pa.table({"id": ids, "text": texts, "group": groups}), work / "corpus.parquet")
    half = min(200, len(texts) // 2)
    scores = [n % 11 / 10 for n in range(half)]
    pairs = {"a": texts[:half], "b": texts[half : 2 * half], "score": scores}
    pq.write_table(pa.table(pairs), work / "scored.parquet")
    pq.write_table(pa.table(pairs).drop_columns("score"), work / "ranking.parquet")


def run_stages(sbert: Path, stages: list[str], work: Path, seconds: dict[str, list[float]]) -> None:
    run = work / "run"
    run.mkdir()
    for name in ("corpus.parquet", "scored.parquet", "ranking.parquet"):
        (run / name).symlink_to(work / name)
    for stage in stages:
        if stage == "pairs rerank" and (old := work / "old" / "cross").exists():
            # Its folder holds the times of its training, and pairs record the digest of the folder.
            shutil.rmtree(run / "cross")
            shutil.copytree(old, run / "cross")
        start = time.perf_counter()
        done = subprocess.run(
            [str(sbert), *STAGES[stage].split()], cwd=run, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{sbert} {STAGES[stage]}: {done.returncode}\n{done.stderr}")
        spent = time.perf_counter() - start
        seconds.setdefault(stage, []).append(stated(run / STAGES[stage].split()[-1]) or spent)


def stated(out: Path) -> float | None:
    """Seconds of the work itself, without the start of a process and of Ray."""
    if not (out / "_run.json").exists():
        return None
    phases = json.loads((out / "_run.json").read_text()).get("phases") or {}
    return sum(phases.values()) or None


def compare(old: Path, new: Path) -> str:
    """Words on what differs."""
    if not (old / "_manifest.json").exists() or not (new / "_manifest.json").exists():
        first, second = plain_files(old), plain_files(new)
        if not first:
            return "FILES DIFFER: there are none"
        return "equal files" if first == second else f"FILES DIFFER: {sorted(first ^ second)[:3]}"
    first, second = (json.loads((place / "_manifest.json").read_text()) for place in (old, new))
    data = [listed(first), listed(second)]
    words = "equal data" if data[0] == data[1] else "DATA DIFFERS"
    keys = [key for key in differing(first, second) if key != "format"]
    return f"{words}, {'equal manifest' if not keys else f'MANIFEST DIFFERS in {keys[:8]}'}"


def plain_files(place: Path) -> set[tuple[str, str]]:
    """Names and hashes, of outputs that are no artifact."""
    return {
        (path.relative_to(place).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in place.rglob("*")
        if path.is_file() and path.suffix in (".parquet", ".safetensors")
    }


def listed(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    files = [*manifest["files"], *manifest["quarantine"], *manifest["beside"]]
    return [(Path(file["path"]).name, file["sha256"]) for file in files]


def differing(first: Any, second: Any, place: str = "") -> list[str]:
    """Keys whose values are not equal."""
    if isinstance(first, dict) and isinstance(second, dict):
        return [
            key
            for name in sorted(first.keys() | second.keys())
            for key in differing(first.get(name), second.get(name), f"{place}.{name}".lstrip("."))
        ]
    return [] if first == second else [place]


if __name__ == "__main__":
    main()
