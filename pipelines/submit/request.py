"""Options of `sbert submit` -> what Ray Jobs is given, and the commands a user may type."""

import os
import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from pipelines.submit.spec import SubmitSpec
from sbert_core.digest import digest

# Ray kills a stopped job after 3 s by default; the unit in flight may take 25.
STOP_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job for Ray. Values of variables may be secrets, so that they are left out of `repr`.

    file, text: name and content of the job file. variables: of the job's environment.
    """

    job_id: str
    entrypoint: str
    file: str
    text: str = field(repr=False)
    variables: dict[str, str] = field(repr=False)

    @property
    def metadata(self) -> dict[str, str]:
        """Kept by Ray with the job; `sbert_request` is equal for equal job files and options."""
        return {
            "sbert_version": version("sbert-mill"),
            "sbert_job_file": self.file,
            "sbert_request": digest({"entrypoint": self.entrypoint, "text": self.text}),
        }


def make_request(spec: SubmitSpec) -> JobRequest:
    """The request of a spec; ValueError if --env names a variable that is not set here."""
    words = ["sbert", "run", spec.job.name]
    words += [word for setting in spec.settings for word in ("--set", setting)]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", spec.job.stem)
    return JobRequest(
        job_id=spec.job_id or f"sbert-{name}-{secrets.token_hex(4)}",
        # `exec` replaces the shell, so that signals reach the job and the exit code is its own.
        entrypoint=f"exec {shlex.join([*words, *spec.words])}",
        file=spec.job.name,
        text=spec.job.read_text(encoding="utf-8"),
        variables={"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)} | _parse_variables(spec.env),
    )


def _parse_variables(words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE as it is; NAME alone takes the value it has here."""
    variables = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals and name not in os.environ:
            raise ValueError(f"--env {name}: it has no value here; set it, or give {name}=VALUE")
        variables[name] = value if equals else os.environ[name]
    return variables


def ray_commands(job_id: str, address: str) -> dict[str, str]:
    """Commands of Ray that show and stop the job, by what they do."""
    mode = "RAY_AUTH_MODE=token " if token_headers() else ""
    return {
        word: f"{mode}ray job {word} --address {address} {job_id}" for word in ("status", "stop")
    }


def token_headers() -> dict[str, str]:
    """The cluster's token as an HTTP header; empty without one.

    Ray's client sends a token only if RAY_AUTH_MODE is `token`; here a token alone is enough.
    """
    if os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    if not token and (path := os.environ.get("RAY_AUTH_TOKEN_PATH")):
        token = Path(path).read_text(encoding="utf-8")
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}
