"""Files of pairs -> the manifest of a pairs artifact."""

from typing import Any

from pipelines.artifacts.manifest import DataFile, Manifest, library_versions
from pipelines.pairs.identity import Goal


def manifest_of(
    goal: Goal,
    files: list[DataFile],
    groups: list[DataFile],
    method: str,
    facts: dict[str, Any],
) -> Manifest:
    ids = {name: side.manifest.schema["id"] for name, side in goal.sides.items()}
    rerank = {} if goal.rerank is None else {"rerank": "float"}
    return Manifest(
        kind="pairs",
        generation=goal.generation,
        schema={"id_a": ids["a"], "id_b": ids.get("b", ids["a"]), "cos": "float", **rerank},
        rows=sum(file.rows for file in files),
        quarantined=0,
        files=tuple(files),
        quarantine=(),
        beside=tuple(groups),
        spec={**goal.options, "method": method},
        made_from={
            name: {
                "vectors": side.uri,
                "generation": side.manifest.generation,
                "files": [file.sha256 for file in side.manifest.files],
            }
            for name, side in goal.sides.items()
        },
        facts=facts,
        versions=library_versions(),
    )
