"""An artifact -> its published data folder, or all its data files."""

from importlib import import_module

from pipelines.artifacts.reader import Artifact
from pipelines.path.spec import PathSpec


def run(spec: PathSpec) -> str:
    """What Parquet readers open: a folder, or with --files one path or URI per line.

    ScatteredArtifact where a folder is wanted and no single one holds all data files.
    """
    found = Artifact.open(spec.artifact)
    if spec.materialize:
        # Loaded by name: to print a path takes no Ray, which takes seconds to import.
        import_module("pipelines.path.materialize").materialize(spec)
        found = Artifact.open(spec.artifact)
    return "\n".join(found.files) if spec.files else found.folder
