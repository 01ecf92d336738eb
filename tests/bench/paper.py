"""The tables of the Sentence-BERT paper: its figure, ours and the difference, cell by cell.

    python tests/bench/paper.py --table 6 --base MODEL --data FOLDER [--seeds 3]

`--base scratch` starts from random weights (4 layers of 256), so that what is learned is learned
here. Cells whose file is missing are named, not skipped in silence; paper.md lists all files.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
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
from transformers import AutoTokenizer, BertConfig, BertModel

from pipelines.labelled import table_of, text_pair
from pipelines.models import demo_model, local_model
from sbert_core.encoder import Encoder
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.evaluation.correlation import spearman
from sbert_core.evaluation.similarity import cosines

SUFFIXES = ("parquet", "csv", "tsv", "jsonl")
PLAIN_BATCH = 32
COST_SENTENCES = 10_000


class Missing(Exception):
    """A file the cell needs is not there."""


class Bench:
    """Files, models trained on the way, and the cells of a table."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.data = options.data
        self.work = work
        self.seeds = options.seeds
        self.epochs = options.epochs
        self.rows: list[dict] = []
        self.base = scratch(work / "scratch") if options.base == "scratch" else options.base

    def file(self, *names: str) -> str:
        """The first of some files that is there, whatever its format."""
        for name in names:
            for suffix in SUFFIXES:
                if (path := self.data / f"{name}.{suffix}").is_file():
                    return str(path)
        raise Missing(f"{names[0]}.{SUFFIXES[0]}")

    def cell(self, row: str, column: str, paper: float, ours) -> None:  # noqa: ANN001
        """Run one cell; `ours` gives a number, or several to take the mean of."""
        try:
            values = np.atleast_1d(np.asarray(ours(), float))
        except Missing as missing:
            self.rows.append(
                {"row": row, "column": column, "paper": paper, "missing": str(missing)}
            )
        else:
            self.rows.append(
                {"row": row, "column": column, "paper": paper, "ours": values.tolist()}
            )
        print(line(self.rows[-1]), flush=True)

    def sts(self, encode, name: str, folder: str = "sts") -> float:  # noqa: ANN001
        table = table_of(self.file(f"{folder}/{name}"))
        a, b = text_pair(table, name)
        score = table["relatedness" if "relatedness" in table.column_names else "score"]
        vectors = encode([*a, *b])
        return spearman(cosines(vectors[: len(a)], vectors[len(a) :]), score.to_numpy())

    # -- training --------------------------------------------------------------------------------

    def prepared(self, kind: str, source: str, *options: str) -> Path:
        out = self.work / f"{Path(source).stem}-{kind}"
        if not out.exists():
            sbert("prepare", source, "--out", out, "--format", kind, *options)
        return out

    def trained(
        self, name: str, shards: Path, base: str, *options: str, is_judged: bool = True
    ) -> list[Path]:
        """One encoder per seed; dev chooses the epoch."""
        found = []
        for seed in range(self.seeds):
            out = self.work / name / f"seed-{seed}"
            here = base.replace("SEED", f"seed-{seed}")
            if not out.exists():
                judge = ("--eval", self.file("sts/stsb_dev")) if is_judged else ()
                words = ["--base", here, "--out", out, "--seed", seed, *judge, *options]
                sbert("train", shards, *words)
            found.append(out)
        return found

    def nli(self, *options: str, name: str = "nli") -> list[Path]:
        source = self.file("nli/nli_train", "nli/nli_train_small")
        shards = self.prepared("pairs", source)
        return self.trained(name, shards, self.base, "--objective", "softmax", *options)

    def stsb(self, base: str, name: str, *options: str) -> list[Path]:
        shards = self.prepared("scored", self.file("sts/stsb_train"), "--score-range", "0,5")
        return self.trained(name, shards, base, "--epochs", self.epochs, *options)


