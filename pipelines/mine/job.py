"""Ranking shards -> the same shards with hard negatives.

In:  a shards artifact of queries and answers, and an encoder to search with.
Out: a shards artifact whose rows have the closest answers of other queries that are safely no
     answers of their own. Found by exact search over blocks of vectors on disk.
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from pipelines.artifacts.kinds import SHARDS, ShardsMetrics, ShardsSettings
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import Manifest, ShardsManifest
from pipelines.artifacts.models import resolve_model
from pipelines.artifacts.reader import Artifact, ShardsArtifact
from pipelines.artifacts.writer import Writer
from pipelines.mine.spec import MineSpec
from pipelines.runtime.progress import progress
from pipelines.runtime.stage import ArtifactStage, Made, StageReport, run_stage
from pipelines.runtime.tasks import as_they_come, in_order
from pipelines.runtime.timing import StageTimer
from sbert_core.choices import ExampleFormat, Precision
from sbert_core.corpus.published import DATA
from sbert_core.data_file import DataFile
from sbert_core.digest import digest, folder_digest
from sbert_core.training.hard_negatives import Guards, is_first_occurrence
from workers.mine import MinedShard, MineJob, embed_shard, mine_shard

SPLITS = ("train", "dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class MineReport(StageReport):
    """rows: with their negatives. left_out: rows with too few candidates."""

    folder: str
    rows: int
    negatives: int
    left_out: int


def run(spec: MineSpec) -> MineReport:
    """Mine each split among its own answers, so that nothing leaks between them."""
    return run_stage(MineStage(spec))


class MineStage(ArtifactStage[ShardsSettings, dict[str, object], ShardsMetrics, MineReport]):
    """Hard negatives for these shards, found with that model."""

    kind = SHARDS

    def __init__(self, spec: MineSpec) -> None:
        self._spec, self.address = spec, spec.address
        self._source = _open_ranking(spec.shards)
        self._model = Path(resolve_model(spec.model))

    @property
    def spec(self) -> MineSpec:
        return self._spec

    @cached_property
    def identity(self) -> str:
        return digest(self._ingredients)[:16]

    @cached_property
    def _ingredients(self) -> dict[str, object]:
        return {
            "shards": [file.sha256 for file in self._source.manifest.files],
            "model": folder_digest(self._model),
            "negatives": self.spec.negatives,
            "margin": self.spec.margin,
            "ceiling": self.spec.ceiling,
            # Only where it is not the format that shards were mined in before there was a choice.
            **(
                {}
                if self.spec.precision is Precision.FLOAT32
                else {"precision": self.spec.precision}
            ),
        }

    def make(
        self, out: Writer, timer: StageTimer
    ) -> Made[ShardsSettings, dict[str, object], ShardsMetrics]:
        files: dict[str, list[DataFile]] = {}
        left_out: list[DataFile] = []
        for split in SPLITS:
            with timer.phase(split):
                made = _mine_split(self._job(split, out), split)
            files[split] = [shard.file.made_from(split=split) for shard in made]
            left_out += [shard.left_out for shard in made if shard.left_out is not None]
        source, listed = self._source.manifest, [file for own in files.values() for file in own]
        guards = Guards(self.spec.margin, self.spec.ceiling)
        manifest = Manifest(
            kind=SHARDS.name,
            generation=self.identity,
            schema=source.schema,
            rows=sum(file.rows for file in listed),
            quarantined=sum(file.rows for file in left_out),
            files=tuple(listed),
            quarantine=tuple(left_out),
            settings=replace(source.settings, negatives=self.spec.negatives),
            # The digests stand under the names of the options, as identities have them.
            inputs=dict(self._ingredients),
            metrics=ShardsMetrics(
                train=sum(file.rows for file in files["train"]),
                dev=sum(file.rows for file in files["dev"]),
                negatives=self.spec.negatives,
                guards=asdict(guards),
            ),
        )
        return Made(manifest=manifest, rows_in=source.rows)

    def _job(self, split: str, out: Writer) -> MineJob:
        shards = [
            file.path for file in self._source.manifest.files if file.source_text("split") == split
        ]
        return MineJob(
            source=self._source.uri,
            out=out.storage.uri,
            work=f"{WORK}/{self.identity}",
            generation=self.identity,
            model=str(self._model),
            precision=self.spec.precision,
            shards=tuple(shards),
            num_negatives=self.spec.negatives,
            guards=Guards(self.spec.margin, self.spec.ceiling),
        )

    def report(self, published: ShardsManifest, *, is_new: bool, seconds: float) -> MineReport:
        return MineReport(
            out=self.spec.out,
            folder=f"{self.spec.out.rstrip('/')}/{DATA}/{published.generation}",
            rows=published.rows,
            negatives=self.spec.negatives,
            left_out=published.quarantined,
            is_new=is_new,
            seconds=seconds,
        )


def _open_ranking(place: str) -> ShardsArtifact:
    """Shards of queries and answers that have no negatives yet."""
    source = Artifact.shards(place)
    if source.manifest.settings.format != ExampleFormat.RANKING:
        raise ValueError(f"{place} holds no ranking shards; prepare --format ranking first")
    if source.manifest.metrics.negatives:
        raise ValueError(f"{place} has negatives already; mine the shards without them")
    return source


def _mine_split(job: MineJob, split: str) -> list[MinedShard]:
    """The files of one split."""
    if not job.shards:
        return []
    numbers = range(len(job.shards))
    keys = in_order(embed_shard, [(job, number) for number in numbers])
    is_first = is_first_occurrence(np.concatenate([answers for _, answers in keys]))
    ends = [sum(len(a) for _, a in keys[: n + 1]) for n in numbers]
    is_candidate = [is_first[end - len(keys[n][1]) : end] for n, end in enumerate(ends)]
    found: dict[int, MinedShard] = {}
    with progress(f"mine {split}", ends[-1]) as advance:
        calls = [(job, number, keys, is_candidate) for number in numbers]
        for number, made in as_they_come(mine_shard, calls):
            found[number] = made
            advance(len(keys[number][0]), 0)
    return [found[number] for number in numbers]
