"""Updates in an object store copy nothing: manifests list objects of older generations."""

import os

import numpy as np
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.embedding import embed, rows_of, sentences, table_of, vectors_of, write_corpus
from support.kills import Job
from support.s3 import NO_SERVER, WEED
from support.sabotage import sabotaged

from pipelines.artifacts.layout import FOLDERS
from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.index import job as index_job
from pipelines.index.spec import IndexSpec
from pipelines.pairs import job as pairs_job
from pipelines.pairs.spec import PairsSpec
from pipelines.search.index import Index
from sbert_core.storage import storage_at

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.skipif(WEED is None, reason=NO_SERVER),
]
TEXTS = sentences(80)
FILES = {
    "a.parquet": rows_of(TEXTS[:8], 100),
    "b.parquet": rows_of([*TEXTS[8:44], None], 200),
    "c.parquet": rows_of(TEXTS[44:60], 300),
}


def generation_objects(out: str) -> set[str]:
    """Objects of generations, each content once: what is copied has the same hash in its name."""
    names = {stat.name for folder in FOLDERS for stat in storage_at(out).list(folder)}
    # Every shard writes a list of exact vectors, which is empty here.
    hashes = [name.rpartition("-")[2] for name in names if not name.endswith(".own.npy")]
    assert len(set(hashes)) == len(hashes)
    return names


def listed(out: str) -> set[str]:
    return {file.path for file in Artifact.open(out).manifest.listed}


def ran(*words) -> list[str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.fixture
def options(bert_folder, ray_address):
    return {"model": bert_folder, "address": ray_address, "unit_rows": 16}


def test_update_copies_nothing_and_lists_older_generations(bucket, options, tmp_path):
    address = options["address"]
    corpus, out = write_corpus(tmp_path / "in", FILES), f"{bucket}/vectors"

    def update(scratch: str):
        report = embed(corpus, out, **options)
        embed(corpus, tmp_path / scratch, **options)
        assert table_of(out).equals(table_of(tmp_path / scratch))
        return report

    def join_and_index():
        pairs_job.run(PairsSpec(vectors=out, out=f"{bucket}/pairs", threshold=0.5, address=address))
        index_job.run(
            IndexSpec(vectors=out, out=f"{bucket}/index", recall_sample=20, address=address)
        )

    update("first")
    join_and_index()
    old = Artifact.open(out)
    places = (out, f"{bucket}/pairs", f"{bucket}/index")
    before = {place: listed(place) for place in places}
    old_ids = table_of(out)["id"].to_pylist()

    # Without the first file all units have other numbers; a new one comes last.
    (corpus / "a.parquet").unlink()
    write_corpus(corpus, {"d.parquet": rows_of(TEXTS[60:70], 400)})
    assert update("second").embedded == 10
    join_and_index()
    for place in places:
        assert generation_objects(place) == listed(place) | before[place]
    assert listed(out) & before[out] == {
        file.path for file in old.manifest.listed if file.source["file"] != "a.parquet"
    }
    assert listed(places[2]) & before[places[2]]  # the graph of the old shard
    # A reader of the manifest that was replaced finds all of its rows.
    assert [i for batch in old.read(["id"]) for i in batch["id"].to_pylist()] == old_ids
    vectors = table_of(out)
    queries = vectors_of(vectors)[:5]
    best = np.sort(queries @ vectors_of(vectors).T)[:, :-4:-1]
    index = Index.open(places[2])
    np.testing.assert_allclose(np.stack(index.search(queries, 3).cos), best, atol=1e-5)
    embed(corpus, tmp_path / "alone", **options)
    alone = PairsSpec(
        vectors=str(tmp_path / "alone"), out=str(tmp_path / "p"), threshold=0.5, address=address
    )
    pairs_job.run(alone)
    assert rows_of_pairs(places[1]) == rows_of_pairs(tmp_path / "p")

    # Only additions: pairs are taken over whole as well.
    before = {place: listed(place) for place in places}
    write_corpus(corpus, {"e.parquet": rows_of(TEXTS[70:75], 500)})
    assert update("third").embedded == 5
    join_and_index()
    for place in places:
        assert generation_objects(place) == listed(place) | before[place]
        assert listed(place) & before[place]
    check_paths(out, corpus, options)


def rows_of_pairs(place) -> list[tuple]:
    table = table_of(place)
    return sorted(zip(*(table[name].to_pylist() for name in ("id_a", "id_b", "cos")), strict=True))


def check_paths(out: str, corpus, options) -> None:
    """The list in three readers, then one folder, which the next update leaves again."""
    polars = pytest.importorskip("polars")
    ids = table_of(out)["id"].to_pylist()
    refused = CliRunner().invoke(main, ["path", out])
    assert (refused.exit_code, refused.stdout) == (2, "")
    files = ran("path", "--files", out)
    store, _ = pyarrow.fs.FileSystem.from_uri(f"{files[0]}?{arrow_options()}")
    names = [file.removeprefix("s3://") for file in files]
    assert pq.read_table(names, filesystem=store)["id"].to_pylist() == ids
    keys = {name.lower(): os.environ[name] for name in os.environ if name.startswith("AWS_")}
    keys["aws_allow_http"] = "true"
    assert polars.read_parquet(files, storage_options=keys)["id"].to_list() == ids
    before = listed(out)
    [folder] = ran("path", "--materialize", out, "--address", options["address"])
    assert folder == Artifact.open(out).folder
    assert pq.read_table(folder.removeprefix("s3://"), filesystem=store)["id"].to_pylist() == ids
    data = {stat.name for stat in storage_at(out).list("data")}
    assert data == {name for name in listed(out) | before if name.startswith("data/")}
    assert not embed(corpus, out, **options).is_new
    assert ran("path", out) == [folder]
    (corpus / "b.parquet").unlink()
    last = listed(out)
    assert embed(corpus, out, **options).embedded == 0
    assert generation_objects(out) == last | listed(out)


def arrow_options() -> str:
    scheme, _, place = os.environ["AWS_ENDPOINT_URL"].partition("://")
    return f"scheme={scheme}&endpoint_override={place}"


def test_kill_between_publish_and_tidy_is_tidied_by_the_rerun(bucket, options, tmp_path):
    corpus, out = write_corpus(tmp_path / "in", FILES), f"{bucket}/killed"
    embed(corpus, out, **options)
    first = listed(out)
    (corpus / "a.parquet").unlink()
    embed(corpus, out, **options)
    old, before = Artifact.open(out), listed(out)
    write_corpus(corpus, {"d.parquet": rows_of(TEXTS[60:70], 400)})
    words = ["embed", str(corpus), "--out", out, "--model", str(options["model"])]
    words += ["--unit-rows", "16", "--actors", "1", "--address", options["address"]]
    job = Job(words, tmp_path / "log", sabotaged(tmp_path, "untidy"))
    job.start()
    assert job.wait() == -9, job.log.read_text()
    storage = storage_at(out)
    assert Artifact.open(out).manifest != old.manifest
    assert generation_objects(out) == listed(out) | before | first
    assert list(storage.list("_work"))
    storage.delete(["_lock"])  # instead of the minute in which the dead run's lease ends
    assert not embed(corpus, out, **options).is_new
    assert generation_objects(out) == listed(out) | before
    assert not list(storage.list("_work"))
    assert sum(batch.num_rows for batch in old.read(["id"])) == 52
    embed(corpus, tmp_path / "scratch", **options)
    assert table_of(out).equals(table_of(tmp_path / "scratch"))
