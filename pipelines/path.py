"""An artifact -> its published data folder."""

from pipelines.artifacts import Artifact
from pipelines.specs import PathSpec


def run(spec: PathSpec) -> str:
    """The folder any Parquet reader opens."""
    return Artifact.open(spec.artifact).folder
