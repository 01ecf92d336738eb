"""An artifact -> its published data folder."""

from pipelines.artifacts.reader import Artifact
from pipelines.path.spec import PathSpec


def run(spec: PathSpec) -> str:
    """The folder any Parquet reader opens."""
    return Artifact.open(spec.artifact).folder
