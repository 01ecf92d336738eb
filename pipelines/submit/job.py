"""A job file -> a run of it on a cluster, through Ray Jobs.

In:  a job file whose places the cluster sees too; the URL of the cluster's dashboard.
Out: Submitted: Ray's name of the job and, once it is over, the exit code of `sbert run` itself.
     Its log lines come out on stdout as it writes them. Who follows may leave: the job goes on.
"""

import asyncio
import contextlib
import logging
import os
import re
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from pipelines.artifacts.errors import PartialWork
from pipelines.cli.exit_codes import EXIT_BAD_INPUT, EXIT_PARTIAL, EXIT_UNEXPECTED
from pipelines.run.jobfile import JobFile, JobFileError
from pipelines.run.portability import relative_places
from pipelines.runtime.terminal import printable
from pipelines.submit.spec import SubmitSpec
from sbert_core.digest import digest

log = logging.getLogger(__name__)

CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 30.0
START_SECONDS = 60.0  # the agent that starts jobs comes up after the dashboard
LOST_SECONDS = 60.0
SILENT_SECONDS = 60.0  # then Ray is asked: a connection may die without a word
POLL_SECONDS = 1.0
# Ray kills a stopped job after 3 s by itself; the unit in flight may take 25.
STOP_SECONDS = 30
NOT_READY, TAKEN = "No available agent", "already exists"  # words of Ray's
NO_SUCH_COMMAND = (126, 127)  # exit codes of a shell
GONE = ("JOB_SUPERVISOR_ACTOR_DIED", "JOB_SUPERVISOR_ACTOR_START_TIMEOUT")
NOISY = (
    "ray._private.runtime_env.packaging",
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """exit_code: None if nobody waited for it. commands: Ray's own, by what they do."""

    job_id: str
    exit_code: int | None
    reason: str
    commands: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What Ray is asked for. Values of variables may be secrets: they are shown nowhere."""

    job_id: str
    entrypoint: str
    file: str
    text: str = field(repr=False)
    variables: dict[str, str] = field(repr=False)

    @property
    def metadata(self) -> dict[str, str]:
        return {
            "sbert_version": version("sbert-mill"),
            "sbert_job_file": self.file,
            "sbert_request": digest({"entrypoint": self.entrypoint, "text": self.text}),
        }


def run(spec: SubmitSpec) -> Submitted:
    job = JobFile.read(spec.job, spec.settings)
    _refuse_relative(job)
    request = _request(spec)
    job_id, commands = request.job_id, _commands(request.job_id, spec.address)
    with _said_in_one_line(spec.address):
        jobs = _connected(spec.address)
        try:
            _begin(jobs, request)
            if not spec.wait:
                return Submitted(job_id=job_id, exit_code=None, reason="", commands=commands)
            for word, command in commands.items():
                log.info("%s: %s", word, command)
            code, reason = exit_code_of(_followed(jobs, job_id))
        except (KeyboardInterrupt, BrokenPipeError):  # or nobody reads the log any more
            raise PartialWork(
                f"{job_id} goes on by itself; the same command with --job-id {job_id} follows it "
                f"again, this one stops it: {commands['stop']}"
            ) from None
    return Submitted(job_id=job_id, exit_code=code, reason=reason, commands=commands)


def _refuse_relative(job: JobFile) -> None:
    found = [f"{option} is {place!r}" for option, place in relative_places(job).items()]
    if found:
        raise JobFileError(
            f"{job.path}: {', '.join(found)}: relative to the job file, which travels alone; give "
            "s3:// URIs or absolute paths that all nodes share, there or with --set"
        )


def _request(spec: SubmitSpec) -> Request:
    words = ["sbert", "run", spec.job.name]
    words += [word for setting in spec.settings for word in ("--set", setting)]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", spec.job.stem)
    return Request(
        job_id=spec.job_id or f"sbert-{name}-{secrets.token_hex(4)}",
        # In the shell's place, so that signals reach the job and the exit code is its own.
        entrypoint=f"exec {shlex.join([*words, *spec.words])}",
        file=spec.job.name,
        text=spec.job.read_text(encoding="utf-8"),
        variables={"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)} | _variables(spec.env),
    )


def _variables(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE as it is; NAME alone takes the value it has here."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in os.environ:
            raise ValueError(f"--env {name}: it has no value here; set it, or give {name}=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


def _commands(job_id: str, address: str) -> dict[str, str]:
    mode = "RAY_AUTH_MODE=token " if _token_headers() else ""
    return {
        word: f"{mode}ray job {word} --address {address} {job_id}" for word in ("status", "stop")
    }


def _token_headers() -> dict[str, str]:
    """Ray's client sends a token only where RAY_AUTH_MODE says so; here giving one is enough."""
    if os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    if not token and (path := os.environ.get("RAY_AUTH_TOKEN_PATH")):
        token = Path(path).read_text(encoding="utf-8")
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


# -- Ray Jobs --------------------------------------------------------------------------------------


class RayJobs(JobSubmissionClient):
    """Ray's client, with a deadline on every request."""

    def _do_request(self, method: str, endpoint: str, **options: Any) -> Any:  # noqa: ANN401
        patience = (CONNECT_SECONDS, REQUEST_SECONDS)
        return super()._do_request(method, endpoint, timeout=patience, **options)

    def found(self, job_id: str) -> Any:  # noqa: ANN401
        """The details of a job, None if there is no such job."""
        answer = self._do_request("GET", f"/api/jobs/{job_id}")
        return None if answer.status_code == 404 else self.get_job_info(job_id)


def _connected(address: str) -> RayJobs:
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Ray takes these variables before the argument; here it is the other way round.
    names = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
    aside = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        return RayJobs(address, headers=_token_headers())
    except RuntimeError as error:  # somebody else answers there, or a Ray of long ago
        raise ValueError(f"{address} is no dashboard of this Ray: {error}") from error
    finally:
        os.environ.update(aside)


@contextlib.contextmanager
def _said_in_one_line(address: str) -> Iterator[None]:
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


def _begin(jobs: RayJobs, request: Request) -> None:
    """A job of this name that is there already is taken for an earlier try of this one."""
    known = jobs.found(request.job_id)
    if known is None and not _is_submitted(jobs, request):
        known = jobs.found(request.job_id)
    if known is None:
        log.info("submitted as %s", request.job_id)
        return
    if (known.metadata or {}).get("sbert_request") != request.metadata["sbert_request"]:
        raise ValueError(
            f"--job-id {request.job_id} names another job, or this one before an edit; give "
            "another id"
        )
    log.info("%s was submitted before: %s", request.job_id, known.status.value.lower())


def _is_submitted(jobs: RayJobs, request: Request) -> bool:
    """False if somebody else has just taken the name."""
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


def _followed(jobs: RayJobs, job_id: str) -> Any:  # noqa: ANN401
    """Show the log until the job is over; its details."""
    shown = ShownLog(jobs, job_id)
    lost_since: float | None = None
    while True:
        try:
            asyncio.run(shown.to_the_end())
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


class ShownLog:
    """A job's log on stdout; after a broken connection it goes on where it was."""

    def __init__(self, jobs: RayJobs, job_id: str) -> None:
        self.jobs = jobs
        self.job_id = job_id
        self.num_chars = 0

    async def to_the_end(self) -> None:
        """Until the job is over, or silent for long."""
        num_read = 0
        log_lines: Any = self.jobs.tail_job_logs(self.job_id)
        async with contextlib.aclosing(log_lines) as chunks:
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


def exit_code_of(details: Any) -> tuple[int, str]:  # noqa: ANN401
    """The exit code of a job that is over, and what Ray alone knows of its end."""
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
