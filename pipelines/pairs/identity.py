"""Options and vectors -> what identifies a set of pairs: the same identity, the same pairs."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.artifacts.models import resolve_model
from pipelines.artifacts.reader import Artifact, VectorsArtifact
from pipelines.pairs.spec import PairsSpec
from sbert_core.digest import digest, folder_digest


class SpaceMismatch(ValueError):
    """Vectors of two models, whose cosines mean nothing. spaces: of both sides."""

    def __init__(self, spec: PairsSpec, own: str, other: str) -> None:
        super().__init__(
            f"{spec.vectors} holds vectors of space {own[:12]}, {spec.against} of "
            f"{other[:12]}; they cannot be compared: embed both with one model"
        )
        self.spaces = (own, other)


class PrecisionMismatch(ValueError):
    """A threshold that the number formats of two sides cannot resolve.

    limit: the largest threshold they can.
    """

    def __init__(self, spec: PairsSpec, formats: tuple[str, str], limit: float) -> None:
        super().__init__(
            f"threshold {spec.least_cos} is above {limit:.7g}, which is what vectors of precision "
            f"{formats[0]} ({spec.vectors}) and {formats[1]} ({spec.against}) can tell apart; "
            "lower it, or embed both in one precision"
        )
        self.limit = limit


@dataclass(frozen=True, slots=True)
class PairsIdentity:
    """What is hashed into the generation of a pairs artifact.

    others: the other side; the vectors themselves in a self-join. rerank: the folder of the
    cross-encoder and its digest.
    """

    spec: PairsSpec
    vectors: VectorsArtifact
    others: VectorsArtifact
    rerank: tuple[str, str] | None

    @classmethod
    def of(cls, spec: PairsSpec) -> "PairsIdentity":
        """Open the vectors of a spec; SpaceMismatch if two sides are of different spaces."""
        vectors = Artifact.vectors(spec.vectors)
        others = vectors if spec.against is None else Artifact.vectors(spec.against)
        own, other = (side.manifest.settings.space for side in (vectors, others))
        if own != other:
            raise SpaceMismatch(spec, own, other)
        _refuse_unequal_precisions(spec, vectors, others)
        rerank = None
        if spec.rerank is not None:
            folder = Path(resolve_model(spec.rerank))
            rerank = (str(folder), folder_digest(folder))
        return cls(spec, vectors, others, rerank)

    @property
    def sides(self) -> dict[str, VectorsArtifact]:
        """`a`, and `b` where there are two."""
        return {"a": self.vectors} | ({} if self.spec.against is None else {"b": self.others})

    @property
    def options(self) -> dict[str, object]:
        """Options that decide which pairs there are; an update needs the same ones."""
        return {
            "threshold": self.spec.least_cos,
            "top_k": self.spec.top_k,
            "space": self.vectors.manifest.settings.space,
            "rerank": self.rerank and self.rerank[1],
            "band": self.spec.band if self.rerank else None,
        }

    @property
    def generation(self) -> str:
        """Digest of options and files. Its keys are frozen: another digest joins anew."""
        whole = {
            **self.options,
            "method": self.spec.method,
            "recall": self.spec.recall,
            "seed": self.spec.seed,
            "files": {
                name: [file.sha256 for file in side.manifest.files]
                for name, side in self.sides.items()
            },
        }
        return digest(whole)[:16]


def _refuse_unequal_precisions(
    spec: PairsSpec, vectors: VectorsArtifact, others: VectorsArtifact
) -> None:
    """PrecisionMismatch for thresholds within twice the error of the number formats.

    Equal texts of two formats have a cosine of 1 minus that error, not of 1.
    """
    sides = [side.manifest for side in (vectors, others)]
    own, other = (side.settings.computed_in for side in sides)
    limit = 1 - 2 * max(side.metrics.precision_error or 0.0 for side in sides)
    if own != other and spec.least_cos > limit:
        raise PrecisionMismatch(spec, (own, other), limit)
