"""The tables of the Sentence-BERT paper: its figure, ours and the difference, cell by cell.

    python tests/bench/paper.py --table 6 --base MODEL --data FOLDER [--seeds 3]

`--base scratch` starts from random weights (2 layers of 256), so that what is learned is learned
here. Cells whose file is missing are named, not skipped in silence; paper.md lists all files.
"""

import argparse
import json
import tempfile
import time
from itertools import combinations
from pathlib import Path

import pyarrow as pa
from paper_cells import Bench, Missing, encoder_of, makers, sbert
from paper_figures import (
    STS,
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_5,
    TABLE_6_CONCAT,
    TABLE_6_POOLING,
    TABLE_7,
    TRANSFER,
)

from pipelines.artifacts.models import resolve_model
from sbert_core.corpus.labelled import read_labelled, read_text_pairs
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder
from sbert_core.evaluation.correlation import spearman

PLAIN_BATCH = 32
COST_SENTENCES = 10_000


def table_1(bench: Bench) -> None:
    made = makers(bench)
    for row, figures in TABLE_1.items():
        for name, paper in zip(STS, figures, strict=True):
            bench.cell(row, name, paper, lambda r=row, n=name: [bench.sts(e, n) for e in made[r]()])


def table_2(bench: Bench) -> None:
    made = makers(bench)

    def cross(folders: list[Path]) -> list[float]:
        table = read_labelled(bench.file("sts/stsb_test"))
        pairs = list(zip(*read_text_pairs(table, "stsb_test"), strict=True))
        score = table["score"].to_numpy()
        return [spearman(CrossEncoder.load(folder).predict(pairs), score) for folder in folders]

    def siamese(folders: list[Path]) -> list[float]:
        return [bench.sts(encoder_of(folder), "stsb_test") for folder in folders]

    def after_nli() -> str:
        return str(bench.nli()[0].parent / "SEED")

    def cross_nli() -> str:
        shards = bench.prepared("pairs", bench.file("nli/nli_train", "nli/nli_train_small"))
        folders = bench.trained("cross-nli", shards, bench.base, "--cross-encoder", is_judged=False)
        return str(folders[0].parent / "SEED")

    cosine, crossed = ("--objective", "cosine"), ("--cross-encoder",)
    cells = {
        "SBERT-STSb": lambda: siamese(bench.stsb(bench.base, "stsb", *cosine)),
        "SBERT-NLI-STSb": lambda: siamese(bench.stsb(after_nli(), "nli-stsb", *cosine)),
        "cross-encoder STSb": lambda: cross(bench.stsb(bench.base, "cross", *crossed)),
        "cross-encoder NLI-STSb": lambda: cross(
            bench.stsb(cross_nli(), "cross-nli-stsb", *crossed)
        ),
    }
    for row, paper in TABLE_2.items():
        ours = cells.get(row) or (lambda r=row: [bench.sts(e, "stsb_test") for e in made[r]()])
        bench.cell(row, "stsb_test", paper, ours)


def table_3(bench: Bench) -> None:
    for row, paper in TABLE_3.items():
        bench.cell(row, "afs", paper, lambda: bench.sts(encoder_of(bench.base), "afs", "afs"))


def table_4(bench: Bench) -> None:
    for row, paper in TABLE_4.items():
        bench.cell(row, "wikisec_test", paper, lambda: wikisec(bench))


def wikisec(bench: Bench) -> list[float]:
    test = bench.file("wikisec/wikisec_test")
    shards = bench.prepared("triplets", bench.file("wikisec/wikisec_train"))
    folders = bench.trained("wikisec", shards, bench.base, "--objective", "triplet")
    return [evaluated(folder, "--triplets", test, "accuracy_euclidean") for folder in folders]


def evaluated(folder: Path, option: str, place: str, measure: str) -> float:
    with tempfile.TemporaryDirectory() as out:
        sbert("evaluate", folder, option, place, "--out", out)
        scores = json.loads((Path(out) / "scores.json").read_text())
    return next(s["value"] for found in scores.values() for s in found if s["measure"] == measure)


