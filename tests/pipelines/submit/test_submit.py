"""`sbert submit` against a real head with token auth, and what can be told without one."""

import asyncio
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner
from ray.job_submission import JobStatus
from support.embedding import rows_of, sentences, table_of, write_corpus
from support.heads import BIN, token_head

from pipelines.cli.main import main
from pipelines.submit.client import LogPrinter, exit_code_of
from pipelines.submit.request import JobRequest
from pipelines.submit.spec import SubmitSpec

pytestmark = [pytest.mark.timeout(240)]

SBERT = BIN / "sbert"
SECRET = "planted-in-the-environment"


# -- what needs no cluster -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("details", "code", "words"),
    [
        ({"status": JobStatus.SUCCEEDED, "driver_exit_code": 0}, 0, ""),
        ({"driver_exit_code": 4}, 4, "exit code 4"),
        ({"driver_exit_code": 127}, 2, "install the same sbert-mill"),
        ({"driver_exit_code": -9}, 3, "killed by signal 9"),
        ({"status": JobStatus.STOPPED}, 3, "goes on"),
        ({"error_type": "JOB_SUPERVISOR_ACTOR_DIED"}, 3, "goes on"),
        ({"error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": "a\nno pip\n"}, 1, "no pip"),
    ],
)
def test_exit_code_is_that_of_the_job_or_says_what_to_do_next(details, code, words):
    plain = {
        "status": JobStatus.FAILED,
        "driver_exit_code": None,
        "error_type": None,
        "message": "",
    }
    found = exit_code_of(SimpleNamespace(**plain | details))
    assert found[0] == code
    assert words in found[1]


def test_log_goes_on_where_a_broken_connection_left_it(capsys):
    class Jobs:
        tries = 0

        async def tail_job_logs(self, job_id):
            self.tries += 1
            yield "one\ntwo\n"
            if self.tries == 1:
                yield "thr"
                raise RuntimeError("closed unexpectedly")
            yield "three\nfo"
            yield "ur\n"

    shown = LogPrinter(Jobs(), "x")
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(shown.print_until_silent())
    asyncio.run(shown.print_until_silent())
    assert capsys.readouterr().out == "one\ntwo\nthree\nfour\n"


def test_secrets_are_not_in_what_is_printed_of_a_spec():
    spec = SubmitSpec(job=Path("j"), address="http://h:1", env=(f"A={SECRET}",))
    request = JobRequest(job_id="x", entrypoint="y", file="j", text="", variables={"A": SECRET})
    assert SECRET not in f"{spec!r} {request!r}"


# -- a real head -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def head():
    """URL of a head's dashboard, and the environment of a client with its token."""
    with token_head() as found:
        yield found.dashboard, found.environment


