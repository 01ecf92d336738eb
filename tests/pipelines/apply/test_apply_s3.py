"""A corpus published in an object store: copied on the server's side, read once."""

from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pytest
from support.manifests import manifest_of
from support.s3 import NO_SERVER, WEED

from pipelines.artifacts.writer import Writer
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.published import CORPUS
from sbert_core.storage import storage_at
from workers.apply import ApplyJob, RemovedRows, apply_to_file

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(WEED is None, reason=NO_SERVER)]
OLD, NEW = "0123456789abcdef", "fedcba9876543210"


def publish(place, generation, notes):
    counts = {name: sum(note.source_count(name) for note in notes) for name in ("rows", "removed")}
    manifest = manifest_of(
        CORPUS,
        generation=generation,
        schema={},
        rows=sum(note.rows for note in notes),
        quarantined=0,
        files=tuple(notes),
        spec={"threshold": 0.9},
        made_from={"clusters": "c", "corpus": "in"},
        facts={"rows_in": counts["rows"], "removed": counts["removed"]},
        versions={},
    )
    with Writer.claim(place) as out:
        out.publish(
            manifest, rows_in=counts["rows"] - counts["removed"], rows_out=manifest.rows, run={}
        )


@pytest.mark.slow
def test_apply_into_a_store_copies_unchanged_files_and_is_read_once(bucket, tmp_path):
    (tmp_path / "k=1").mkdir()
    for name in ("a.csv", "k=1/b.csv"):
        (tmp_path / name).write_text("text\none\ntwo\nthree\n")
    place = f"{bucket}/clean"
    job = ApplyJob(
        corpus=str(tmp_path), out=place, data=f"data/{OLD}", work="_work/x", id_column=None
    )
    files = find_corpus(str(tmp_path)).files
    removed = RemovedRows(pa.array([], pa.string()), {"a.csv": np.array([1])})
    old = [apply_to_file(job, file, removed, None) for file in files]
    publish(place, OLD, old)
    first = find_corpus(place)
    more = RemovedRows(removed.ids, {"a.csv": np.array([1, 2])})
    before = {file.path: note for file, note in zip(files, old, strict=True)}
    new = [
        apply_to_file(replace(job, data=f"data/{NEW}"), file, more, before[file.path])
        for file in files
    ]
    publish(place, NEW, new)
    second = find_corpus(place)
    assert first.root == second.root == place
    assert [file.path for file in second.files] == ["a.csv", "k=1/b.csv"]
    assert second.storage.read("a.csv") == b"text\none\n"
    assert second.storage.read("k=1/b.csv") == b"text\none\ntwo\nthree\n"
    assert asdict(first.files[1]) == asdict(second.files[1])
    assert first.files[0] != second.files[0]
    assert find_corpus(f"{place}/**/*.csv").files == second.files
    with pytest.raises(ValueError, match="rows of two generations"):
        find_corpus(f"{bucket}/**/*.csv")
    assert not list(storage_at(place).list("_work"))
