"""A job file -> a run of it on a cluster, through Ray Jobs.

In:  a job file whose paths the cluster can read too; the URL of the cluster's dashboard.
Out: SubmitResult: Ray's name of the job and, once it is over, the exit code of `sbert run` itself.
     Its log lines appear on stdout as they are written. After an interrupt the job goes on.
"""

import logging
from dataclasses import dataclass

from pipelines.artifacts.errors import PartialWork
from pipelines.run.jobfile import JobFile
from pipelines.run.portability import relative_places
from pipelines.run.yaml_tree import JobFileError
from pipelines.submit.client import connect, exit_code_of, explain_errors, follow, submit_once
from pipelines.submit.request import make_request, ray_commands
from pipelines.submit.spec import SubmitSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult:
    """exit_code: None with --no-wait. commands: of Ray, to show and stop the job."""

    job_id: str
    exit_code: int | None
    reason: str
    commands: dict[str, str]


def run(spec: SubmitSpec) -> SubmitResult:
    """Submit the job file and follow it to its end.

    ValueError if the cluster cannot be reached or refuses; PartialWork if this command is
    interrupted while the job goes on.
    """
    _check_portable(JobFile.read(spec.job, spec.settings))
    request = make_request(spec)
    job_id, commands = request.job_id, ray_commands(request.job_id, spec.address)
    with explain_errors(spec.address):
        jobs = connect(spec.address)
        try:
            submit_once(jobs, request)
            if not spec.wait:
                return SubmitResult(job_id=job_id, exit_code=None, reason="", commands=commands)
            for word, command in commands.items():
                log.info("%s: %s", word, command)
            code, reason = exit_code_of(follow(jobs, job_id))
        except (KeyboardInterrupt, BrokenPipeError):  # or the reader of the log has closed its pipe
            raise PartialWork(
                f"{job_id} goes on by itself; the same command with --job-id {job_id} follows it "
                f"again, this one stops it: {commands['stop']}"
            ) from None
    return SubmitResult(job_id=job_id, exit_code=code, reason=reason, commands=commands)


def _check_portable(job: JobFile) -> None:
    """JobFileError if a path is relative: only the job file itself is sent to the cluster."""
    found = [f"{option} is {place!r}" for option, place in relative_places(job).items()]
    if found:
        raise JobFileError(
            f"{job.path}: {', '.join(found)}: relative to the job file, which travels alone; give "
            "s3:// URIs or absolute paths that all nodes share, there or with --set"
        )
