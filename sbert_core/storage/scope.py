"""Which files below a folder are meant, known before the folder is listed.

A storage looks into no folder where its scope means nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sbert_core.storage.base import Scope, Stat


@dataclass(frozen=True, slots=True)
class Everything:
    """All files."""

    is_deep = True

    def has(self, file: str) -> bool:
        del file
        return True

    def inside(self, folder: str) -> "Everything":
        del folder
        return self


def files_in_scope(stats: Iterable[Stat], folder: str, scope: Scope) -> Iterator[Stat]:
    """Those of many files below a folder that a scope means."""
    scopes: dict[str, Scope | None] = {folder: scope}

    def scope_of(place: str) -> Scope | None:
        if place not in scopes:
            above, _, name = place.rpartition("/")
            outer = scope_of(above)
            scopes[place] = None if outer is None else outer.inside(name)
        return scopes[place]

    for stat in stats:
        place, _, name = stat.name.rpartition("/")
        own = scope_of(place)
        if own is not None and own.has(name):
            yield stat
