"""Which files below a folder to list, decided by their names before anything is listed.

Storages skip folders in which a scope selects nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sbert_core.storage.base import Scope, Stat


@dataclass(frozen=True, slots=True)
class AllFiles:
    """The scope of all files."""

    is_deep = True

    def has(self, file: str) -> bool:
        del file
        return True

    def inside(self, folder: str) -> "AllFiles":
        del folder
        return self


def files_in_scope(stats: Iterable[Stat], folder: str, scope: Scope) -> Iterator[Stat]:
    """Those of the files below `folder` that a scope selects."""
    scopes: dict[str, Scope | None] = {folder: scope}

    def folder_scope(place: str) -> Scope | None:
        if place not in scopes:
            above, _, name = place.rpartition("/")
            outer = folder_scope(above)
            scopes[place] = None if outer is None else outer.inside(name)
        return scopes[place]

    for stat in stats:
        place, _, name = stat.name.rpartition("/")
        own = folder_scope(place)
        if own is not None and own.has(name):
            yield stat
