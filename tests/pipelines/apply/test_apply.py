"""`sbert apply`: the corpus without removed rows, against the corpus itself."""

import csv
import gzip
import json
import random
import re
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.decisions import clusters_by_hand, vectors_by_hand
from support.embedding import assert_nothing_but_the_artifact, embed, published_bytes
from support.embedding import table_of as vectors_table
from support.kills import Job

from pipelines.apply import job as apply_job
from pipelines.apply.spec import ApplySpec
from pipelines.artifacts.errors import WrongKind
from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from sbert_core.corpus.errors import ChangedFile

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

TEXTS = [
    "a cat sat",
    "A cat sat.",
    "ships, at sea",
    'he said "no"\nand left',
    "blue sky",
    "a cat sat",
]

# A row that each file has alone: none is emptied.
ALONE = ["the the the", "how many words would you write", "9.9 8.8 7.7!", "she said it was his"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus of every format, with ids."""
    root = tmp_path_factory.mktemp("corpus")
    for part in range(2):
        own = [*(f"{text} 0" for text in TEXTS), ALONE[part]]
        table = pa.table(
            {
                "id": [f"p{part}-{n}" for n in range(7)],
                "text": own,
                "tags": [[n, n] for n in range(7)],
            }
        )
        (root / f"lang={part}").mkdir()
        pq.write_table(
            table.replace_schema_metadata({"made": "by hand"}),
            root / f"lang={part}" / "a.parquet",
            row_group_size=2,
            compression="gzip",
        )
    with (root / "b.csv").open("w", newline="") as file:
        file.write("id,text\r\n")
        for n, text in enumerate(TEXTS):
            quoted = text.replace('"', '""')
            file.write(f'"c{n}","{quoted} 0"\r\n' + ("\r\n" if n == 2 else ""))
        file.write(f"c6,{ALONE[2]}\r\n")
    with gzip.open(root / "c.jsonl.gz", "wt") as file:
        for n, text in enumerate(TEXTS):
            file.write(json.dumps({"text": f"{text} 0", "id": f"j{n}"}) + "\n")
        file.write(json.dumps({"text": ALONE[3], "id": "j6"}) + "\n")
    return root


FIRST = {"p0-1", "p0-5", "p1-1", "p1-2", "c5", "j0", "j5"}
SECOND = FIRST - {"p0-1"} | {"c2"}  # changes one Parquet file and the CSV
IDS = {f"{kind}{n}" for kind in ("p0-", "p1-", "c", "j") for n in range(7)}


@pytest.fixture(scope="module")
def clusters(folder, tmp_path_factory):
    """Two decisions on the corpus."""
    home = tmp_path_factory.mktemp("clusters")
    vectors = vectors_by_hand(folder, home / "v")
    for name, removed in (("first", FIRST), ("second", SECOND)):
        clusters_by_hand(vectors, home / name, removed)
    return home


def test_apply_keeps_files_schemas_and_order(folder, clusters, tmp_path, ray_address):
    kept = IDS - FIRST
    spec = ApplySpec(
        clusters=str(clusters / "first"),
        corpus=str(folder),
        out=str(tmp_path / "o"),
        address=ray_address,
    )
    report = apply_job.run(spec)
    assert (report.rows_in, report.rows) == (28, 21)
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    made = Path(report.folder)
    assert sorted(p.relative_to(made).as_posix() for p in made.rglob("*") if p.is_file()) == names
    assert_nothing_but_the_artifact(tmp_path / "o")
    assert CliRunner().invoke(main, ["path", str(tmp_path / "o")]).output == f"{made}\n"
    for part in range(2):
        name = f"lang={part}/a.parquet"
        source, target = pq.read_table(folder / name), pq.read_table(made / name)
        expected = source.filter(pc.is_in(source["id"], pa.array(sorted(kept))))
        assert target.equals(expected) and target.schema.metadata[b"made"] == b"by hand"
    with (folder / "b.csv").open(newline="") as file:
        wanted = [row for row in csv.reader(file) if row and (row[0] in kept or row[0] == "id")]
    with (made / "b.csv").open(newline="") as file:
        assert list(csv.reader(file)) == wanted
    with gzip.open(made / "c.jsonl.gz", "rt") as file:
        own = [line for line in file]
    with gzip.open(folder / "c.jsonl.gz", "rt") as file:
        assert own == [line for line in file if json.loads(line)["id"] in kept]
    assert not apply_job.run(spec).is_new
    (tmp_path / "wrong").mkdir()
    pq.write_table(pa.table({"id": ["x"], "text": ["y"]}), tmp_path / "wrong" / "a.parquet")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "wrong"))):
        apply_job.run(
            ApplySpec(
                clusters=str(clusters / "first"),
                corpus=str(tmp_path / "wrong"),
                out=str(tmp_path / "none"),
                address=ray_address,
            )
        )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match="mine.csv"):
        apply_job.run(replace(spec, out=str(tmp_path / "other")))
    (tmp_path / "earlier").mkdir()
    (tmp_path / "earlier" / "b.csv").write_text("x\n1\n")
    (tmp_path / "earlier" / "_apply.json").write_text('{"goal": "x", "files": []}')
    with pytest.raises(ValueError, match="_apply.json"):
        apply_job.run(replace(spec, out=str(tmp_path / "earlier")))
    assert (tmp_path / "earlier" / "b.csv").read_text() == "x\n1\n"
    for inside in (folder, folder / "clean"):
        with pytest.raises(ValueError, match=re.escape(str(inside))):
            apply_job.run(replace(spec, out=str(inside)))
    with pytest.raises(WrongKind):
        apply_job.run(replace(spec, out=str(clusters / "second")))


def test_apply_by_position_refuses_a_changed_file(tmp_path, ray_address):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("text\nsame words\nother things\nsame words\n\nlast\n")
    place = str(tmp_path / "in")
    vectors = vectors_by_hand(tmp_path / "in", tmp_path / "v", id_column=None)
    clusters_by_hand(vectors, tmp_path / "c", {"a.csv#2"})
    spec = ApplySpec(
        clusters=str(tmp_path / "c"), corpus=place, out=str(tmp_path / "o"), address=ray_address
    )
    assert apply_job.run(spec).rows == 3
    made = Path(Artifact.open(tmp_path / "o").folder)
    assert (made / "a.csv").read_text() == "text\nsame words\nother things\nlast\n"
    elsewhere = ApplySpec(
        clusters=str(tmp_path / "c"),
        corpus=str(tmp_path / "*" / "a.csv"),
        out=str(tmp_path / "x"),
        address=ray_address,
    )
    with pytest.raises(ValueError, match=r"a\.csv"):
        apply_job.run(elsewhere)
    (tmp_path / "in" / "a.csv").write_text("text\nsame words\nsame words\nlast one\n")
    with pytest.raises(ChangedFile):
        apply_job.run(spec)


def test_apply_after_another_decision_rewrites_only_files_whose_rows_changed(
    folder, clusters, bert_folder, tmp_path, ray_address
):
    out, vectors = tmp_path / "clean", tmp_path / "v"
    first = ApplySpec(
        clusters=str(clusters / "first"), corpus=str(folder), out=str(out), address=ray_address
    )
    second = replace(first, clusters=str(clusters / "second"))
    old = Path(apply_job.run(first).folder)
    embed(out, vectors, bert_folder, address=ray_address)
    parts = parts_by_file(vectors)
    new = Path(apply_job.run(second).folder)
    changed = {"b.csv", "lang=0/a.parquet"}
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert {n for n in names if not (new / n).samefile(old / n)} == changed
    assert old.exists()  # for readers that have opened it
    apply_job.run(replace(second, out=str(tmp_path / "scratch")))
    assert published_bytes(out) == published_bytes(tmp_path / "scratch")
    # The published corpus is a corpus: read once, and what did not change is carried over.
    report = embed(out, vectors, bert_folder, address=ray_address)
    assert sorted(vectors_table(vectors)["id"].to_pylist()) == sorted(IDS - SECOND)
    assert set(vectors_table(vectors)["file"].to_pylist()) <= names
    now = parts_by_file(vectors)
    assert {n for n in names & set(parts) if parts[n] == now.get(n)} == set(parts) - changed
    assert report.embedded == 0


@pytest.mark.parametrize("id_column", ["id", None])
def test_apply_after_random_edits_equals_a_run_from_scratch(id_column, tmp_path, ray_address):
    rng = random.Random(7)
    corpus, out = tmp_path / "in", tmp_path / "clean"
    corpus.mkdir()
    before: dict[str, tuple] = {}
    for step in range(4):
        for name in ("a.csv", "b.jsonl", "k=1/c.parquet", "k=2/c.parquet", "d.csv"):
            if step == 0 or rng.random() < 0.3:
                write_rows(
                    corpus / name, [f"{name}-{step}-{n}" for n in range(rng.randrange(2, 6))]
                )
        if step == 2:
            (corpus / "d.csv").unlink()
        vectors = vectors_by_hand(corpus, tmp_path / f"v{step}", id_column)
        rows = [
            row
            for batch in Artifact.open(vectors).read(["id", "file", "row"])
            for row in batch.to_pylist()
        ]
        removed = {row["id"] for row in rows if zlib.crc32(row["id"].encode()) % 3 == step % 2}
        clusters = clusters_by_hand(vectors, tmp_path / f"c{step}", removed)
        spec = ApplySpec(
            clusters=str(clusters), corpus=str(corpus), out=str(out), address=ray_address
        )
        report = apply_job.run(spec)
        apply_job.run(replace(spec, out=str(tmp_path / f"scratch{step}")))
        assert published_bytes(out) == published_bytes(tmp_path / f"scratch{step}")
        made = Path(report.folder)
        now = {}
        for name in {row["file"] for row in rows}:
            own = [row for row in rows if row["file"] == name]
            ids = read_ids(corpus / name)
            kept = [ids[row["row"]] for row in own if row["id"] not in removed]
            assert read_ids(made / name) == kept
            gone = [row["row"] for row in own if row["id"] in removed]
            now[name] = ((corpus / name).stat().st_mtime_ns, gone), (made / name).stat().st_ino
        linked = {n for n in now if n in before and now[n][1] == before[n][1]}
        assert linked == {n for n in now if n in before and now[n][0] == before[n][0]}
        assert report.rows_in - report.rows == len(removed)
        before = now


def write_rows(path, ids):
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": ids, "text": ids}), path, row_group_size=2)
    elif path.suffix == ".csv":
        path.write_text("id,text\n" + "".join(f"{name},x\n" for name in ids))
    else:
        path.write_text("".join(json.dumps({"id": name, "text": "x"}) + "\n" for name in ids))


def read_ids(path):
    if path.suffix == ".parquet":
        return pq.read_table(path, partitioning=None)["id"].to_pylist()
    if path.suffix == ".csv":
        return [line.split(",")[0] for line in path.read_text().splitlines()[1:]]
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def parts_by_file(vectors):
    """The sha256 of the part of each corpus file."""
    files = Artifact.open(vectors).manifest.files
    return {file.source["file"]: file.sha256 for file in files}


@pytest.mark.long
def test_apply_killed_midway_leaves_the_old_corpus_and_goes_on(
    folder, clusters, tmp_path, ray_address
):
    corpus, out = tmp_path / "in", tmp_path / "clean"
    shutil.copytree(folder, corpus, copy_function=shutil.copy2)
    for n in range(150):
        (corpus / f"more-{n}.csv").write_text(f"id,text\nm{n},more\n")
    spec = ApplySpec(
        clusters=str(clusters / "first"), corpus=str(corpus), out=str(out), address=ray_address
    )
    apply_job.run(spec)
    old = published_bytes(out)
    (corpus / "more-0.csv").write_text("id,text\nm0,other\n")
    words = ["apply", clusters / "second", corpus, "--out", out, "--address", ray_address]
    job = Job(list(map(str, words)), tmp_path / "log")
    job.start()
    finished = job.until(lambda: list(out.glob("_work/????????????????/*.json")))
    job.kill()
    assert published_bytes(out) == old
    written = [out / json.loads(note.read_bytes())["path"] for note in finished if note.exists()]
    before = {path: path.stat().st_ino for path in written}
    second = replace(spec, clusters=str(clusters / "second"))
    assert apply_job.run(second).is_new
    assert {path: path.stat().st_ino for path in written} == before
    apply_job.run(replace(second, out=str(tmp_path / "calm")))
    assert published_bytes(out) == published_bytes(tmp_path / "calm")
    assert not (out / "_work").exists()
