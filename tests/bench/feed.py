"""What it costs to feed a model: CPU time of all threads around a forward pass that costs nothing.

Run by `make bench-feed`. Texts of about 24 and 63 tokens go through `Encoder.encode_report` with a
device's token budget and a forward pass that returns zeros, and through the bare tokenizer, in
turns. A table of the best rounds goes to the terminal, everything to bench-out/feed.json.
`encode_documents` is what the embed job calls.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pyarrow.parquet as pq
import torch

from pipelines.artifacts.models import resolve_demo
from sbert_core.corpus.docstrings import collect_docstrings, library_folders
from sbert_core.encoder.batching import Batch
from sbert_core.encoder.checkpoint import read_parts
from sbert_core.encoder.device import DEFAULT_BUDGET
from sbert_core.encoder.documents import encode_documents
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.windows import WINDOW_TEXTS

LIMITS = {24: 3.0, 63: 2.4}  # CPU-seconds per million tokens, by the mean tokens of a text


class FreeEncoder(Encoder):
    """An encoder whose forward pass costs nothing."""

    @cached_property
    def zeros(self) -> torch.Tensor:
        """Vectors of the largest batch there can be."""
        return torch.zeros(self.token_budget, self.dim)

    def forward(self, batch: Batch, normalize: bool = False, num_skipped: int = 0) -> torch.Tensor:
        return self.zeros[: len(batch.rows)]


def main() -> None:
    options = parsed_options()
    encoder = FreeEncoder(
        read_parts(Path(resolve_demo(options.model)), None),
        device="cpu",
        threads=1,
        token_budget=DEFAULT_BUDGET["cuda"],
    )
    words = read_words(options)
    threads = os.environ.get("RAYON_NUM_THREADS", "all")
    print(f"{os.cpu_count()} cores, tokenizer threads: {threads}, best of {options.rounds} rounds")
    rows = [measure(encoder, words, mean, options) for mean in LIMITS]
    print(table(rows))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=2) + "\n")
    print(f"-> {options.out}")


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, help="Parquet file; docstrings by default")
    parser.add_argument("--column", default="text")
    parser.add_argument("--num-tokens", type=int, default=500_000)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("bench-out/feed.json"))
    return parser.parse_args()


def read_words(options: argparse.Namespace) -> list[str]:
    """The words of all texts, in their order."""
    if options.texts is not None:
        column = pq.read_table(options.texts, columns=[options.column])[options.column]
        texts = [text for text in column.to_pylist() if text]
    else:
        texts = [row.text for row in collect_docstrings(library_folders(), limit=20_000)]
    return " ".join(texts).split()


def measure(
    encoder: FreeEncoder, words: list[str], mean: int, options: argparse.Namespace
) -> dict[str, float]:
    """CPU-seconds per million tokens of the encoder and of its tokenizer, the best of each."""
    texts = make_texts(encoder, words, mean, options.num_tokens // mean)
    num_tokens = int(encoder.encode_report(texts).num_tokens.sum())

    def tokenize() -> None:
        for first in range(0, len(texts), WINDOW_TEXTS):
            encoder._tokenizer._fast.encode_batch_fast(texts[first : first + WINDOW_TEXTS])

    contenders = {
        "tokenizer": tokenize,
        "encoder": lambda: encoder.encode_report(texts),
        "documents": lambda: encode_documents(encoder, texts),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, work in contenders.items():
            seconds[name].append(cpu_and_wall_seconds(work))
    cpu, wall = (
        {name: min(turn[i] for turn in turns) * 1e6 / num_tokens for name, turns in seconds.items()}
        for i in (0, 1)
    )
    return {
        "mean_tokens": num_tokens / len(texts),
        "num_texts": len(texts),
        "tokenizer": cpu["tokenizer"],
        "encoder": cpu["encoder"],
        "documents": cpu["documents"],
        "around_us_per_text": (cpu["encoder"] - cpu["tokenizer"]) * num_tokens / len(texts),
        "wall": wall["encoder"],
        "limit": LIMITS[mean],
    }


def make_texts(encoder: FreeEncoder, words: list[str], mean: int, num_texts: int) -> list[str]:
    """Distinct texts of neighbouring words with `mean` tokens on average, of many lengths."""
    rng = np.random.default_rng(0)
    sample = encoder.encode_report([" ".join(words[i : i + 100]) for i in range(0, 20_000, 100)])
    tokens_per_word = (sample.num_tokens + sample.num_lost_tokens - 2).mean() / 100
    num_words = rng.gamma(4.0, (mean - 2) / tokens_per_word / 4.0, num_texts).astype(int) + 1
    first = rng.integers(0, len(words) - num_words.max(), num_texts)
    return [
        f"{' '.join(words[start : start + length])} {number}"
        for number, (start, length) in enumerate(
            zip(first.tolist(), num_words.tolist(), strict=True)
        )
    ]


def cpu_and_wall_seconds(work: Callable[[], object]) -> tuple[float, float]:
    """CPU-seconds of all threads, and seconds."""
    cpu, start = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - start


def table(rows: list[dict[str, float]]) -> str:
    """Markdown: CPU-seconds per million tokens."""
    lines = [
        "| tokens of a text | bare tokenizer | encode_report | encode_documents | at most "
        "| around the tokenizer, us per text |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row['mean_tokens']:.1f} | {row['tokenizer']:.2f} | {row['encoder']:.2f} "
        f"| {row['documents']:.2f} | {row['limit']} | {row['around_us_per_text']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
