"""Texts -> vectors, one row for one row, exactly once.

In:  a corpus of Parquet, CSV or JSON lines, and an encoder.
Out: a vectors artifact. Only new or changed texts pass the model, and each distinct one once.

A run goes: plan the units, scan them for repeats, embed what no earlier run and no earlier unit
has (pass 1), fill in what is borrowed (pass 2), publish. Every step leaves files that a rerun
takes up; only the last one is visible to readers.
"""

import json
import logging
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts import DATA, WORK, DataFile, Manifest, Writer
from pipelines.cluster import EmbedCluster, num_cores
from pipelines.models import PinnedModel, pinned_model
from pipelines.planning import Plan, known_files, make_plan
from pipelines.specs import EmbedSpec
from pipelines.summary import EmbedEstimate, EmbedReport, Phases, library_versions
from sbert_core.corpus.files import Corpus, Format, find_corpus
from sbert_core.corpus.rows import CorruptFile, Text
from sbert_core.corpus.units import Unit
from sbert_core.encoder.fingerprint import digest
from sbert_core.storage import storage_at
from sbert_core.text import invalid_reason
from sbert_core.vectors.dtypes import VectorType, calibrated_scale, cosine_errors
from workers.embedder import EncoderSetup
from workers.scan import Shuffle
from workers.units import UnitJob

log = logging.getLogger(__name__)

PARTITION_ROWS = 1_000_000
SAMPLE_UNITS = 16
SAMPLE_TEXTS = 2048
ESTIMATE_TEXTS = 512
TOKEN_SAMPLE = 2048
# Between a measurement on a few texts and a whole job lie start-up, luck and other users.
ESTIMATE_RANGE = (0.8, 1.6)
ESTIMATED_ROW_BYTES = 60  # id, hash and counts beside the vector


class PartialWork(RuntimeError):
    """The run ended early; what it did is saved and the same command goes on."""


@dataclass(slots=True)
class Counts:
    """What the scan found; kept with the plan."""

    rows_in: dict[int, int] = field(default_factory=dict)
    own_rows: dict[int, int] = field(default_factory=dict)
    own_chars: dict[int, int] = field(default_factory=dict)
    num_valid: int = 0
    num_chars: int = 0
    num_distinct: int = 0
    num_reused: int = 0


def run(spec: EmbedSpec) -> "EmbedReport | EmbedEstimate":
    """Bring the artifact in line with the corpus."""
    phases = Phases()
    corpus = find_corpus(spec.corpus)
    _check_apart(spec, corpus)
    with phases("model"):
        model = pinned_model(spec)
    if spec.plan:
        return _estimate(spec, corpus, model, phases)
    with Writer.claim(spec.out) as out:
        embedding = Embedding(spec, corpus, model, out, phases)
        if embedding.is_published:
            out.storage.delete([WORK])
            assert out.current is not None
            return EmbedReport.nothing_to_do(spec.out, out.current)
        embedding.refuse_other_recipes()
        with EmbedCluster(spec) as cluster:
            return embedding.run(cluster)


def _check_apart(spec: EmbedSpec, corpus: Corpus) -> None:
    """The output must not become part of the corpus, nor the corpus be tidied with the output."""
    out, root = f"{_absolute(spec.out)}/", f"{_absolute(corpus.root)}/"
    spans_folders = "**" in spec.corpus or f"{_absolute(spec.corpus)}/" == root
    if out.startswith(root) and spans_folders:
        raise ValueError(f"out {spec.out} lies inside corpus {spec.corpus}; choose another out")
    if root.startswith(out):
        raise ValueError(f"corpus {spec.corpus} lies inside out {spec.out}; choose another out")


def _absolute(place: str) -> str | Path:
    return place.rstrip("/") if "://" in place else Path(place).resolve()


