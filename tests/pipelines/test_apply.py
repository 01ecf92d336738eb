"""`sbert apply`: the corpus without removed rows, against the corpus itself."""

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from clustering import clustered, paired, table_of
from embedding import published_bytes

from pipelines import apply as apply_job
from pipelines import embed as embed_job
from pipelines.specs import ApplySpec, EmbedSpec
from sbert_core.storage import storage_at

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]

TEXTS = [
    "a cat sat",
    "A cat sat.",
    "ships, at sea",
    'he said "no"\nand left',
    "blue sky",
    "a cat sat",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus of every format, with ids."""
    root = tmp_path_factory.mktemp("corpus")
    for part in range(2):
        own = [f"{text} {part // 2}" for text in TEXTS]
        table = pa.table(
            {
                "id": [f"p{part}-{n}" for n in range(6)],
                "text": own,
                "tags": [[n, n] for n in range(6)],
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
    with gzip.open(root / "c.jsonl.gz", "wt") as file:
        for n, text in enumerate(TEXTS):
            file.write(json.dumps({"text": f"{text} 0", "id": f"j{n}"}) + "\n")
    return root


def test_apply_keeps_files_schemas_and_order(folder, bert_folder, tmp_path, ray_address):
    embed_job.run(
        EmbedSpec(
            corpus=str(folder), model=str(bert_folder), out=str(tmp_path / "v"), address=ray_address
        )
    )
    paired(tmp_path / "v", tmp_path / "p", ray_address, 0.999)
    clustered(tmp_path / "p", tmp_path / "c")
    kept = {n for n, row in table_of(tmp_path / "c").items() if row["keep"]}
    spec = ApplySpec(
        clusters=str(tmp_path / "c"),
        corpus=str(folder),
        out=str(tmp_path / "o"),
        address=ray_address,
    )
    report = apply_job.run(spec)
    assert (report.rows_in, report.rows) == (24, len(kept)) and len(kept) < 24
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    made = tmp_path / "o"
    assert (
        sorted(
            p.relative_to(made).as_posix()
            for p in made.rglob("*")
            if p.is_file() and p.name[0] not in "_."
        )
        == names
    )
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
    # Another run began here and was killed: nothing it may have written is trusted.
    storage = storage_at(made)
    listed = json.loads(storage.read(apply_job.NOTE))["files"]
    apply_job._begin(storage, "another goal", listed)
    (made / "b.csv").write_text("half")
    assert apply_job.run(spec).is_new
    with (made / "b.csv").open(newline="") as file:
        assert list(csv.reader(file)) == wanted
    (tmp_path / "wrong").mkdir()
    pq.write_table(pa.table({"id": ["x"], "text": ["y"]}), tmp_path / "wrong" / "a.parquet")
    with pytest.raises(ValueError, match=r"no row of .* is among the \d+ to be removed"):
        apply_job.run(
            ApplySpec(
                clusters=str(tmp_path / "c"),
                corpus=str(tmp_path / "wrong"),
                out=str(tmp_path / "none"),
                address=ray_address,
            )
        )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.csv").write_text("x\n1\n")
    with pytest.raises(ValueError, match="was not made by sbert apply; choose a new folder"):
        apply_job.run(
            ApplySpec(clusters=str(tmp_path / "c"), corpus=str(folder), out=str(tmp_path / "other"))
        )
    assert published_bytes(tmp_path / "c")


def test_apply_by_position_refuses_a_changed_file(tmp_path, bert_folder, ray_address):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("text\nsame words\nother things\nsame words\n\nlast\n")
    place = str(tmp_path / "in")
    embed_job.run(
        EmbedSpec(
            corpus=place, model=str(bert_folder), out=str(tmp_path / "v"), address=ray_address
        )
    )
    paired(tmp_path / "v", tmp_path / "p", ray_address, 0.9999)
    clustered(tmp_path / "p", tmp_path / "c")
    spec = ApplySpec(
        clusters=str(tmp_path / "c"), corpus=place, out=str(tmp_path / "o"), address=ray_address
    )
    assert apply_job.run(spec).rows == 3
    assert (tmp_path / "o" / "a.csv").read_text() == "text\nsame words\nother things\nlast\n"
    elsewhere = ApplySpec(
        clusters=str(tmp_path / "c"),
        corpus=str(tmp_path),
        out=str(tmp_path / "x"),
        address=ray_address,
    )
    with pytest.raises(ValueError, match="has no file a.csv, which has rows to remove"):
        apply_job.run(elsewhere)
    (tmp_path / "in" / "a.csv").write_text("text\nsame words\nsame words\nlast one\n")
    with pytest.raises(ValueError, match="has changed since it was embedded, and its rows have no"):
        apply_job.run(spec)
