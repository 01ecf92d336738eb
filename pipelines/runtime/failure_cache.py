"""Failures of updates that a rerun would repeat, kept beside the output.

In:  the identity of what a job is to make: a digest of its input as the job itself found it.
Out: `_outcome.json` after a failure that only other input, options or software can change. The same
     command then fails at once, without a worker.

Two kinds of error are cached: InvalidInput, raised where all of the input was read, and failed
gates. Any other may depend on what a digest does not cover, such as a model, a node or a key, and
is tried again.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.artifacts.errors import GateFailed
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import library_versions
from pipelines.artifacts.writer import Writer
from sbert_core.corpus.published import MANIFEST
from sbert_core.digest import digest
from sbert_core.errors import InvalidInput
from sbert_core.json_record import decode
from sbert_core.storage import Storage

OUTCOME = "_outcome.json"
NOT_INPUT = ("address", "plan")  # options that change where a job runs, not how it ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure. cause: digest of identity, options and versions; state: of the output."""

    cause: str = ""
    state: str = ""
    code: int
    message: str
    time: str


@contextlib.contextmanager
def replay_or_record(out: Writer, spec: object, identity: str) -> Iterator[None]:
    """Raise the failure that this job is known to end with, or record the one it ends with now.

    out: the output as it was claimed; only an update has a place to keep a record in. spec: the
    job's options, a dataclass.
    """
    storage = out.storage
    cause = digest(
        {"identity": identity, "options": _options(spec), "versions": library_versions()}
    )
    known = _read_failure(storage)
    if known is not None and (known.cause, known.state) == (cause, _state(storage)):
        kind = GateFailed if known.code == GateFailed.exit_code else InvalidInput
        raise kind(
            f"{known.message} (as before, {known.time}: nothing was tried, since the input, "
            f"the options and the output are the same; remove {storage.uri}/{OUTCOME} to try again)"
        )
    try:
        yield
    except (InvalidInput, GateFailed) as error:
        if out.current is not None:
            failure = Failure(
                cause=cause,
                state=_state(storage),
                code=error.exit_code,
                message=str(error),
                time=time.strftime("%Y-%m-%d %H:%M:%S"),
            )
            facts = json.dumps(dataclasses.asdict(failure), indent=1, ensure_ascii=False)
            storage.put(OUTCOME, (facts + "\n").encode())
        raise
    storage.delete([OUTCOME])


def _options(spec: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(spec) and not isinstance(spec, type)
    options = dataclasses.asdict(spec)
    return {name: value for name, value in options.items() if name not in NOT_INPUT}


def _read_failure(storage: Storage) -> Failure | None:
    if storage.stat(OUTCOME) is None:
        return None
    try:
        return decode(Failure, json.loads(storage.read(OUTCOME)), OUTCOME)
    except ValueError:  # cut short by a crash, or written by hand: as if there were none
        return None


def _state(storage: Storage) -> str:
    """Digest of what the output holds: the published artifact, and work an earlier run left."""
    published = storage.stat(MANIFEST)
    left = sorted((stat.name, stat.size) for stat in storage.list(WORK))
    return digest({"published": published and published.version, "left": left})
