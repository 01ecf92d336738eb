"""A file of an artifact: what a manifest lists of it."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from sbert_core.json_record import Count

Value = TypeVar("Value", str, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A written file. source: what it was made from; its keys depend on the kind of artifact."""

    path: str
    rows: Count
    sha256: str
    bytes: Count
    source: dict[str, object] = field(default_factory=dict)

    def made_from(self, **source: object) -> "DataFile":
        """The same file with another source."""
        return replace(self, source=source)

    def source_text(self, key: str) -> str:
        """A text of the source; ValueError where it has none."""
        return self._source(key, str)

    def source_count(self, key: str) -> int:
        """A number of the source; ValueError where it has none."""
        return self._source(key, int)

    def _source(self, key: str, kind: type[Value]) -> Value:
        value = self.source.get(key)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"the manifest states no {key!r} of {self.path}; it is broken")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A written file of any format, without a count of rows."""

    path: str
    sha256: str
    bytes: Count

    def to_data_file(self, rows: int, **source: object) -> DataFile:
        """The entry of a manifest for this file."""
        return DataFile(
            path=self.path, rows=rows, sha256=self.sha256, bytes=self.bytes, source=source
        )
