"""The demo as a user runs it, smaller."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.artifacts.reader import Artifact
from sbert_core.corpus.docstrings import collect_docstrings
from sbert_core.encoder.encoder import Encoder

SBERT = Path(sys.executable).parent / "sbert"
pytestmark = pytest.mark.long  # two minutes; CI runs `make demo SMALL=1` itself
OUR_NAMES = ("pipelines", "workers", "sbert_core")


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """`sbert demo` with an empty home, beside a user's own folders of our names."""
    cwd, home = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("home")
    for package in OUR_NAMES:
        (cwd / package).mkdir()
        (cwd / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    done = subprocess.run(
        [str(SBERT), "demo", "--small", "--docstrings", "300"],
        cwd=cwd,
        env=os.environ | {"HOME": str(home), "TMPDIR": str(home)},
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return cwd, home, done


@pytest.mark.ray
@pytest.mark.demo
@pytest.mark.timeout(240)
def test_demo_makes_everything_from_encoder_to_report(demo_run):
    cwd, _, _ = demo_run
    run = cwd / "demo-out" / "run"
    texts = pq.read_table(cwd / "demo-out" / "docstrings.parquet")["text"].to_pylist()
    assert len(texts) == 300
    vectors = pq.read_table(Artifact.open(run / "vectors").folder)
    encoded = Encoder.load(run / "encoder").encode(texts)
    np.testing.assert_array_equal(np.stack(vectors["vector"].to_numpy()), encoded)
    clusters = pq.read_table(Artifact.open(run / "clusters").folder).to_pylist()
    kept = {row["id"] for row in clusters if row["keep"]}
    assert len(clusters) == 300 and all(row["keep"] or row["witness"] in kept for row in clusters)
    record = json.loads((run / "run.json").read_text())
    assert {stage["outcome"] for stage in record["stages"]} == {"done"}
    facts = json.loads((run / "report.json").read_text())
    assert facts["training"] and facts["scores"] and facts["index"] and facts["map"]["points"]


@pytest.mark.ray
@pytest.mark.demo
@pytest.mark.timeout(240)
def test_demo_writes_nothing_outside_its_folder(demo_run):
    cwd, home, _ = demo_run
    assert [str(path) for path in home.rglob("*")] == []
    assert {path.name for path in cwd.iterdir()} == {"demo-out", *OUR_NAMES}
    left = {path.name for path in (cwd / "demo-out").iterdir()}
    assert left == {"docstrings.parquet", "lines.parquet", "held-out", "job.yaml", "run"}
    assert {path.name for path in (cwd / "demo-out" / "run").iterdir()} == {
        "shards", "encoder", "scores", "vectors", "index", "pairs", "clusters",
        "report.html", "report.json", "run.json",
    }  # fmt: skip


@pytest.mark.ray
@pytest.mark.demo
@pytest.mark.timeout(240)
def test_demo_ends_with_what_was_found_where_and_what_next(demo_run):
    _, _, done = demo_run
    found, where, then = done.stdout.splitlines()[-3:]
    assert "of 300 docstrings are near-duplicates, each with a kept witness" in found
    assert where == "report -> demo-out/run/report.html"
    assert then == "next: edit demo-out/job.yaml and run: sbert run demo-out/job.yaml"
    assert "by a cross-encoder of the same size" in done.stdout and "nDCG@10" in done.stdout
    assert "Traceback" not in done.stderr


def test_docstrings_take_a_file_of_each_package_in_turn(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.py").write_text(
            f'"""module {name}."""\ndef f():\n    """f {name}"""'
        )
        (tmp_path / name / "two.py").write_text(f'class C:\n    """class {name}"""')
    (tmp_path / "broken.py").write_text("def")
    (tmp_path / "notes.txt").write_text('"""not Python"""')
    found = collect_docstrings([tmp_path], limit=100)
    assert [row.text for row in found] == [
        "module a.",
        "f a",
        "module b.",
        "f b",
        "class a",
        "class b",
    ]
    assert found[1].id == "a/one.py:2"
    assert collect_docstrings([tmp_path], limit=3) == found[:3]
