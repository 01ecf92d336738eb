"""Single rows of a corpus -> their texts.

In:  a file as it was when it was embedded, and row numbers.
Out: texts, or a refusal if the file is another one now: its rows may stand elsewhere.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sbert_core.corpus.columns import FIELD
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.formats import write_parquet_copy
from sbert_core.corpus.parquet import CorruptFile, Text, opened, texts_of
from sbert_core.corpus.published import folder_now
from sbert_core.storage import LocalStorage, Storage, storage_at

START, END = "start_char", "end_char"  # of windows of long documents
PLACE = ("file", "row", START, END)


class ChangedFile(ValueError):
    """The file is gone, or not the one that was embedded."""


def texts_at(storage: Storage, file: CorpusFile, rows: Sequence[int], template: str) -> list[Text]:
    """The texts of some rows, in the order asked for."""
    stat = storage.stat(file.path)
    if stat is None or (stat.size, stat.version) != (file.size, file.version):
        fate = "is gone" if stat is None else "has changed"
        raise ChangedFile(f"{storage.uri}/{file.path} {fate} since it was embedded")
    if file.format is Format.PARQUET:
        return _parquet_texts(storage, file.path, rows, template, file.partitions)
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
        copy = Path(folder) / "copy.parquet"
        own = [name for name in FIELD.findall(template) if name not in file.partitions]
        write_parquet_copy(storage, file, own, own, copy)
        return _parquet_texts(LocalStorage(copy.parent), copy.name, rows, template, file.partitions)


class CorpusTexts:
    """Texts of rows of the corpus that vectors were made of. corpus: what their manifest says."""

    def __init__(self, corpus: Mapping[str, Any]) -> None:
        self.root: str = corpus["corpus"]
        self.template: str = corpus["text"]
        if not FIELD.search(self.template):
            raise ValueError(f"the manifest's text {self.template!r} names no column; it is broken")
        self.files = {
            file["path"]: CorpusFile(file["path"], file["size"], file["version"])
            for file in corpus["files"]
        }
        self.notes: list[str] = []

    def of(self, rows: pa.Table) -> list[str | None]:
        """Texts of rows of a vectors artifact; of windows of long documents their own part."""
        files, numbers = rows["file"].to_pylist(), rows["row"].to_pylist()
        texts = self.at(list(zip(files, numbers, strict=True)))
        if START not in rows.column_names:
            return texts
        bounds = zip(rows[START].to_pylist(), rows[END].to_pylist(), strict=True)
        return [
            text if text is None else text[start:end]
            for text, (start, end) in zip(texts, bounds, strict=True)
        ]

    def at(self, places: Sequence[tuple[str, int]]) -> list[str | None]:
        """One text for each file and row; None, and a note, where its file is not what it was."""
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
            raise ChangedFile(f"{self.root or 'the corpus'} has no such file")
        # A corpus that was published anew still has the files that did not change.
        return texts_at(storage_at(folder_now(self.root)), self.files[path], rows, self.template)


def _parquet_texts(
    storage: Storage,
    path: str,
    rows: Sequence[int],
    template: str,
    partitions: Mapping[str, str | None],
) -> list[Text]:
    """Only row groups that hold some of the rows are decoded. partitions: columns of folders."""
    wanted = np.asarray(rows, np.int64)
    found: dict[int, Text] = {}
    names = list(dict.fromkeys(FIELD.findall(template)))
    stored = [name for name in names if name not in partitions]
    with opened(storage, path) as file:
        if missing := set(stored) - set(file.schema_arrow.names):
            raise ChangedFile(f"{storage.uri}/{path} has no column {missing.pop()!r}")
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
                found |= dict(zip(here.tolist(), texts_of(columns, template), strict=True))
            first = end
    if missing := set(wanted.tolist()) - set(found):
        raise ChangedFile(f"{storage.uri}/{path} has no row {missing.pop()}")
    return [found[row] for row in wanted.tolist()]
