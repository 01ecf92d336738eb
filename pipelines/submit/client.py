"""Ray's client for jobs: connect, submit, follow the log, and translate the end.

In:  the URL of a cluster's dashboard, and a JobRequest.
Out: the details of a job that is over, its log lines on stdout, its exit code.
"""

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import aiohttp
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from pipelines.artifacts.errors import PartialWork
from pipelines.runtime.exit_codes import EXIT_BAD_INPUT, EXIT_PARTIAL, EXIT_UNEXPECTED
from pipelines.runtime.terminal import printable
from pipelines.submit.request import JobRequest, token_headers

if TYPE_CHECKING:
    import requests

log = logging.getLogger(__name__)

CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 30.0
START_SECONDS = 60.0  # the agent that starts jobs comes up after the dashboard
LOST_SECONDS = 60.0
SILENT_SECONDS = 60.0  # then the job's status is read: a connection may die without notice
POLL_SECONDS = 1.0
NOT_READY, TAKEN = "No available agent", "already exists"  # in texts of Ray's errors
NO_SUCH_COMMAND = (126, 127)  # exit codes of a shell
GONE = ("JOB_SUPERVISOR_ACTOR_DIED", "JOB_SUPERVISOR_ACTOR_START_TIMEOUT")
NOISY = (
    "ray._private.runtime_env.packaging",
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
)


class RayJobs(JobSubmissionClient):
    """Ray's client, with a deadline on every request."""

    def _do_request(
        self,
        method: str,
        endpoint: str,
        *,
        data: bytes | None = None,
        json_data: dict[str, object] | None = None,
        **options: object,
    ) -> "requests.Response":
        return super()._do_request(
            method,
            endpoint,
            data=data,
            json_data=json_data,
            timeout=(CONNECT_SECONDS, REQUEST_SECONDS),
            **options,
        )

    def find(self, job_id: str) -> JobDetails | None:
        """The details of a job, None if there is no such job."""
        answer = self._do_request("GET", f"/api/jobs/{job_id}")
        return None if answer.status_code == 404 else self.get_job_info(job_id)


def connect(address: str) -> RayJobs:
    """A client for the dashboard at a URL; ValueError if it is not a dashboard of this Ray."""
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Ray prefers these variables to the argument; here the argument counts.
    names = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
    aside = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        return RayJobs(address, headers=token_headers())
    except RuntimeError as error:  # another server answers there, or an old Ray
        raise ValueError(f"{address} is no dashboard of this Ray: {error}") from error
    finally:
        os.environ.update(aside)


@contextlib.contextmanager
def explain_errors(address: str) -> Iterator[None]:
    """Turn refused tokens and broken connections into a ValueError of one line."""
    try:
        yield
    except AuthenticationError:
        raise ValueError(
            f"{address} asks for the cluster's token, and this one is wrong or missing; set "
            "RAY_AUTH_TOKEN to it, or RAY_AUTH_TOKEN_PATH to a file with it"
        ) from None
    except OSError as error:
        raise ValueError(
            f"no Ray dashboard answers at {address} ({type(error).__name__}); give the URL of the "
            "head's dashboard, as http://head:8265, and see that this machine reaches it"
        ) from error


def submit_once(jobs: RayJobs, request: JobRequest) -> None:
    """Submit a job, unless one of its name and content was submitted before.

    ValueError if the name belongs to another job, or the cluster refuses.
    """
    known = jobs.find(request.job_id)
    if known is None and not _try_submit(jobs, request):
        known = jobs.find(request.job_id)
    if known is None:
        log.info("submitted as %s", request.job_id)
        return
    if (known.metadata or {}).get("sbert_request") != request.metadata["sbert_request"]:
        raise ValueError(
            f"--job-id {request.job_id} names another job, or this one before an edit; give "
            "another id"
        )
    log.info("%s was submitted before: %s", request.job_id, known.status.value.lower())


