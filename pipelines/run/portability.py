"""A job file -> the places in it that another machine would not find.

In:  a checked job file.
Out: options whose places are relative to the job file, by name.
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from pipelines.artifacts.models import DEMO
from pipelines.run.jobfile import JobFile
from sbert_core.encoder.hub import HUB_ID

# Options of stages by what their words name; a test sees to it that none is forgotten.
PLACES = frozenset(
    "against clusters corpus eval exclude facets files metadata nli out pairs protect "
    "retrieval shards sources sts transfer triplets vectors".split()
)
MODELS = frozenset({"base", "baselines", "model", "models", "rerank", "tokenizer"})


def relative_places(job: JobFile) -> dict[str, str]:
    """What `out` and `corpus` of the job lead to is named once, by them."""
    folder = job.path.parent
    found = {
        name: place
        for name, place in (("out", job.out), ("corpus", job.corpus))
        if place is not None and _is_relative(place)
    }
    known = tuple(found.values())
    for stage, spec in job.stages.items():
        for option, place in _places(spec):
            is_elsewhere = option in MODELS and _is_on_no_disk(place, folder)
            is_wired = any(f"{place}/".startswith(_below(root)) for root in known)
            if _is_relative(place) and not is_elsewhere and not is_wired:
                found[f"{stage}.{option}"] = place
    return found


def _places(spec: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    for field in fields(spec):
        if field.name not in PLACES | MODELS:
            continue
        value = getattr(spec, field.name)
        words = [str(w) for w in (value if isinstance(value, tuple) else (value,)) if _is_word(w)]
        if field.name == "baselines":  # glove=FILE and the like; tfidf names no place
            words = [word.partition("=")[2] for word in words if "=" in word]
        yield from ((field.name, word) for word in words)


def _is_word(value: object) -> bool:
    return isinstance(value, str | Path)


def _is_relative(place: str) -> bool:
    return "://" not in place and not place.startswith("/")


def _is_on_no_disk(model: str, folder: Path) -> bool:
    """`demo`, or a hub id that is not also a folder beside the job file."""
    is_hub_id = HUB_ID.fullmatch(model) is not None and not (folder / model).exists()
    return model == DEMO or is_hub_id


def _below(root: str) -> str:
    return root.rstrip("/") + "/"
