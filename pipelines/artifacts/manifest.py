"""The manifest: what a published artifact lists and states of itself.

In:  the JSON of `_manifest.json`.
Out: Manifest, checked against the schema of its kind; the same bytes again from `to_json`.
"""

import json
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipelines.artifacts.schema import check_manifest
from sbert_core.corpus.published import MANIFEST

LIBRARIES = ("sbert-mill", "torch", "transformers", "tokenizers", "pyarrow", "numpy", "ray")


def library_versions() -> dict[str, str]:
    """Versions that may change a vector's last bits or a file's bytes."""
    return {name: version(name) for name in LIBRARIES}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of an artifact; `source` says what it was made from."""

    path: str
    rows: int
    sha256: str
    bytes: int
    source: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a published artifact says of itself.

    facts: counts and measurements that depend on the input and the spec alone.
    beside: lists that go with the data, in folders of their own.
    """

    kind: str
    generation: str
    schema: dict[str, str]
    rows: int
    quarantined: int
    files: tuple[DataFile, ...]
    quarantine: tuple[DataFile, ...]
    spec: dict[str, Any]
    made_from: dict[str, Any]
    facts: dict[str, Any]
    versions: dict[str, str]
    beside: tuple[DataFile, ...] = ()

    @property
    def listed(self) -> tuple[DataFile, ...]:
        return (*self.files, *self.quarantine, *self.beside)

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, place: str | Path = "") -> "Manifest":
        """place: of the artifact, for what is said of a broken one."""
        try:
            fields = json.loads(data)
            check_manifest(fields, MANIFEST)
            for name in ("files", "quarantine", "beside"):
                fields[name] = tuple(DataFile(**file) for file in fields[name])
            return cls(**fields)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{place or MANIFEST} is broken or of another version ({error}); make the "
                "artifact again"
            ) from None
