"""The flow in miniature, on text found on this machine.

In:  the docstrings of the running Python's libraries.
Out: their vectors, the most similar pairs, and what the work cost: `report.json` and
     `vectors.parquet` in the output folder.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.util import ActorPool

from pipelines.docstrings import Docstring, docstrings, library_folders
from pipelines.models import demo_model
from pipelines.progress import progress
from pipelines.session import ray_session
from pipelines.specs import DemoSpec
from sbert_core.encoder import Encoded
from sbert_core.encoder.batching import num_padding
from sbert_core.neighbours.exact import top_pairs
from workers.embedder import Embedder

CHUNK_TEXTS = 128
PLAIN_BATCH_SIZE = 32  # what a plain loop over a model uses by default
NUM_PAIRS = 10
WARM_UP = "the first call pays for lazy set-up"


@dataclass(frozen=True, slots=True)
class SimilarPair:
    """Two texts that differ in more than case and spacing."""

    cos: float
    id_a: str
    id_b: str
    text_a: str
    text_b: str


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the demo found and what it cost."""

    path: str
    num_rows: int
    num_distinct: int
    num_tokens: int
    num_tokens_saved: int
    num_padding_unsorted: int
    num_padding_sorted: int
    num_truncated: int
    num_actors: int
    seconds: float
    pairs: list[SimilarPair]

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def saved_share(self) -> float:
        """Tokens of repeats among all tokens."""
        return self.num_tokens_saved / (self.num_tokens + self.num_tokens_saved)

    @property
    def padding_shares(self) -> tuple[float, float]:
        """Padding among the tokens of plain batches: as texts come, and sorted by length."""
        unsorted, by_length = self.num_padding_unsorted, self.num_padding_sorted
        return unsorted / (self.num_tokens + unsorted), by_length / (self.num_tokens + by_length)


def run(spec: DemoSpec) -> DemoReport:
    """Docstrings -> vectors -> the most similar pairs."""
    model = demo_model()
    rows = docstrings(library_folders(), spec.docstrings)
    texts = list(dict.fromkeys(row.text for row in rows))
    with ray_session(spec.out, address=spec.address):
        actors = _ready_actors(str(model))
        start = time.perf_counter()
        encoded = _embedded(actors, texts)
        seconds = time.perf_counter() - start
    num_tokens = dict(zip(texts, np.concatenate([e.num_tokens for e in encoded]), strict=True))
    lengths = np.array(list(num_tokens.values()))
    vectors = dict(zip(texts, np.concatenate([e.vectors for e in encoded]), strict=True))
    report = DemoReport(
        path=str(spec.out / "report.json"),
        num_rows=len(rows),
        num_distinct=len(texts),
        num_tokens=int(lengths.sum()),
        num_tokens_saved=int(sum(num_tokens[row.text] for row in rows) - lengths.sum()),
        num_padding_unsorted=num_padding(lengths, PLAIN_BATCH_SIZE),
        num_padding_sorted=num_padding(np.sort(lengths), PLAIN_BATCH_SIZE),
        num_truncated=sum(e.num_truncated for e in encoded),
        num_actors=len(actors),
        seconds=seconds,
        pairs=_similar_pairs(rows, vectors),
    )
    _write(spec.out, rows, vectors, report)
    return report


def _ready_actors(model: str) -> list[Any]:
    """One single-threaded actor per core, each with a warm model."""
    num_actors = max(1, int(ray.cluster_resources()["CPU"]))
    embedder: Any = ray.remote(num_cpus=1)(Embedder)
    actors = [embedder.remote(model) for _ in range(num_actors)]
    ray.get([actor.embed.remote([WARM_UP]) for actor in actors])
    return actors


def _embedded(actors: list[Any], texts: list[str]) -> list[Encoded]:
    """Results of all chunks, in order, while a progress bar moves."""
    chunks = [texts[i : i + CHUNK_TEXTS] for i in range(0, len(texts), CHUNK_TEXTS)]
    encoded = []
    with progress("embed", len(texts)) as advance:
        results = ActorPool(actors).map(lambda actor, chunk: actor.embed.remote(chunk), chunks)
        for result in results:
            encoded.append(result)
            advance(len(result.vectors), result.num_encoded_tokens)
    return encoded


def _similar_pairs(rows: list[Docstring], vectors: dict[str, np.ndarray]) -> list[SimilarPair]:
    """The closest texts that differ in more than case and spacing."""
    chosen = {" ".join(row.text.casefold().split()): row for row in reversed(rows)}
    kept = list(reversed(chosen.values()))
    pairs = top_pairs(np.stack([vectors[row.text] for row in kept]), NUM_PAIRS)
    return [
        SimilarPair(
            cos=float(cos),
            id_a=kept[a].id,
            id_b=kept[b].id,
            text_a=kept[a].text,
            text_b=kept[b].text,
        )
        for a, b, cos in zip(pairs.a, pairs.b, pairs.cos, strict=True)
    ]


def _write(
    out: Path, rows: list[Docstring], vectors: dict[str, np.ndarray], report: DemoReport
) -> None:
    flat = pa.array(np.concatenate([vectors[row.text] for row in rows]), pa.float32())
    dim = len(flat) // len(rows)
    table = pa.table(
        {
            "id": [row.id for row in rows],
            "text": [row.text for row in rows],
            "vector": pa.FixedSizeListArray.from_arrays(flat, dim),
        }
    )
    pq.write_table(table, out / "vectors.parquet")
    numbers = {**asdict(report), "tokens_per_second": report.tokens_per_second}
    (out / "report.json").write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")
