"""Task: convert a CSV or JSON lines file to Parquet in the job's work folder."""

import tempfile
from pathlib import Path

from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.formats import ConvertedFile, write_parquet_copy
from sbert_core.storage import storage_at


def stage_file(
    root: str, file: CorpusFile, columns: list[str], text_columns: list[str], place: str, name: str
) -> ConvertedFile | CorruptFile:
    """Copy some columns of a file of the corpus at `root`; what it holds, or the error.

    place, name: of the copy. text_columns: those that are never parsed as numbers or times.
    """
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
        copy = Path(folder) / "copy.parquet"
        try:
            found = write_parquet_copy(storage_at(root), file, columns, text_columns, copy)
        except CorruptFile as error:
            return error
        storage_at(place).put_file(name, copy)
    return found
