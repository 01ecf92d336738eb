"""What a run of the pairs job is to bring about."""

from dataclasses import dataclass
from pathlib import Path

from pipelines.artifacts.models import local_model
from pipelines.artifacts.reader import Artifact
from pipelines.pairs.spec import PairsSpec
from sbert_core.digest import digest, folder_digest


@dataclass(frozen=True, slots=True)
class Goal:
    """These pairs of those vectors. rerank: the folder of the cross-encoder and its digest."""

    spec: PairsSpec
    vectors: Artifact
    others: Artifact
    rerank: tuple[str, str] | None

    @classmethod
    def of(cls, spec: PairsSpec) -> "Goal":
        vectors = Artifact.vectors(spec.vectors)
        others = vectors if spec.against is None else Artifact.vectors(spec.against)
        own, other = (side.manifest.spec["space"] for side in (vectors, others))
        if own != other:
            raise ValueError(
                f"{spec.vectors} holds vectors of space {own[:12]}, {spec.against} of "
                f"{other[:12]}; they cannot be compared: embed both with one model"
            )
        rerank = None
        if spec.rerank is not None:
            folder = Path(local_model(spec.rerank)).absolute()
            rerank = (str(folder), folder_digest(folder))
        return cls(spec, vectors, others, rerank)

    @property
    def sides(self) -> dict[str, Artifact]:
        return {"a": self.vectors} | ({} if self.spec.against is None else {"b": self.others})

    @property
    def options(self) -> dict[str, object]:
        """Everything but the vectors that shapes the pairs."""
        return {
            "threshold": self.spec.least_cos,
            "top_k": self.spec.top_k,
            "space": self.vectors.manifest.spec["space"],
            "rerank": self.rerank and self.rerank[1],
            "band": self.spec.band if self.rerank else None,
        }

    @property
    def generation(self) -> str:
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
