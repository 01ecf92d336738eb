"""The list of removed rows that `sbert dedup` writes, in every format, without Ray."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from support.decisions import THRESHOLD, vectors_by_hand
from support.manifests import manifest_of

from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.dedup.removed import write_removed
from sbert_core.corpus.files import find_corpus
from sbert_core.vectors.part import put_table

TEXTS = ["a cat", 'a "cat"', "two\tdogs", "a\ncat", "sky"]
WITNESSES = {1: 0, 3: 0}


def write_corpus(path):
    table = pa.table({"id": list("abcde"), "text": TEXTS, "cosine": [1, 2, 3, 4, 5]})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    elif path.suffix == ".tsv":
        flat = [
            [" ".join(str(value).split()) for value in row.values()] for row in table.to_pylist()
        ]
        path.write_text("".join("\t".join(row) + "\n" for row in [table.column_names, *flat]))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def read_rows(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        quoting = csv.QUOTE_NONE if path.suffix == ".tsv" else csv.QUOTE_MINIMAL
        delimiter = "\t" if path.suffix == ".tsv" else ","
        return list(csv.DictReader(file, delimiter=delimiter, quoting=quoting))


def publish_clusters(vectors, out):
    keep = [n not in WITNESSES for n in range(len(TEXTS))]
    columns = {
        "id": list("abcde"),
        "threshold": pa.array([THRESHOLD] * len(TEXTS), pa.float32()),
        "keep": keep,
        "witness": ["abcde"[WITNESSES[n]] if n in WITNESSES else None for n in range(len(TEXTS))],
        "cos_to_witness": pa.array([None if k else 0.95 for k in keep], pa.float32()),
    }
    table = pa.table(columns)
    with Writer.claim(out) as writer:
        file = put_table(writer.storage, "data/0123456789abcdef/0", table)
        manifest = manifest_of(
            "clusters",
            generation="0123456789abcdef",
            schema={field.name: str(field.type) for field in table.schema},
            rows=table.num_rows,
            files=(file,),
            spec={"thresholds": [THRESHOLD], "method": "leaders", "goal": "g"},
            made_from={
                "pairs": "p",
                "vectors": str(vectors),
                "corpus_files": [],
                "vectors_files": [],
            },
            facts={"compared_fresh": False, "kept": {}, "removed": {}},
        )
        writer.publish(manifest, rows_in=table.num_rows, rows_out=file.rows, run={})
    return Artifact.clusters(out)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv", ".jsonl"])
def test_write_removed_lists_removed_rows_with_their_witnesses(suffix, tmp_path):
    source = tmp_path / f"in{suffix}"
    write_corpus(source)
    vectors = Artifact.vectors(vectors_by_hand(source, tmp_path / "v"))
    clusters = publish_clusters(tmp_path / "v", tmp_path / "c")
    target = tmp_path / f"removed{suffix}"
    count = write_removed(find_corpus(str(source)), "text", vectors, clusters, target)
    assert (count.removed, count.rows) == (2, 5)
    rows = read_rows(target)
    assert [row["id"] for row in rows] == ["b", "d"]
    assert [row["witness"] for row in rows] == ["a", "a"]
    assert [row["witness_text"] for row in rows] == ["a cat", "a cat"]
    # The corpus has a column of that name, which stays as it is.
    assert [int(row["cosine"]) for row in rows] == [2, 4]
    np.testing.assert_allclose([float(row["cosine_of_dedup"]) for row in rows], 0.95, rtol=1e-6)
    text = rows[1]["text"]
    assert text == (" ".join(TEXTS[3].split()) if suffix == ".tsv" else TEXTS[3])
    assert sorted(p.name for p in tmp_path.glob("*removed*")) == [target.name]
