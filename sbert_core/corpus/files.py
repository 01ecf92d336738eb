"""The word a user gives for a corpus -> its files, in a fixed order.

In:  a file, a folder (hive partitions included), a glob or an s3:// URI of any of these.
Out: Corpus: the files with what tells one version of them from another.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from sbert_core.corpus.published import (
    DATA,
    Published,
    published_corpus,
    published_files,
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
SPAN = "**"
HIDDEN = "_."
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


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
    def partitions(self) -> dict[str, str | None]:
        """Hive partition columns, from folders named key=value, as Spark and Hive write them."""
        folders = (part.partition("=") for part in PurePosixPath(self.path).parent.parts)
        pairs = [(_decoded(key), _decoded(value)) for key, equals, value in folders if equals]
        return {key: None if value == NO_VALUE else value for key, value in pairs}


def _decoded(text: str) -> str:
    """%20 as a blank; what would be no UTF-8 was not encoded so and stays."""
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


@dataclass(frozen=True, slots=True)
class Glob:
    """What is left of a pattern below some folder.

    ways: alternatives, each names of folders and at last of a file.
    `*`, `?` and [abc] stay within a name, `**` spans any number of folders. Names that begin with
    _ or . belong to tools and are not meant; key=value folders of hive are.
    """

    ways: frozenset[tuple[str, ...]]

    @classmethod
    def parse(cls, pattern: str) -> "Glob":
        """A ValueError names what is no set of characters."""
        names = tuple(name for name in re.sub(r"\*{3,}", SPAN, pattern).split("/") if name)
        return cls(frozenset(_skipped(_spelled_out(names))))

    @property
    def is_deep(self) -> bool:
        return any(way[0] == SPAN for way in self.ways)

    def has(self, file: str) -> bool:
        return file[0] not in HIDDEN and any(
            len(way) == 1 and _is_named(file, way[0]) for way in self.ways
        )

    def inside(self, folder: str) -> "Glob | None":
        if folder[0] in HIDDEN:
            return None
        left = {way for way in self.ways if way[0] == SPAN}
        left |= {way[1:] for way in self.ways if len(way) > 1 and _is_named(folder, way[0])}
        return Glob(frozenset(_skipped(left))) if left else None


def _skipped(ways: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The ways, and those that are left if a `**` spans nothing."""
    for way in ways:
        yield way
        while way[0] == SPAN:
            way = way[1:]
            yield way


def _spelled_out(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """`**` as a name of its own with one behind it: `a**b` is `a*b` or `a*/**/*b`."""
    if names[-1] == SPAN:
        names = (*names, "*")
    for place, name in enumerate(names):
        if SPAN in name and name != SPAN:
            before, _, behind = name.partition(SPAN)
            for middle in ((f"{before}*{behind}",), (f"{before}*", SPAN, f"*{behind}")):
                yield from _spelled_out((*names[:place], *middle, *names[place + 1 :]))
            return
    for name in names:
        _is_named("", name)
    yield names


def _is_named(name: str, pattern: str) -> bool:
    return pattern != SPAN and _regex(pattern).fullmatch(name) is not None


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    tokens = re.findall(r"\*|\?|\[[^\]]*\]|.", pattern, re.DOTALL)
    parts = {"*": ".*", "?": "."}
    try:
        return re.compile("".join(parts.get(t) or _set(t) for t in tokens), re.DOTALL)
    except re.error as error:
        raise ValueError(
            f"{pattern!r} is no pattern of names: {error}; write sets of characters as [abc] or "
            "[a-z], and a [ that is meant as itself as [[]"
        ) from None


def _set(token: str) -> str:
    """[abc] and [!abc] as a regular expression writes them; anything else as itself."""
    if token[0] != "[" or len(token) < 3:
        return re.escape(token)
    return f"[^{token[2:]}" if token[1] == "!" else token


def find_corpus(place: str) -> Corpus:
    """The files a path, glob or URI names; none is an error. What is not named is not looked at."""
    root, found, published = _named(place)
    files = [
        CorpusFile(stat.name, stat.size, stat.version)
        for stat in found
        if _suffixes(stat.name)[0] in SUFFIXES
    ]
    if not files:
        kinds = ", ".join(SUFFIXES)
        if "://" not in root and not Path(root).exists():
            raise FileNotFoundError(f"corpus {place} does not exist")
        raise ValueError(
            f"corpus {place} holds no data file; expected names that end in {kinds}, "
            f"plain or with {', '.join(COMPRESSIONS)}"
        )
    ordered = tuple(sorted(files, key=_name_in_bytes))
    if published is None:
        refuse_generations(place, root, (file.path for file in ordered))
    return Corpus(root, ordered, None if published is None else published.generation)


def _named(place: str) -> tuple[str, Iterable[Stat], Published | None]:
    """A root, and the files below it: one, those of a folder, or those of a pattern.

    At last the artifact that the root is, if it is one.
    """
    is_uri = "://" in place
    path = place if is_uri else str(Path(place).absolute())
    above, _, name = path.rpartition("/")
    if is_uri and _suffixes(name)[0] in SUFFIXES or not is_uri and Path(path).is_file():
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
    if (published := published_corpus(root, place)) is not None:
        return root, files_in_scope(published_files(root, published), "", scope), published
    return root, storage_at(root).find(scope), None


def _name_in_bytes(file: CorpusFile) -> bytes:
    try:
        return file.path.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"the name {file.path!r} is no UTF-8, so nothing can be written about the file; rename "
            "it, or leave it out of the corpus"
        ) from None


def _suffixes(name: str) -> tuple[str, str | None]:
    """The suffix of the format and the name of the compression."""
    path = PurePosixPath(name.lower())
    if path.suffix in COMPRESSIONS:
        return PurePosixPath(path.stem).suffix, COMPRESSIONS[path.suffix]
    return path.suffix, None


def refuse_overlap(place: str, corpus: Corpus, output: str) -> None:
    """The output must not become part of the corpus, nor the corpus be tidied with the output."""
    out, root = f"{_absolute(output)}/", f"{_absolute(corpus.root)}/"
    spans_folders = "**" in place or f"{_absolute(place)}/" == root
    if out.startswith(root) and spans_folders:
        raise ValueError(f"out {output} lies inside corpus {place}; choose another out")
    if root.startswith(out):
        raise ValueError(f"corpus {place} lies inside out {output}; choose another out")


def _absolute(place: str) -> str | Path:
    return place.rstrip("/") if "://" in place else Path(place).resolve()
