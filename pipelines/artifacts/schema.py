"""What manifests of each kind say at least: the names and types that other jobs rely on.

In:  the fields of a manifest, as JSON has them.
Out: a refusal where they cannot be those of an artifact made here.
"""

from pathlib import PurePosixPath
from typing import Any

from sbert_core.json_schema import COUNT, checked

TEXT_OR_NONE = (str, None)
FILE = {"path": str, "rows": COUNT, "sha256": str, "bytes": COUNT, "source?": dict}
EVERY = {
    "kind": str,
    "generation": str,
    "schema": {str: str},
    "rows": COUNT,
    "quarantined": COUNT,
    "files": [FILE],
    "quarantine": [FILE],
    "beside": [FILE],
    "spec": dict,
    "made_from": dict,
    "facts": dict,
    "versions": {str: str},
}
CORPUS = {
    "corpus": str,
    "text": str,
    "id_column": TEXT_OR_NONE,
    "files": [
        {"path": str, "size": COUNT, "version": str, "rows?": COUNT, "rows_per_unit?": COUNT}
    ],
}
SIDE = {"vectors": str, "generation": str, "files": [str]}
RECALL = {"found": COUNT, "missed": float, "most_missed?": float, "value": float, "low": float}
RECALL |= {"sampled": COUNT}
CERTIFICATE = {
    **RECALL,
    "confidence": float,
    "rows_sampled": COUNT,
    "rows": COUNT,
    "bands": [{"from": float, **RECALL}],
}
LISTED = {"path": str, "sha256": str, "bytes": COUNT}
RECORD = {"rows": COUNT, "live": COUNT, "nodes": COUNT, "parts": [str], "files": [LISTED]}
SHAPES: dict[str, dict[str, Any]] = {
    "vectors": {
        "schema": {"id": str, "vector": str},
        "spec": {"dim": COUNT, "space": str, "recipe": str, "model": str, "scale": (float, None)},
        "made_from": {
            **CORPUS,
            "shape?": str,
            "id?": str,
            "types?": {str: str},
            "partition_types?": {str: str},
        },
        "facts": {
            "documents?": COUNT,
            "truncated?": COUNT,
            "lost_tokens?": COUNT,
            "tokens?": COUNT,
            "storage_error?": dict,
        },
    },
    "index": {
        "spec": {
            "kind": str,
            "m": COUNT,
            "ef_construction": COUNT,
            "factory": TEXT_OR_NONE,
            "trained": TEXT_OR_NONE,
            "model": str,
            "space": str,
            "recipe": str,
            "dim": COUNT,
        },
        "made_from": {"target": str, "corpus": CORPUS},
        "facts": {"search": {"effort": COUNT}, "shard_records": [RECORD]},
    },
    "pairs": {
        "schema": {"id_a": str, "id_b": str},
        "spec": {"threshold": float, "top_k": (COUNT, None), "space": str, "method": str},
        "made_from": {"a": SIDE, "b?": SIDE},
        "facts": {
            "rows": {str: COUNT},
            "distinct": {str: COUNT},
            "large_groups": {str: COUNT},
            "grown": ({"new_rows": COUNT, "known_rows": COUNT}, None),
            "certificate": (CERTIFICATE, None),
        },
    },
    "clusters": {
        "schema": {"id": str},
        "spec": {"thresholds": [float], "method": str, "goal": str},
        "made_from": {
            "pairs": str,
            "vectors": str,
            "corpus_files": [str],
            "vectors_files": [str],
        },
        "facts": {"compared_fresh": bool, "kept": {str: COUNT}, "removed": {str: COUNT}},
    },
    "corpus": {
        "files": [
            {
                "source": {
                    "path": str,
                    "size": COUNT,
                    "version": str,
                    "rows": COUNT,
                    "removed": COUNT,
                    "removed_sha256": str,
                }
            }
        ],
        "spec": {"threshold": float},
        "made_from": {"clusters": str, "corpus": str},
        "facts": {"rows_in": COUNT, "removed": COUNT},
    },
    "shards": {"spec": {"format": str, "classes": ([str], None)}, "facts": {"rows_in?": COUNT}},
}
# Of these, files hold the rows that are counted; those of an index hold dead ones too.
COUNTED = ("vectors", "pairs", "clusters", "corpus")


def check_manifest(fields: Any, place: str) -> None:  # noqa: ANN401
    """Refuse what cannot be a manifest, and names of files that lie elsewhere."""
    checked(fields, EVERY, place)
    kind = fields["kind"]
    checked(fields, SHAPES.get(kind, {}), place)
    files = fields["files"]
    names = [file["path"] for file in (*files, *fields["quarantine"], *fields["beside"])]
    for name in (*names, fields["generation"]):
        parts = PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
            raise ValueError(f"{place} lists {name[:60]!r}, which is no name of a file of its own")
    if kind in COUNTED and sum(file["rows"] for file in files) != fields["rows"]:
        raise ValueError(f"{place}: {fields['rows']} rows are not those of its files")
    if kind in COUNTED and not files:
        raise ValueError(f"{place} lists no file")
