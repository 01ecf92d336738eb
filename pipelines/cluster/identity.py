"""Options, pairs and vectors -> what identifies a set of clusters."""

from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.artifacts.kinds import ClustersSettings
from pipelines.artifacts.reader import Artifact, PairsArtifact, VectorsArtifact
from pipelines.cluster.spec import ClusterSpec
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.labelled import find_column, read_labelled
from sbert_core.digest import digest


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """What is hashed to decide whether clusters are up to date. protected: ids as texts."""

    spec: ClusterSpec
    pairs: PairsArtifact
    vectors: VectorsArtifact
    thresholds: tuple[float, ...]
    protected: tuple[str, ...]

    @classmethod
    def of(cls, spec: ClusterSpec) -> "ClusterIdentity":
        """Open the artifacts of a spec; ValueError where they do not fit it or each other."""
        pairs = Artifact.pairs(spec.pairs)
        least = pairs.manifest.settings.threshold
        thresholds = tuple(sorted(set(spec.thresholds))) or (least,)
        if thresholds[0] < least:
            raise ValueError(
                f"threshold {thresholds[0]:g} is below that of the pairs, {least:g}; find more "
                f"with sbert pairs --threshold {thresholds[0]:g}"
            )
        if spec.min_rerank is not None and "rerank" not in pairs.manifest.schema:
            raise ValueError(f"{spec.pairs} has no rerank scores; find pairs with --rerank CROSS")
        return cls(
            spec, pairs, _open_vectors(spec, pairs), thresholds, _read_protected(spec.protect)
        )

    @property
    def corpus_files(self) -> list[str]:
        """Files of the corpus the rows come from: equal ids of another corpus are other rows."""
        inputs = self.vectors.manifest.inputs
        return [f"{inputs.corpus}/{file.path}" for file in inputs.files]

    @property
    def options(self) -> dict[str, object]:
        """Options that decide the clusters; an update needs the same ones."""
        return {
            "method": self.spec.method,
            "thresholds": list(self.thresholds),
            "keep": self.spec.keep,
            "min_rerank": self.spec.min_rerank,
            "topics": self.spec.topics,
            "seed": self.spec.seed,
            "space": self.pairs.manifest.settings.space,
        }

    @property
    def settings(self) -> ClustersSettings:
        """What the manifest states of the rules."""
        spec = self.spec
        return ClustersSettings(
            method=spec.method,
            thresholds=self.thresholds,
            keep=spec.keep,
            min_rerank=spec.min_rerank,
            topics=spec.topics,
            seed=spec.seed,
            space=self.pairs.manifest.settings.space,
            goal=self.digest,
        )

    @property
    def digest(self) -> str:
        """Digest of options and inputs. Its keys are frozen: another digest decides anew."""
        metadata = None
        if self.spec.metadata is not None:
            metadata = [asdict(file) for file in find_corpus(self.spec.metadata).files]
        return digest(
            {
                **self.options,
                "protected": list(self.protected),
                "metadata": metadata,
                "share": self.spec.max_cluster_share,
                "pairs": [file.sha256 for file in self.pairs.manifest.listed],
                "vectors": [file.sha256 for file in self.vectors.manifest.files],
            }
        )


def _open_vectors(spec: ClusterSpec, pairs: PairsArtifact) -> VectorsArtifact:
    """The vectors the pairs were found in; ValueError if they have changed since."""
    source = pairs.manifest.inputs.a
    vectors = Artifact.vectors(spec.vectors or source.vectors)
    if tuple(file.sha256 for file in vectors.manifest.files) != source.files:
        raise ValueError(
            f"{spec.pairs} is older than its vectors {vectors.uri}: they have changed since; "
            "find the pairs again with sbert pairs"
        )
    return vectors


def _read_protected(place: str | None) -> tuple[str, ...]:
    """Ids from lines of text, or from the id column of a table."""
    if place is None:
        return ()
    path = Path(place)
    if path.suffix in (".txt", "") and not path.is_dir():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"protect {place} is no UTF-8 text: {error}") from None
        return tuple(dict.fromkeys(filter(None, lines)))
    table = read_labelled(place)
    ids = table[find_column(table, ("id",), f"protect {place}")]
    return tuple(dict.fromkeys(ids.cast(pa.string()).drop_null().to_pylist()))
