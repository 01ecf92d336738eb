"""The word a user gives for a corpus -> its files, in a fixed order.

In:  a file, a folder (hive partitions included), a glob or an s3:// URI of any of these.
Out: Corpus: the files with what tells one version of them from another.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from sbert_core.corpus.published import (
    DATA,
    published_corpus,
    published_files,
    refuse_generations,
)
from sbert_core.storage import Storage, storage_at


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


@dataclass(frozen=True, slots=True)
class CorpusFile:
    """One file: `path` is relative to the corpus; equal size and version mean unchanged."""

    path: str
    size: int
    version: str

    @property
    def format(self) -> Format:
        return SUFFIXES[_suffixes(self.path)[0]]

    @property
    def compression(self) -> str | None:
        return _suffixes(self.path)[1]

    @property
    def partitions(self) -> dict[str, str]:
        """Hive partition columns, from folders named key=value."""
        folders = (part.partition("=") for part in PurePosixPath(self.path).parent.parts)
        return {key: value for key, equals, value in folders if equals}


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
    """The files a path, glob or URI names; none is an error."""
    root, pattern = _root_and_pattern(place)
    is_file = "://" not in place and Path(place).is_file()
    published = None if is_file else published_corpus(root, place)
    stats = storage_at(root).list() if published is None else published_files(root, published)
    found = [stat for stat in stats if pattern is None or pattern.fullmatch(stat.name)]
    files = [
        CorpusFile(stat.name, stat.size, stat.version)
        for stat in found
        if _is_data(stat.name) and _suffixes(stat.name)[0] in SUFFIXES
    ]
    if not files:
        kinds = ", ".join(SUFFIXES)
        if not found and "://" not in root and not Path(root).exists():
            raise FileNotFoundError(f"corpus {place} does not exist")
        raise ValueError(
            f"corpus {place} holds no data file; expected names that end in {kinds}, "
            f"plain or with {', '.join(COMPRESSIONS)}"
        )
    if published is None:
        refuse_generations(place, root, (file.path for file in files))
    ordered = tuple(sorted(files, key=lambda file: file.path.encode()))
    return Corpus(root, ordered, None if published is None else published.generation)


def _root_and_pattern(place: str) -> tuple[str, re.Pattern[str] | None]:
    if (wildcard := WILDCARD.search(place)) and not Path(place).exists():
        root = place[: wildcard.start()].rpartition("/")[0]
        rest = place[len(root) :].lstrip("/") if root else place
        root = root or ("/" if place.startswith("/") else ".")
        return root if "://" in root else str(Path(root).absolute()), _glob(rest)
    if "://" not in place:
        path = Path(place).absolute()
        if path.is_file():
            return str(path.parent), re.compile(re.escape(path.name))
        return str(path), None
    root, _, name = place.rpartition("/")
    if _suffixes(name)[0] in SUFFIXES:
        return root, re.compile(re.escape(name))
    return place, None


def _glob(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within a folder, `**/` spans folders, [abc] is a set."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]*\]|.", pattern, re.DOTALL)
    return re.compile("".join(parts.get(token) or _set(token) for token in tokens), re.DOTALL)


def _set(token: str) -> str:
    """[abc] and [!abc] as a regular expression writes them; anything else as itself."""
    if token[0] != "[" or len(token) < 3:
        return re.escape(token)
    return f"[^{token[2:]}" if token[1] == "!" else token


def _is_data(name: str) -> bool:
    """Names that begin with _ or . belong to tools; key=value folders of hive do not."""
    return not any(part[0] in "_." for part in PurePosixPath(name).parts)


def _suffixes(name: str) -> tuple[str, str | None]:
    """The suffix of the format and the name of the compression."""
    path = PurePosixPath(name.lower())
    if path.suffix in COMPRESSIONS:
        return PurePosixPath(path.stem).suffix, COMPRESSIONS[path.suffix]
    return path.suffix, None
