"""A static model's speed against its bare tokenizer and against sentence-transformers.

Run by `make bench-static FOLDER=model`. The vector of a text is an average, so that the tokenizer
takes most of the time, and nothing that uses it can be faster. All contenders take turns in every
round and use the same threads; a table goes to the terminal, everything to bench-out/static.json.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from sbert_core.corpus.docstrings import collect_docstrings, library_folders
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.static_model import StaticModel

OURS, BARE, THEIRS = "sbert-mill", "bare tokenizer", "sentence-transformers"
BATCH_SIZES = (32, 256, 2048)
TRIED_TEXTS = 4000  # to find the best batch size


def main() -> None:
    options = parsed_options()
    encoder = Encoder.load(options.model)
    if not isinstance(encoder.network["model"], StaticModel):
        raise SystemExit(f"error: {options.model} is not a static model; give the folder of one")
    texts = sample(options)
    num_tokens = int(encoder.encode_report(texts).num_tokens.sum())
    print(
        f"{len(texts)} distinct texts, {num_tokens:,} tokens, {num_tokens / len(texts):.0f} each; "
        f"{encoder.threads} threads, torch {torch.__version__}"
    )
    contenders = chosen_contenders(options.model, encoder, texts)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, run in contenders.items():
            rates[name].append(num_tokens / seconds(run, texts))
    apart = np.abs(contenders[OURS](texts) - contenders[THEIRS](texts)).max()
    print(table(rates))
    print(f"vectors differ from those of {THEIRS} by {apart:.1e}")
    facts = {"num_texts": len(texts), "num_tokens": num_tokens, "difference": float(apart)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**facts, "rates": rates}, indent=2) + "\n")
    print(f"-> {options.out}")


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder of a static model")
    parser.add_argument("--texts", type=Path, help="Parquet file; docstrings by default")
    parser.add_argument("--column", default="text")
    parser.add_argument("--num-texts", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("bench-out/static.json"))
    return parser.parse_args()


def sample(options: argparse.Namespace) -> list[str]:
    """Distinct texts, a seeded choice."""
    if options.texts is not None:
        column = pq.read_table(options.texts, columns=[options.column])[options.column]
        texts = column.to_pylist()
    else:
        texts = [row.text for row in collect_docstrings(library_folders(), limit=40_000)]
    distinct = [text for text in dict.fromkeys(texts) if text and text.strip()]
    chosen = np.random.default_rng(0).permutation(len(distinct))[: options.num_texts]
    return [distinct[row] for row in chosen]


def chosen_contenders(model: Path, encoder: Encoder, texts: list[str]) -> dict[str, Callable]:
    """Ours, the tokenizer alone, and sentence-transformers at its best batch size."""
    theirs = SentenceTransformer(str(model), device="cpu")
    [module, *_] = theirs
    tokenizer = Tokenizer.from_str(module.tokenizer.to_str())

    def embed(batch_size: int) -> Callable:
        return lambda texts: theirs.encode(
            texts, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
        )

    taken = dict.fromkeys(BATCH_SIZES, math.inf)
    for _ in range(3):
        for size in BATCH_SIZES:
            taken[size] = min(taken[size], seconds(embed(size), texts[:TRIED_TEXTS]))
    best = min(taken, key=taken.__getitem__)
    print(f"{THEIRS} at its best batch size, {best}")
    return {
        OURS: encoder.encode,
        BARE: lambda texts: tokenizer.encode_batch_fast(texts, add_special_tokens=False),
        THEIRS: embed(best),
    }


def seconds(run: Callable, texts: list[str]) -> float:
    start = time.perf_counter()
    run(texts)
    return time.perf_counter() - start


def table(rates: dict[str, list[float]]) -> str:
    """Markdown, speeds relative to ours."""
    lines = [
        "| | best tokens/s | median | ours / this: best | median of rounds |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, own in rates.items():
        ratios = [ours / this for ours, this in zip(rates[OURS], own, strict=True)]
        lines.append(
            f"| {name} | {max(own):,.0f} | {statistics.median(own):,.0f} "
            f"| {max(rates[OURS]) / max(own):.2f} | {statistics.median(ratios):.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
