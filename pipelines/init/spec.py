"""Options of `sbert init`."""

from pathlib import Path

from pipelines.options import PathKind, Spec, argument, option, spec_class


@spec_class
class InitSpec(Spec):
    """Write a commented job file to begin with."""

    job: Path = argument("Job file to write; it must not exist.", default=Path("job.yaml"))
    corpus: str = option("Corpus of the job.", default="corpus/", path=PathKind.INPUT)
    out: str = option("Folder of the job's outputs.", default="run/", path=PathKind.OUTPUT)
