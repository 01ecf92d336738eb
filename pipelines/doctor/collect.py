"""A connected cluster -> Findings: facts of every node, and marker files in shared places.

In:  a Ray this process has joined, and places that all nodes should share.
Out: Findings. Every marker file is removed again.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, TypeVarTuple

import ray._private.worker as ray_worker  # the only source of the dashboard's address

from pipelines.doctor.findings import DRIVER, Findings, NodeFindings, StorageFindings
from pipelines.doctor.nodes import (
    ClusterNode,
    NodeAnswer,
    call_here,
    call_on_nodes,
    list_nodes,
    measure_skew,
)
from workers.doctor.node import NodeFacts, find_marks, read_node_facts, remove_marks, write_mark

log = logging.getLogger(__name__)

ANSWER_SECONDS = 60.0

Value = TypeVar("Value")
More = TypeVarTuple("More")


def collect_findings(places: Sequence[str], seconds: float = ANSWER_SECONDS) -> Findings:
    """Facts of all nodes and of shared places. seconds: how long a node may take to answer."""
    nodes = list_nodes()
    log.info("asking %d nodes", len(nodes))
    answers = call_on_nodes(read_node_facts, [(node, (node.folder,)) for node in nodes], seconds)
    awake = [node for node in nodes if answers[node.id].silence is None]
    return Findings(
        driver=read_node_facts("/tmp"),
        nodes=tuple(_node_findings(node, answers[node.id]) for node in nodes),
        storages=tuple(StorageCheck(place, awake, seconds).run() for place in places),
        dashboard=ray_worker.get_dashboard_url() or "",
    )


def _node_findings(node: ClusterNode, answer: NodeAnswer[NodeFacts]) -> NodeFindings:
    return NodeFindings(
        name=node.name,
        num_gpus=node.num_gpus,
        object_store_bytes=node.object_store_bytes,
        facts=answer.value,
        silence=answer.silence,
        clock=measure_skew(node) if answer.silence is None else None,
    )


class StorageCheck:
    """Every machine writes a marker file in a place, then looks for the files of all others."""

    def __init__(self, place: str, nodes: Sequence[ClusterNode], seconds: float) -> None:
        self.place = place
        self.nodes = {node.name: node for node in nodes}
        self.seconds = seconds
        self.folder = f"_doctor-{secrets.token_hex(8)}"

    def run(self) -> StorageFindings:
        """Write, find and remove the marker files."""
        everyone = [DRIVER, *self.nodes]
        try:
            written = self._call(write_mark, {name: (name,) for name in everyone})
            names = tuple(name for name, answer in written.items() if answer.silence is None)
            read = self._call(find_marks, dict.fromkeys(names, (names,)))
        finally:
            self._call(remove_marks, dict.fromkeys(everyone, ()))
        silences = {name: answer.silence for name, answer in written.items()}
        silences |= {name: answer.silence for name, answer in read.items()}
        unseen = {name: _missing(names, answer.value) for name, answer in read.items()}
        return StorageFindings(
            place=self.place,
            names=names,
            errors={name: reason for name, reason in silences.items() if reason is not None},
            unseen={name: others for name, others in unseen.items() if others},
        )

    def _call(
        self, function: Callable[[str, str, *More], Value], calls: Mapping[str, tuple[*More]]
    ) -> dict[str, NodeAnswer[Value]]:
        """Answers by name. calls: arguments by name, beside place and folder."""
        arguments = {name: (self.place, self.folder, *more) for name, more in calls.items()}
        answers = {}
        if DRIVER in arguments:
            answers[DRIVER] = call_here(function, arguments.pop(DRIVER))
        remote = [(self.nodes[name], own) for name, own in arguments.items()]
        by_id = call_on_nodes(function, remote, self.seconds)
        return answers | {name: by_id[self.nodes[name].id] for name in arguments}


def _missing(names: Sequence[str], seen: Sequence[str] | None) -> tuple[str, ...]:
    """Names that were not seen. None: the node did not answer; reported by the node check."""
    return () if seen is None else tuple(name for name in names if name not in seen)
