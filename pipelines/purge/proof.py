"""The proof that ids are gone: what is left of an artifact is listed and read again.

In:  the store, and the manifest that is published now, if there is one.
Out: Proof: what was read. TraceLeft if a row has one of the ids, or if there is a file that was
     not read.
"""

from dataclasses import dataclass

import pyarrow as pa

from pipelines.artifacts.layout import FOLDERS, REPLACED, WORK
from pipelines.artifacts.manifest import AnyManifest, read_manifest
from pipelines.artifacts.retention import generation_folder, listed_paths
from pipelines.purge.rows import scan_rows
from sbert_core.corpus.published import MANIFEST
from sbert_core.storage import Storage


class TraceLeft(RuntimeError):
    """Something is left that should have been removed."""

    exit_code = 1

    def __init__(self, place: str, name: str, reason: str) -> None:
        super().__init__(
            f"{place}/{name} {reason} after the purge; see that no other run writes there and "
            "repeat the command"
        )
        self.place, self.name = place, name


@dataclass(frozen=True, slots=True)
class Proof:
    """files, rows: that were read again. others: files beside them that no run of ours has made."""

    files: int
    rows: int
    others: int


def prove(storage: Storage, manifest: AnyManifest | None, ids: pa.Array) -> Proof:
    """Look for the ids in all that is left. manifest: what is to be published; None: nothing."""
    published = storage.stat(MANIFEST)
    if (published is None) != (manifest is None):
        raise TraceLeft(storage.uri, MANIFEST, "is not what this run has published")
    listed: set[str] = set()
    counts = {}
    if manifest is not None:
        data = storage.read(MANIFEST)
        if data != manifest.to_json():
            raise TraceLeft(storage.uri, MANIFEST, "is not what this run has published")
        listed = listed_paths(manifest)
        counts = scan_rows(storage, read_manifest(data, storage.uri), ids)
    others = 0
    for folder in (*FOLDERS, WORK, REPLACED):
        for stat in storage.list(folder):
            if folder in FOLDERS and generation_folder(stat.name) is None:
                others += 1
            elif stat.name not in listed:
                raise TraceLeft(storage.uri, stat.name, "is left")
    for path, count in counts.items():
        if count.found:
            raise TraceLeft(storage.uri, path, f"has {count.found:,} of the rows")
    rows = sum(count.rows for count in counts.values())
    return Proof(files=len(counts), rows=rows, others=others)
