"""The whole flow in miniature, on text found on this machine.

In:  the docstrings of the running Python's libraries.
Out: a folder with a job file and everything `sbert run` makes of it: an encoder fine-tuned to find
     a docstring's body by its first line, scores before and after, vectors, an index, pairs,
     clusters, the report.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipelines.artifacts.models import demo_model_folder
from pipelines.artifacts.sidecars import (
    SCORES,
    SUMMARY,
    ClusterSummary,
    ScoreRecord,
    read_sidecar,
)
from pipelines.demo.cross_encoder_cost import CrossEncoderCost, measure_cost
from pipelines.demo.spec import DemoSpec
from pipelines.run import job as run_job
from pipelines.run.job import RunReport
from pipelines.run.spec import RunSpec
from pipelines.search.index import Index
from sbert_core.corpus.docstrings import Docstring, collect_docstrings, library_folders
from sbert_core.storage import storage_at

MIN_LINE, MAX_LINE = 15, 200  # characters of the first line
MIN_BODY, MAX_BODY = 80, 600  # characters behind it; longer bodies are cut
QUESTIONS = ("open a file", "compute the mean of an array", "wait until a process ends")
NUM_HITS = 2
JOB_HEADER = """\
# Written by sbert demo; edit it and run: sbert run job.yaml
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSize:
    """Rows of each part: corpus, pairs to train on and to judge by, and the cost comparison."""

    docstrings: int
    training: int
    held_out: int
    sentences: int


FULL = DemoSize(docstrings=4000, training=800, held_out=300, sentences=10_000)
SMALL = DemoSize(docstrings=1000, training=160, held_out=120, sentences=2000)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """What the demo made.

    scores: the main one of each model. answers: cosine and text of the best hits of each question.
    comparison: with a cross-encoder.
    """

    page: str
    job: str
    rows: int
    removed: int
    scores: dict[str, float]
    answers: dict[str, list[tuple[float, str]]]
    comparison: CrossEncoderCost
    run: RunReport
    seconds: float


def run(spec: DemoSpec) -> DemoReport:
    """Write corpus, training pairs and job file to --out, and run the job file."""
    start = time.perf_counter()
    size = SMALL if spec.small else FULL
    model = demo_model_folder()
    found = collect_docstrings(library_folders(), max(size.docstrings, 2 * size.sentences))
    spec.out.mkdir(parents=True, exist_ok=True)
    rows = found[: spec.docstrings or size.docstrings]
    pq.write_table(
        pa.table({"id": [row.id for row in rows], "text": [row.text for row in rows]}),
        spec.out / "docstrings.parquet",
    )
    _write_examples(spec.out, _choose_pairs(found), size)
    job = spec.out / "job.yaml"
    job.write_text(JOB_HEADER + yaml.safe_dump(_job_file(), sort_keys=False), encoding="utf-8")
    done = run_job.run(RunSpec(job=job, address=spec.address))
    sentences = list(dict.fromkeys(line for line, _ in _split_docstrings(found)))
    return DemoReport(
        page=str(spec.out / "run" / "report.html"),
        job=str(job),
        rows=len(rows),
        removed=_read_removed(spec.out / "run" / "clusters"),
        scores=_read_main_scores(spec.out / "run" / "scores"),
        answers=_search_questions(spec.out),
        comparison=measure_cost(sentences[: size.sentences], model),
        run=done,
        seconds=time.perf_counter() - start,
    )


def _split_docstrings(rows: Sequence[Docstring]) -> list[tuple[str, str]]:
    """The first paragraph of each docstring on one line, and the rest."""
    parts = []
    for row in rows:
        line, _, body = row.text.strip().partition("\n\n")
        if line := " ".join(line.split()):
            parts.append((line, " ".join(body.split())))
    return parts


def _choose_pairs(rows: Sequence[Docstring]) -> list[tuple[str, str]]:
    """First lines and bodies of useful lengths, each once."""
    chosen: dict[str, str] = {}
    bodies: set[str] = set()
    for line, body in _split_docstrings(rows):
        if MIN_LINE <= len(line) <= MAX_LINE and len(body) >= MIN_BODY and line not in chosen:
            cut = body[:MAX_BODY]
            if cut not in bodies:
                chosen[line] = cut
                bodies.add(cut)
    return list(chosen.items())


def _write_examples(out: Path, pairs: list[tuple[str, str]], size: DemoSize) -> None:
    """Pairs to train on, and others as a retrieval task: find the body for a line."""
    step = max(1, len(pairs) // (size.training + size.held_out))
    few = pairs[::step][: size.training + size.held_out]
    held, training = few[: size.held_out], few[size.held_out :]
    lines, bodies = (list(column) for column in zip(*training, strict=True))
    pq.write_table(pa.table({"query": lines, "positive": bodies}), out / "lines.parquet")
    folder = out / "held-out"
    folder.mkdir(exist_ok=True)
    numbers = [str(number) for number in range(len(held))]
    tables = {
        "docs": pa.table({"doc_id": numbers, "text": [body for _, body in held]}),
        "queries": pa.table({"query_id": numbers, "text": [line for line, _ in held]}),
        "qrels": pa.table({"query_id": numbers, "doc_id": numbers}),
    }
    for name, table in tables.items():
        pq.write_table(table, folder / f"docstrings_{name}.parquet")


def _job_file() -> dict[str, object]:
    """The content of job.yaml."""
    return {
        "corpus": "docstrings.parquet",
        "out": "run",
        "stages": {
            "prepare": {"files": ["lines.parquet"], "format": "ranking"},
            "train": {
                "base": "demo",
                "objective": "ranking",
                "workers": 2,
                "cpus_per_worker": 1,
                "max_length": 128,
            },
            "evaluate": {"models": ["run/encoder", "demo"], "retrieval": "held-out"},
            "embed": {},
            "index": {"recall_sample": 200},
            "pairs": {"threshold": 0.9},
            "cluster": {"keep": "longest", "topics": 12},
            "report": {"title": "Docstrings of this machine's Python"},
        },
        "gates": {"min_recall": 0.9},
    }


def _read_main_scores(folder: Path) -> dict[str, float]:
    """The main score of each model."""
    found = read_sidecar(storage_at(folder), SCORES, dict[str, tuple[ScoreRecord, ...]])
    return {
        model: next(score.value for score in scores if score.is_main)
        for model, scores in found.items()
    }


def _read_removed(folder: Path) -> int:
    """Rows that the clusters remove at the job's one threshold."""
    return read_sidecar(storage_at(folder), SUMMARY, tuple[ClusterSummary, ...])[0].removed


def _search_questions(out: Path) -> dict[str, list[tuple[float, str]]]:
    """Cosine and text of the best docstrings for a few questions."""
    table = pq.read_table(out / "docstrings.parquet")
    texts = dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    found = Index.open(out / "run" / "index").search_text(QUESTIONS, NUM_HITS)
    return {
        question: [
            (float(cos), " ".join(texts[own].split()))
            for own, cos in zip(ids, cosines, strict=True)
        ]
        for question, ids, cosines in zip(QUESTIONS, found.ids, found.cos, strict=True)
    }
