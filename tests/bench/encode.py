"""Encoder speed against its peers and against what the processor could do at best.

Run by `make bench`; `make bench-peers` adds ONNX Runtime and OpenVINO. All contenders take turns
in every round, since a shared machine's speed drifts; a table of best and median goes to the
terminal, everything to bench-out/encode.json.
"""

import argparse
import importlib.util
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import peers
import pyarrow.parquet as pq
import torch
from peer_graphs import Graphs

from pipelines.artifacts.models import resolve_demo
from sbert_core.corpus.docstrings import collect_docstrings, library_folders
from sbert_core.encoder.encoder import Encoder

DEFAULT_BATCH_SIZE = 32
LIMIT_ROWS = (512, 1024, 2048)


def main() -> None:
    options = parsed_options()
    model = Path(resolve_demo(options.model))
    encoder = Encoder.load(model)
    peers.silence_libraries()
    texts = sample(options)
    lengths = encoder.encode_report(texts).num_tokens
    num_tokens = int(lengths.sum())
    print(
        f"{len(texts)} distinct texts, {num_tokens:,} tokens, mean {lengths.mean():.0f}, "
        f"median {np.median(lengths):.0f}, longest {lengths.max()}; "
        f"{encoder.threads} threads, torch {torch.__version__}"
    )
    contenders = chosen_contenders(model, encoder, texts, num_tokens)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(1, options.rounds + 1):
        for name, embed in contenders.items():
            rates[name].append(num_tokens / seconds(embed, texts))
        print(f"round {round_number} of {options.rounds} done", flush=True)
    vectors = {name: embed(texts) for name, embed in contenders.items()}
    rows = [
        {
            "name": name,
            "best": max(rates[name]),
            "median": statistics.median(rates[name]),
            "rates": rates[name],
            "largest_difference": largest_difference(vectors["sbert-mill"], vectors[name]),
        }
        for name in contenders
    ]
    print(table(rows))
    facts = {"num_texts": len(texts), "num_tokens": num_tokens, "threads": encoder.threads}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**facts, "contenders": rows}, indent=2) + "\n")
    print(f"-> {options.out}")


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, help="Parquet file; docstrings by default")
    parser.add_argument("--column", default="text")
    parser.add_argument("--num-texts", type=int, default=800)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("bench-out/encode.json"))
    return parser.parse_args()


def sample(options: argparse.Namespace) -> list[str]:
    """Distinct texts, a seeded choice."""
    if options.texts is not None:
        column = pq.read_table(options.texts, columns=[options.column])[options.column]
        texts = column.to_pylist()
    else:
        texts = [row.text for row in collect_docstrings(library_folders(), limit=8000)]
    distinct = [text for text in dict.fromkeys(texts) if text and text.strip()]
    chosen = np.random.default_rng(0).permutation(len(distinct))[: options.num_texts]
    return [distinct[row] for row in chosen]


def chosen_contenders(
    model: Path, encoder: Encoder, texts: list[str], num_tokens: int
) -> dict[str, Callable]:
    """Ours, each installed peer at its best batch size, and the bare matrix products."""
    contenders: dict[str, Callable] = {"sbert-mill": encoder.encode}
    theirs = peers.sentence_transformers(model)
    contenders[f"sentence-transformers, batch {DEFAULT_BATCH_SIZE} (default)"] = theirs[
        DEFAULT_BATCH_SIZE
    ]
    found = {"sentence-transformers": theirs}
    graphs = Graphs(model=model, folder=Path(tempfile.mkdtemp(prefix="bench-onnx-")))
    if importlib.util.find_spec("onnxruntime"):
        found["ONNX Runtime"] = peers.onnx_runtime(model, graphs.float32())
    if importlib.util.find_spec("openvino"):
        found["OpenVINO"] = peers.openvino(model, graphs.float32())
    for name, runs in found.items():
        size, embed = fastest(runs, texts)
        contenders[f"{name}, batch {size} (its best)"] = embed
    plain = {rows: peers.matmul_limit(model, num_tokens, rows, 1) for rows in LIMIT_ROWS}
    rows, limit = fastest(plain, texts)
    contenders[f"limit: plain matmul, {rows} rows"] = limit
    rows, at_once = encoder.token_budget, encoder.threads
    strict = peers.matmul_limit(model, num_tokens, rows, at_once)
    contenders[f"limit: {at_once} matmuls of {rows} rows at once"] = strict
    return contenders


def fastest(by_size: dict[int, Callable], texts: list[str]) -> tuple[int, Callable]:
    """The size that takes the least time, the best of three, and its function."""
    taken = dict.fromkeys(by_size, math.inf)
    for _ in range(3):
        for size, embed in by_size.items():
            taken[size] = min(taken[size], seconds(embed, texts))
    size = min(taken, key=taken.__getitem__)
    return size, by_size[size]


def largest_difference(ours: np.ndarray, theirs: np.ndarray | None) -> float | None:
    return None if theirs is None else float(np.abs(ours - theirs).max())


def seconds(embed: Callable, texts: list[str]) -> float:
    start = time.perf_counter()
    embed(texts)
    return time.perf_counter() - start


def table(rows: list[dict]) -> str:
    """Markdown, speeds relative to ours."""
    ours = rows[0]
    lines = [
        "| | best tokens/s | median | ours / this: best | median of rounds | difference |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        apart = row["largest_difference"]
        ratios = [a / b for a, b in zip(ours["rates"], row["rates"], strict=True)]
        lines.append(
            f"| {row['name']} | {row['best']:,.0f} | {row['median']:,.0f} "
            f"| {ours['best'] / row['best']:.2f} | {statistics.median(ratios):.2f} "
            f"| {'' if apart is None else f'{apart:.1e}'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
