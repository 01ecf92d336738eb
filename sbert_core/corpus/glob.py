"""Glob patterns as scopes of a storage: which folders to list, and which files match."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from sbert_core.corpus.errors import InvalidPattern

SPAN = "**"
HIDDEN = "_."  # first characters of names that belong to tools


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
        """Parse a pattern; InvalidPattern for a malformed [set of characters]."""
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
