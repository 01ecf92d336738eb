"""Rows that must be forgotten: gone from every file, and nothing else is.

The oracle is a plain loop over all files below the output: no id of them, and nowhere the bytes of
their vectors, which Parquet and the index files hold uncompressed.
"""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.embedding import (
    assert_nothing_but_the_artifact,
    embed,
    files_of,
    quarantine_of,
    rows_of,
    sentences,
    table_of,
    vectors_of,
    write_corpus,
)
from support.s3 import NO_SERVER, WEED

from pipelines.artifacts.errors import NotAnArtifact
from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.index import job as index_job
from pipelines.index.spec import IndexSpec
from pipelines.pairs import job as pairs_job
from pipelines.pairs.spec import PairsSpec
from pipelines.purge.job import CannotPurge, run
from pipelines.purge.proof import TraceLeft, prove
from pipelines.purge.spec import PurgeSpec
from pipelines.search.index import Index
from sbert_core.storage import LocalStorage, storage_at
from sbert_core.vectors.reader import decode_unit_vectors

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
TEXTS = sentences(70)
MADE = Path(__file__).parents[2] / "support" / "old" / "made"
FORGOTTEN = ["r101", "r137", "r205"]  # of a.parquet two, one of them without a vector
IDS = pa.array(FORGOTTEN, pa.large_string())


@pytest.fixture
def options(bert_folder, ray_address):
    return {"model": bert_folder, "address": ray_address, "unit_rows": 16}


@pytest.fixture
def corpus(tmp_path):
    files = {
        "a.parquet": rows_of([*TEXTS[:37], None, ""], 100),
        "b.parquet": rows_of(TEXTS[37:57], 200),
    }
    return write_corpus(tmp_path / "in", files)


@pytest.fixture
def vectors(corpus, options, tmp_path):
    """After an update, with the generation before and the work of a third one."""
    out = tmp_path / "vectors"
    embed(corpus, out, **options)
    write_corpus(corpus, {"c.parquet": rows_of(TEXTS[57:60], 300)})
    embed(corpus, out, **options)
    (out / "_work/0123456789abcdef/stash").mkdir(parents=True)
    (out / "_work/0123456789abcdef/stash/000000").write_text("r101")
    (out / "_outcome.json").write_text('{"message": "r101 occurs twice"}')
    return out


def purge(*places, address, ids=FORGOTTEN):
    return run(PurgeSpec(artifacts=tuple(map(str, places)), id=tuple(ids), address=address))


def bytes_of(out, ids) -> dict[str, tuple[bytes, bytes]]:
    """The vectors of some rows as files have them: as they are, and of exactly unit length."""
    table = table_of(out).combine_chunks()
    units = decode_unit_vectors(table, None, str(out))
    rows = zip(table["id"].to_pylist(), vectors_of(table), units, strict=True)
    return {name: (own.tobytes(), unit.tobytes()) for name, own, unit in rows if name in ids}


def assert_forgotten(out: Path, ids: list[str], vectors: dict[str, tuple[bytes, bytes]]) -> None:
    assert vectors.keys() == {"r101", "r205"}
    for name in files_of(out):
        data = (out / name).read_bytes()
        assert not [own for both in vectors.values() for own in both if own in data], name
        assert not [own for own in ids if own.encode() in data], name
        if name.endswith(".parquet"):
            for row in pq.read_table(out / name).to_pylist():
                assert row["id"] not in ids and row.get("doc_id") not in ids, name


def without(table: pa.Table, ids: list[str]) -> list[dict]:
    return [row for row in table.to_pylist() if row["id"] not in ids]


def test_purge_leaves_no_trace_and_no_other_row_out(vectors, options):
    before, bad = table_of(vectors), quarantine_of(vectors)
    gone = bytes_of(vectors, FORGOTTEN)
    assert {"r137", "r138"} <= {row["id"] for row in bad}
    [done] = purge(vectors, address=options["address"]).artifacts
    assert (done.rows_removed, done.files_written, done.is_removed) == (3, 3, False)
    assert table_of(vectors).to_pylist() == without(before, FORGOTTEN)
    assert table_of(vectors).schema.metadata == before.schema.metadata
    assert quarantine_of(vectors) == [row for row in bad if row["id"] not in FORGOTTEN]
    assert_forgotten(vectors, FORGOTTEN, gone)
    assert_nothing_but_the_artifact(vectors)
    manifest = Artifact.open(vectors).manifest
    table = table_of(vectors)
    metrics = manifest.metrics
    assert (manifest.rows, manifest.quarantined) == (table.num_rows, len(bad) - 1)
    assert metrics.documents == table.num_rows
    assert metrics.tokens == sum(table["num_tokens"].to_pylist())
    assert metrics.lost_tokens == sum(table["num_lost_tokens"].to_pylist())
    assert metrics.truncated == sum(table["truncated"].to_pylist())
    assert done.proof.rows == table.num_rows + len(bad) - 1
    folder = Path(Artifact.open(vectors).folder)
    by_name = [
        name for path in sorted(folder.iterdir()) for name in pq.read_table(path)["id"].to_pylist()
    ]
    assert by_name == table["id"].to_pylist()
    again = purge(vectors, address=options["address"]).artifacts[0]
    assert (again.rows_removed, again.proof) == (0, done.proof)


