"""Labelled files -> shards to train on, split without leakage.

In:  TSV, CSV, JSON lines or Parquet with pairs, scored pairs, triplets or queries and answers.
Out: a shards artifact: Parquet files of equal token mass, train and dev without a common text.
     Rows that were left out stand in its quarantine with the reason: rows in = rows out + those.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipelines.artifacts.kinds import SHARDS, ShardsMetrics, ShardsSettings
from pipelines.artifacts.layout import QUARANTINE, WORK
from pipelines.artifacts.manifest import Manifest, ShardsManifest
from pipelines.artifacts.models import resolve_model
from pipelines.artifacts.writer import Writer
from pipelines.prepare.spec import PrepareSpec
from pipelines.runtime.stage import ArtifactStage, Made, StageReport, run_stage
from pipelines.runtime.tasks import in_order
from pipelines.runtime.timing import StageTimer
from sbert_core.arrays import Float64Array, Int64Array, ObjectArray, UInt64Array
from sbert_core.choices import ExampleFormat
from sbert_core.corpus.files import CorpusFile, find_corpus
from sbert_core.corpus.published import DATA
from sbert_core.data_file import DataFile
from sbert_core.digest import digest
from sbert_core.training.examples import LabelRules
from sbert_core.training.exclusions import Exclusion, ExclusionReason, count_exclusions
from sbert_core.training.splits import balanced_shards, first_occurrences, is_dev
from workers.prepare import FileExamples, PrepareJob, read_examples, read_text_keys, write_rows

# Enough shards for any number of workers up to this to have equal shares; more for big data.
LEAST_SHARDS = 8
SHARD_ROWS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareReport(StageReport):
    """What was kept and what was left out."""

    folder: str
    train: int
    dev: int
    repeats: int
    conflicts: int
    excluded: int
    skipped: int
    classes: list[str] | None


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of all files, as the driver sees them. `reason` is "" for rows that stay."""

    number: Int64Array  # of the file
    row: Int64Array
    keys: UInt64Array
    lengths: Int64Array
    labels: ObjectArray | Float64Array | None
    reason: ObjectArray

    def places(self, chosen: Int64Array) -> list[tuple[int, Int64Array]]:
        """Chosen rows as files and rows in them, their order kept within a file."""
        return [(int(n), self.row[chosen[self.number[chosen] == n]]) for n in self._files(chosen)]

    def _files(self, chosen: Int64Array) -> Int64Array:
        return np.unique(self.number[chosen])


def run(spec: PrepareSpec) -> PrepareReport:
    """Check, clean and split all rows, and write balanced shards."""
    return run_stage(PrepareStage(spec))


class PrepareStage(ArtifactStage[ShardsSettings, dict[str, object], ShardsMetrics, PrepareReport]):
    """These labelled files as shards."""

    kind = SHARDS

    def __init__(self, spec: PrepareSpec) -> None:
        self._spec, self.address = spec, spec.address
        self._files = _found(spec.files)
        self._exclude = _found(spec.exclude)

    @property
    def spec(self) -> PrepareSpec:
        return self._spec

    @cached_property
    def identity(self) -> str:
        return digest(self._inputs)[:16]

    @property
    def _inputs(self) -> dict[str, object]:
        options = asdict(self.spec)
        for name in ("files", "exclude", "out", "address"):
            del options[name]
        return {
            **options,
            "files": [(root, asdict(file)) for root, file in self._files],
            "exclude": [(root, asdict(file)) for root, file in self._exclude],
        }

    def make(
        self, out: Writer, timer: StageTimer
    ) -> Made[ShardsSettings, dict[str, object], ShardsMetrics]:
        spec, generation = self.spec, self.identity
        job = _job(spec, out, generation)
        with timer.phase("read"):
            rows = self._clean_rows(job)
        kept = np.flatnonzero(rows.reason == "")
        if not len(kept):
            raise ValueError(
                f"all {len(rows.row):,} rows were left out ({_describe_counts(rows)}); "
                "nothing to train on: check --exclude and the labels"
            )
        classes = _classes(job, rows, kept)
        is_held_out = is_dev(rows.keys[kept], spec.dev_fraction, spec.seed)
        splits = {"train": kept[~is_held_out], "dev": kept[is_held_out]}
        with timer.phase("write"):
            shards = _write_shards(spec, job, rows, splits, classes)
            left_out = _write_left_out(job, rows, np.flatnonzero(rows.reason != ""), generation)
        manifest = Manifest(
            kind=SHARDS.name,
            generation=generation,
            schema={"format": spec.format},
            rows=sum(file.rows for file in shards),
            quarantined=sum(file.rows for file in left_out),
            files=tuple(shards),
            quarantine=left_out,
            settings=ShardsSettings(
                format=spec.format,
                classes=None if classes is None else tuple(classes),
                score_range=spec.score_range,
                seed=spec.seed,
                length_unit="tokens" if spec.tokenizer else "characters",
            ),
            inputs=self._inputs,
            metrics=ShardsMetrics(
                rows_in=len(rows.row),
                train=len(splits["train"]),
                dev=len(splits["dev"]),
                negatives=rows.keys.shape[1] - 2 if spec.format is ExampleFormat.RANKING else 0,
                left_out=_count_reasons(rows),
            ),
        )
        return Made(manifest=manifest, rows_in=len(rows.row))

    def _clean_rows(self, job: PrepareJob) -> Rows:
        calls = [(job, *file, number) for number, file in enumerate(self._files)]
        found = in_order(read_examples, calls)
        banned = in_order(read_text_keys, self._exclude)
        return _exclude_rows(self.spec, job, _rows(found), self._files, self._exclude, banned)

    def report(self, published: ShardsManifest, *, is_new: bool, seconds: float) -> PrepareReport:
        metrics = published.metrics
        classes = published.settings.classes
        return PrepareReport(
            out=self.spec.out,
            folder=f"{self.spec.out.rstrip('/')}/{DATA}/{published.generation}",
            train=metrics.train,
            dev=metrics.dev,
            **(metrics.left_out or {}),
            classes=None if classes is None else list(classes),
            is_new=is_new,
            seconds=seconds,
        )


