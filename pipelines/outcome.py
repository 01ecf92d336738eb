"""How a job ended, beside its output, so that a retry of a hopeless one costs nothing.

In:  what a job would read and how.
Out: `_outcome.json` after bad input (code 2) or a failed gate (code 4). The same job on the same
     input then ends as it did before it asks for a single worker; any change starts it anew.
"""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipelines.artifacts import MANIFEST, GateFailed, library_versions
from sbert_core.digest import digest
from sbert_core.errors import Unsettled
from sbert_core.storage import Storage, storage_at

OUTCOME = "_outcome.json"
NOT_INPUT = {"out", "address", "plan"}
WILDCARD = re.compile(r"[^/]*[*?\[].*")


@contextlib.contextmanager
def remembered(place: str, fingerprint: str) -> Iterator[None]:
    """Raise what this job ended with before, or note what it ends with now."""
    storage = storage_at(place)
    known = _known(storage)
    if known is not None and known.get("fingerprint") == fingerprint:
        kind = GateFailed if known["code"] == 4 else ValueError
        raise kind(
            f"{known['message']} (as before, {known['time']}: nothing was tried, since neither the "
            f"job nor its input changed; remove {storage.uri}/{OUTCOME} to try again)"
        )
    try:
        yield
    except GateFailed as error:
        _note(storage, fingerprint, 4, error)
        raise
    except Unsettled:
        raise
    except ValueError as error:
        _note(storage, fingerprint, 2, error)
        raise
    if known is not None:
        storage.delete([OUTCOME])


def _known(storage: Storage) -> dict[str, Any] | None:
    if storage.stat(OUTCOME) is None:
        return None
    try:
        return json.loads(storage.read(OUTCOME))
    except ValueError:  # torn by a crash: as if there were none
        return {}


def _note(storage: Storage, fingerprint: str, code: int, error: Exception) -> None:
    """Only where something is: bad words on the command line leave no folder behind."""
    if next(iter(storage.list()), None) is None:
        return
    facts = {
        "fingerprint": fingerprint,
        "code": code,
        "message": str(error),
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    storage.put(OUTCOME, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())


def fingerprint_of(*specs: Any, below: str = "", **more: object) -> str:  # noqa: ANN401
    """Options, versions, and what tells a changed input: sizes and times of its files.

    below: where the specs write what others of them read.
    """
    options = [asdict(spec) for spec in specs]
    found = {place for own in options for place in _places(own)}
    places = sorted(place for place in found if not below or not place.startswith(below))
    known = {
        "options": [{k: v for k, v in own.items() if k not in NOT_INPUT} for own in options],
        "inputs": {place: _state(place) for place in places},
        "versions": library_versions(),
        **more,
    }
    return digest(json.loads(json.dumps(known, default=str)))


def _places(options: dict[str, Any]) -> Iterator[str]:
    """Words that name something that is there."""
    for name, value in options.items():
        if name in NOT_INPUT:
            continue
        for word in value if isinstance(value, tuple | list) else [value]:
            place = WILDCARD.sub("", str(word)) if isinstance(word, str | Path) else ""
            if place and _is_there(place):
                yield place


def _is_there(word: str) -> bool:
    if "://" in word:
        return word.startswith("s3://")
    try:
        return Path(word).exists()
    except (OSError, ValueError):  # a long text, or one with a NUL, is no path
        return False


def _state(place: str) -> list[tuple[str, int, str]]:
    """Of an artifact its manifest tells; of anything else every file."""
    if "://" not in place and Path(place).is_file():
        stat = Path(place).stat()
        return [("", stat.st_size, str(stat.st_mtime_ns))]
    storage = storage_at(place)
    manifest = storage.stat(MANIFEST)
    found = [manifest] if manifest is not None else storage.list()
    return sorted((stat.name, stat.size, stat.version) for stat in found)