def _try_submit(jobs: RayJobs, request: JobRequest) -> bool:
    """False if another process has just taken the name."""
    deadline = time.monotonic() + START_SECONDS
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
        Path(folder, request.file).write_text(request.text, encoding="utf-8")
        environment = {"working_dir": folder, "env_vars": request.variables}
        while True:
            try:
                jobs.submit_job(
                    submission_id=request.job_id,
                    entrypoint=request.entrypoint,
                    metadata=request.metadata,
                    runtime_env=environment,
                )
                return True
            except RuntimeError as error:
                if TAKEN in str(error):
                    return False
                if NOT_READY not in str(error) or time.monotonic() > deadline:
                    raise ValueError(
                        f"the cluster does not take the job: {_last_line(str(error))} (the head's "
                        "dashboard_agent.log may say why)"
                    ) from error
            log.info("the cluster is not ready for jobs yet")
            time.sleep(POLL_SECONDS)


def follow(jobs: RayJobs, job_id: str) -> JobDetails:
    """Print the log until the job is over; its details.

    PartialWork if the cluster cannot be reached for a minute: the job itself may go on.
    """
    printer = LogPrinter(jobs, job_id)
    lost_since: float | None = None
    while True:
        try:
            asyncio.run(printer.print_until_silent())
            details = jobs.get_job_info(job_id)
            if details.status.is_terminal():
                return details
            lost_since = None
        except BrokenPipeError:
            raise
        except (OSError, RuntimeError, aiohttp.ClientError) as error:
            lost_since = lost_since or time.monotonic()
            if time.monotonic() - lost_since > LOST_SECONDS:
                raise PartialWork(
                    f"nothing heard of {job_id} for {LOST_SECONDS:.0f} s ({error}); the same "
                    f"command with --job-id {job_id} follows it again"
                ) from error
        time.sleep(POLL_SECONDS)


class LogSource(Protocol):
    """Where a job's log is read from its beginning."""

    def tail_job_logs(self, job_id: str) -> AsyncIterator[str]:
        """Chunks of the log, until the job is over."""


class LogPrinter:
    """A job's log on stdout; after a broken connection it continues where it was."""

    def __init__(self, jobs: LogSource, job_id: str) -> None:
        self.jobs = jobs
        self.job_id = job_id
        self.num_chars = 0

    async def print_until_silent(self) -> None:
        """Print new lines until the job is over, or writes nothing for a minute."""
        num_read = 0
        chunks = self.jobs.tail_job_logs(self.job_id)
        assert isinstance(chunks, AsyncGenerator), "Ray's log is a generator; closing it hangs up"
        async with contextlib.aclosing(chunks):
            while True:
                try:
                    chunk = await asyncio.wait_for(anext(chunks), SILENT_SECONDS)
                except (StopAsyncIteration, TimeoutError):
                    return
                num_read += len(chunk)
                if (num_new := num_read - self.num_chars) > 0:
                    sys.stdout.write(printable(chunk[-num_new:]))
                    sys.stdout.flush()
                    self.num_chars = num_read


class FinishedJob(Protocol):
    """The part of Ray's JobDetails that states how a job ended."""

    status: JobStatus
    driver_exit_code: int | None
    error_type: str | None
    message: str | None


def exit_code_of(details: FinishedJob) -> tuple[int, str]:
    """The exit code for a job that is over, and a reason; empty after success."""
    code = details.driver_exit_code
    if details.status == JobStatus.SUCCEEDED:
        return 0, ""
    if details.status == JobStatus.STOPPED:
        return EXIT_PARTIAL, "stopped by a command; the same job file goes on"
    if code in NO_SUCH_COMMAND:
        return EXIT_BAD_INPUT, (
            "there is no command `sbert` on the PATH of the cluster's head; install the same "
            "sbert-mill on all nodes"
        )
    if code is not None and code > 0:
        return code, f"ended with exit code {code}"
    if code is not None or details.error_type in GONE:
        how = "its node or process is gone" if code is None else f"killed by signal {-code}"
        return EXIT_PARTIAL, f"{how}; the same job file goes on"
    return EXIT_UNEXPECTED, _last_line(details.message or "Ray gives no reason")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason is given"])[-1]
