"""Ranking shards -> the same shards with hard negatives.

In:  a shards artifact of queries and answers, and an encoder to search with.
Out: a shards artifact whose rows have the closest answers of other queries that are safely no
     answers of their own. Found by exact search over blocks of vectors on disk.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import DataFile, Manifest, library_versions
from pipelines.artifacts.models import local_model
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.mine.spec import MineSpec
from pipelines.runtime.progress import progress
from pipelines.runtime.session import job_session
from pipelines.runtime.tasks import as_they_come, in_order
from pipelines.runtime.timing import Phases
from sbert_core.corpus.published import DATA
from sbert_core.digest import digest, folder_digest
from sbert_core.training.hard_negatives import Guards, first_places
from workers.mine import MineJob, embed_shard, mine_shard

SPLITS = ("train", "dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class MineReport:
    """What was found."""

    out: str
    folder: str
    rows: int
    negatives: int
    left_out: int
    seconds: float


def run(spec: MineSpec) -> MineReport:
    """Mine each split among its own answers, so that nothing leaks between them."""
    phases = Phases()
    source = Artifact.open(spec.shards)
    if source.manifest.spec.get("format") != "ranking":
        raise ValueError(f"{spec.shards} holds no ranking shards; prepare --format ranking first")
    if source.manifest.facts.get("negatives", 0):
        raise ValueError(f"{spec.shards} has negatives already; mine the shards without them")
    model = str(Path(local_model(spec.model)).absolute())
    identity = {
        "shards": [file.sha256 for file in source.manifest.files],
        "model": folder_digest(Path(model)),
        "negatives": spec.negatives,
        "margin": spec.margin,
        "ceiling": spec.ceiling,
    }
    generation = digest(identity)[:16]
    with Writer.claim(spec.out) as out:
        if out.current is not None and out.current.generation == generation:
            return _report(spec, out.current, 0.0)
        found: list[tuple[str, tuple]] = []
        with job_session(spec.out, spec.address):
            for split in SPLITS:
                files = [f.path for f in source.manifest.files if f.source["split"] == split]
                job = MineJob(
                    source=source.uri,
                    out=out.storage.uri,
                    work=f"{WORK}/{generation}",
                    generation=generation,
                    model=model,
                    shards=tuple(files),
                    num_negatives=spec.negatives,
                    guards=Guards(spec.margin, spec.ceiling),
                )
                found += [(split, made) for made in _mined(job, split)]
        manifest = _manifest(spec, source.manifest, generation, identity, found)
        out.publish(manifest, rows_in=source.manifest.rows, run={"seconds": phases.total})
        return _report(spec, manifest, phases.total)


def _mined(job: MineJob, split: str) -> list[tuple]:
    """The files of one split."""
    if not job.shards:
        return []
    numbers = range(len(job.shards))
    keys = in_order(embed_shard, [(job, number) for number in numbers])
    is_first = first_places(np.concatenate([answers for _, answers in keys]))
    ends = [sum(len(a) for _, a in keys[: n + 1]) for n in numbers]
    is_candidate = [is_first[end - len(keys[n][1]) : end] for n, end in enumerate(ends)]
    found: dict[int, tuple] = {}
    with progress(f"mine {split}", ends[-1]) as advance:
        calls = [(job, number, keys, is_candidate) for number in numbers]
        for number, made in as_they_come(mine_shard, calls):
            found[number] = made
            advance(len(keys[number][0]), 0)
    return [found[number] for number in numbers]


def _manifest(
    spec: MineSpec,
    source: Manifest,
    generation: str,
    identity: dict,
    found: list[tuple[str, tuple]],
) -> Manifest:
    files = [DataFile(**made, source={"split": split}) for split, (made, _, _) in found]
    left_out = [DataFile(**bad) for _, (_, _, bad) in found if bad]
    counts = {
        split: sum(file.rows for file in files if file.source["split"] == split) for split in SPLITS
    }
    return Manifest(
        kind="shards",
        generation=generation,
        schema=source.schema,
        rows=sum(file.rows for file in files),
        quarantined=sum(file.rows for file in left_out),
        files=tuple(files),
        quarantine=tuple(left_out),
        spec={**source.spec, "negatives": spec.negatives},
        made_from={"shards": spec.shards, "model": spec.model, **identity},
        facts={
            **counts,
            "negatives": spec.negatives,
            "guards": asdict(Guards(spec.margin, spec.ceiling)),
        },
        versions=library_versions(),
    )


def _report(spec: MineSpec, manifest: Manifest, seconds: float) -> MineReport:
    return MineReport(
        out=spec.out,
        folder=f"{spec.out.rstrip('/')}/{DATA}/{manifest.generation}",
        rows=manifest.rows,
        negatives=spec.negatives,
        left_out=manifest.quarantined,
        seconds=seconds,
    )
