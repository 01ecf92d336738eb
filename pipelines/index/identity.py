"""What a run of the index job is to bring about."""

from dataclasses import dataclass
from typing import Any

from pipelines.artifacts.manifest import Manifest
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.index.spec import IndexSpec
from sbert_core.corpus.published import DATA
from sbert_core.digest import digest
from sbert_core.index.kinds import IndexKind
from workers.index.shard import IndexJob


@dataclass(frozen=True, slots=True)
class Goal:
    """This index of those vectors, from what is there."""

    spec: IndexSpec
    vectors: Artifact
    kind: IndexKind
    current: Manifest | None  # None: build from nothing

    @property
    def target(self) -> str:
        """What is to be there in the end, whatever was there before."""
        names = ("kind", "shards", "m", "ef_construction", "train_sample", "recall_sample")
        options = {n: getattr(self.spec, n) for n in (*names, "recall_target", "seed")}
        files = [(file.sha256, file.rows) for file in self.vectors.manifest.files]
        return digest({"options": options, "files": files, "space": self.space})

    @property
    def generation(self) -> str:
        base = self.current.generation if self.current else ""
        return digest({"target": self.target, "base": base})[:16]

    @property
    def space(self) -> str:
        return self.vectors.manifest.spec["space"]

    def job(self, out: Writer, trained: dict[str, Any] | None) -> IndexJob:
        spec = self.vectors.manifest.spec
        return IndexJob(
            run=self.generation,
            vectors=self.vectors.uri,
            out=out.storage.uri,
            folder=f"{DATA}/{self.generation}",
            kind=self.kind,
            dim=spec["dim"],
            scale=spec["scale"],
            seed=self.spec.seed,
            trained=trained,
        )
