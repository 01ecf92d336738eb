"""Options of `sbert doctor`."""

from pipelines.options import RAY_ADDRESS, PathKind, Spec, option, spec_class


@spec_class
class DoctorSpec(Spec):
    """Check versions, GPUs, storage, clocks, room and locks of every node, with remedies."""

    storage: tuple[str, ...] = option(
        "Folder or s3:// URI that all nodes should share.", default=(), path=PathKind.INPUT
    )
    gpu: bool = option("Also measure a GPU (five minutes), and write a report.", default=False)
    address: str | None = option(
        "Ray cluster; this machine by default.", default=None, envvar=RAY_ADDRESS
    )
