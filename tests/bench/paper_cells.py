"""What the tables of the paper are made with: files, models trained on the way, and cells."""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoTokenizer, BertConfig, BertModel

from pipelines.artifacts.models import demo_model_folder, resolve_model
from sbert_core.corpus.labelled import read_labelled, read_text_pairs
from sbert_core.encoder.encoder import Encoder
from sbert_core.evaluation.baselines import WordAverage
from sbert_core.evaluation.correlation import spearman
from sbert_core.evaluation.similarity import cosines

SUFFIXES = ("parquet", "csv", "tsv", "jsonl")


class Missing(Exception):
    """A file the cell needs is not there."""


class Bench:
    """Files, models trained on the way, and the cells of a table."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.data = options.data
        self.work = work
        self.seeds = options.seeds
        self.epochs = options.epochs
        self.nli_options = ("--epochs", options.nli_epochs, "--lr", options.nli_lr)
        self.pooling = options.pooling
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
        table = read_labelled(self.file(f"{folder}/{name}"))
        a, b = read_text_pairs(table, name)
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
        self, name: str, shards: Path, base: str, *options: object, is_judged: bool = True
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
        # NLI and STS share captions: what is judged by must not be learned.
        judged = sorted((self.data / "sts").glob("*_test.*")) + [self.file("sts/stsb_dev")]
        excluded = [word for path in judged for word in ("--exclude", str(path))]
        shards = self.prepared("pairs", source, *excluded)
        words = ("--objective", "softmax", *self.nli_options, *options)
        return self.trained(name, shards, self.base, *words)

    def stsb(self, base: str, name: str, *options: str) -> list[Path]:
        shards = self.prepared("scored", self.file("sts/stsb_train"), "--score-range", "0,5")
        return self.trained(name, shards, base, "--epochs", self.epochs, *options)


def scratch(folder: Path) -> str:
    """A small encoder with random weights and the tokenizer of the demo model."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=1024
    )
    BertModel(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(demo_model_folder()).save_pretrained(folder)
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
        encoder = Encoder.load(resolve_model(bench.base))
        encoder._parts.model.save_pretrained(out)
        encoder._parts.tokenizer.save_pretrained(out)
    return out


def makers(bench: Bench) -> dict:
    """What gives vectors in each row of tables 1, 2 and 5; made when first asked for."""

    def glove():  # noqa: ANN202
        words = WordAverage.load(Path(bench.file("glove", "glove_50d_subset")))
        return [words.encode]

    return {
        "average GloVe": glove,
        "average BERT": lambda: [encoder_of(plain_encoder(bench), pooling="mean")],
        "BERT CLS": lambda: [encoder_of(plain_encoder(bench), pooling="cls")],
        "SBERT-NLI": lambda: [encoder_of(folder) for folder in bench.nli()],
    }


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
