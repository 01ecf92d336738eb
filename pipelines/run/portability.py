"""A job file -> the paths in it that another machine would not find.

In:  a checked job file.
Out: options whose paths are relative to the job file, by name.
"""

from collections.abc import Iterator
from pathlib import Path

from pipelines.artifacts.models import DEMO
from pipelines.options import PathKind, Spec, options_of
from pipelines.run.jobfile import JobFile
from sbert_core.encoder.hub import HUB_ID

MODELS = (PathKind.MODEL, PathKind.NAMED_MODEL)


def relative_places(job: JobFile) -> dict[str, str]:
    """Relative paths by option; those below `out` and `corpus` of the job are listed once there."""
    folder = job.path.parent
    found = {
        name: place
        for name, place in (("out", job.out), ("corpus", job.corpus))
        if place is not None and _is_relative(place)
    }
    roots = tuple(_with_slash(place) for place in found.values())
    for stage, spec in job.stages.items():
        for name, kind, place in _paths(spec):
            is_elsewhere = kind in MODELS and _is_on_no_disk(place, folder)
            is_wired = f"{place}/".startswith(roots) if roots else False
            if _is_relative(place) and not is_elsewhere and not is_wired:
                found[f"{stage}.{name}"] = place
    return found


def _paths(spec: Spec) -> Iterator[tuple[str, PathKind, str]]:
    """Option, kind and value of every path among the options of a stage."""
    for option in options_of(type(spec)):
        if (kind := option.info.path) is None:
            continue
        value = getattr(spec, option.name)
        for item in value if isinstance(value, tuple) else (value,):
            place = "" if item is None else str(item)
            if kind is PathKind.NAMED_MODEL:
                place = place.partition("=")[2]
            if place:
                yield option.name, kind, place


def _is_relative(place: str) -> bool:
    return "://" not in place and not place.startswith("/")


def _is_on_no_disk(model: str, folder: Path) -> bool:
    """`demo`, or a hub id that is not also a folder beside the job file."""
    is_hub_id = HUB_ID.fullmatch(model) is not None and not (folder / model).exists()
    return model == DEMO or is_hub_id


def _with_slash(root: str) -> str:
    return root.rstrip("/") + "/"
