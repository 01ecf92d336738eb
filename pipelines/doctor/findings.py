"""What a check of a cluster finds, before it is judged."""

from dataclasses import dataclass

from workers.doctor.node import ClockSkew, NodeFacts

DRIVER = "driver"  # name of this machine among those of the nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFindings:
    """One node. facts: None if it did not answer; silence: the reason. clock: None if unknown."""

    name: str
    num_gpus: float = 0.0
    object_store_bytes: int = 0
    facts: NodeFacts | None = None
    silence: str | None = None
    clock: ClockSkew | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFindings:
    """A place that all machines should share.

    names: machines that wrote there. errors: by name, of those that could not write or read.
    unseen: by name, machines whose files it does not see.
    """

    place: str
    names: tuple[str, ...]
    errors: dict[str, str]
    unseen: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """A whole cluster. dashboard: host:port, empty if there is none."""

    driver: NodeFacts
    nodes: tuple[NodeFindings, ...]
    storages: tuple[StorageFindings, ...] = ()
    dashboard: str = ""