@pytest.fixture(scope="module")
def work(tmp_path_factory, bert_folder):
    """A folder with a corpus and a job file of absolute paths."""
    folder = tmp_path_factory.mktemp("work")
    write_corpus(folder / "corpus", {"a.parquet": rows_of(sentences(30))})
    job = {
        "corpus": str(folder / "corpus"),
        "out": str(folder / "out"),
        "stages": {"embed": {"model": str(bert_folder), "actors": 1}},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder


def command(head, job, *words):
    return [str(SBERT), "submit", str(job), "--address", head[0], *words]


def submit(head, job, *words, **environment):
    return subprocess.run(
        command(head, job, *words),
        env=head[1] | environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.ray
def test_job_left_alone_is_followed_again_to_its_end_and_writes_its_artifact(head, work):
    words = ("--job-id", "nightly-1", "--env", "SBERT_TEST_SECRET")
    leaving = subprocess.Popen(
        command(head, work / "job.yaml", *words),
        env=head[1] | {"SBERT_TEST_SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = ""
    while "stop:" not in said:
        line = leaving.stderr.readline()
        assert line, f"it ended by itself: {said}"
        said += line
    leaving.send_signal(signal.SIGTERM)
    out, rest = leaving.communicate(timeout=60)
    assert leaving.returncode == 3, rest
    assert "nightly-1" in rest and "ray job stop" in rest
    assert "ray job status --address" in said

    done = submit(head, work / "job.yaml", *words, SBERT_TEST_SECRET=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nightly-1" in done.stderr
    assert "exec sbert run job.yaml" in done.stdout and "INFO stage embed" in done.stdout
    assert table_of(work / "out" / "vectors").num_rows == 30
    assert SECRET not in out + said + rest + done.stdout + done.stderr
    secret_in = [
        p for p in (work / "out").rglob("*") if p.is_file() and SECRET in str(p.read_bytes())
    ]
    assert secret_in == []


@pytest.mark.ray
def test_exit_codes_of_the_job_are_ours(head, work):
    job, light = work / "job.yaml", work / "light.yaml"  # without a stage that loads torch
    light.write_text(yaml.safe_dump({"out": str(work / "nothing"), "stages": {"cluster": None}}))
    with ThreadPoolExecutor() as pool:
        two = pool.submit(submit, head, light)
        limit = ("--set", "gates.min_recall=0.99", "--", "--max-wait", "9")
        four = pool.submit(submit, head, job, *limit)
    missing, gate = two.result(), four.result()
    assert missing.returncode == 2
    assert "error: " in missing.stdout and "nothing/pairs" in missing.stdout
    assert gate.returncode == 4
    assert "exec sbert run job.yaml --set gates.min_recall=0.99 --max-wait 9" in gate.stdout
    assert "min_recall 0.99" in gate.stdout


@pytest.mark.ray
def test_job_stopped_by_ray_ends_with_the_code_for_going_on(head, work):
    words = ("--job-id", "to-be-stopped", "--set", f"out={work / 'stopped'}")
    begun = submit(head, work / "job.yaml", "--no-wait", *words)
    assert begun.returncode == 0
    assert begun.stdout.startswith(
        "submitted -> to-be-stopped\nstatus: RAY_AUTH_MODE=token ray job"
    )
    stop = begun.stdout.partition("stop: ")[2]
    subprocess.run(stop, shell=True, env=head[1], timeout=120, check=True, capture_output=True)
    again = submit(head, work / "job.yaml", *words)
    assert again.returncode == 3
    other = submit(head, work / "job.yaml", *words, "--set", "embed.limit=3")
    assert other.returncode == 2
    assert "--job-id to-be-stopped" in other.stderr


@pytest.mark.ray
@pytest.mark.parametrize("token", ["", "f" * 64])
def test_client_without_the_token_is_refused_in_one_line(head, work, token):
    stranger = {k: v for k, v in head[1].items() if k != "RAY_AUTH_TOKEN_PATH"}
    done = submit((head[0], stranger), work / "job.yaml", RAY_AUTH_TOKEN=token)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert head[0] in line and "RAY_AUTH_TOKEN_PATH" in line


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--address", "http://127.0.0.1:9"), "no Ray dashboard answers at http://127.0.0.1:9"),
        (("--address", "127.0.0.1:6379"), "give one as http://head:8265"),
        (("--set", "embed.modle=x"), "did you mean 'model'?"),
        (("--set", "out=run"), "out is 'run': relative to the job file"),
        (("--env", "NOT_SET_ANYWHERE"), "NOT_SET_ANYWHERE: it has no value here"),
        (("--job-id", "a/b"), "use letters"),
        (("--", "--max-wiat", "9"), "No such option"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_submitted(work, words, complaint):
    began = time.monotonic()
    plain = ["submit", str(work / "job.yaml"), "--address", "http://127.0.0.1:9"]
    done = CliRunner().invoke(main, [*plain, *words])
    assert done.exit_code == 2
    assert complaint in done.stderr and "Traceback" not in done.stderr
    assert time.monotonic() - began < 40


@pytest.mark.timeout(60)
def test_somebody_else_at_the_address_is_not_taken_for_ray(work):
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        words = ["submit", str(work / "job.yaml"), "--address", address]
        done = CliRunner().invoke(main, words)
        server.shutdown()
    assert done.exit_code == 2
    assert address in done.stderr
