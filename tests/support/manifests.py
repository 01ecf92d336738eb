"""Manifests for tests, their three parts given as JSON has them."""

from typing import Any

from pipelines.artifacts.kinds import KINDS
from pipelines.artifacts.manifest import AnyManifest, Manifest
from sbert_core.json_record import decode


def manifest_of(
    kind: str,
    *,
    spec: dict[str, Any],
    made_from: dict[str, Any],
    facts: dict[str, Any],
    **fields: Any,
) -> AnyManifest:
    types = KINDS[kind]
    return Manifest(
        kind=kind,
        settings=decode(types.settings, spec, "spec"),
        inputs=decode(types.inputs, made_from, "made_from"),
        metrics=decode(types.metrics, facts, "facts"),
        **{"quarantined": 0, "schema": {}, **fields},
    )
