"""The store fails under a running job: killed and started again, held up, full; torn files."""

import json
import os
import threading
import time

import pytest
from support.embedding import embed, published_bytes, rows_of, sentences, write_corpus
from support.kills import Job
from support.nodes import long_form
from support.s3 import BUCKET, NO_SERVER, WEED, S3Server

from sbert_core.storage import storage_at

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.skipif(WEED is None, reason=NO_SERVER),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("weed")).running() as server:
        yield server


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    return write_corpus(folder, {"a.parquet": rows_of(sentences(1500, longest=80))})


@pytest.fixture(scope="module")
def want(corpus, minilm_folder, ray_address, tmp_path_factory):
    """sha256 of all files of an undisturbed run, on disk."""
    out = tmp_path_factory.mktemp("calm") / "out"
    embed(corpus, out, minilm_folder, unit_rows=128, address=ray_address)
    return published_bytes(out)


def published_on(uri: str) -> dict[str, str]:
    """What an artifact in a store lists, as it lists it; every file is there and whole."""
    storage = storage_at(uri)
    manifest = json.loads(storage.read("_manifest.json"))
    for file in manifest["files"]:
        stat = storage.stat(file["path"])
        assert stat is not None and stat.size == file["bytes"]
    return {file["path"]: file["sha256"] for file in manifest["files"]}


def job_to(uri: str, corpus, model, log) -> Job:
    words = ["embed", str(corpus), "--out", uri, "--model", str(model)]
    return Job([*words, "--unit-rows", "128", "--actors", "2"], log)


def commits(uri: str) -> int:
    try:
        return sum("/commits/" in stat.name for stat in storage_at(uri).list("_work"))
    except Exception:  # noqa: BLE001 - the store is down: that is the test
        return 0


def ended(job: Job) -> int:
    """Repeat the command while it says that repeating helps."""
    for _ in range(5):
        code = job.wait()
        if code not in (3, 5):
            return code
        time.sleep(5)
        job.start()
    return job.wait()


@long_form
@pytest.mark.parametrize("fault", ["killed", "held up"])
def test_a_store_that_fails_for_a_while(fault, server, corpus, minilm_folder, want, tmp_path):
    uri = f"{BUCKET}/{fault.replace(' ', '-')}"
    job = job_to(uri, corpus, minilm_folder, tmp_path / "log")
    job.start()
    job.until(lambda: commits(uri) >= 2)
    if fault == "killed":
        server.kill()
        time.sleep(4)
        server.start()
        server.wait_until_up()
    else:
        server.held_up(12)
    assert ended(job) == 0, job.log.read_text()
    assert "Traceback" not in job.log.read_text()
    files = {path: sha for path, sha in want.items() if path.startswith("data/")}
    assert published_on(uri) == files


@long_form
def test_a_full_store_is_said_and_nothing_is_published(corpus, minilm_folder, tmp_path):
    (tmp_path / "weed").mkdir()
    with S3Server(tmp_path / "weed", megabytes=1).running():
        fill()
        job = job_to(f"{BUCKET}/full", corpus, minilm_folder, tmp_path / "log")
        job.start()
        assert job.wait() == 3, job.log.read_text()
        assert "Traceback" not in job.log.read_text()
        assert job.log.read_text().splitlines()[-1].startswith("error: ")
        assert storage_at(f"{BUCKET}/full").stat("_manifest.json") is None


def fill() -> None:
    """Until it takes no more."""
    storage, block = storage_at(f"{BUCKET}/ballast"), os.urandom(4 * 2**20)
    deadline = time.monotonic() + 120
    for number in range(100):
        failed: list[Exception] = []

        def put(number=number, failed=failed) -> None:
            try:
                storage.put(f"{number}", block)
            except Exception as error:  # noqa: BLE001 - full is what we want
                failed.append(error)

        thread = threading.Thread(target=put, daemon=True)
        thread.start()
        thread.join(timeout=20)
        if failed or thread.is_alive() or time.monotonic() > deadline:
            return
    pytest.fail("the store never filled up")


@long_form
def test_torn_files_of_a_killed_run_count_for_nothing(
    corpus, minilm_folder, ray_address, want, tmp_path
):
    """Halves of files under temporary and under final names; what has a commit is left alone."""
    out = tmp_path / "out"
    job = job_to(str(out), corpus, minilm_folder, tmp_path / "log")
    job.start()
    job.until(lambda: len(list(out.glob("_work/*/commits/*"))) >= 3)
    job.kill()
    [work] = [path for path in (out / "_work").iterdir() if (path / "commits").is_dir()]
    done = [path.read_text() for path in (work / "commits").iterdir()]
    listed = [path for path in out.glob("data/*/*") if any(path.name in text for text in done)]
    assert len(listed) >= 3
    torn = [path for path in out.glob("data/*/*") if path not in listed]
    for path in torn:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (out / "_work/tmp").mkdir(exist_ok=True)
    (out / "_work/tmp/1-00000000").write_bytes(b"PAR1 and no more")
    stray = listed[0].with_name("part-999999-0000000000000000.parquet")
    stray.write_bytes(listed[0].read_bytes()[:100])
    before = {path: path.stat().st_mtime_ns for path in listed}
    embed(corpus, out, minilm_folder, unit_rows=128, address=ray_address)
    assert published_bytes(out) == want
    assert {path: path.stat().st_mtime_ns for path in listed} == before
    assert not stray.exists() and not (out / "_work").exists()