def _estimate(spec: EmbedSpec, corpus: Corpus, model: PinnedModel, phases: Phases) -> EmbedEstimate:
    """Plan and scan in a temporary folder; measure the model on a few texts."""
    with EmbedCluster(spec) as cluster, tempfile.TemporaryDirectory() as folder:
        out = Writer(storage_at(spec.out))
        embedding = Embedding(spec, corpus, model, out, phases, workplace=folder)
        embedding.refuse_other_recipes()
        plan, counts = embedding._scanned(cluster)
        texts = embedding.sample(plan, ESTIMATE_TEXTS)
        num_chars = sum(len(text) for text in texts if isinstance(text, str))
        start = time.perf_counter()
        tokens = int(model.documents(texts).num_tokens.sum())
        speed = tokens / (time.perf_counter() - start)
        to_embed = sum(counts.own_chars.values()) * tokens / max(1, num_chars)
        rows = sum(counts.rows_in.values()) + _linked_rows(plan)
        row_bytes = model.dim * np.dtype(spec.dtype).itemsize + ESTIMATED_ROW_BYTES
        return EmbedEstimate(
            files=len(plan.files),
            units=len(plan.units),
            rows=rows,
            distinct=counts.num_distinct,
            reused=counts.num_reused + _linked_rows(plan),
            to_embed=sum(counts.own_rows.values()),
            tokens=round(to_embed),
            seconds=tuple(to_embed / max(1.0, speed) * share for share in ESTIMATE_RANGE),
            actors=spec.actors or num_cores(),
            bytes_out=rows * row_bytes,
        )


