"""Artifacts in the place of a corpus: only the files that are published there are read.

In:  a folder or URI.
Out: the files its manifest lists, or a ValueError. data/ holds the published generation and the one
     before it, so reading all of data/ would read every unchanged row twice.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from sbert_core.corpus.errors import MissingFile, MixedGenerations, NotACorpus
from sbert_core.json_record import decode
from sbert_core.storage import Stat, storage_at

MANIFEST = "_manifest.json"
DATA = "data"
CORPUS = "corpus"  # the kind of artifact whose files are texts
GENERATION = re.compile(r"[0-9a-f]{16}")
IN_A_GENERATION = re.compile(rf"(?:^|/){DATA}/{GENERATION.pattern}/")


@dataclass(frozen=True, slots=True)
class _ListedPath:
    path: str


@dataclass(frozen=True, slots=True)
class _ManifestHead:
    """The keys of a manifest that are needed here."""

    kind: str
    generation: str
    files: tuple[_ListedPath, ...]


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """Files of a manifest. names: below the folder of the generation."""

    kind: str
    generation: str
    names: frozenset[str]

    @property
    def folder(self) -> str:
        """Where the files are, below the artifact."""
        return f"{DATA}/{self.generation}"


def read_published(root: str) -> PublishedFiles | None:
    """The files published at a place; None without a manifest, or with one of another tool."""
    if not _has_manifest(root):
        return None
    try:
        found = decode(_ManifestHead, json.loads(storage_at(root).read(MANIFEST)), MANIFEST)
    except (ValueError, RecursionError):
        return None
    if GENERATION.fullmatch(found.generation) is None:
        return None
    folder = f"{DATA}/{found.generation}/"
    names = frozenset(file.path.removeprefix(folder) for file in found.files)
    return PublishedFiles(found.kind, found.generation, names)


def _has_manifest(root: str) -> bool:
    try:
        return storage_at(root).stat(MANIFEST) is not None
    except (
        PermissionError
    ):  # S3's answer for a missing object, to those who may not list the bucket
        return False


def find_published_corpus(root: str, place: str) -> PublishedFiles | None:
    """The corpus published at a root; None for a folder without a manifest.

    place: as the user has given it. ValueError for an artifact of another kind.
    """
    found = read_published(root)
    if found is not None and found.kind != CORPUS:
        raise NotACorpus(place, root, found.kind)
    return found


def list_published_files(root: str, corpus: PublishedFiles) -> list[Stat]:
    """The files of a published corpus, by the names they keep over generations.

    ValueError if one that the manifest lists is missing.
    """
    prefix = f"{corpus.folder}/"
    found = [
        Stat(name, stat.size, stat.version)
        for stat in storage_at(root).list(corpus.folder)
        if (name := stat.name.removeprefix(prefix)) in corpus.names
    ]
    if missing := corpus.names - {stat.name for stat in found}:
        raise MissingFile(root, min(missing), MANIFEST)
    return found


def current_folder(root: str) -> str:
    """The folder that holds the files of a corpus now: of a published one its generation."""
    found = read_published(root)
    return root if found is None or found.kind != CORPUS else f"{root}/{found.folder}"


def refuse_generations(place: str, root: str, names: Iterable[str]) -> None:
    """ValueError if some of the names below `root` are generations of an artifact.

    place: the corpus as the user has given it.
    """
    base = root.rstrip("/")
    homes = set()
    for name in names:
        path = f"{base}/{name}"
        # A root inside a generation is fine: no other generation is below it.
        homes |= {
            path[: match.start()]
            for match in IN_A_GENERATION.finditer(path)
            if match.end() > len(base) + 1
        }
    for home in sorted(homes):
        if _has_manifest(home):
            raise MixedGenerations(place, home)
