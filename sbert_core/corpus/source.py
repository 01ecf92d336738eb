"""The corpus that vectors were made from, as their manifest states it."""

from dataclasses import dataclass

from sbert_core.json_record import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file of the corpus as it was embedded. version: etag, or time of last change."""

    path: str
    size: Count
    version: str
    rows: Count = 0
    rows_per_unit: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSource:
    """Where the texts of rows stand.

    corpus: folder or URI. text: the template, its columns in braces. id_column: None where ids are
    positions or digests.
    """

    corpus: str
    files: tuple[SourceFile, ...]
    text: str
    id_column: str | None = None