class Embedding:
    """One run of the job: the spec, the corpus, the model and the output it holds.

    workplace: where the scan writes; the output itself, unless nothing may be written there.
    """

    def __init__(
        self,
        spec: EmbedSpec,
        corpus: Corpus,
        model: PinnedModel,
        out: Writer,
        phases: Phases,
        workplace: str | None = None,
    ) -> None:
        self.workplace = workplace or out.storage.uri
        self.spec = spec
        self.corpus = corpus
        self.model = model
        self.out = out
        self.phases = phases
        names = ("template", "id_column", "id", "carry", "where", "long", "dtype", "unit_rows")
        self.shape = digest(
            {"model_recipe": model.recipe, **{name: getattr(spec, name) for name in names}}
        )
        files = [(file.path, file.size, file.version) for file in corpus.files]
        whole = {
            "shape": self.shape,
            "corpus": corpus.root,
            "files": files,
            "limit": spec.limit,
            "distinct": spec.distinct,
            "skip_corrupt": spec.skip_corrupt,
        }
        self.generation = digest(whole)[:16]
        self.work = f"{WORK}/{self.generation}"

    @property
    def is_published(self) -> bool:
        current = self.out.current
        return current is not None and current.generation == self.generation

    def refuse_other_recipes(self) -> None:
        """Two spaces, or two ways of making vectors, never meet in one artifact."""
        mine = {"space": self.model.space, "recipe": self.model.recipe, "dtype": self.spec.dtype}
        found: list[tuple[str, dict]] = []
        if self.out.current is not None:
            found.append(("vectors", self.out.current.spec))
        for name in self._unfinished():
            plan = json.loads(self.out.storage.read(f"{WORK}/{name}/plan.json"))
            found.append(("unfinished work", plan["spec"]))
        for what, theirs in found:
            for key, value in mine.items():
                if theirs[key] != value:
                    raise ValueError(
                        f"{self.spec.out} holds {what} of {key} {theirs[key][:12]} (model "
                        f"{theirs['model']}), this job makes {key} {value[:12]} (model "
                        f"{self.spec.model}); choose another --out, or remove {self.spec.out}"
                        f"{'/_work' if what != 'vectors' else ''}"
                    )

    def _unfinished(self) -> list[str]:
        """Generations that were planned but not published."""
        stats = self.out.storage.list(WORK)
        found = {s.name.split("/")[1] for s in stats if s.name.endswith("/plan.json")}
        # A kill right after publishing leaves the work files of what is published.
        return sorted(found - ({self.out.current.generation} if self.out.current else set()))

    def run(self, cluster: EmbedCluster) -> EmbedReport:
        """Plan or take up the plan, embed, fill, publish."""
        plan, counts, scale, quality = self._planned(cluster)
        job = self._job(plan, scale)
        try:
            encoded = self._embed(cluster, plan, counts, job)
            self._fill(cluster, plan, job)
        except KeyboardInterrupt:
            raise PartialWork(self._saved(plan, job, "stopped")) from None
        except OSError as error:
            raise PartialWork(self._saved(plan, job, f"{error.strerror or error}")) from error
        with self.phases("manifest"):
            manifest = self._manifest(plan, job, scale, quality)
        storage = self.out.storage
        accounts = [json.loads(storage.read(s.name)) for s in storage.list(f"{self.work}/accounts")]
        report = EmbedReport.of(
            self.spec.out, manifest, accounts, encoded, self.phases, cluster.num_actors
        )
        self._refuse_changed_corpus()
        rows_in = sum(counts.rows_in.values()) + _linked_rows(plan)
        self.out.publish(manifest, rows_in=rows_in, run=asdict(report))
        return report

    def _refuse_changed_corpus(self) -> None:
        """A file that changed while it was read may have mixed old and new rows."""
        now = {file.path: file for file in find_corpus(self.spec.corpus).files}
        changed = [file.path for file in self.corpus.files if now.get(file.path) != file]
        if changed:
            self.out.storage.delete([self.work, f"{DATA}/{self.generation}"])
            raise ValueError(
                f"{changed[0]} changed while it was being embedded; nothing was published, "
                "repeat the command when the corpus is at rest"
            )

    def _saved(self, plan: Plan, job: UnitJob, why: str) -> str:
        done = len(self._commits(job))
        total = len(plan.new_units)
        return f"{why}; {done} of {total} units are saved, the same command goes on from there"

    # -- plan and scan ---------------------------------------------------------------------------

    def _planned(self, cluster: EmbedCluster) -> tuple[Plan, Counts, float | None, dict]:
        storage = self.out.storage
        place = f"{self.work}/plan.json"
        if storage.stat(place) is not None:
            saved = json.loads(storage.read(place))
            log.info("taking up the plan of an unfinished run")
            # Interruptions of whole runs are held against no unit.
            storage.delete([f"{self.work}/attempts"])
            return Plan.from_dict(saved["plan"]), _counts(saved), saved["scale"], saved["quality"]
        with self.phases("plan"):
            plan, counts = self._scanned(cluster)
            scale, quality = self._calibrated(plan)
        facts = {
            "spec": self._spec_facts(scale),
            "plan": plan.to_dict(),
            "counts": asdict(counts),
            "scale": scale,
            "quality": quality,
        }
        storage.put(place, json.dumps(facts).encode())
        return plan, counts, scale, quality

    def _scanned(self, cluster: EmbedCluster) -> tuple[Plan, Counts]:
        """Plan and scan; a file that proves corrupt on the way is left out, if that is allowed."""
        staging = self.workplace
        staged, corrupt = self._staged(cluster)
        while True:
            plan = make_plan(
                self.spec,
                self.corpus,
                self.shape,
                self.out.current,
                staging,
                staged,
                corrupt,
                self._salvaged(),
            )
            try:
                reading = plan.reading(self.spec, self.corpus, staging)
                partitions = self._num_partitions(plan)
                shuffle = Shuffle(
                    place=self.workplace,
                    folder=self.work,
                    num_partitions=partitions,
                    with_texts=self.spec.distinct == "corpus",
                    with_ids=plan.id_column is not None,
                )
                found = cluster.scan(plan, reading, shuffle, self.out.storage.uri)
                return plan, Counts(**found)
            except CorruptFile as error:
                path = next((f.path for f in plan.files if f"/{f.path} " in str(error)), None)
                if not self.spec.skip_corrupt or path is None:
                    raise
                corrupt = corrupt | {path: str(error)}

    def _num_partitions(self, plan: Plan) -> int:
        """Few enough rows in each, those of earlier runs included, to settle in memory."""
        num_old = self.out.current.rows if self.out.current else 0
        num_rows = sum(unit.num_rows for unit in plan.units) + num_old
        return max(1, -(-num_rows // PARTITION_ROWS))

    def _staged(self, cluster: EmbedCluster) -> tuple[dict[str, str], dict[str, str]]:
        """Parquet copies of files that have no row ranges, unless all their units are linked."""
        known: dict[str, Any] = {}
        if self.spec.id is None and self.spec.limit is None:
            known = known_files(self.corpus, self.out.current, self.shape)
        files = [
            file
            for file in self.corpus.files
            if file.format is not Format.PARQUET and file.path not in known
        ]
        return cluster.stage(self.corpus, files, self.spec, self.workplace, self.work)

    def _salvaged(self) -> list[tuple[str, str]]:
        """Parts an unfinished run with another corpus has left; their vectors are still good."""
        storage = self.out.storage
        found = []
        for name in self._unfinished():
            for stat in storage.list(f"{WORK}/{name}/commits"):
                record = json.loads(storage.read(stat.name))
                found.append((record["data"]["path"], record["file"]))
        return sorted(found)

    def _calibrated(self, plan: Plan) -> tuple[float | None, dict]:
        """The int8 scale, from the last run or a sample, and what storing costs in cosines."""
        kind = VectorType(self.spec.dtype)
        if kind is VectorType.FLOAT32:
            return None, {}
        current = self.out.current
        if current is not None:
            return current.spec["scale"], current.facts["storage_error"]
        for name in self._unfinished():  # its vectors are reused, so its scale must be
            plan_file = json.loads(self.out.storage.read(f"{WORK}/{name}/plan.json"))
            return plan_file["scale"], plan_file["quality"]
        sample = self.model.documents(self.sample(plan, SAMPLE_TEXTS)).vectors
        scale = calibrated_scale(sample) if kind is VectorType.INT8 else None
        return scale, {"sample": len(sample), **cosine_errors(sample, kind, scale)}

    def sample(self, plan: Plan, num_texts: int) -> list[Text]:
        """Some texts from units all over the corpus; the same for the same corpus."""
        reading = plan.reading(self.spec, self.corpus, self.workplace)
        chosen = plan.new_units[:: max(1, len(plan.new_units) // SAMPLE_UNITS)]
        texts: list[Text] = []
        for unit in chosen:
            num_rows = min(unit.num_rows, -(-num_texts // len(chosen)))
            texts += reading.read(unit.path, unit.first_row, num_rows).texts
        return texts[:num_texts]

    # -- embed -----------------------------------------------------------------------------------

    def _job(self, plan: Plan, scale: float | None) -> UnitJob:
        partitions = self._num_partitions(plan)
        metadata = {"sbert.space": self.model.space, "sbert.dtype": self.spec.dtype}
        if scale is not None:
            metadata["sbert.scale"] = repr(scale)
        return UnitJob(
            out=self.out.storage.uri,
            generation=self.generation,
            reading=plan.reading(self.spec, self.corpus, self.workplace),
            num_units=len(plan.units),
            num_partitions=partitions if self.spec.distinct == "corpus" else 0,
            sources=tuple(name for name, _ in plan.sources),
            source_paths=tuple(path for _, path in plan.sources),
            dtype=VectorType(self.spec.dtype),
            scale=scale,
            has_chunks=self.spec.long == "chunks",
            metadata=metadata,
        )

    def _commits(self, job: UnitJob) -> dict[int, dict]:
        storage = self.out.storage
        records = [json.loads(storage.read(s.name)) for s in storage.list(f"{job.work}/commits")]
        return {
            record["unit"]: record
            for record in records
            if _is_there(storage, record["data"]) and _is_there(storage, record["quarantine"])
        }

    def _embed(
        self, cluster: EmbedCluster, plan: Plan, counts: Counts, job: UnitJob
    ) -> list[dict[str, Any]]:
        """Pass 1: encode what each unit owns. Units without anything to encode wait for pass 2."""
        done = self._commits(job)
        stashed = {
            stat.name.rpartition("/")[2] for stat in self.out.storage.list(f"{job.work}/stash")
        }
        todo = [
            unit
            for unit in plan.new_units
            if counts.own_rows[unit.number] and unit.number not in done and unit.name not in stashed
        ]
        if not todo:
            return []
        # The longest first: what is left for the end is short.
        todo.sort(key=lambda unit: (-counts.own_chars[unit.number], unit.number))
        num_rows = sum(counts.own_rows[unit.number] for unit in todo)
        num_chars = sum(counts.own_chars[unit.number] for unit in todo)
        num_tokens = round(num_chars * self._tokens_per_char(plan))
        with self.phases("embed"):
            return cluster.embed(todo, num_rows, num_tokens, job, self._setup(cluster))

    def _tokens_per_char(self, plan: Plan) -> float:
        """From a few texts, cut as the model cuts them."""
        texts = [str(t) for t in self.sample(plan, TOKEN_SAMPLE) if not invalid_reason(t)]
        num_tokens = sum(len(t.ids) for t in self.model.encoder.tokens_of(texts))
        return num_tokens / max(1, sum(map(len, texts)))

    def _setup(self, cluster: EmbedCluster) -> EncoderSetup:
        return self.model.setup(cluster.place_model(self.model, self.out.storage, self.work))

    def _fill(self, cluster: EmbedCluster, plan: Plan, job: UnitJob) -> None:
        """Pass 2: commit the units that borrow."""
        done = self._commits(job)
        todo = [unit for unit in plan.new_units if unit.number not in done]
        if todo:
            with self.phases("fill"):
                cluster.fill(todo, job, self.model.dim)

    # -- publish ---------------------------------------------------------------------------------

    def _spec_facts(self, scale: float | None) -> dict[str, Any]:
        return {
            "model": self.spec.model,
            "space": self.model.space,
            "recipe": self.model.recipe,
            "prompt": self.model.prompt,
            "max_length": self.model.max_length,
            "long": self.spec.long,
            "dim": self.model.dim,
            "dtype": self.spec.dtype,
            "scale": scale,
            "normalized": True,
            "batch_invariant": self.model.batch_invariant,
        }

    def _manifest(self, plan: Plan, job: UnitJob, scale: float | None, quality: dict) -> Manifest:
        commits = self._commits(job)
        files, quarantine = [], []
        totals = dict.fromkeys(("documents", "truncated", "lost_tokens", "tokens"), 0)
        for unit in plan.units:
            data, bad, source = self._unit_files(unit, plan, commits)
            for name in totals:
                totals[name] += source[name]
            files.append(data)
            quarantine += [bad] if bad else []
        if not files:
            files.append(self._empty_part(plan, job))
        quarantined = sum(file.rows for file in quarantine)
        quarantine += self._corrupt_files(plan, job)
        return Manifest(
            kind="vectors",
            generation=self.generation,
            schema=_schema(self.out.storage, files[0].path),
            rows=sum(file.rows for file in files),
            quarantined=quarantined,
            files=tuple(files),
            quarantine=tuple(quarantine),
            spec=self._spec_facts(scale),
            made_from={
                "corpus": self.corpus.root,
                "shape": self.shape,
                "files": [asdict(file) for file in plan.files],
                "corrupt": [path for path, _ in plan.corrupt],
                "text": self.spec.template,
                "id": plan.id_kind,
                "id_column": plan.id_column,
                "positional": plan.id_kind == "position",
                "carry": list(self.spec.carry),
                "where": self.spec.where,
                "limit": self.spec.limit,
                "types": plan.types,
                "partition_types": plan.partition_types,
            },
            facts={**totals, "storage_error": quality},
            versions=library_versions(),
        )

    def _unit_files(
        self, unit: Unit, plan: Plan, commits: dict[int, dict]
    ) -> tuple[DataFile, DataFile | None, dict]:
        """A unit's data and quarantine files; those of an unchanged unit are linked."""
        if unit.number in plan.links:
            link = plan.links[unit.number]
            data = self._linked(link.data, unit)
            return (
                data,
                self._linked(link.quarantine, unit) if link.quarantine else None,
                data.source,
            )
        record = commits[unit.number]
        kept = ("file", "first_row", "num_rows", "documents", "truncated", "lost_tokens", "tokens")
        source = {name: record[name] for name in kept}
        bad = record["quarantine"]
        return (
            DataFile(**record["data"], source=source),
            DataFile(**bad, source=source) if bad else None,
            source,
        )

    def _linked(self, file: DataFile, unit: Unit) -> DataFile:
        """The same bytes under this generation and unit number."""
        folder = file.path.split("/")[0]
        name = f"{folder}/{self.generation}/{unit.name}-{file.sha256[:16]}.parquet"
        self.out.storage.link(file.path, name)
        return DataFile(
            path=name, rows=file.rows, sha256=file.sha256, bytes=file.bytes, source=file.source
        )

    def _empty_part(self, plan: Plan, job: UnitJob) -> DataFile:
        """A part without rows, so that readers of an empty artifact find its columns."""
        return DataFile(**job.empty(self.model.dim, plan.types), source={"file": ""})

    def _corrupt_files(self, plan: Plan, job: UnitJob) -> list[DataFile]:
        if not plan.corrupt:
            return []
        return [DataFile(**job.corrupt(dict(plan.corrupt)), source={"files": len(plan.corrupt)})]


def _linked_rows(plan: Plan) -> int:
    """Rows of units that were taken over whole, with and without a vector."""
    return sum(
        link.data.source["documents"] + (link.quarantine.rows if link.quarantine else 0)
        for link in plan.links.values()
    )


def _is_there(storage: Any, file: dict | None) -> bool:  # noqa: ANN401
    if file is None:
        return True
    found = storage.stat(file["path"])
    return found is not None and found.size == file["bytes"]


def _counts(saved: dict[str, Any]) -> Counts:
    """Counts as they were saved; JSON turns numbers that are keys into text."""
    fields: dict[str, Any] = dict(saved["counts"])
    for name in ("rows_in", "own_rows", "own_chars"):
        fields[name] = {int(unit): value for unit, value in fields[name].items()}
    return Counts(**fields)


def _schema(storage: Any, name: str) -> dict[str, str]:  # noqa: ANN401
    with pq.ParquetFile(pa.PythonFile(storage.open(name), "r")) as file:
        return {field.name: str(field.type) for field in file.schema_arrow}
