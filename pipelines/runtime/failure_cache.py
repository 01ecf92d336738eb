"""How an update failed, beside its output, so that a retry on the same input costs nothing.

In:  the identity of what a job is to make: a digest of its input as the job itself found it.
Out: `_outcome.json` after an end that only other input, options or software can change. The same
     command then ends as it did before it asks for a worker.

Only two kinds of error are remembered: InputRefused, raised where all of the input was looked at,
and failed gates. Anything else may depend on what a digest cannot see, such as a model, a node or
a key, and is tried again.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pipelines.artifacts.errors import GateFailed
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import library_versions
from pipelines.artifacts.writer import Writer
from sbert_core.corpus.published import MANIFEST
from sbert_core.digest import digest
from sbert_core.errors import InputRefused
from sbert_core.storage import Storage

OUTCOME = "_outcome.json"
NOT_INPUT = ("address", "plan")  # options that change where a job runs, not how it ends


@contextlib.contextmanager
def remembered(out: Writer, spec: Any, identity: str) -> Iterator[None]:  # noqa: ANN401
    """Raise what this job ended with before, or note what it ends with now.

    out: the output as it was claimed; only an update has one to keep a note in. spec: the job's.
    """
    storage = out.storage
    options = {name: value for name, value in asdict(spec).items() if name not in NOT_INPUT}
    cause = digest({"identity": identity, "options": options, "versions": library_versions()})
    known = _known(storage)
    if known.get("cause") == cause and known.get("state") == _state(storage):
        kind = GateFailed if known["code"] == 4 else InputRefused
        raise kind(
            f"{known['message']} (as before, {known['time']}: nothing was tried, since the input, "
            f"the options and the output are the same; remove {storage.uri}/{OUTCOME} to try again)"
        )
    try:
        yield
    except (InputRefused, GateFailed) as error:
        if out.current is not None:
            facts = {
                "cause": cause,
                "state": _state(storage),
                "code": 4 if isinstance(error, GateFailed) else 2,
                "message": str(error),
                "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            }
            storage.put(OUTCOME, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
        raise
    storage.delete([OUTCOME])


def _known(storage: Storage) -> dict[str, Any]:
    if storage.stat(OUTCOME) is None:
        return {}
    try:
        found = json.loads(storage.read(OUTCOME))
    except ValueError:  # torn by a crash, or written by hand: as if there were none
        return {}
    is_whole = isinstance(found, dict) and {"message", "time", "code"} <= found.keys()
    return found if is_whole else {}


def _state(storage: Storage) -> str:
    """What the output holds: the published artifact, and work that an earlier run left."""
    published = storage.stat(MANIFEST)
    left = sorted((stat.name, stat.size) for stat in storage.list(WORK))
    return digest({"published": published and published.version, "left": left})
