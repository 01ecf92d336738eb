"""Log lines on stderr: for people, or as JSON for collectors."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class Stderr(logging.StreamHandler):
    """The stderr of the moment: a live display puts its own in the place while it is shown."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        del value


def configure_logs(json_lines: bool, debug: bool) -> None:
    """Send our packages' logs to stderr; other libraries' only from warnings up."""
    handler = Stderr()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    handler.setFormatter(JsonLines() if json_lines else plain)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    for package in ("sbert_core", "workers", "pipelines"):
        logging.getLogger(package).setLevel(logging.DEBUG if debug else logging.INFO)
