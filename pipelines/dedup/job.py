"""One file of texts -> the file without near-duplicates, what was removed and why, a report.

In:  a Parquet, CSV, TSV or JSON lines file.
Out: `kept` in the format of the input, row for row as it was; `removed` with the kept row each
     resembles and the cosine; `report.html`; `job.yaml`, which `sbert run` takes from here.
"""

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import yaml

from pipelines.artifacts.ids import read_columns
from pipelines.artifacts.reader import Artifact
from pipelines.dedup.spec import DedupSpec
from pipelines.embed import job as embed_job
from pipelines.embed.spec import EmbedSpec
from pipelines.run import job as run_job
from pipelines.run.spec import RunSpec
from pipelines.runtime.session import shared_session
from sbert_core.clusters.keep_rules import named_columns, parse_rules, with_names
from sbert_core.corpus.columns import free_names
from sbert_core.corpus.files import Corpus, Format, find_corpus
from sbert_core.corpus.formats import whole_table
from sbert_core.corpus.published import MANIFEST
from sbert_core.join.random_pairs import by_chance
from sbert_core.vectors.row_ranges import sampled

log = logging.getLogger(__name__)

# `auto` begins at 0.9 and rises while chance alone makes so many of a million random pairs alike.
LEVELS = tuple(round(0.9 + 0.01 * n, 2) for n in range(9))
CHANCE_PER_MILLION = 10.0
SAMPLED_ROWS = 4096
WORK = ".work"
ADDED = ("witness", "witness_text", "cosine")


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupReport:
    """What stayed, what went, and where to look."""

    kept: str
    removed: str
    page: str
    job: str
    rows: int
    num_removed: int
    threshold: float
    seconds: float


def run(spec: DedupSpec) -> DedupReport:
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
    with _refused_leaves_nothing(spec.out), shared_session(str(spec.out)):
        threshold = _threshold(spec)
        job = _job_file(spec, threshold)
        run_job.run(RunSpec(job=job, address=spec.address))
    work = spec.out / WORK
    number, rows = _write_removed(spec, corpus, work, removed)
    _copied(Path(Artifact.open(work / "corpus").folder) / file.path, kept)
    page = spec.out / "report.html"
    for name in ("report.html", "report.json"):
        _copied(work / name, spec.out / name)
    return DedupReport(
        kept=str(kept),
        removed=str(removed),
        page=str(page),
        job=str(job),
        rows=rows,
        num_removed=number,
        threshold=threshold,
        seconds=time.perf_counter() - start,
    )


@contextlib.contextmanager
def _refused_leaves_nothing(out: Path) -> Iterator[None]:
    """A new folder goes again if the input is refused before a single vector is saved."""
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except (ValueError, FileNotFoundError):
        if is_new and not _has_vectors(out / WORK / "vectors"):
            shutil.rmtree(out)
        raise


def _has_vectors(vectors: Path) -> bool:
    """Published ones, or units that a rerun takes up."""
    if (vectors / MANIFEST).exists():
        return Artifact.open(vectors).rows > 0
    return any(vectors.glob(f"{WORK}/*/commits/*"))


def _threshold(spec: DedupSpec) -> float:
    if spec.threshold != "auto":
        return float(spec.threshold)
    embed_job.run(
        EmbedSpec(
            corpus=spec.file,
            model=spec.model,
            out=str(spec.out / WORK / "vectors"),
            text_column=spec.text_column,
            id_column=spec.id_column,
            carry=_carried(spec),
            address=spec.address,
        )
    )
    side = Artifact.vectors(spec.out / WORK / "vectors").table()
    sample = [side.decoded(piece) for piece in sampled(side.pieces, SAMPLED_ROWS, (0,))]
    chance = by_chance(np.concatenate(sample), LEVELS[0])
    # Equal vectors are repeats, not chance.
    cos = chance.near.cos[chance.near.cos < 1]
    for level in LEVELS:
        share = 1e6 * float((cos >= np.float32(level)).sum()) / max(1, chance.num_pairs)
        if share <= CHANCE_PER_MILLION:
            break
    log.info("threshold %g: %.1f of a million random pairs reach it", level, share)
    return level


