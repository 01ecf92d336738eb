"""Which files of an output are in use, and the removal of all others.

In:  the bytes of the published manifest, and the record of the one it replaced.
Out: an output without files that neither of the two lists. Readers that opened the artifact before
     the last publish go on reading.

    OUT/_replaced/<digest>.json   the manifest that the published one, of this digest, replaced

In an object store a manifest may list files of older generations, so files are judged one by one.
The record is written before the manifest: where a run was killed between publishing and removing,
the next one ends its work. Its name binds it to one manifest; until that is published, it is void.
Only folders named like generations are looked into: all others are somebody else's.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from pipelines.artifacts.layout import FOLDERS, REPLACED
from pipelines.artifacts.manifest import AnyManifest, read_manifest
from sbert_core.corpus.published import GENERATION
from sbert_core.storage import Storage

NOTHING = b"null\n"  # what a first manifest replaces


def record_replaced(storage: Storage, published: bytes, replaced: bytes | None) -> None:
    """Note which manifest another one is about to replace. Both are given as their bytes."""
    storage.put(_record_name(published), NOTHING if replaced is None else replaced)


def files_in_use(storage: Storage, published: bytes) -> set[str] | None:
    """Files that the published manifest or the one it replaced lists.

    None where there is no record: a first manifest whose run has ended, or one that an earlier
    version published. Then nothing is known to be left over.
    """
    name = _record_name(published)
    if storage.stat(name) is None:
        return None
    record = storage.read(name)
    manifests = [published] if record == NOTHING else [published, record]
    return {path for data in manifests for path in listed_paths(read_manifest(data, storage.uri))}


def listed_paths(manifest: AnyManifest) -> set[str]:
    """Names of all files of an artifact."""
    return {file.path for file in manifest.listed}


def remove_unused(storage: Storage, in_use: set[str], folders: Iterable[str] = FOLDERS) -> None:
    """Remove all files of generations in these folders but those in use."""
    for folder in folders:
        found = defaultdict(list)
        for stat in storage.list(folder):
            home = generation_folder(stat.name)
            if home is not None:
                found[home].append(stat.name)
        for home, names in found.items():
            unused = [name for name in names if name not in in_use]
            if len(unused) == len(names):
                storage.delete([home])
            else:
                storage.delete_files(unused)


def generation_folder(name: str) -> str | None:
    """The folder of a generation that a file lies in; None for files of others."""
    folder, _, rest = name.partition("/")
    generation, _, file = rest.partition("/")
    return f"{folder}/{generation}" if file and GENERATION.fullmatch(generation) else None


def remove_void_records(storage: Storage, published: bytes) -> None:
    """Remove records of other manifests, and that of a first one, which replaced nothing."""
    valid = _record_name(published)
    found = [stat.name for stat in storage.list(REPLACED)]
    storage.delete_files([name for name in found if name != valid or storage.read(name) == NOTHING])


def _record_name(published: bytes) -> str:
    return f"{REPLACED}/{hashlib.sha256(published).hexdigest()[:16]}.json"