def test_update_after_a_purge_follows_the_corpus(vectors, corpus, options, tmp_path):
    purge(vectors, address=options["address"])
    kept = shutil.copytree(vectors, tmp_path / "kept")
    # The corpus still has the rows: they come back, and only they pass the model.
    assert embed(corpus, vectors, **options).embedded == 2
    embed(corpus, tmp_path / "scratch", **options)
    assert table_of(vectors).equals(table_of(tmp_path / "scratch"))
    assert quarantine_of(vectors) == quarantine_of(tmp_path / "scratch")
    # Without them in the corpus nothing passes the model, and they stay away.
    for name in ("a.parquet", "b.parquet"):
        rows = pq.read_table(corpus / name).to_pylist()
        pq.write_table(
            pa.Table.from_pylist([row for row in rows if row["id"] not in FORGOTTEN]),
            corpus / name,
        )
    assert embed(corpus, kept, **options).embedded == 0
    embed(corpus, tmp_path / "clean", **options)
    assert table_of(kept).equals(table_of(tmp_path / "clean"))


def test_purge_of_windows_goes_by_their_document(corpus, options, tmp_path):
    out = tmp_path / "chunks"
    embed(corpus, out, **options, long="chunks", max_length=8)
    before = table_of(out)
    assert max(before["chunk"].to_pylist()) > 0
    purge(out, address=options["address"])
    left = [row for row in before.to_pylist() if row["doc_id"] not in FORGOTTEN]
    assert table_of(out).to_pylist() == left
    documents = {row["doc_id"] for row in left}
    assert Artifact.open(out).manifest.metrics.documents == len(documents)


@pytest.mark.parametrize("name", ["vectors", "chunks", "int8", "content"])
def test_purge_of_an_artifact_of_an_earlier_version(name, ray_address, tmp_path):
    place = Path(shutil.copytree(MADE / name, tmp_path / name))
    before = table_of(place)
    column = "doc_id" if "doc_id" in before.column_names else "id"
    ids = [str(before[column][0].as_py())]
    [done] = purge(place, address=ray_address, ids=ids).artifacts
    left = [row for row in before.to_pylist() if str(row[column]) not in ids]
    assert table_of(place).to_pylist() == left
    assert done.rows_removed == before.num_rows - len(left) > 0
    assert_nothing_but_the_artifact(place)


@pytest.mark.parametrize("kind", ["hnsw", "faiss:SQ8"])
def test_purge_removes_an_index_that_holds_a_row(kind, vectors, corpus, options, tmp_path):
    address, place = options["address"], tmp_path / "index"

    def build():
        index_job.run(
            IndexSpec(
                vectors=str(vectors), out=str(place), kind=kind, recall_sample=20, address=address
            )
        )

    build()
    gone = bytes_of(vectors, FORGOTTEN)
    [clean] = purge(place, address=address, ids=["r999"]).artifacts
    assert not clean.is_removed and Index.open(place).rows == 60
    purge(vectors, address=address)
    build()  # an update: the rows cannot be found any more, but their vectors are there
    assert Index.open(place).rows == 58
    files = [(place / name).read_bytes() for name in files_of(place)]
    assert all(any(unit in data for data in files) for _, unit in gone.values())
    [done] = purge(place, address=address).artifacts
    assert done.is_removed and done.rows_removed == 2
    assert files_of(place) <= {"_lock", "_purged.json"}
    assert not purge(place, address=address).artifacts[0].is_removed  # again: nothing is left
    build()
    assert Index.open(place).rows == 58
    [done] = purge(place, address=address).artifacts
    assert (done.is_removed, done.rows_removed) == (False, 0)
    assert_forgotten(place, FORGOTTEN, gone)
    assert Index.open(place).search(vectors_of(table_of(vectors))[:1], 1).ids


class Killed(BaseException):
    """Stands for a kill: nothing of ours catches it."""


