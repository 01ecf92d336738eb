import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.artifacts.models import check_sha256, demo_model_folder, resolve_demo
from pipelines.cli.main import main
from pipelines.demo import job as demo_job
from pipelines.runtime.logs import configure_logs
from pipelines.runtime.progress import progress

SBERT = Path(sys.executable).parent / "sbert"


@pytest.fixture(autouse=True)
def _logs_as_they_were():
    root, level = logging.getLogger(), logging.getLogger().level
    handlers = list(root.handlers)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_help_answers_in_under_a_second():
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([str(SBERT), "--help"], capture_output=True, check=True, timeout=60)
        seconds.append(time.perf_counter() - start)
    assert b"demo" in done.stdout
    assert min(seconds) < 1


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    done = CliRunner().invoke(main, ["demo", "--docstrings", "1", "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "error: docstrings is 1; a pair needs at least 2  (--debug shows where)"
    ]
    assert not (tmp_path / "out").exists()


def test_out_that_is_a_file_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "notes").write_text("mine")
    done = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "notes")])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert "a file; give a folder" in done.stderr
    assert (tmp_path / "notes").read_text() == "mine"


def test_unexpected_failure_is_one_line_and_exit_code_1(monkeypatch):
    def run(spec):
        raise RuntimeError("several\nlines of trouble")

    monkeypatch.setattr(demo_job, "run", run)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == 1
    assert done.stderr == "unexpected RuntimeError: lines of trouble  (--debug shows where)\n"
    debugged = CliRunner().invoke(main, ["demo", "--debug"])
    assert debugged.exit_code == 1
    assert "Traceback" in debugged.stderr


def test_json_log_lines_are_json(capsys):
    configure_logs(json_lines=True, debug=False)
    logging.getLogger("pipelines.x").info("%d rows", 3)
    logging.getLogger("pipelines.x").debug("not shown")
    logging.getLogger("someone.else").info("not shown")
    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["message"], record["level"], record["logger"]) == (
        "3 rows",
        "info",
        "pipelines.x",
    )


def test_progress_in_a_log_is_a_line_at_the_end_and_every_ten_seconds(caplog, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("pipelines.runtime.progress.time.monotonic", lambda: now[0])
    with caplog.at_level(logging.INFO), progress("embed", 100) as advance:
        for _ in range(10):
            now[0] += 4.0
            advance(10, 400)
    assert [record.message for record in caplog.records] == [
        "embed: 30 of 100 rows, 100 tokens/s, 28 s left",
        "embed: 60 of 100 rows, 100 tokens/s, 16 s left",
        "embed: 90 of 100 rows, 100 tokens/s, 4 s left",
        "embed: 100 of 100 rows, 100 tokens/s",
    ]


def test_demo_model_with_other_contents_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"has sha256 .*expected 53aa51172d14"):
        check_sha256(path, "53aa51172d142c89")


@pytest.mark.demo
def test_model_word_demo_is_the_verified_folder():
    assert resolve_demo("demo") == str(demo_model_folder())
    assert (demo_model_folder() / "modules.json").is_file()
    assert resolve_demo("some/folder") == "some/folder"
