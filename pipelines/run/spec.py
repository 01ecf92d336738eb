"""Options of `sbert run`."""

from pathlib import Path

from pipelines.options import ADDRESS, RAY_ADDRESS, PathKind, Spec, argument, option, spec_class


@spec_class
class RunSpec(Spec):
    """Run the stages of a job file; finished ones have nothing to do."""

    job: Path = argument("Job file; `sbert init` writes an example.", path=PathKind.INPUT)
    settings: tuple[str, ...] = option(
        "STAGE.OPTION=VALUE, replacing what the job file has.", default=(), flag="--set"
    )
    plan: bool = option("Estimate what would run and cost; write nothing.", default=False)
    start: str | None = option(
        "First stage to run; the outputs of earlier ones are used as they are.",
        default=None,
        flag="--from",
    )
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)
