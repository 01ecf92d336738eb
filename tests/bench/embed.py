"""The embed job against the encoder alone and against the pipeline one would write by hand.

Run by `make bench-embed`. On the same distinct texts: Encoder.encode in one process, `sbert embed`
in a process of its own, and Ray Data's read_parquet -> map_batches(SentenceTransformer) ->
write_parquet. They take turns; the table shows tokens per second and where the job's time went.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.models import resolve_demo
from sbert_core.corpus.docstrings import collect_docstrings, library_folders
from sbert_core.encoder.encoder import Encoder

BY_HAND = """
import sys, time
start = time.time()
import numpy as np
import ray
from sentence_transformers import SentenceTransformer

class Embed:
    def __init__(self, model):
        import torch
        torch.set_num_threads(1)
        self.model = SentenceTransformer(model, device="cpu")

    def __call__(self, batch):
        batch["vector"] = self.model.encode(list(batch["text"]), normalize_embeddings=True)
        return batch

corpus, model, out = sys.argv[1:]
ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
dataset = ray.data.read_parquet(corpus).repartition(16).map_batches(
    Embed, batch_size=1024, num_cpus=1, fn_constructor_kwargs={"model": model},
    compute=ray.data.ActorPoolStrategy(size=2))
dataset.write_parquet(out)
print(time.time() - start)
"""


def main() -> None:
    options = parsed_options()
    model = str(resolve_demo(options.model))
    texts = sample(options)
    rates: dict[str, list[float]] = {}
    phases = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        work = Path(folder)
        corpus = work / "corpus.parquet"
        columns = {"id": [f"r{i}" for i in range(len(texts))], "text": texts}
        pq.write_table(pa.table(columns), corpus)
        encoder = Encoder.load(model)
        num_tokens = int(encoder.encode_report(texts[:100]).num_tokens.sum())
        for turn in range(options.rounds):
            start = time.perf_counter()
            encoded = encoder.encode_report(texts)
            num_tokens = encoded.num_encoded_tokens
            note(rates, "Encoder.encode, one process", num_tokens, time.perf_counter() - start)
            run, seconds = whole_job(corpus, model, work / f"out-{turn}")
            phases = run["phases"]
            from_first_unit = run["finished"] - run["first_unit_started"]
            note(rates, "sbert embed, first unit to manifest", num_tokens, from_first_unit)
            note(rates, "sbert embed, whole command", num_tokens, seconds)
            if not options.no_peer:
                note(
                    rates,
                    "by hand on Ray Data",
                    num_tokens,
                    by_hand(corpus, model, work / f"h{turn}"),
                )
    report(options.out, rates, phases, len(texts), num_tokens)


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, help="Parquet file; docstrings by default")
    parser.add_argument("--column", default="text")
    parser.add_argument("--num-texts", type=int, default=50_000)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--folder", type=Path, help="for temporary files")
    parser.add_argument("--out", type=Path, default=Path("bench-out/embed.json"))
    return parser.parse_args()


def sample(options: argparse.Namespace) -> list[str]:
    """Distinct texts, a seeded choice."""
    if options.texts is not None:
        texts = pq.read_table(options.texts, columns=[options.column])[options.column].to_pylist()
    else:
        rows = collect_docstrings(library_folders(), limit=2 * options.num_texts)
        texts = [row.text for row in rows]
    distinct = [text for text in dict.fromkeys(texts) if text and text.strip()]
    chosen = np.random.default_rng(0).permutation(len(distinct))[: options.num_texts]
    return [distinct[row] for row in chosen]


def whole_job(corpus: Path, model: str, out: Path) -> tuple[dict, float]:
    sbert = Path(sys.executable).parent / "sbert"
    start = time.perf_counter()
    subprocess.run([sbert, "embed", corpus, "--model", model, "--out", out], check=True)
    return json.loads((out / "_run.json").read_text()), time.perf_counter() - start


def by_hand(corpus: Path, model: str, out: Path) -> float:
    words = [sys.executable, "-c", BY_HAND, str(corpus), model, str(out)]
    result = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(result.stdout.strip().splitlines()[-1])


def note(rates: dict[str, list[float]], name: str, num_tokens: int, seconds: float) -> None:
    rates.setdefault(name, []).append(num_tokens / seconds)
    print(f"{name}: {num_tokens / seconds:,.0f} tokens/s in {seconds:.1f} s", flush=True)


def report(
    out: Path, rates: dict[str, list[float]], phases: dict, num_texts: int, num_tokens: int
) -> None:
    base = statistics.median(rates["Encoder.encode, one process"])
    print(f"\n{num_texts:,} distinct texts, {num_tokens:,} tokens")
    print("| | tokens/s | of Encoder.encode |\n|---|---:|---:|")
    for name, own in rates.items():
        print(f"| {name} | {statistics.median(own):,.0f} | {statistics.median(own) / base:.2f} |")
    print("seconds by phase:", ", ".join(f"{name} {s:.1f}" for name, s in phases.items()))
    out.parent.mkdir(parents=True, exist_ok=True)
    facts = {"num_texts": num_texts, "num_tokens": num_tokens, "rates": rates, "phases": phases}
    out.write_text(json.dumps(facts, indent=2) + "\n")
    print(f"-> {out}")


if __name__ == "__main__":
    main()
