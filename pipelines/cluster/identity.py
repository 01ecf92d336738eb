"""What a run of the cluster job is to bring about."""

from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.artifacts.reader import Artifact
from pipelines.cluster.spec import ClusterSpec
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.labelled import column, table_of
from sbert_core.digest import digest


@dataclass(frozen=True, slots=True)
class Goal:
    """These thresholds and rules for those pairs. protected: ids as words."""

    spec: ClusterSpec
    pairs: Artifact
    vectors: Artifact
    thresholds: tuple[float, ...]
    protected: tuple[str, ...]

    @classmethod
    def of(cls, spec: ClusterSpec) -> "Goal":
        pairs = Artifact.pairs(spec.pairs)
        least = pairs.manifest.spec["threshold"]
        thresholds = tuple(sorted(set(spec.thresholds))) or (least,)
        if thresholds[0] < least:
            raise ValueError(
                f"threshold {thresholds[0]:g} is below that of the pairs, {least:g}; find more "
                f"with sbert pairs --threshold {thresholds[0]:g}"
            )
        if spec.min_rerank is not None and "rerank" not in pairs.manifest.schema:
            raise ValueError(f"{spec.pairs} has no rerank scores; find pairs with --rerank CROSS")
        return cls(spec, pairs, _vectors_of(spec, pairs), thresholds, _protected(spec.protect))

    @property
    def corpus_files(self) -> list[str]:
        """Where the rows come from: ids of another corpus are other rows."""
        source = self.vectors.manifest.made_from
        return [f"{source['corpus']}/{file['path']}" for file in source["files"]]

    @property
    def options(self) -> dict[str, object]:
        """Everything but the rows that shapes the clusters."""
        return {
            "method": self.spec.method,
            "thresholds": list(self.thresholds),
            "keep": self.spec.keep,
            "min_rerank": self.spec.min_rerank,
            "topics": self.spec.topics,
            "seed": self.spec.seed,
            "space": self.pairs.manifest.spec["space"],
        }

    @property
    def digest(self) -> str:
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


def _vectors_of(spec: ClusterSpec, pairs: Artifact) -> Artifact:
    """The vectors the pairs were found in, as they were then."""
    source = pairs.manifest.made_from["a"]
    vectors = Artifact.vectors(spec.vectors or source["vectors"])
    if [file.sha256 for file in vectors.manifest.files] != source["files"]:
        raise ValueError(
            f"{spec.pairs} is older than its vectors {vectors.uri}: they have changed since; "
            "find the pairs again with sbert pairs"
        )
    return vectors


def _protected(place: str | None) -> tuple[str, ...]:
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
    table = table_of(place)
    ids = table[column(table, ("id",), f"protect {place}")]
    return tuple(dict.fromkeys(ids.cast(pa.string()).drop_null().to_pylist()))
