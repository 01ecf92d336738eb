"""What a run of the apply job is to bring about, and which rows that takes out."""

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
    """These clusters, at this threshold, taken out of that corpus."""

    clusters: ClustersArtifact
    vectors: VectorsArtifact
    threshold: float
    corpus: Corpus

    @classmethod
    def of(cls, spec: ApplySpec) -> "ApplyIdentity":
        clusters = Artifact.clusters(spec.clusters)
        threshold = _threshold(spec, clusters)
        vectors = _vectors_of(clusters)
        corpus = find_corpus(spec.corpus)
        refuse_overlap(spec.corpus, corpus, spec.out)
        goal = cls(clusters=clusters, vectors=vectors, threshold=threshold, corpus=corpus)
        if goal.id_column is None:
            _refuse_changed(corpus, vectors)
        return goal

    @property
    def id_column(self) -> str | None:
        return self.vectors.manifest.inputs.id_column

    @property
    def generation(self) -> str:
        whole = {
            "clusters": [file.sha256 for file in self.clusters.manifest.files],
            "vectors": list(self.clusters.manifest.inputs.vectors_files),
            "threshold": self.threshold,
            "corpus": self.corpus.root,
            "files": [(file.path, file.size, file.version) for file in self.corpus.files],
        }
        return digest(whole)[:16]


def find_removed_rows(goal: ApplyIdentity) -> RemovedRows:
    """What the clusters say goes."""
    clusters, vectors = goal.clusters, goal.vectors
    check_parts(clusters, clusters.manifest.files)  # what they say goes is gone
    table = read_columns(clusters, ["id", "threshold", "keep"])
    own = table.filter(pc.equal(table["threshold"], pa.scalar(goal.threshold, pa.float32())))
    goes = pc.invert(own["keep"])
    ids = own["id"].filter(goes).combine_chunks()
    if goal.id_column is not None:
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


def _threshold(spec: ApplySpec, clusters: ClustersArtifact) -> float:
    have = clusters.manifest.settings.thresholds
    words = ", ".join(f"{own:g}" for own in have)
    if spec.threshold is None and len(have) > 1:
        raise ValueError(f"{spec.clusters} has clusters at {words}; choose one with --threshold")
    wanted = have[0] if spec.threshold is None else spec.threshold
    if wanted not in have:
        raise ValueError(f"{spec.clusters} has no clusters at {wanted:g}, but at {words}")
    return wanted


def _vectors_of(clusters: ClustersArtifact) -> VectorsArtifact:
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