def _found(places: tuple[str, ...]) -> list[tuple[str, CorpusFile]]:
    corpora = [find_corpus(place) for place in places]
    return [(corpus.folder, file) for corpus in corpora for file in corpus.files]


def _job(spec: PrepareSpec, out: Writer, generation: str) -> PrepareJob:
    tokenizer = None
    if spec.tokenizer is not None:
        path = Path(resolve_model(spec.tokenizer)) / "tokenizer.json"
        if not path.is_file():
            raise ValueError(f"{path} is not there; name a model that has a fast tokenizer")
        tokenizer = path.read_text(encoding="utf-8")
    low, high = spec.score_range
    return PrepareJob(
        out=out.storage.uri,
        work=f"{WORK}/{generation}",
        kind=spec.format,
        columns=spec.columns,
        rules=LabelRules(
            classes=tuple(name.casefold() for name in spec.labels),
            skipped=tuple(name.casefold() for name in spec.skip_label),
            low=low,
            high=high,
        ),
        tokenizer=tokenizer,
    )


def _write_shards(
    spec: PrepareSpec,
    job: PrepareJob,
    rows: Rows,
    splits: dict[str, Int64Array],
    classes: list[str] | None,
) -> list[DataFile]:
    """Shards of equal token mass for each split."""
    calls: list[tuple[object, ...]] = []
    owners: list[str] = []
    generation = job.work.rpartition("/")[2]
    for split, members in splits.items():
        for number, chosen in enumerate(_shards(spec, rows.lengths[members])):
            name = f"{DATA}/{generation}/{split}-{number:05d}"
            calls.append((job, rows.places(members[chosen]), name, classes, {}))
            owners.append(split)
    made = in_order(write_rows, calls)
    return [file.made_from(split=split) for file, split in zip(made, owners, strict=True)]


def _rows(found: list[FileExamples]) -> Rows:
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


def _exclude_rows(
    spec: PrepareSpec,
    job: PrepareJob,
    rows: Rows,
    files: list[tuple[str, CorpusFile]],
    exclude: list[tuple[str, CorpusFile]],
    banned: list[UInt64Array],
) -> Rows:
    """Give each row that is left out its ExclusionReason; `banned` holds keys by excluded file."""
    reason = rows.reason
    if job.rules.skipped and rows.labels is not None:
        for name in job.rules.skipped:
            reason[rows.labels == name] = ExclusionReason(Exclusion.SKIPPED, name)
    for (_, file), keys in zip(exclude, banned, strict=True):
        is_hit = np.isin(rows.keys, keys).any(axis=1) & (reason == "")
        reason[is_hit] = ExclusionReason(Exclusion.EXCLUDED, file.path)
    staying = np.flatnonzero(reason == "")
    first = staying[first_occurrences(rows.keys[staying])] if len(staying) else staying
    for row, original in zip(staying.tolist(), first.tolist(), strict=True):
        if row != original:
            where = f"row {rows.row[original]} of {files[rows.number[original]][1].path}"
            is_same = rows.labels is None or rows.labels[row] == rows.labels[original]
            kind = Exclusion.REPEATS if is_same else Exclusion.CONFLICTS
            reason[row] = ExclusionReason(kind, where)
    return rows


def _classes(job: PrepareJob, rows: Rows, kept: Int64Array) -> list[str] | None:
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


def _shards(spec: PrepareSpec, lengths: Int64Array) -> list[Int64Array]:
    num_shards = spec.shards or max(LEAST_SHARDS, -(-len(lengths) // SHARD_ROWS))
    return (
        balanced_shards(lengths, min(num_shards, len(lengths)), spec.seed) if len(lengths) else []
    )


def _write_left_out(
    job: PrepareJob, rows: Rows, left_out: Int64Array, generation: str
) -> tuple[DataFile, ...]:
    """Rows that were left out, with their reasons, one file for each input file."""
    calls = []
    for number in np.unique(rows.number[left_out]).tolist():
        chosen = left_out[rows.number[left_out] == number]
        name = f"{QUARANTINE}/{generation}/{number:06d}"
        reasons = {"reason": [reason.sentence for reason in rows.reason[chosen]]}
        calls.append((job, [(number, rows.row[chosen])], name, None, reasons))
    return tuple(in_order(write_rows, calls))


def _count_reasons(rows: Rows) -> dict[str, int]:
    """Rows left out by kind of reason, under the manifest's names of the kinds."""
    counts = count_exclusions(rows.reason[rows.reason != ""])
    return {kind.value: number for kind, number in counts.items()}


def _describe_counts(rows: Rows) -> str:
    """The counts in words, without zeros."""
    return ", ".join(
        f"{number:,} {name}" for name, number in _count_reasons(rows).items() if number
    )
