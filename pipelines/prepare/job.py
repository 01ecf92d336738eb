"""Labelled files -> shards to train on, split without leakage.

In:  TSV, CSV, JSON lines or Parquet with pairs, scored pairs, triplets or queries and answers.
Out: a shards artifact: Parquet files of equal token mass, train and dev without a common text.
     Rows that were left out stand in its quarantine with the reason: rows in = rows out + those.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.artifacts.layout import QUARANTINE, WORK
from pipelines.artifacts.manifest import DataFile, Manifest, library_versions
from pipelines.artifacts.models import local_model
from pipelines.artifacts.writer import Writer
from pipelines.prepare.spec import PrepareSpec
from pipelines.runtime.session import job_session
from pipelines.runtime.tasks import in_order
from pipelines.runtime.timing import Phases
from sbert_core.corpus.files import CorpusFile, find_corpus
from sbert_core.corpus.published import DATA
from sbert_core.digest import digest
from sbert_core.training.examples import ExampleFormat, LabelRules
from sbert_core.training.splits import dealt, first_of, is_dev
from workers.prepare import ExampleJob, FileRows, read_examples, text_keys_of, write_rows

# Enough shards for any number of workers up to this to have equal shares; more for big data.
LEAST_SHARDS = 8
SHARD_ROWS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareReport:
    """What was kept and what was left out."""

    out: str
    folder: str
    train: int
    dev: int
    repeats: int
    conflicts: int
    excluded: int
    skipped: int
    classes: list[str] | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of all files, as the driver sees them. `reason` is "" for rows that stay."""

    number: np.ndarray  # of the file
    row: np.ndarray
    keys: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray | None
    reason: np.ndarray

    def places(self, chosen: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Chosen rows as files and rows in them, their order kept within a file."""
        return [(int(n), self.row[chosen[self.number[chosen] == n]]) for n in self._files(chosen)]

    def _files(self, chosen: np.ndarray) -> np.ndarray:
        return np.unique(self.number[chosen])


def run(spec: PrepareSpec) -> PrepareReport:
    """Check, clean, split and deal all rows."""
    phases = Phases()
    files = _found(spec.files)
    exclude = _found(spec.exclude)
    with Writer.claim(spec.out) as out:
        generation = digest(_identity(spec, files, exclude))[:16]
        if out.current is not None and out.current.generation == generation:
            out.storage.delete([WORK])
            return _report(spec, out.current, 0.0)
        job = _job(spec, out, generation)
        with job_session(spec.out, spec.address):
            manifest = _prepared(spec, job, files, exclude, generation)
        out.publish(
            manifest,
            rows_in=manifest.facts["rows_in"],
            run={"phases": phases.seconds, "seconds": phases.total},
        )
        return _report(spec, manifest, phases.total)


def _found(places: tuple[str, ...]) -> list[tuple[str, CorpusFile]]:
    corpora = [find_corpus(place) for place in places]
    return [(corpus.folder, file) for corpus in corpora for file in corpus.files]


def _identity(
    spec: PrepareSpec, files: list[tuple[str, CorpusFile]], exclude: list[tuple[str, CorpusFile]]
) -> dict[str, Any]:
    options = asdict(spec)
    for name in ("files", "exclude", "out", "address"):
        del options[name]
    return {
        **options,
        "files": [(root, asdict(file)) for root, file in files],
        "exclude": [(root, asdict(file)) for root, file in exclude],
    }


def _job(spec: PrepareSpec, out: Writer, generation: str) -> ExampleJob:
    tokenizer = None
    if spec.tokenizer is not None:
        path = Path(local_model(spec.tokenizer)) / "tokenizer.json"
        if not path.is_file():
            raise ValueError(f"{path} is not there; name a model that has a fast tokenizer")
        tokenizer = path.read_text(encoding="utf-8")
    low, high = spec.score_range
    return ExampleJob(
        out=out.storage.uri,
        work=f"{WORK}/{generation}",
        kind=ExampleFormat(spec.format),
        columns=spec.columns,
        rules=LabelRules(
            classes=tuple(name.casefold() for name in spec.labels),
            skipped=tuple(name.casefold() for name in spec.skip_label),
            low=low,
            high=high,
        ),
        tokenizer=tokenizer,
    )


def _prepared(
    spec: PrepareSpec,
    job: ExampleJob,
    files: list[tuple[str, CorpusFile]],
    exclude: list[tuple[str, CorpusFile]],
    generation: str,
) -> Manifest:
    found = in_order(read_examples, [(job, *file, number) for number, file in enumerate(files)])
    banned = in_order(text_keys_of, exclude)
    rows = _cleaned(spec, job, _rows(found), files, exclude, banned)
    kept = np.flatnonzero(rows.reason == "")
    if not len(kept):
        raise ValueError(
            f"all {len(rows.row):,} rows were left out ({_why(rows)}); nothing to train on: "
            "check --exclude and the labels"
        )
    classes = _classes(job, rows, kept)
    held_out = is_dev(rows.keys[kept], spec.dev_fraction, spec.seed)
    calls: list[tuple] = []
    splits: list[str] = []
    for split, members in (("train", kept[~held_out]), ("dev", kept[held_out])):
        for number, chosen in enumerate(_shards(spec, rows.lengths[members])):
            name = f"{DATA}/{generation}/{split}-{number:05d}"
            calls.append((job, rows.places(members[chosen]), name, classes, {}))
            splits.append(split)
    shards = [
        DataFile(**made, source={"split": split})
        for made, split in zip(in_order(write_rows, calls), splits, strict=True)
    ]
    left_out = _left_out(job, rows, np.flatnonzero(rows.reason != ""), generation)
    return Manifest(
        kind="shards",
        generation=generation,
        schema={"format": spec.format},
        rows=sum(file.rows for file in shards),
        quarantined=sum(file.rows for file in left_out),
        files=tuple(shards),
        quarantine=left_out,
        spec={
            "format": spec.format,
            "classes": classes,
            "score_range": list(spec.score_range),
            "seed": spec.seed,
            "length_unit": "tokens" if spec.tokenizer else "characters",
        },
        made_from=_identity(spec, files, exclude),
        facts={
            "rows_in": len(rows.row),
            "train": int((~held_out).sum()),
            "dev": int(held_out.sum()),
            "negatives": rows.keys.shape[1] - 2 if spec.format == "ranking" else 0,
            "left_out": _counts(rows),
        },
        versions=library_versions(),
    )


def _rows(found: list[FileRows]) -> Rows:
    widths = {file.keys.shape[1] for file in found}
    if len(widths) > 1:
        raise ValueError(f"files have {sorted(widths)} texts a row; give all the same number")
    sizes = [len(file.lengths) for file in found]
    labels = None
    if found[0].labels is not None:
        labels = np.concatenate([file.labels for file in found if file.labels is not None])
    return Rows(
        number=np.repeat(np.arange(len(found)), sizes),
        row=np.concatenate([np.arange(size) for size in sizes]),
        keys=np.concatenate([file.keys for file in found]),
        lengths=np.concatenate([file.lengths for file in found]),
        labels=labels,
        reason=np.full(sum(sizes), "", dtype=object),
    )


def _cleaned(
    spec: PrepareSpec,
    job: ExampleJob,
    rows: Rows,
    files: list[tuple[str, CorpusFile]],
    exclude: list[tuple[str, CorpusFile]],
    banned: list[np.ndarray],
) -> Rows:
    """Give rows that are left out their reason."""
    reason = rows.reason
    if job.rules.skipped and rows.labels is not None:
        for name in job.rules.skipped:
            reason[rows.labels == name] = f"label {name} is skipped"
    for (_, file), keys in zip(exclude, banned, strict=True):
        hit = np.isin(rows.keys, keys).any(axis=1) & (reason == "")
        reason[hit] = f"a text occurs in {file.path}"
    staying = np.flatnonzero(reason == "")
    first = staying[first_of(rows.keys[staying])] if len(staying) else staying
    for place, original in zip(staying.tolist(), first.tolist(), strict=True):
        if place != original:
            where = f"row {rows.row[original]} of {files[rows.number[original]][1].path}"
            same = rows.labels is None or rows.labels[place] == rows.labels[original]
            reason[place] = f"{'repeats' if same else 'contradicts'} {where}"
    return rows


def _classes(job: ExampleJob, rows: Rows, kept: np.ndarray) -> list[str] | None:
    """All classes in a fixed order: as they were given, by number, or by name."""
    if job.kind is not ExampleFormat.PAIRS:
        return None
    assert rows.labels is not None
    found = sorted(set(rows.labels[kept].tolist()))
    if len(found) < 2:
        raise ValueError(
            f"all rows have the label {found[0]!r}; a classifier needs two classes, or use "
            f"--format {ExampleFormat.RANKING} for pairs that belong together"
        )
    if job.rules.classes:
        return list(job.rules.classes)
    if all(name.lstrip("-").isdigit() for name in found):
        found.sort(key=int)
    return found


def _shards(spec: PrepareSpec, lengths: np.ndarray) -> list[np.ndarray]:
    num_shards = spec.shards or max(LEAST_SHARDS, -(-len(lengths) // SHARD_ROWS))
    return dealt(lengths, min(num_shards, len(lengths)), spec.seed) if len(lengths) else []


def _left_out(
    job: ExampleJob, rows: Rows, left_out: np.ndarray, generation: str
) -> tuple[DataFile, ...]:
    """Rows that were left out, with their reasons, one file for each input file."""
    calls = []
    for number in np.unique(rows.number[left_out]).tolist():
        chosen = left_out[rows.number[left_out] == number]
        name = f"{QUARANTINE}/{generation}/{number:06d}"
        reasons = {"reason": rows.reason[chosen].tolist()}
        calls.append((job, [(number, rows.row[chosen])], name, None, reasons))
    return tuple(DataFile(**made) for made in in_order(write_rows, calls))


def _counts(rows: Rows) -> dict[str, int]:
    kinds = {"repeats": "repeats", "contradicts": "conflicts", "a": "excluded", "label": "skipped"}
    counts = dict.fromkeys(kinds.values(), 0)
    for reason in rows.reason[rows.reason != ""].tolist():
        counts[kinds[reason.split(" ")[0]]] += 1
    return counts


def _why(rows: Rows) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in _counts(rows).items() if number)


def _report(spec: PrepareSpec, manifest: Manifest, seconds: float) -> PrepareReport:
    return PrepareReport(
        out=spec.out,
        folder=f"{spec.out.rstrip('/')}/{DATA}/{manifest.generation}",
        train=manifest.facts["train"],
        dev=manifest.facts["dev"],
        **manifest.facts["left_out"],
        classes=manifest.spec["classes"],
        seconds=seconds,
    )
