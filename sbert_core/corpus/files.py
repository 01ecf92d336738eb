"""Find the files of a corpus, in a fixed order.

In:  a file, a folder (hive partitions included), a glob or an s3:// URI of any of these.
Out: Corpus: its files, each with size and version.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from sbert_core.corpus.errors import EmptyCorpus, InvalidFileName
from sbert_core.corpus.glob import HIDDEN, SPAN, Glob
from sbert_core.corpus.published import (
    DATA,
    PublishedFiles,
    find_published_corpus,
    list_published_files,
    refuse_generations,
)
from sbert_core.storage import Stat, Storage, storage_at
from sbert_core.storage.scope import files_in_scope


class Format(StrEnum):
    """How a file holds its rows."""

    PARQUET = "parquet"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"


SUFFIXES = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
WILDCARD = re.compile(r"[*?\[]")
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One file: `path` is relative to the corpus; equal size and version mean unchanged."""

    path: str
    size: int
    version: str

    @property
    def format(self) -> Format:
        return SUFFIXES[_split_suffixes(self.path)[0]]

    @property
    def compression(self) -> str | None:
        return _split_suffixes(self.path)[1]

    @property
    def partitions(self) -> dict[str, str | None]:
        """Hive partition columns, from folders named key=value, as Spark and Hive write them."""
        folders = (part.partition("=") for part in PurePosixPath(self.path).parent.parts)
        pairs = [(_unquote(key), _unquote(value)) for key, equals, value in folders if equals]
        return {key: None if value == HIVE_NULL else value for key, value in pairs}


def _unquote(text: str) -> str:
    """Decode %20 and the like; a text that would not be UTF-8 was not encoded and stays."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files below a root, sorted by path.

    generation: of a corpus that is published as an artifact. Its root and the paths of its files
    stay the same over all generations; only the folder they are read from changes.
    """

    root: str
    files: tuple[CorpusFile, ...]
    generation: str | None = None

    @property
    def folder(self) -> str:
        """Where the files are read from."""
        return self.root if self.generation is None else f"{self.root}/{DATA}/{self.generation}"

    @property
    def storage(self) -> Storage:
        return storage_at(self.folder)


def find_corpus(place: str) -> Corpus:
    """The data files of a path, glob or URI; folders that cannot hold any are not listed.

    FileNotFoundError if the place does not exist, ValueError if it holds no data file or holds
    artifacts of other kinds.
    """
    root, found, published = _resolve(place)
    files = [
        CorpusFile(stat.name, stat.size, stat.version)
        for stat in found
        if _split_suffixes(stat.name)[0] in SUFFIXES
    ]
    if not files:
        if "://" not in root and not Path(root).exists():
            raise FileNotFoundError(f"corpus {place} does not exist")
        expected = f"{', '.join(SUFFIXES)}, plain or with {', '.join(COMPRESSIONS)}"
        raise EmptyCorpus(place, expected)
    ordered = tuple(sorted(files, key=_path_bytes))
    if published is None:
        refuse_generations(place, root, (file.path for file in ordered))
    return Corpus(root, ordered, None if published is None else published.generation)


def _resolve(place: str) -> tuple[str, Iterable[Stat], PublishedFiles | None]:
    """A root, the files below it, and the corpus artifact at the root if there is one.

    place: one file, a folder or a pattern.
    """
    is_uri = "://" in place
    path = place if is_uri else str(Path(place).absolute())
    above, _, name = path.rpartition("/")
    if is_uri and _split_suffixes(name)[0] in SUFFIXES or not is_uri and Path(path).is_file():
        root = above if is_uri else str(Path(path).parent)
        if (stat := storage_at(root).stat(name)) is not None:
            return root, [stat] if name[0] not in HIDDEN else [], None
    root, pattern = path, f"{SPAN}/*"
    if (wildcard := WILDCARD.search(place)) and not Path(place).exists():
        root = place[: wildcard.start()].rpartition("/")[0]
        pattern = place[len(root) :]
        root = root or ("/" if place.startswith("/") else ".")
        root = root if is_uri else str(Path(root).absolute())
    scope = Glob.parse(pattern)
    if (published := find_published_corpus(root, place)) is not None:
        return root, files_in_scope(list_published_files(root, published), "", scope), published
    return root, storage_at(root).find(scope), None


def _path_bytes(file: CorpusFile) -> bytes:
    try:
        return file.path.encode()
    except UnicodeEncodeError:
        raise InvalidFileName(file.path) from None


def _split_suffixes(name: str) -> tuple[str, str | None]:
    """The suffix of the format, and the compression if a second suffix names one."""
    path = PurePosixPath(name.lower())
    if path.suffix in COMPRESSIONS:
        return PurePosixPath(path.stem).suffix, COMPRESSIONS[path.suffix]
    return path.suffix, None


def refuse_overlap(place: str, corpus: Corpus, output: str) -> None:
    """ValueError if a rerun would read its output as corpus, or tidying the output remove inputs.

    place: the corpus as the user has given it. output: the path of the artifact.
    """
    out, root = f"{_absolute(output)}/", f"{_absolute(corpus.root)}/"
    spans_folders = "**" in place or f"{_absolute(place)}/" == root
    if out.startswith(root) and spans_folders:
        raise ValueError(f"out {output} lies inside corpus {place}; choose another out")
    if root.startswith(out):
        raise ValueError(f"corpus {place} lies inside out {output}; choose another out")


def _absolute(place: str) -> str | Path:
    return place.rstrip("/") if "://" in place else Path(place).resolve()
