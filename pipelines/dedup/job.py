"""One file of texts -> the file without near-duplicates, what was removed and why, a report.

In:  a Parquet, CSV, TSV or JSON lines file.
Out: `kept` in the format of the input, row for row as it was; `removed` with the kept row each
     resembles and the cosine; `report.html`; `job.yaml`, which `sbert run` takes from here.
"""

import contextlib
import logging
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

from pipelines.artifacts.models import DEMO
from pipelines.artifacts.reader import Artifact
from pipelines.dedup.removed import write_removed
from pipelines.dedup.spec import AUTO, DedupSpec
from pipelines.embed import job as embed_job
from pipelines.embed.spec import EmbedSpec
from pipelines.run import job as run_job
from pipelines.run.spec import RunSpec
from pipelines.runtime.readable import ReadableReport
from pipelines.runtime.session import shared_session
from sbert_core.clusters.keep_rules import named_columns, parse_rules, rename_columns
from sbert_core.corpus.columns import unreserved_names
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.published import MANIFEST
from sbert_core.join.random_pairs import sample_cosines
from sbert_core.vectors.row_ranges import sample_rows

log = logging.getLogger(__name__)

# `auto` takes the first level that at most so many of a million random pairs reach.
LEVELS = tuple(round(0.9 + 0.01 * n, 2) for n in range(9))
CHANCE_PER_MILLION = 10.0
SAMPLED_ROWS = 4096
WORK = ".work"  # artifacts of the stages, below the output


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupReport(ReadableReport):
    """Files that were written, and how many rows were removed. page: the HTML report."""

    kept: str
    removed: str
    page: str
    job: str
    rows: int
    num_removed: int
    threshold: float
    seconds: float


def run(spec: DedupSpec) -> DedupReport:
    """Write the kept and the removed rows of one file, a report and the job file.

    ValueError for several files, and where the input would be overwritten.
    """
    corpus = find_corpus(spec.file)
    if len(corpus.files) != 1:
        raise ValueError(
            f"{spec.file} holds {len(corpus.files):,} files; dedup takes one, for more write a job "
            "file with sbert init"
        )
    [file] = corpus.files
    suffixes = "".join(Path(file.path).suffixes)
    kept, removed = (spec.out / f"{name}{suffixes}" for name in ("kept", "removed"))
    if Path(spec.file).absolute() in (kept.absolute(), removed.absolute()):
        raise ValueError(f"{spec.file} would be overwritten; choose another --out")
    parse_rules(spec.keep)
    start = time.perf_counter()
    with _removed_if_refused(spec.out), shared_session(str(spec.out)):
        threshold = _choose_threshold(spec)
        job = _write_job_file(spec, threshold)
        run_job.run(RunSpec(job=job, address=spec.address))
    work = spec.out / WORK
    vectors, clusters = Artifact.vectors(work / "vectors"), Artifact.clusters(work / "clusters")
    count = write_removed(corpus, spec.text_column, vectors, clusters, removed)
    _copy_whole(Path(Artifact.open(work / "corpus").folder) / file.path, kept)
    page = spec.out / "report.html"
    for name in ("report.html", "report.json"):
        _copy_whole(work / name, spec.out / name)
    return DedupReport(
        kept=str(kept),
        removed=str(removed),
        page=str(page),
        job=str(job),
        rows=count.rows,
        num_removed=count.removed,
        threshold=threshold,
        seconds=time.perf_counter() - start,
    )


@contextlib.contextmanager
def _removed_if_refused(out: Path) -> Iterator[None]:
    """Remove a new folder if the input is refused before a single vector is saved."""
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except (ValueError, FileNotFoundError):
        if is_new and not _has_vectors(out / WORK / "vectors"):
            shutil.rmtree(out)
        raise


def _has_vectors(vectors: Path) -> bool:
    """Are there published vectors, or units that a rerun takes up?"""
    if (vectors / MANIFEST).exists():
        return Artifact.open(vectors).rows > 0
    return any(vectors.glob(f"{WORK}/*/commits/*"))


def _choose_threshold(spec: DedupSpec) -> float:
    """The given threshold; with `auto` the vectors are embedded first and a sample is measured."""
    if spec.threshold != AUTO:
        return float(spec.threshold)
    embed_job.run(
        EmbedSpec(
            corpus=spec.file,
            model=_absolute_model(spec.model),
            out=str(spec.out / WORK / "vectors"),
            text_column=spec.text_column,
            id_column=spec.id_column,
            carry=_carried_columns(spec),
            address=spec.address,
        )
    )
    table = Artifact.vectors(spec.out / WORK / "vectors").table()
    vectors = [table.decode(rows) for rows in sample_rows(table.row_ranges, SAMPLED_ROWS, (0,))]
    sample = sample_cosines(np.concatenate(vectors), LEVELS[0])
    # Equal vectors are repeats of a text and do not count as chance.
    cos = sample.pairs.cos[sample.pairs.cos < 1]
    for level in LEVELS:
        share = 1e6 * float((cos >= np.float32(level)).sum()) / max(1, sample.num_pairs)
        if share <= CHANCE_PER_MILLION:
            break
    log.info("threshold %g: %.1f of a million random pairs reach it", level, share)
    return level


def _carried_columns(spec: DedupSpec) -> tuple[str, ...]:
    """Columns that keep rules name, as `--carry` takes them, under names that vectors lack."""
    names = unreserved_names(named_columns(spec.keep))
    return tuple(c if c == name else f"{c}={name}" for c, name in names.items())


def _carried_rules(spec: DedupSpec) -> str:
    """Keep rules with the names under which their columns are carried."""
    names = unreserved_names(named_columns(spec.keep))
    is_renamed = any(column != name for column, name in names.items())
    return rename_columns(spec.keep, names) if is_renamed else spec.keep


def _absolute_model(model: str) -> str:
    """A model folder from the root on: paths in the job file are relative to that file."""
    is_folder = model != DEMO and Path(model).is_dir()
    return str(Path(model).absolute()) if is_folder else model


def _write_job_file(spec: DedupSpec, threshold: float) -> Path:
    """Write the job file that `sbert run` takes, as one would write it by hand."""
    embed: dict[str, object] = {
        "model": _absolute_model(spec.model),
        "text_column": spec.text_column,
    }
    if spec.id_column is not None:
        embed["id_column"] = spec.id_column
    if carried := _carried_columns(spec):
        embed["carry"] = list(carried)
    job = {
        "corpus": str(Path(spec.file).absolute()) if "://" not in spec.file else spec.file,
        "out": WORK,
        "stages": {
            "embed": embed,
            "pairs": {"threshold": threshold},
            "cluster": {"keep": _carried_rules(spec)} if spec.keep else None,
            "apply": None,
            "report": {"title": f"Near-duplicates of {Path(spec.file).name}"},
        },
    }
    path = spec.out / "job.yaml"
    text = "# Written by sbert dedup; edit it and run: sbert run job.yaml\n"
    path.write_text(text + yaml.safe_dump(job, sort_keys=False, allow_unicode=True), "utf-8")
    return path


def _copy_whole(source: Path, target: Path) -> None:
    """Copy a file so that the target is whole or not there."""
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, part)
    part.replace(target)
