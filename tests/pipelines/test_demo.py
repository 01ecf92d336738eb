"""The demo as a user runs it, smaller."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.docstrings import docstrings
from sbert_core.encoder import Encoder

SBERT = Path(sys.executable).parent / "sbert"
OUR_NAMES = ("pipelines", "workers", "sbert_core")


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory):
    """`sbert demo` with an empty home, beside a user's own folders of our names."""
    cwd, home = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("home")
    for package in OUR_NAMES:
        (cwd / package).mkdir()
        (cwd / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    done = subprocess.run(
        [str(SBERT), "demo", "--docstrings", "300"],
        cwd=cwd,
        env=os.environ | {"HOME": str(home), "TMPDIR": str(home)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return cwd, home, done


@pytest.mark.ray
@pytest.mark.demo
@pytest.mark.timeout(180)
def test_demo_vectors_and_pairs_match_one_encoder_and_brute_force(demo_run, minilm_folder):
    cwd, _, _ = demo_run
    table = pq.read_table(cwd / "demo-out" / "vectors.parquet")
    report = json.loads((cwd / "demo-out" / "report.json").read_text())
    texts = table["text"].to_pylist()
    vectors = np.stack(table["vector"].to_numpy())
    encoded = Encoder.load(minilm_folder).encode_report(texts)
    np.testing.assert_array_equal(vectors, encoded.vectors)
    assert (report["num_rows"], report["num_distinct"]) == (300, len(set(texts)))
    assert report["num_tokens"] == encoded.num_encoded_tokens
    assert report["num_tokens_saved"] == encoded.num_saved_tokens
    assert report["num_truncated"] == int((encoded.num_lost_tokens > 0).sum())

    forms = [" ".join(text.casefold().split()) for text in texts]
    firsts = [row for row, form in enumerate(forms) if forms.index(form) == row]
    cos = vectors[firsts] @ vectors[firsts].T
    cos[np.tril_indices(len(cos))] = -1
    best = np.sort(cos, axis=None)[::-1][:10]
    np.testing.assert_allclose([pair["cos"] for pair in report["pairs"]], best, atol=1e-6)


@pytest.mark.ray
@pytest.mark.demo
@pytest.mark.timeout(180)
def test_demo_writes_nothing_outside_its_folder(demo_run):
    cwd, home, _ = demo_run
    assert [str(path) for path in home.rglob("*")] == []
    assert {path.name for path in cwd.iterdir()} == {"demo-out", *OUR_NAMES}
    left = {path.name for path in (cwd / "demo-out").rglob("*")}
    assert left == {"report.json", "vectors.parquet"}


@pytest.mark.ray
@pytest.mark.demo
@pytest.mark.timeout(180)
def test_demo_prints_what_it_found_and_ends_with_the_report(demo_run):
    _, _, done = demo_run
    for word in ("throughput", "repeats", "padding avoided", "10 most similar"):
        assert word in done.stdout
    assert done.stdout.splitlines()[-1] == "report -> demo-out/report.json"
    assert "Traceback" not in done.stderr
    assert "300 docstrings" in done.stdout


def test_docstrings_take_a_file_of_each_package_in_turn(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.py").write_text(
            f'"""module {name}."""\ndef f():\n    """f {name}"""'
        )
        (tmp_path / name / "two.py").write_text(f'class C:\n    """class {name}"""')
    (tmp_path / "broken.py").write_text("def")
    (tmp_path / "notes.txt").write_text('"""not Python"""')
    found = docstrings([tmp_path], limit=100)
    assert [row.text for row in found] == [
        "module a.",
        "f a",
        "module b.",
        "f b",
        "class a",
        "class b",
    ]
    assert found[1].id == "a/one.py:2"
    assert docstrings([tmp_path], limit=3) == found[:3]
