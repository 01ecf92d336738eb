"""Artifacts among the places a corpus may be -> the files that are published there.

In:  a folder or URI.
Out: the files its manifest lists, or a refusal. Below data/ lie the published generation and the
     one before it: whoever walks over both reads every unchanged row twice.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from sbert_core.json_schema import checked
from sbert_core.storage import Stat, storage_at

MANIFEST = "_manifest.json"
DATA = "data"
CORPUS = "corpus"  # the kind of artifact whose files are texts
GENERATION = re.compile(r"[0-9a-f]{16}")
IN_A_GENERATION = re.compile(rf"(?:^|/){DATA}/{GENERATION.pattern}/")
SHAPE = {"kind": str, "generation": str, "files": [{"path": str}]}


@dataclass(frozen=True, slots=True)
class Published:
    """What stands in a manifest. names: of its files, below the folder of the generation."""

    kind: str
    generation: str
    names: frozenset[str]

    @property
    def folder(self) -> str:
        return f"{DATA}/{self.generation}"


def published_at(root: str) -> Published | None:
    """The artifact at a place; None where there is none, or a manifest of some other tool."""
    if not _has_manifest(root):
        return None
    try:
        fields = checked(json.loads(storage_at(root).read(MANIFEST)), SHAPE, MANIFEST)
    except (ValueError, RecursionError):
        return None
    if GENERATION.fullmatch(fields["generation"]) is None:
        return None
    folder = f"{DATA}/{fields['generation']}/"
    paths = [file["path"] for file in fields["files"]]
    return Published(
        fields["kind"], fields["generation"], frozenset(path.removeprefix(folder) for path in paths)
    )


def _has_manifest(root: str) -> bool:
    try:
        return storage_at(root).stat(MANIFEST) is not None
    except PermissionError:  # so does S3 answer for a missing object to who may not list the bucket
        return False


def published_corpus(root: str, place: str) -> Published | None:
    """The corpus published at a root; None where files lie in plain folders.

    place: the user's word for it. ValueError for an artifact that holds no texts.
    """
    found = published_at(root)
    if found is not None and found.kind != CORPUS:
        raise ValueError(
            f"corpus {place} is an artifact that holds {found.kind}; give the texts it was made "
            f"from, or, to read its files as a table, the folder that sbert path {root} prints"
        )
    return found


def published_files(root: str, corpus: Published) -> list[Stat]:
    """The files of a published corpus, by the names they have in every generation."""
    prefix = f"{corpus.folder}/"
    found = [
        Stat(name, stat.size, stat.version)
        for stat in storage_at(root).list(corpus.folder)
        if (name := stat.name.removeprefix(prefix)) in corpus.names
    ]
    if missing := corpus.names - {stat.name for stat in found}:
        raise ValueError(
            f"corpus {root} lacks {min(missing)}, which its {MANIFEST} lists; remove the folder "
            "and apply again"
        )
    return found


def folder_now(root: str) -> str:
    """Where the files of a corpus lie at this moment."""
    found = published_at(root)
    return root if found is None or found.kind != CORPUS else f"{root}/{found.folder}"


def refuse_generations(place: str, root: str, names: Iterable[str]) -> None:
    """Files of an artifact that a walk from outside of it has found."""
    base = root.rstrip("/")
    homes = set()
    for name in names:
        path = f"{base}/{name}"
        # A root inside a generation was meant: no other generation lies below it.
        homes |= {
            path[: match.start()]
            for match in IN_A_GENERATION.finditer(path)
            if match.end() > len(base) + 1
        }
    for home in sorted(homes):
        if _has_manifest(home):
            raise ValueError(
                f"corpus {place} holds the artifact {home}, and with it rows of two generations; "
                "give a folder or a glob without it, or the artifact alone"
            )
