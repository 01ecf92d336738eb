"""Built shards -> the manifest of an index artifact, and the facts of its card."""

from typing import Any

from pipelines.artifacts.manifest import DataFile, Manifest, library_versions
from pipelines.index.build import Built
from pipelines.index.identity import Goal

ROLES = ("index", "rows", "own")


def manifest_of(goal: Goal, built: Built) -> Manifest:
    vectors, trained = goal.vectors.manifest, built.trained
    files = [
        DataFile(rows=record["rows"], source={"shard": n, "role": role}, **file)
        for n, record in enumerate(built.shards)
        for role, file in zip(ROLES, record["files"], strict=True)
    ]
    if trained is not None:
        files.append(DataFile(rows=0, source={"role": "trained"}, **trained))
    rows = sum(record["rows"] for record in built.shards)
    live = sum(record["live"] for record in built.shards)
    names = ("rows", "live", "nodes", "parts", "files")
    return Manifest(
        kind="index",
        generation=goal.generation,
        schema={n: t for n, t in vectors.schema.items() if n != "vector"},
        rows=live,
        quarantined=0,
        files=tuple(files),
        quarantine=(),
        spec={
            **{n: getattr(goal.spec, n) for n in ("kind", "m", "ef_construction", "seed")},
            "factory": goal.kind.factory,
            "trained": trained and trained["path"],
            **{n: vectors.spec[n] for n in ("model", "space", "recipe", "dim")},
        },
        made_from={
            "target": goal.target,
            "vectors": goal.vectors.uri,
            "files": [file.sha256 for file in vectors.files],
            "corpus": {n: vectors.made_from[n] for n in ("corpus", "files", "text", "id_column")},
        },
        facts={
            "search": {"effort": built.measured.effort, "name": goal.kind.effort_name},
            "recall": built.measured.facts(),
            "distinct": sum(record["nodes"] for record in built.shards),
            "stale": round((rows - live) / rows, 6),
            "shard_records": [{n: record[n] for n in names} for record in built.shards],
        },
        versions=library_versions(),
    )


def card_facts(manifest: Manifest) -> dict[str, Any]:
    spec = manifest.spec
    return {
        "rows": manifest.rows,
        "distinct": manifest.facts["distinct"],
        "dim": spec["dim"],
        "space": spec["space"],
        "kind": spec["kind"],
        "parameters": {n: spec[n] for n in ("m", "ef_construction", "factory", "seed")},
        "shards": len(manifest.facts["shard_records"]),
        "bytes": sum(file.bytes for file in manifest.files),
        "stale": manifest.facts["stale"],
        "search": manifest.facts["search"],
        "recall": manifest.facts["recall"],
    }
