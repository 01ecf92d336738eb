"""Log lines on stderr: for people, or as JSON for collectors."""

import contextlib
import json
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from typing import TextIO

from pipelines.runtime.terminal import printable

RUN_ID = "SBERT_RUN_ID"  # a scheduler's own name for the run
FIELDS = ("unit", "reason")  # extra fields a log record may have
_stage: ContextVar[str] = ContextVar("stage", default="")


@cache
def run_id() -> str:
    """The name of this run in log lines, metrics and `run.json`."""
    return os.environ.get(RUN_ID) or secrets.token_hex(4)


@contextlib.contextmanager
def log_stage(name: str) -> Iterator[None]:
    """Lines logged inside belong to this stage."""
    token = _stage.set(name)
    try:
        yield
    finally:
        _stage.reset(token)


class PlainLines(logging.Formatter):
    """A line for people, which may hold words of a corpus."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "run": run_id(),
            "stage": _stage.get(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return printable(json.dumps(line, ensure_ascii=False))


class Stderr(logging.StreamHandler):
    """Looks up sys.stderr when it writes: rich replaces it while a progress bar is shown."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        del value


def configure_logs(json_lines: bool, debug: bool) -> None:
    """Send our packages' logs to stderr; other libraries' only from warnings up."""
    handler = Stderr()
    plain = PlainLines("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonLines() if json_lines else plain)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for package in ("sbert_core", "workers", "pipelines"):
        logging.getLogger(package).setLevel(logging.DEBUG if debug else logging.INFO)