def _carried(spec: DedupSpec) -> tuple[str, ...]:
    """Columns of the file that rules of what to keep name, under names that vectors leave free."""
    names = free_names(named_columns(spec.keep))
    return tuple(c if c == name else f"{c}={name}" for c, name in names.items())


def _rules(spec: DedupSpec) -> str:
    """Rules for the columns as they are carried."""
    names = free_names(named_columns(spec.keep))
    is_renamed = any(column != name for column, name in names.items())
    return with_names(spec.keep, names) if is_renamed else spec.keep


def _job_file(spec: DedupSpec, threshold: float) -> Path:
    """The job as one would write it by hand, with paths as they are on this machine."""
    embed: dict[str, object] = {"model": spec.model, "text_column": spec.text_column}
    if spec.id_column is not None:
        embed["id_column"] = spec.id_column
    if carried := _carried(spec):
        embed["carry"] = list(carried)
    job = {
        "corpus": str(Path(spec.file).absolute()) if "://" not in spec.file else spec.file,
        "out": WORK,
        "stages": {
            "embed": embed,
            "pairs": {"threshold": threshold},
            "cluster": {"keep": _rules(spec)} if spec.keep else None,
            "apply": None,
            "report": {"title": f"Near-duplicates of {Path(spec.file).name}"},
        },
    }
    path = spec.out / "job.yaml"
    text = "# Written by sbert dedup; edit it and run: sbert run job.yaml\n"
    path.write_text(text + yaml.safe_dump(job, sort_keys=False, allow_unicode=True), "utf-8")
    return path


def _copied(source: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, part)
    part.replace(target)


def _write_removed(spec: DedupSpec, corpus: Corpus, work: Path, target: Path) -> tuple[int, int]:
    """Removed rows beside the kept row each resembles; how many, and how many rows there are."""
    [file] = corpus.files
    vectors, clusters = Artifact.vectors(work / "vectors"), Artifact.open(work / "clusters")
    places = read_columns(vectors, ["id", "row"])
    found = read_columns(clusters, ["id", "keep", "witness", "cos_to_witness"])
    gone = found.filter(pc.invert(found["keep"]))
    ids = places["id"].combine_chunks()
    row_of = places["row"].combine_chunks()
    rows = row_of.take(pc.index_in(gone["id"], ids).combine_chunks())
    witness_rows = row_of.take(pc.index_in(gone["witness"], ids).combine_chunks())
    table = whole_table(corpus.storage, file)
    removed = table.take(rows)
    for name, column in zip(
        ADDED,
        (gone["witness"], table[spec.text_column].take(witness_rows), gone["cos_to_witness"]),
        strict=True,
    ):
        removed = removed.append_column(_free(name, table.column_names), column)
    part = target.with_name(f".{target.name}.part")
    with _written(part, file.compression) as sink:
        WRITERS[file.format](removed, sink)
    part.replace(target)
    return removed.num_rows, table.num_rows


def _free(name: str, taken: list[str]) -> str:
    return name if name not in taken else f"{name}_of_dedup"


@contextlib.contextmanager
def _written(path: Path, compression: str | None) -> Iterator[pa.NativeFile]:
    with pa.output_stream(path, compression=compression) as sink:
        yield sink


def _write_csv(table: pa.Table, sink: pa.NativeFile) -> None:
    pyarrow.csv.write_csv(table, sink)


def _write_tsv(table: pa.Table, sink: pa.NativeFile) -> None:
    """Quotes are characters, as the reader takes them; tabs and line ends become spaces."""
    columns = [[_flat(value) for value in column.to_pylist()] for column in table.columns]
    lines = ["\t".join(table.column_names), *("\t".join(row) for row in zip(*columns, strict=True))]
    sink.write(("\n".join(lines) + "\n").encode())


def _flat(value: object) -> str:
    return "" if value is None else " ".join(str(value).split())


def _write_jsonl(table: pa.Table, sink: pa.NativeFile) -> None:
    for row in table.to_pylist():
        sink.write((json.dumps(row, ensure_ascii=False, default=str) + "\n").encode())


WRITERS = {
    Format.PARQUET: lambda table, sink: pq.write_table(table, sink, compression="zstd"),
    Format.CSV: _write_csv,
    Format.TSV: _write_tsv,
    Format.JSONL: _write_jsonl,
}
