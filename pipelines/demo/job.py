"""The whole flow in miniature, on text found on this machine.

In:  the docstrings of the running Python's libraries.
Out: a folder with a job file and everything `sbert run` makes of it: an encoder fine-tuned to find
     a docstring's body by its first line, scores before and after, vectors, an index, pairs,
     clusters, the report.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipelines.artifacts.models import demo_model
from pipelines.demo.cross_encoder_cost import Comparison, compared
from pipelines.demo.spec import DemoSpec
from pipelines.run import job as run_job
from pipelines.run.job import RunReport
from pipelines.run.spec import RunSpec
from pipelines.search.index import Index
from sbert_core.corpus.docstrings import Docstring, docstrings, library_folders

LEAST_BODY = 80  # characters behind the first line
MOST_BODY = 600
QUESTIONS = ("open a file", "compute the mean of an array", "wait until a process ends")
HITS = 2
JOB = """\
# Written by sbert demo; edit it and run: sbert run job.yaml
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything."""

    docstrings: int
    training: int
    held_out: int
    sentences: int


FULL = Size(docstrings=4000, training=800, held_out=300, sentences=10_000)
SMALL = Size(docstrings=1000, training=160, held_out=120, sentences=2000)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """What the demo found. answers: for each question the best hits."""

    page: str
    job: str
    rows: int
    removed: int
    scores: dict[str, float]
    answers: dict[str, list[tuple[float, str]]]
    comparison: Comparison
    run: RunReport
    seconds: float


def run(spec: DemoSpec) -> DemoReport:
    start = time.perf_counter()
    size = SMALL if spec.small else FULL
    model = demo_model()
    found = docstrings(library_folders(), max(size.docstrings, 2 * size.sentences))
    spec.out.mkdir(parents=True, exist_ok=True)
    rows = found[: spec.docstrings or size.docstrings]
    pq.write_table(
        pa.table({"id": [row.id for row in rows], "text": [row.text for row in rows]}),
        spec.out / "docstrings.parquet",
    )
    pairs = _lines_and_bodies(found)
    _write_questions(spec.out, pairs, size)
    job = spec.out / "job.yaml"
    job.write_text(JOB + yaml.safe_dump(_job(), sort_keys=False), encoding="utf-8")
    done = run_job.run(RunSpec(job=job, address=spec.address))
    sentences = list(dict.fromkeys(line for line, _ in _first_lines(found)))[: size.sentences]
    return DemoReport(
        page=str(spec.out / "run" / "report.html"),
        job=str(job),
        rows=len(rows),
        removed=_said(spec.out, "clusters")["removed"],
        scores=_scores(spec.out),
        answers=_answers(spec.out),
        comparison=compared(sentences, model),
        run=done,
        seconds=time.perf_counter() - start,
    )


def _first_lines(rows: Sequence[Docstring]) -> list[tuple[str, str]]:
    """The first paragraph of each docstring on one line, and the rest."""
    found = []
    for row in rows:
        line, _, body = row.text.strip().partition("\n\n")
        if line := " ".join(line.split()):
            found.append((line, " ".join(body.split())))
    return found


def _lines_and_bodies(rows: Sequence[Docstring]) -> list[tuple[str, str]]:
    """Distinct first lines with a body that says more."""
    chosen: dict[str, str] = {}
    bodies: set[str] = set()
    for line, body in _first_lines(rows):
        if 15 <= len(line) <= 200 and len(body) >= LEAST_BODY and line not in chosen:
            cut = body[:MOST_BODY]
            if cut not in bodies:
                chosen[line] = cut
                bodies.add(cut)
    return list(chosen.items())


def _write_questions(out: Path, pairs: list[tuple[str, str]], size: Size) -> None:
    """Pairs to train on, and others to be judged by: find the body for a line."""
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


def _job() -> dict[str, Any]:
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


def _scores(out: Path) -> dict[str, float]:
    """The main score of each model."""
    found = json.loads((out / "run" / "scores" / "scores.json").read_text(encoding="utf-8"))
    return {
        model: next(score["value"] for score in scores if score["is_main"])
        for model, scores in found.items()
    }


def _said(out: Path, name: str) -> dict[str, Any]:
    summary = json.loads((out / "run" / name / "summary.json").read_text(encoding="utf-8"))
    return summary[0]


def _answers(out: Path) -> dict[str, list[tuple[float, str]]]:
    """The best docstrings for a few questions."""
    index = Index.open(out / "run" / "index")
    texts = pq.read_table(out / "docstrings.parquet")
    text_of = dict(zip(texts["id"].to_pylist(), texts["text"].to_pylist(), strict=True))
    found = index.search_text(QUESTIONS, HITS)
    return {
        question: [
            (float(cos), " ".join(text_of[own].split()))
            for own, cos in zip(ids, cosines, strict=True)
        ]
        for question, ids, cosines in zip(QUESTIONS, found.ids, found.cos, strict=True)
    }