def test_purge_killed_at_any_change_is_ended_by_the_same_command(
    vectors, options, tmp_path, monkeypatch
):
    index = tmp_path / "index"
    address = options["address"]
    spec = IndexSpec(vectors=str(vectors), out=str(index), recall_sample=20, address=address)
    index_job.run(spec)
    gone = bytes_of(vectors, FORGOTTEN)
    starts = {"vectors": vectors, "index": index}

    def copies(name: str) -> list[Path]:
        return [
            Path(shutil.copytree(place, tmp_path / name / own)) for own, place in starts.items()
        ]

    def contents(places) -> list[dict[str, bytes]]:
        return [{n: (p / n).read_bytes() for n in files_of(p) - {"_lock"}} for p in places]

    calm = copies("calm")
    purge(*calm, address=address)
    want = contents(calm)
    changes_left = 0

    def counted(method):
        plain = getattr(LocalStorage, method)

        def change(self, *args):
            nonlocal changes_left
            changes_left -= 1
            if changes_left < 0:
                raise Killed
            return plain(self, *args)

        return change

    num_kills = 0
    while True:
        places = copies(f"killed-{num_kills}")
        changes_left = num_kills
        with monkeypatch.context() as patch:
            for method in ("put", "link", "delete", "delete_files"):
                patch.setattr(LocalStorage, method, counted(method))
            try:
                purge(*places, address=address)
                break
            except Killed:
                num_kills += 1
        purge(*places, address=address)
        assert contents(places) == want
        for place in places:
            assert_forgotten(place, FORGOTTEN, gone)
    assert num_kills > 10


@pytest.mark.skipif(WEED is None, reason=NO_SERVER)
def test_purge_in_a_store_leaves_the_listed_objects_alone(bucket, corpus, options, tmp_path):
    out = f"{bucket}/vectors"
    embed(corpus, out, **options)
    write_corpus(corpus, {"c.parquet": rows_of(TEXTS[57:60], 300)})
    embed(corpus, out, **options)
    before = table_of(out)
    [done] = purge(out, address=options["address"]).artifacts
    assert done.rows_removed == 3
    assert table_of(out).to_pylist() == without(before, FORGOTTEN)
    listed = {file.path for file in Artifact.open(out).manifest.listed}
    names = {stat.name for stat in storage_at(out).list()}
    assert names == listed | {"_manifest.json", "_run.json"}
    assert len({name.split("/")[1] for name in listed}) > 1  # nothing was copied
    assert embed(corpus, out, **options).embedded == 2
    embed(corpus, tmp_path / "scratch", **options)
    assert table_of(out).equals(table_of(tmp_path / "scratch"))


def test_proof_fails_where_a_trace_is_left(vectors, options):
    storage, address = storage_at(vectors), options["address"]
    manifest = Artifact.open(vectors).manifest
    with pytest.raises(TraceLeft):
        prove(storage, manifest, IDS)  # the generation before is there
    purge(vectors, address=address)
    purged = Artifact.open(vectors).manifest
    assert prove(storage, purged, IDS).files == len(purged.listed)
    with pytest.raises(TraceLeft):
        prove(storage, manifest, IDS)
    with pytest.raises(TraceLeft):
        prove(storage, purged, pa.array(["r102"], pa.large_string()))
    for name in (f"data/{purged.generation}/zombie", "_work/x/stash/000000", "_replaced/x.json"):
        storage.put(name, b"x")
        with pytest.raises(TraceLeft) as caught:
            prove(storage, purged, IDS)
        assert caught.value.name == name
        storage.delete([name])
    storage.put("data/raw/mine.csv", b"x")
    assert prove(storage, purged, IDS).others == 1


def test_purge_of_unfinished_work_removes_it(tmp_path, options):
    storage = storage_at(tmp_path / "out")
    for name in ("_work/0123456789abcdef/stash/000000", "data/0123456789abcdef/000000-x.parquet"):
        storage.put(name, b"r101")
    [done] = purge(storage.uri, address=options["address"]).artifacts
    assert done.kind is None and files_of(tmp_path / "out") <= {"_lock"}


def test_purge_refuses_what_it_cannot_prove_and_touches_nothing(vectors, options, tmp_path):
    address = options["address"]
    pairs = tmp_path / "pairs"
    pairs_job.run(PairsSpec(vectors=str(vectors), out=str(pairs), threshold=0.5, address=address))
    before = {name: (vectors / name).read_bytes() for name in files_of(vectors)}
    with pytest.raises(CannotPurge) as caught:
        purge(vectors, pairs, address=address)
    assert caught.value.kind == "pairs"
    with pytest.raises(NotAnArtifact):
        purge(vectors, tmp_path / "nothing", address=address)
    assert not (tmp_path / "nothing").exists()
    assert {name: (vectors / name).read_bytes() for name in files_of(vectors)} == before


def test_ids_of_a_file_are_read_line_by_line(vectors, options, tmp_path):
    listed = tmp_path / "ids.txt"
    words = ["purge", str(vectors), "--ids", str(listed), "--address", options["address"]]
    for data in (b"", b"\n\n", b"r\xff1\n"):
        listed.write_bytes(data)
        refused = CliRunner().invoke(main, words)
        assert refused.exit_code == 2 and len(refused.stderr.splitlines()) == 1
    assert CliRunner().invoke(main, ["purge", str(vectors)]).exit_code == 2
    listed.write_text("r101\r\n\nr137\n")
    before = table_of(vectors)
    done = CliRunner().invoke(main, [*words, "--id", "r205"])
    assert done.exit_code == 0, done.output
    assert table_of(vectors).to_pylist() == without(before, FORGOTTEN)
    assert np.isfinite(vectors_of(table_of(vectors))).all()