def scratch(folder: Path) -> str:
    """A small encoder with random weights and the tokenizer of the demo model."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    )
    BertModel(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(demo_model()).save_pretrained(folder)
    return str(folder)


def sbert(*words: object) -> None:
    command = [str(Path(sys.executable).parent / "sbert"), *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def encoder_of(folder: str | Path, **options):  # noqa: ANN003, ANN201
    encoder = Encoder.load(folder, **options)
    return lambda texts: encoder.encode(texts, normalize=False)


def plain_encoder(bench: Bench) -> Path:
    """The base without the pooling of its own, so that another can be put on it."""
    out = bench.work / "plain"
    if not out.exists():
        encoder = Encoder.load(local_model(bench.base))
        encoder._parts.model.save_pretrained(out)
        encoder._parts.tokenizer.save_pretrained(out)
    return out


def makers(bench: Bench) -> dict:
    """What gives vectors in each row of tables 1, 2 and 5; made when first asked for."""
    from sbert_core.evaluation.baselines import WordAverage

    def glove():  # noqa: ANN202
        words = WordAverage.load(Path(bench.file("glove", "glove_50d_subset")))
        return [words.encode]

    return {
        "average GloVe": glove,
        "average BERT": lambda: [encoder_of(plain_encoder(bench), pooling="mean")],
        "BERT CLS": lambda: [encoder_of(plain_encoder(bench), pooling="cls")],
        "SBERT-NLI": lambda: [encoder_of(folder) for folder in bench.nli()],
    }


def table_1(bench: Bench) -> None:
    made = makers(bench)
    for row, figures in TABLE_1.items():
        for name, paper in zip(STS, figures, strict=True):
            bench.cell(row, name, paper, lambda r=row, n=name: [bench.sts(e, n) for e in made[r]()])


def table_2(bench: Bench) -> None:
    made = makers(bench)

    def cross(folders: list[Path]) -> list[float]:
        table = table_of(bench.file("sts/stsb_test"))
        pairs = list(zip(*text_pair(table, "stsb_test"), strict=True))
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
    from pipelines.evaluate import _transfer
    from workers.judge import TASKS

    tasks = {b.data: b for b in _transfer(str(bench.data / "transfer"))}
    if (bench.data / "pairs").is_dir():
        tasks |= {b.data: b for b in _transfer(str(bench.data / "pairs" / "mrpc_*"))}
    made = makers(bench)

    class Made:
        def __init__(self, encode) -> None:  # noqa: ANN001
            self.encode = encode

    def score(row: str, name: str) -> list[float]:
        if name not in tasks:
            raise Missing(f"transfer/{name}")
        return [next(TASKS["transfer"](tasks[name], Made(e), None)).value for e in made[row]()]

    for row, figures in TABLE_5.items():
        for name, paper in zip(TRANSFER, figures, strict=True):
            bench.cell(row, name, paper, lambda r=row, n=name: score(r, n))


def table_6(bench: Bench) -> None:
    def dev(folders: list[Path]) -> list[float]:
        return [bench.sts(encoder_of(folder), "stsb_dev") for folder in folders]

    start = encoder_of(local_model(bench.base))
    bench.cell("untrained", "stsb_dev", float("nan"), lambda: bench.sts(start, "stsb_dev"))
    for pooling, paper in TABLE_6_POOLING.items():
        bench.cell(f"pooling {pooling}", "stsb_dev", paper,
                   lambda p=pooling: dev(bench.nli("--pooling", p, name=f"nli-{p}")))  # fmt: skip
    for number, (concat, paper) in enumerate(TABLE_6_CONCAT.items()):
        name = f"nli-concat-{number}"
        bench.cell(
            f"({concat})",
            "stsb_dev",
            paper,
            lambda c=concat, n=name: dev(bench.nli("--concat", c, name=n)),
        )


def table_7(bench: Bench) -> None:
    """Sentences per second, and what all pairs of n sentences cost."""
    from sentence_transformers import SentenceTransformer

    table = table_of(bench.file("sts/stsb_test"))
    texts = list(dict.fromkeys(sum(text_pair(table, "stsb_test"), [])))
    theirs = SentenceTransformer(local_model(bench.base), device="cpu")
    chunks = [texts[i : i + PLAIN_BATCH] for i in range(0, len(texts), PLAIN_BATCH)]

    def plain() -> float:
        return len(texts) / timed(
            lambda: [theirs.encode(c, batch_size=PLAIN_BATCH) for c in chunks]
        )

    encoder = Encoder.load(local_model(bench.base))
    bench.cell("plain batches", "sentences/s", TABLE_7["plain batches"], plain)
    bench.cell("length-sorted batches", "sentences/s", TABLE_7["length-sorted batches"],
               lambda: len(texts) / timed(lambda: encoder.encode(texts)))  # fmt: skip
    cross = CrossEncoder.load(local_model(bench.base), num_outputs=1)
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


def line(row: dict) -> str:
    if "missing" in row:
        return f"| {row['row']} | {row['column']} | {row['paper']} | not run: {row['missing']} | |"
    values = row["ours"]
    mean = statistics.fmean(values)
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    gap = mean - row["paper"]
    return (
        f"| {row['row']} | {row['column']} | {row['paper']:.2f} | {mean:.2f}{spread} | {gap:+.2f} |"
    )


TABLES = {1: table_1, 2: table_2, 3: table_3, 4: table_4, 5: table_5, 6: table_6, 7: table_7}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=int, choices=TABLES, required=True)
    parser.add_argument("--base", default="demo", help="encoder to start from, or scratch")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4, help="of training on STSb")
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
