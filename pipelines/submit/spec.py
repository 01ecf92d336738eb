"""Options of `sbert submit`, checked when they are given."""

import re
from pathlib import Path

from pipelines.options import PathKind, Spec, argument, option, spec_class


@spec_class
class SubmitSpec(Spec):
    """Run a job file on a cluster through Ray Jobs, with its log and its exit code here."""

    job: Path = argument("Job file whose paths all nodes can read.", path=PathKind.INPUT)
    address: str = option(
        "URL of the cluster's dashboard: http://head:8265.", envvar="RAY_API_SERVER_ADDRESS"
    )
    settings: tuple[str, ...] = option(
        "STAGE.OPTION=VALUE, replacing what the job file has.", default=(), flag="--set"
    )
    words: tuple[str, ...] = argument(
        "More options of `sbert run`.", default=(), metavar="[-- OPTIONS OF RUN]"
    )
    # Values may be secrets: they are not part of what is printed of a spec.
    env: tuple[str, ...] = option(
        "NAME=VALUE for the job, or NAME for its value here. Ray logs it on its nodes.",
        default=(),
        repr=False,
    )
    job_id: str | None = option(
        "Ray's name for the job; a job of this name that exists is followed.", default=None
    )
    wait: bool = option("Submit the job and do not follow it.", default=True, flag="--no-wait")

    def check(self) -> None:
        if not re.match(r"https?://[^/]", self.address):
            raise ValueError(
                f"address {self.address!r} is no URL of a dashboard; give one as http://head:8265"
            )
        for word in self.env:
            if not re.fullmatch(r"[A-Za-z_]\w*", name := word.partition("=")[0]):
                raise ValueError(f"--env {name}: no name of a variable; give NAME=VALUE or NAME")
        if self.job_id is not None and not re.fullmatch(r"[\w.-]{1,128}", self.job_id):
            raise ValueError(f"job_id {self.job_id!r}; use letters, digits, '_', '.' and '-'")
