"""Look up the texts of single rows of a corpus.

In:  a file as it was when it was embedded, and row numbers.
Out: texts, or ChangedFile if the file has changed since: its rows may have moved.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from sbert_core.corpus.columns import FIELD
from sbert_core.corpus.errors import ChangedFile, CorruptFile
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.formats import write_parquet_copy
from sbert_core.corpus.parquet import Text, open_parquet, render_texts
from sbert_core.corpus.published import current_folder
from sbert_core.corpus.source import CorpusSource
from sbert_core.storage import LocalStorage, Storage, storage_at

START, END = "start_char", "end_char"  # of chunks of long documents
LOCATION_COLUMNS = ("file", "row", START, END)


def fetch_texts(
    storage: Storage, file: CorpusFile, rows: Sequence[int], template: str
) -> list[Text]:
    """The texts of some rows, in the order of `rows`.

    file: as it was embedded. template: of the texts. ChangedFile if the file is another one now,
    CorruptFile if it cannot be read.
    """
    stat = storage.stat(file.path)
    if stat is None or (stat.size, stat.version) != (file.size, file.version):
        fate = "is gone" if stat is None else "has changed"
        raise ChangedFile(storage.uri, file.path, f"{fate} since it was embedded")
    if file.format is Format.PARQUET:
        return _parquet_texts(storage, file.path, rows, template, file.partitions)
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
        copy = Path(folder) / "copy.parquet"
        own = [name for name in FIELD.findall(template) if name not in file.partitions]
        write_parquet_copy(storage, file, own, own, copy)
        return _parquet_texts(LocalStorage(copy.parent), copy.name, rows, template, file.partitions)


class TextLookup:
    """Texts of rows of the corpus that vectors were made of."""

    def __init__(self, source: CorpusSource) -> None:
        self.root = source.corpus
        self.template = source.text
        if not FIELD.search(self.template):
            raise ValueError(f"the manifest's text {self.template!r} names no column; it is broken")
        self.files = {
            file.path: CorpusFile(file.path, file.size, file.version) for file in source.files
        }
        self.notes: list[str] = []

    def for_rows(self, rows: pa.Table) -> list[str | None]:
        """Texts of rows of a vectors artifact, given with their LOCATION_COLUMNS.

        A chunk of a long document has its own part of the text. None as in `get`.
        """
        files, numbers = rows["file"].to_pylist(), rows["row"].to_pylist()
        texts = self.get(list(zip(files, numbers, strict=True)))
        if START not in rows.column_names:
            return texts
        bounds = zip(rows[START].to_pylist(), rows[END].to_pylist(), strict=True)
        return [
            text if text is None else text[start:end]
            for text, (start, end) in zip(texts, bounds, strict=True)
        ]

    def get(self, places: Sequence[tuple[str, int]]) -> list[str | None]:
        """One text for each file and row; None, and a line in `notes`, where a file has changed."""
        found: list[str | None] = [None] * len(places)
        for path in dict.fromkeys(path for path, _ in places):
            mine = [n for n, place in enumerate(places) if place[0] == path]
            rows = [places[n][1] for n in mine]
            try:
                texts = self._texts(path, rows)
            except (ChangedFile, CorruptFile, OSError) as error:
                self.notes.append(f"no texts of {path}: {error}")
                continue
            for n, text in zip(mine, texts, strict=True):
                found[n] = text if isinstance(text, str) else None
        return found

    def _texts(self, path: str, rows: Sequence[int]) -> list[Text]:
        if path not in self.files:
            raise ChangedFile(self.root or "the corpus", path, "is not a file of the corpus")
        # A later generation of a published corpus still has the files that did not change.
        return fetch_texts(
            storage_at(current_folder(self.root)), self.files[path], rows, self.template
        )


def _parquet_texts(
    storage: Storage,
    path: str,
    rows: Sequence[int],
    template: str,
    partitions: Mapping[str, str | None],
) -> list[Text]:
    """Texts of rows; other row groups are skipped. partitions: columns of key=value folders."""
    wanted = np.asarray(rows, np.int64)
    found: dict[int, Text] = {}
    names = list(dict.fromkeys(FIELD.findall(template)))
    stored = [name for name in names if name not in partitions]
    with open_parquet(storage, path) as file:
        if missing := set(stored) - set(file.schema_arrow.names):
            raise ChangedFile(storage.uri, path, f"has no column {missing.pop()!r}")
        first = 0
        for group in range(file.metadata.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            here = np.unique(wanted[(wanted >= first) & (wanted < end)])
            if len(here):
                table = file.read_row_group(group, columns=stored).take(here - first)
                columns = {name: table[name].combine_chunks() for name in stored}
                columns |= {
                    name: pa.repeat(pa.scalar(partitions[name], pa.string()), len(here))
                    for name in names
                    if name in partitions
                }
                found |= dict(zip(here.tolist(), render_texts(columns, template), strict=True))
            first = end
    if missing := set(wanted.tolist()) - set(found):
        raise ChangedFile(storage.uri, path, f"has no row {missing.pop()}")
    return [found[row] for row in wanted.tolist()]