def table_5(bench: Bench) -> None:
    from pipelines.evaluate.benchmarks import read_transfer
    from workers.evaluate import score_benchmark

    tasks = {b.data: b for b in read_transfer(str(bench.data / "transfer"))}
    if (bench.data / "pairs").is_dir():
        tasks |= {b.data: b for b in read_transfer(str(bench.data / "pairs" / "mrpc_*"))}
    made = makers(bench)

    class Made:
        def __init__(self, encode) -> None:  # noqa: ANN001
            self.encode = encode

    def score(row: str, name: str) -> list[float]:
        if name not in tasks:
            raise Missing(f"transfer/{name}")
        return [next(score_benchmark(tasks[name], Made(e), None)).value for e in made[row]()]

    for row, figures in TABLE_5.items():
        for name, paper in zip(TRANSFER, figures, strict=True):
            bench.cell(row, name, paper, lambda r=row, n=name: score(r, n))


def table_6(bench: Bench) -> None:
    def dev(folders: list[Path]) -> list[float]:
        return [bench.sts(encoder_of(folder), "stsb_dev") for folder in folders]

    for pooling, paper in TABLE_6_POOLING.items():
        start = encoder_of(resolve_model(bench.base), pooling=pooling)
        bench.cell(f"untrained, pooling {pooling}", "stsb_dev", float("nan"),
                   lambda e=start: bench.sts(e, "stsb_dev"))  # fmt: skip
        bench.cell(f"pooling {pooling}", "stsb_dev", paper,
                   lambda p=pooling: dev(bench.nli("--pooling", p, name=f"nli-{p}")))  # fmt: skip
    for number, (concat, paper) in enumerate(TABLE_6_CONCAT.items()):
        name = f"nli-concat-{number}"
        bench.cell(
            f"({concat})",
            "stsb_dev",
            paper,
            lambda c=concat, n=name: dev(
                bench.nli("--pooling", bench.pooling, "--concat", c, name=n)
            ),
        )


def table_7(bench: Bench) -> None:
    """Sentences per second, and what all pairs of n sentences cost."""
    from sentence_transformers import SentenceTransformer

    table = read_labelled(bench.file("sts/stsb_test"))
    texts = list(dict.fromkeys(sum(read_text_pairs(table, "stsb_test"), [])))
    theirs = SentenceTransformer(resolve_model(bench.base), device="cpu")
    chunks = [texts[i : i + PLAIN_BATCH] for i in range(0, len(texts), PLAIN_BATCH)]

    def plain() -> float:
        return len(texts) / timed(
            lambda: [theirs.encode(c, batch_size=PLAIN_BATCH) for c in chunks]
        )

    encoder = Encoder.load(resolve_model(bench.base))
    bench.cell("plain batches", "sentences/s", TABLE_7["plain batches"], plain)
    bench.cell("length-sorted batches", "sentences/s", TABLE_7["length-sorted batches"],
               lambda: len(texts) / timed(lambda: encoder.encode(texts)))  # fmt: skip
    cross = CrossEncoder.load(resolve_model(bench.base), num_outputs=1)
    pairs = list(combinations(texts[:32], 2))
    per_pair = timed(lambda: cross.predict(pairs)) / len(pairs)
    per_text = timed(lambda: encoder.encode(texts)) / len(texts)
    num_pairs = COST_SENTENCES * (COST_SENTENCES - 1) // 2
    print(f"\nall pairs of {COST_SENTENCES:,} sentences, extrapolated from {len(pairs)} pairs and "
          f"{len(texts)} sentences measured here:")  # fmt: skip
    print(f"  cross-encoder  {num_pairs:,} pairs   {num_pairs * per_pair / 3600:,.1f} h")
    print(f"  encoder        {COST_SENTENCES:,} sentences   {COST_SENTENCES * per_text:,.1f} s")


def timed(call) -> float:  # noqa: ANN001
    call()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


TABLES = {1: table_1, 2: table_2, 3: table_3, 4: table_4, 5: table_5, 6: table_6, 7: table_7}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=int, choices=TABLES, required=True)
    parser.add_argument("--base", default="demo", help="encoder to start from, or scratch")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4, help="of training on STSb")
    parser.add_argument("--nli-epochs", type=int, default=1)
    parser.add_argument("--nli-lr", type=float, default=2e-5)
    parser.add_argument("--pooling", default="mean", help="under the concatenations of table 6")
    parser.add_argument("--work", type=Path, help="folder for models; kept, and taken up again")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    pa.set_cpu_count(2)
    print("| row | data | paper | here | difference |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, (options.work or Path(folder)).absolute())
        bench.work.mkdir(parents=True, exist_ok=True)
        TABLES[options.table](bench)
        if options.out is not None:
            options.out.write_text(json.dumps(bench.rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
