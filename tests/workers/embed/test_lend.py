"""Vectors on their way from owners to borrowers, against the blocks they come from."""

from types import SimpleNamespace

import numpy as np
import pytest

from sbert_core.choices import VectorType
from sbert_core.corpus.units import Unit
from sbert_core.vectors.block import VectorBlock
from sbert_core.vectors.text_owners import LOAN, owner_key
from workers.embed import lend
from workers.embed.lend import BorrowedVectors, lend_vectors
from workers.embed.scan import index_maps
from workers.embed.scan_files import ScanFiles, map_name

DIM = 3
REASON = "the model gave no finite vector"


def block(rng, row, chunks=1, without=()) -> VectorBlock:
    """Vectors of documents in these rows, `chunks` each, but for those without."""
    rows = np.repeat([r for r in row if r not in without], chunks).astype(np.int64)
    columns = {name: rng.integers(0, 99, len(rows)) for name in
               ("start_char", "end_char", "num_tokens", "num_lost_tokens")}  # fmt: skip
    chunk = np.tile(np.arange(chunks), len(rows) // chunks)
    vectors = rng.normal(size=(len(rows), DIM)).astype(np.float32)
    return VectorBlock(
        {"row": rows, "chunk": chunk, **columns}, vectors, dict.fromkeys(without, REASON)
    )


@pytest.mark.parametrize("map_bytes", [1, 100, 10**6])
def test_each_unit_gets_what_it_borrows_by_its_own_rows(tmp_path, monkeypatch, map_bytes):
    monkeypatch.setattr(lend, "MAP_BYTES", map_bytes)
    rng = np.random.default_rng(0)
    # Units 0 to 3 in two bands, and a part of an earlier run.
    owners = {
        0: block(rng, [0, 4], without=(4,)),
        1: block(rng, [7], chunks=3),
        4: block(rng, [2, 5]),
    }
    loans = [(0, 0, 1, 0), (0, 0, 3, 6), (0, 4, 2, 1), (1, 7, 3, 2), (1, 7, 0, 9), (4, 2, 2, 3),
             (4, 5, 3, 0), (0, 4, 3, 1), (0, 0, 2, 8)]  # fmt: skip
    files = ScanFiles(place=str(tmp_path), folder="scan", num_units=4, bands=(0, 2, 4),
                      num_unit_bands=2, num_reduces=1, with_texts=True, with_ids=False)  # fmt: skip
    job = SimpleNamespace(dtype=VectorType.FLOAT32, lent_block=owners.__getitem__)
    records = np.array(loans, LOAN)
    band = files.bands_of(records["owner"])
    files.loans.write_map(map_name(0), band, records, owner_key)
    index_maps(files, "loans", files.loans, [map_name(0)])
    names = [name for number in range(3) for name in lend_vectors(files, job, DIM, number).maps]
    assert len(names) == len(set(names))
    index_maps(files, "vectors", files.vectors(DIM, job.dtype), names)
    for band, units in enumerate([(0, 1), (2, 3)]):
        borrowed = BorrowedVectors(files, DIM, job.dtype, band)
        for number in units:
            found = borrowed.take(Unit(number, "a", 0, 10))
            own = sorted((row, owner, place) for owner, place, unit, row in loans if unit == number)
            want = [(row, owners[owner].for_rows(np.array([place]))) for row, owner, place in own]
            assert found.reasons == {row: REASON for row, one in want if not len(one.vectors)}
            rows = [row for row, one in want for _ in range(len(one.vectors))]
            assert found.columns["row"].tolist() == rows
            vectors = np.concatenate([one.vectors for _, one in want])
            np.testing.assert_array_equal(found.vectors, vectors)
            for name in ("chunk", "start_char", "num_tokens", "num_lost_tokens"):
                values = np.concatenate([one.columns[name] for _, one in want])
                np.testing.assert_array_equal(found.columns[name], values)
