"""What a run of the index job makes: the digests that decide whether there is anything to do."""

from dataclasses import dataclass

from pipelines.artifacts.manifest import IndexManifest
from pipelines.artifacts.reader import VectorsArtifact
from pipelines.artifacts.writer import Writer
from pipelines.index.spec import IndexSpec
from sbert_core.corpus.published import DATA
from sbert_core.data_file import ListedFile
from sbert_core.digest import digest
from sbert_core.index.kinds import IndexKind
from workers.index.job import IndexJob


@dataclass(frozen=True, slots=True)
class IndexIdentity:
    """The index of these vectors. current: the index to update; None builds from nothing."""

    spec: IndexSpec
    vectors: VectorsArtifact
    kind: IndexKind
    current: IndexManifest | None

    @property
    def target(self) -> str:
        """Digest of options and vectors, whatever index was there before."""
        names = ("kind", "shards", "m", "ef_construction", "train_sample", "recall_sample")
        options = {n: getattr(self.spec, n) for n in (*names, "recall_target", "seed")}
        files = [(file.sha256, file.rows) for file in self.vectors.manifest.files]
        space = self.vectors.manifest.settings.space
        return digest({"options": options, "files": files, "space": space})

    @property
    def generation(self) -> str:
        """Name of the folder of the files: digest of the target and the index it is built on."""
        base = self.current.generation if self.current else ""
        return digest({"target": self.target, "base": base})[:16]

    def job(self, out: Writer, trained: ListedFile | None) -> IndexJob:
        """Settings of the tasks. trained: the FAISS index that all shards begin with."""
        settings = self.vectors.manifest.settings
        return IndexJob(
            run=self.generation,
            vectors=self.vectors.uri,
            out=out.storage.uri,
            folder=f"{DATA}/{self.generation}",
            kind=self.kind,
            dim=settings.dim,
            scale=settings.scale,
            seed=self.spec.seed,
            trained=trained,
        )
