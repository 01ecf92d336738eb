"""Files of pairs -> the manifest of a pairs artifact."""

from pipelines.artifacts.kinds import (
    PAIRS,
    JoinedVectors,
    PairsInputs,
    PairsMetrics,
    PairsSettings,
)
from pipelines.artifacts.manifest import Manifest, PairsManifest
from pipelines.pairs.identity import PairsIdentity
from sbert_core.data_file import DataFile


def build_manifest(
    identity: PairsIdentity,
    files: list[DataFile],
    groups: list[DataFile],
    method: str,
    metrics: PairsMetrics,
) -> PairsManifest:
    """The manifest of written pairs. groups: files of equal rows; method: exact or ivf."""
    ids = {name: side.manifest.schema["id"] for name, side in identity.sides.items()}
    sides = {
        name: JoinedVectors(
            vectors=side.uri,
            generation=side.manifest.generation,
            files=tuple(file.sha256 for file in side.manifest.files),
        )
        for name, side in identity.sides.items()
    }
    rerank = {} if identity.rerank is None else {"rerank": "float"}
    return Manifest(
        kind=PAIRS.name,
        generation=identity.generation,
        schema={"id_a": ids["a"], "id_b": ids.get("b", ids["a"]), "cos": "float", **rerank},
        rows=sum(file.rows for file in files),
        quarantined=0,
        files=tuple(files),
        sidecars=tuple(groups),
        settings=PairsSettings(
            threshold=identity.spec.least_cos,
            top_k=identity.spec.top_k,
            space=identity.vectors.manifest.settings.space,
            rerank=None if identity.rerank is None else identity.rerank[1],
            band=None if identity.rerank is None else identity.spec.band,
            method=method,
        ),
        inputs=PairsInputs(a=sides["a"], b=sides.get("b")),
        metrics=metrics,
    )
