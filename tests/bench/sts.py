"""Spearman correlation of cosines with human scores on STS files (Parquet).

    python tests/bench/sts.py stsb_test.parquet sts12_test.parquet [--model demo]

Published for all-MiniLM-L6-v2 (x 100): STS benchmark test 82.03, STS12 72.37, STS13 80.60,
STS14 75.60.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pyarrow.parquet as pq
from scipy.stats import spearmanr

from pipelines.artifacts.models import resolve_demo
from sbert_core.encoder.encoder import Encoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--model", default="demo")
    options = parser.parse_args()
    encoder = Encoder.load(resolve_demo(options.model))
    for path in options.files:
        table = pq.read_table(path, columns=["sentence1", "sentence2", "score"])
        left = encoder.encode(table["sentence1"].to_pylist())
        right = encoder.encode(table["sentence2"].to_pylist())
        score = spearmanr((left * right).sum(1), table["score"].to_numpy()).statistic
        print(f"{path.stem}: Spearman {100 * score:.2f} on {len(table):,} pairs")


if __name__ == "__main__":
    main()
