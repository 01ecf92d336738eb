"""Whatever is killed, the rerun ends byte-identical to an undisturbed run."""

import os
import random

import pytest
from support.embedding import (
    assert_nothing_but_the_artifact,
    embed,
    published_bytes,
    quarantine_of,
    rows_of,
    sentences,
    table_of,
    write_corpus,
)
from support.kills import DEADLINE_SECONDS, Job, kill_one
from support.sabotage import sabotaged

pytestmark = [pytest.mark.ray, pytest.mark.timeout(3600)]
# `make test` tries each kind once, `make chaos` twenty kills in all.
KILLS = int(os.environ.get("SBERT_CHAOS_KILLS", "3"))
KINDS = ("driver", "actor", "write task")
IS_LONG = len(KINDS) < KILLS


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Repeats across units, so that both passes have work; some bad rows."""
    texts = sentences(1600 if IS_LONG else 600, longest=100)
    repeats = random.Random(1).choices(texts, k=160)
    folder = tmp_path_factory.mktemp("chaos")
    files = {"a.parquet": [*texts[::2], None], "b.parquet": [*texts[1::2], *repeats, ""]}
    columns = {name: rows_of(own, 10_000 * i) for i, (name, own) in enumerate(files.items())}
    return write_corpus(folder, columns)


def words(corpus, out, model) -> list[str]:
    options = ["--unit-rows", "128", "--actors", "2" if IS_LONG else "1"]
    return ["embed", str(corpus), "--out", str(out), "--model", str(model), *options]


def test_kills_at_random_moments_change_no_byte(corpus, minilm_folder, ray_address, tmp_path):
    embed(corpus, tmp_path / "calm", minilm_folder, unit_rows=128, address=ray_address)
    rng = random.Random(int(os.environ.get("SBERT_CHAOS_SEED", "7")))
    pending = [KINDS[number % len(KINDS)] for number in range(KILLS)]
    rng.shuffle(pending)
    want = published_bytes(tmp_path / "calm")
    round_number = 0
    while pending:
        out = tmp_path / f"out-{round_number}"
        round_number += 1
        job = Job(words(corpus, out, minilm_folder), tmp_path / "log")
        code = None
        while code != 0:
            job.start()
            while pending and job.is_running:
                seconds = 20.0 if pending[-1] == "driver" else 120.0
                if kill_one(job, pending[-1], rng, seconds):
                    print("killed:", pending.pop())  # noqa: T201 - shown by `make chaos`
            code = job.wait(DEADLINE_SECONDS)
        assert published_bytes(out) == want
        assert_nothing_but_the_artifact(out)


def test_row_that_kills_its_process_is_quarantined_alone(bert_folder, tmp_path):
    texts = sentences(4)
    texts[3] = "a deadly word"
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(texts)})
    out = tmp_path / "out"
    options = [*words(corpus, out, bert_folder), "--unit-rows", "2"]
    job = Job(options, tmp_path / "log", sabotaged(tmp_path, "deadly"))
    job.start()
    assert job.wait() == 0, job.log.read_text()
    bad = [(row["id"], row["reason"]) for row in quarantine_of(out)]
    assert bad == [("r3", "kills the encoder's process")]
    assert table_of(out)["id"].to_pylist() == ["r0", "r1", "r2"]


def test_full_disk_is_one_line_and_the_rerun_goes_on(bert_folder, ray_address, tmp_path):
    out = tmp_path / "out"
    small = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(750))})
    options = words(small, out, bert_folder)
    here = {"unit_rows": 128, "address": ray_address}
    embed(small, out, bert_folder, limit=1, **here)
    before = published_bytes(out)
    job = Job(options, tmp_path / "full.log", sabotaged(tmp_path, "full"))
    job.start()
    assert job.wait() == 3
    last = job.log.read_text().splitlines()[-1]
    assert "No space left on device; 0 of 6 units are saved" in last
    assert published_bytes(out) == before
    embed(small, out, bert_folder, **here)
    assert len(table_of(out)) == 750
    assert_nothing_but_the_published(out)


def assert_nothing_but_the_published(out) -> None:
    """As above, but for the generation before, which is kept for its readers."""
    current = {path.split("/")[1] for path in published_bytes(out) if "/" in path}
    others = {path.name for path in (out / "data").iterdir()} - current
    assert len(others) == 1
    assert not (out / "_work").exists()
    assert not (out / "_ray").exists()
