"""Find the files of a corpus, in a fixed order.

In:  a file, a folder (hive partitions included), a glob or an s3:// URI of any of these.
Out: Corpus: its files, each with size and version.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from sbert_core.corpus.errors import EmptyCorpus, InvalidFileName, InvalidPattern
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
SPAN = "**"
HIDDEN = "_."
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


@dataclass(frozen=True, slots=True)
class Glob:
    """The rest of a glob pattern below some folder; a Scope.

    ways: alternatives, each patterns of folder names and at last of a file name.
    `*`, `?` and [abc] stay within a name, `**` spans any number of folders. Names that begin with
    _ or . belong to tools and never match; key=value folders of hive do.
    """

    ways: frozenset[tuple[str, ...]]

    @classmethod
    def parse(cls, pattern: str) -> "Glob":
        """Parse a pattern; ValueError for a malformed [set of characters]."""
        names = tuple(name for name in re.sub(r"\*{3,}", SPAN, pattern).split("/") if name)
        return cls(frozenset(_with_spans_skipped(_expand_spans(names))))

    @property
    def is_deep(self) -> bool:
        return any(way[0] == SPAN for way in self.ways)

    def has(self, file: str) -> bool:
        return file[0] not in HIDDEN and any(
            len(way) == 1 and _matches(file, way[0]) for way in self.ways
        )

    def inside(self, folder: str) -> "Glob | None":
        if folder[0] in HIDDEN:
            return None
        left = {way for way in self.ways if way[0] == SPAN}
        left |= {way[1:] for way in self.ways if len(way) > 1 and _matches(folder, way[0])}
        return Glob(frozenset(_with_spans_skipped(left))) if left else None


def _with_spans_skipped(ways: Iterable[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """The ways, and those that remain where a leading `**` spans no folder."""
    for way in ways:
        yield way
        while way[0] == SPAN:
            way = way[1:]
            yield way


def _expand_spans(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Make every `**` a separate name that another follows: `a**b` is `a*b` or `a*/**/*b`."""
    if names[-1] == SPAN:
        names = (*names, "*")
    for place, name in enumerate(names):
        if SPAN in name and name != SPAN:
            before, _, behind = name.partition(SPAN)
            for middle in ((f"{before}*{behind}",), (f"{before}*", SPAN, f"*{behind}")):
                yield from _expand_spans((*names[:place], *middle, *names[place + 1 :]))
            return
    for name in names:
        _matches("", name)
    yield names


def _matches(name: str, pattern: str) -> bool:
    return pattern != SPAN and _compile_pattern(pattern).fullmatch(name) is not None


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    tokens = re.findall(r"\*|\?|\[[^\]]*\]|.", pattern, re.DOTALL)
    parts = {"*": ".*", "?": "."}
    try:
        return re.compile("".join(parts.get(t) or _set_to_regex(t) for t in tokens), re.DOTALL)
    except re.error as error:
        raise InvalidPattern(pattern, str(error)) from None


def _set_to_regex(token: str) -> str:
    """[abc] and [!abc] in the syntax of regular expressions; any other token escaped."""
    if token[0] != "[" or len(token) < 3:
        return re.escape(token)
    return f"[^{token[2:]}" if token[1] == "!" else token


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
    """A root, the files below it (one, those of a folder or those of a pattern), and the corpus
    artifact at the root if there is one.
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
