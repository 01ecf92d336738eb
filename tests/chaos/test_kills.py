"""Whatever is killed, the rerun ends byte-identical to an undisturbed run."""

import os
import random

import pytest
from embedding import (
    assert_nothing_but_the_artifact,
    published_bytes,
    quarantine_of,
    rows_of,
    sentences,
    table_of,
    write_corpus,
)
from kills import DEADLINE_SECONDS, Job, kill_one

pytestmark = [pytest.mark.ray, pytest.mark.timeout(3600)]
# `make test` tries each kind once or twice, `make chaos` all twenty.
KILLS = int(os.environ.get("SBERT_CHAOS_KILLS", "4"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Repeats across units, so that both passes have work; some bad rows."""
    texts = sentences(6000, longest=100)
    repeats = random.Random(1).choices(texts, k=600)
    folder = tmp_path_factory.mktemp("chaos")
    files = {"a.parquet": [*texts[:3000], None], "b.parquet": [*texts[3000:], *repeats, ""]}
    columns = {name: rows_of(own, 10_000 * i) for i, (name, own) in enumerate(files.items())}
    return write_corpus(folder, columns)


def words(corpus, out, model) -> list[str]:
    options = ["--unit-rows", "256", "--actors", "2"]
    return ["embed", str(corpus), "--out", str(out), "--model", str(model), *options]


@pytest.fixture(scope="module")
def undisturbed(corpus, minilm_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    job = Job(words(corpus, out, minilm_folder), out.with_suffix(".log"))
    job.start()
    assert job.wait() == 0, job.log.read_text()
    return out


def test_kills_at_random_moments_change_no_byte(corpus, minilm_folder, undisturbed, tmp_path):
    rng = random.Random(int(os.environ.get("SBERT_CHAOS_SEED", "7")))
    kinds = ("driver", "actor", "write task")
    want = published_bytes(undisturbed)
    num_killed = {kind: 0 for kind in kinds}
    round_number = 0
    while sum(num_killed.values()) < KILLS:
        out = tmp_path / f"out-{round_number}"
        round_number += 1
        job = Job(words(corpus, out, minilm_folder), tmp_path / "log")
        code = None
        while code != 0:
            job.start()
            for _ in range(3):
                kind = rng.choice(kinds)
                if sum(num_killed.values()) < KILLS and kill_one(job, kind, rng, 20.0):
                    num_killed[kind] += 1
                if not job.is_running:
                    break
            code = job.wait(DEADLINE_SECONDS)
        assert published_bytes(out) == want
        assert_nothing_but_the_artifact(out)
    print("killed", num_killed)  # noqa: T201 - shown by `make chaos`


SABOTAGE = """
import os, sys
def deadly(self, texts, **options):
    if any("deadly" in str(text) for text in texts):
        os._exit(9)
    return plain(self, texts, **options)
if os.environ.get("SBERT_SABOTAGE"):
    import importlib.abc, importlib.machinery
    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name != "sbert_core.encoder.model":
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            load = spec.loader.exec_module
            def exec_module(module):
                global plain
                load(module)
                plain = module.Encoder.encode_report
                module.Encoder.encode_report = deadly
            spec.loader.exec_module = exec_module
            return spec
    sys.meta_path.insert(0, Finder())
"""


def test_row_that_kills_its_process_is_quarantined_alone(minilm_folder, tmp_path):
    texts = sentences(300)
    texts[77] = "a deadly word"
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(texts)})
    (tmp_path / "sitecustomize.py").write_text(SABOTAGE)
    env = {"PYTHONPATH": str(tmp_path), "SBERT_SABOTAGE": "1"}
    out = tmp_path / "out"
    job = Job(words(corpus, out, minilm_folder), tmp_path / "log", env)
    job.start()
    assert job.wait() == 0, job.log.read_text()
    bad = [(row["id"], row["reason"]) for row in quarantine_of(out)]
    assert bad == [("r77", "kills the encoder's process")]
    assert table_of(out)["id"].to_pylist() == [f"r{n}" for n in range(300) if n != 77]
