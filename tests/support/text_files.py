"""Text files for tests: written, and read in blocks of any size."""

import json

import pyarrow as pa
import pytest

from sbert_core.corpus import records
from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.formats import read_table
from sbert_core.storage import LocalStorage

SMALL_BLOCK = 64


def written(folder, name, data: bytes) -> tuple[LocalStorage, CorpusFile]:
    (folder / name).write_bytes(data)
    return LocalStorage(folder), CorpusFile(name, len(data), "")


def read(folder, name, data, columns=None, text_columns=None, block=None) -> pa.Table:
    """The table of a file, read in blocks of some bytes."""
    place = written(folder, name, data)
    with pytest.MonkeyPatch.context() as patch:
        if block is not None:
            patch.setattr(records, "BLOCK_BYTES", block)
            patch.setattr(records, "SCAN_BYTES", block)
        return read_table(*place, columns, text_columns)


def lines_of(rows: list[dict]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
