"""The life of a stage: claimed, up to date, replayed, published or refused; without Ray."""

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.manifests import manifest_of

from pipelines.artifacts.errors import IncompleteArtifact, NewerFormat, WrongKind
from pipelines.artifacts.kinds import CORPUS, PAIRS
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.runtime import wait_policy as waiting
from pipelines.runtime.stage import ArtifactStage, Made, StageReport, run_stage
from pipelines.runtime.wait_policy import wait_policy
from sbert_core.data_file import DataFile
from sbert_core.errors import InvalidInput, TransientError
from sbert_core.storage import BusyError, storage_at

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Options:
    out: str
    size: int = 3


class Copy(ArtifactStage):
    """Writes a file of some rows."""

    kind = CORPUS
    uses_ray = False

    def __init__(self, out, size=3, rows_in=3, error=None):
        self._spec = Options(out=str(out), size=size)
        self.rows_in, self.error, self.num_runs = rows_in, error, 0

    @property
    def spec(self):
        return self._spec

    @property
    def identity(self):
        return f"{self.spec.size:016x}"

    def make(self, out, timer):
        self.num_runs += 1
        if self.error is not None:
            raise self.error
        path = f"data/{self.identity}/a.txt"
        with timer.phase("write"):
            out.storage.put(path, b"x\n" * self.spec.size)
        file = DataFile(path=path, rows=self.spec.size, sha256="0" * 64, bytes=2 * self.spec.size)
        manifest = manifest_of(
            "corpus",
            generation=self.identity,
            rows=self.spec.size,
            files=(file,),
            spec={"threshold": 0.9},
            made_from={"clusters": "c", "corpus": "in"},
            facts={"rows_in": self.spec.size, "removed": 0},
        )
        return Made(manifest=manifest, rows_in=self.rows_in)

    def report(self, published, *, is_new, seconds):
        return StageReport(out=self.spec.out, is_new=is_new, seconds=seconds)


def test_stage_publishes_once_and_then_has_nothing_to_do(tmp_path):
    first = run_stage(Copy(tmp_path / "out"))
    assert first.is_new and first.seconds > 0
    manifest = (tmp_path / "out" / "_manifest.json").read_bytes()
    again = Copy(tmp_path / "out")
    report = run_stage(again)
    assert (report.is_new, report.seconds, again.num_runs) == (False, 0.0, 0)
    assert (tmp_path / "out" / "_manifest.json").read_bytes() == manifest
    run = json.loads((tmp_path / "out" / "_run.json").read_text())
    assert run.keys() == {"phases", "seconds", "private_bytes"} and run["phases"].keys() == {
        "write"
    }


def test_stage_whose_counts_differ_publishes_nothing(tmp_path):
    run_stage(Copy(tmp_path / "out"))
    before = (tmp_path / "out" / "_manifest.json").read_bytes()
    with pytest.raises(IncompleteArtifact) as caught:
        run_stage(Copy(tmp_path / "out", size=4, rows_in=5))
    assert (caught.value.rows_found, caught.value.rows_expected) == (4, 5)
    assert (tmp_path / "out" / "_manifest.json").read_bytes() == before


def test_stage_on_an_output_of_another_kind_is_refused(tmp_path):
    run_stage(Copy(tmp_path / "out"))
    stage = Copy(tmp_path / "out")
    stage.kind = PAIRS
    with pytest.raises(WrongKind) as caught:
        run_stage(stage)
    assert (caught.value.found, caught.value.wanted) == ("corpus", "pairs")


@pytest.fixture
def hold(monkeypatch):
    """Hold the lock of an output in another thread for a while."""
    monkeypatch.setattr(waiting, "BUSY_POLL_SECONDS", 0.05)
    threads = []

    def begin(place, seconds):
        is_held = threading.Event()

        def keep():
            with storage_at(place).lock():
                is_held.set()
                time.sleep(seconds)

        threads.append(threading.Thread(target=keep))
        threads[-1].start()
        assert is_held.wait(10)

    yield begin
    for thread in threads:
        thread.join()


def test_stage_on_a_busy_output_ends_or_waits_as_the_policy_states(tmp_path, hold):
    hold(tmp_path / "out", 0.6)
    with pytest.raises(BusyError) as caught:
        run_stage(Copy(tmp_path / "out"))
    assert caught.value.exit_code == 5
    with wait_policy(0.1, waits_for_lock=True), pytest.raises(BusyError):
        run_stage(Copy(tmp_path / "out"))
    with wait_policy(60, waits_for_lock=True):
        assert run_stage(Copy(tmp_path / "out")).is_new


def test_no_job_takes_a_lock_or_publishes_beside_the_protocol():
    """What holds for one stage then holds for all of them, `--when-busy wait` among it."""
    own = {"pipelines/runtime/stage.py", "pipelines/runtime/wait_policy.py"}
    own.add("pipelines/artifacts/writer.py")
    taken = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "pipelines").rglob("*.py")
        for call in ("Writer.claim(", ".lock()", ".publish(", "replay_or_record(")
        if call in path.read_text(encoding="utf-8")
    ]
    assert set(taken) - own - {"pipelines/runtime/failure_cache.py"} == set()


def test_failure_that_the_input_decides_is_replayed_until_something_changes(tmp_path):
    run_stage(Copy(tmp_path / "out"))
    for error, num_runs in ((InvalidInput("id twice"), 0), (None, 0), (None, 1)):
        stage = Copy(tmp_path / "out", size=4, rows_in=4, error=error)
        if error is not None:
            with pytest.raises(InvalidInput):
                run_stage(stage)
            continue
        if num_runs:
            (tmp_path / "out" / "_outcome.json").unlink()
            assert run_stage(stage).is_new
        else:
            with pytest.raises(InvalidInput):
                run_stage(stage)
        assert stage.num_runs == num_runs


def test_failure_of_the_moment_is_tried_again(tmp_path):
    run_stage(Copy(tmp_path / "out"))
    with pytest.raises(TransientError):
        run_stage(Copy(tmp_path / "out", size=4, rows_in=4, error=TransientError("no store")))
    assert run_stage(Copy(tmp_path / "out", size=4, rows_in=4)).is_new


def test_manifest_of_a_later_format_is_refused_by_readers_and_writers(tmp_path):
    run_stage(Copy(tmp_path / "out"))
    path = tmp_path / "out" / "_manifest.json"
    fields = json.loads(path.read_text())
    assert fields.pop("format") == 1
    path.write_text(json.dumps(fields))  # as versions without a number wrote it
    assert Artifact.open(tmp_path / "out").rows == 3
    assert not run_stage(Copy(tmp_path / "out")).is_new
    path.write_text(json.dumps({"format": 2, "unknown": "shape"}))
    with pytest.raises(NewerFormat) as caught:
        Artifact.open(tmp_path / "out")
    assert (caught.value.found, caught.value.known, caught.value.exit_code) == (2, 1, 2)
    with pytest.raises(NewerFormat), Writer.claim(tmp_path / "out"):
        pass
