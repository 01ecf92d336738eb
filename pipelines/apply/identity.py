"""Clusters and a corpus -> what identifies the cleaned corpus, and the rows to take out of it."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.apply.spec import ApplySpec
from pipelines.artifacts.ids import check_parts, read_columns
from pipelines.artifacts.reader import Artifact, ClustersArtifact, VectorsArtifact
from sbert_core.corpus.errors import ChangedFile
from sbert_core.corpus.files import Corpus, find_corpus, refuse_overlap
from sbert_core.digest import digest
from workers.apply import RemovedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyIdentity:
    """What is hashed into the generation of a cleaned corpus."""

    clusters: ClustersArtifact
    vectors: VectorsArtifact
    threshold: float
    corpus: Corpus

    @classmethod
    def of(cls, spec: ApplySpec) -> "ApplyIdentity":
        """Open the artifacts and list the corpus of a spec.

        ValueError where they do not fit; ChangedFile where rows are known by their numbers and a
        file has changed.
        """
        clusters = Artifact.clusters(spec.clusters)
        threshold = _choose_threshold(spec, clusters)
        vectors = _open_vectors(clusters)
        corpus = find_corpus(spec.corpus)
        refuse_overlap(spec.corpus, corpus, spec.out)
        if vectors.manifest.inputs.id_column is None:
            _refuse_changed(corpus, vectors)
        return cls(clusters=clusters, vectors=vectors, threshold=threshold, corpus=corpus)

    @property
    def id_column(self) -> str | None:
        """Column of ids of the corpus; None where rows are known by their numbers."""
        return self.vectors.manifest.inputs.id_column

    @property
    def generation(self) -> str:
        """Digest of clusters and corpus. Its keys are frozen: another digest writes anew."""
        whole = {
            "clusters": [file.sha256 for file in self.clusters.manifest.files],
            "vectors": list(self.clusters.manifest.inputs.vectors_files),
            "threshold": self.threshold,
            "corpus": self.corpus.root,
            "files": [(file.path, file.size, file.version) for file in self.corpus.files],
        }
        return digest(whole)[:16]


def find_removed_rows(identity: ApplyIdentity) -> RemovedRows:
    """The rows that the clusters remove: their ids, or their numbers by file."""
    clusters, vectors = identity.clusters, identity.vectors
    check_parts(clusters, clusters.manifest.files)  # before any row is dropped for them
    table = read_columns(clusters, ["id", "threshold", "keep"])
    own = table.filter(pc.equal(table["threshold"], pa.scalar(identity.threshold, pa.float32())))
    goes = pc.invert(own["keep"])
    ids = own["id"].filter(goes).combine_chunks()
    if identity.id_column is not None:
        return RemovedRows(ids, {})
    # Clusters list rows in the order of the vectors.
    place = read_columns(vectors, ["file", "row"]).filter(goes)
    files, row = place["file"].combine_chunks().dictionary_encode(), place["row"].to_numpy()
    code = files.indices.to_numpy()
    order = np.argsort(code, kind="stable")
    bounds = np.searchsorted(code[order], np.arange(len(files.dictionary) + 1))
    rows = {
        path: row[order[low:high]]
        for path, low, high in zip(files.dictionary.to_pylist(), bounds, bounds[1:], strict=False)
    }
    return RemovedRows(ids[:0], rows)


def _choose_threshold(spec: ApplySpec, clusters: ClustersArtifact) -> float:
    have = clusters.manifest.settings.thresholds
    words = ", ".join(f"{own:g}" for own in have)
    if spec.threshold is None and len(have) > 1:
        raise ValueError(f"{spec.clusters} has clusters at {words}; choose one with --threshold")
    wanted = have[0] if spec.threshold is None else spec.threshold
    if wanted not in have:
        raise ValueError(f"{spec.clusters} has no clusters at {wanted:g}, but at {words}")
    return wanted


def _open_vectors(clusters: ClustersArtifact) -> VectorsArtifact:
    inputs = clusters.manifest.inputs
    vectors = Artifact.vectors(inputs.vectors)
    if tuple(file.sha256 for file in vectors.manifest.files) != inputs.vectors_files:
        raise ValueError(
            f"{clusters.uri} is older than its vectors {vectors.uri}: they have changed since; "
            "find pairs and clusters again"
        )
    if "doc_id" in vectors.manifest.schema:
        raise ValueError(
            f"{vectors.uri} holds windows of documents; a removed window says nothing of its "
            "document: embed with --long truncate or pool"
        )
    return vectors


def _refuse_changed(corpus: Corpus, vectors: VectorsArtifact) -> None:
    """Rows known by number mean nothing in a file that has changed."""
    known = {f.path: (f.size, f.version) for f in vectors.manifest.inputs.files}
    for file in corpus.files:
        if known.get(file.path, (file.size, file.version)) != (file.size, file.version):
            reason = "has changed since it was embedded, and its rows have no ids; embed it again"
            raise ChangedFile(corpus.root, file.path, reason)
