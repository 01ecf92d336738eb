"""A connected cluster -> Findings: every node is asked, nothing is left behind.

In:  a joined Ray, and places that all nodes should share.
Out: Findings for the judges.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence

import ray._private.worker as ray_worker  # the address of the dashboard stands nowhere else

from pipelines.doctor.nodes import Answer, Node, answers, clock_of, living_nodes, said
from pipelines.doctor.verdicts import DRIVER, Findings, NodeFindings, StorageFindings
from workers.doctor.node import left_mark, node_facts, removed_marks, seen_marks

log = logging.getLogger(__name__)

ANSWER_SECONDS = 60.0


def examined(places: Sequence[str], seconds: float = ANSWER_SECONDS) -> Findings:
    """seconds: how long a node may take for an answer."""
    nodes = living_nodes()
    log.info("asking %d nodes", len(nodes))
    told = answers(node_facts, [(node, (node.folder,)) for node in nodes], seconds)
    awake = [node for node in nodes if told[node.id].silence is None]
    return Findings(
        driver=node_facts("/tmp"),
        nodes=tuple(_node_findings(node, told[node.id]) for node in nodes),
        storages=tuple(StorageCheck(place, awake, seconds).findings() for place in places),
        dashboard=ray_worker.get_dashboard_url() or "",
    )


def _node_findings(node: Node, answer: Answer) -> NodeFindings:
    return NodeFindings(
        name=node.name,
        num_gpus=node.num_gpus,
        object_store_bytes=node.object_store_bytes,
        facts=answer.value,
        silence=answer.silence,
        clock=clock_of(node) if answer.silence is None else None,
    )


class StorageCheck:
    """Everybody leaves a mark in a place; everybody looks for the marks of all."""

    def __init__(self, place: str, nodes: Sequence[Node], seconds: float) -> None:
        self.place = place
        self.nodes = {node.name: node for node in nodes}
        self.seconds = seconds
        self.folder = f"_doctor-{secrets.token_hex(8)}"

    def findings(self) -> StorageFindings:
        everybody = [DRIVER, *self.nodes]
        try:
            written = self._asked(left_mark, {name: (name,) for name in everybody})
            names = tuple(name for name, answer in written.items() if answer.silence is None)
            read = self._asked(seen_marks, dict.fromkeys(names, (names,)))
        finally:
            self._asked(removed_marks, dict.fromkeys(everybody, ()))
        told = written | read
        unseen = {name: _missing(names, answer.value) for name, answer in read.items()}
        return StorageFindings(
            place=self.place,
            names=names,
            errors={name: own.silence for name, own in told.items() if own.silence is not None},
            unseen={name: others for name, others in unseen.items() if others},
        )

    def _asked(self, function: Callable, calls: Mapping[str, tuple]) -> dict[str, Answer]:
        """Answers by name; calls: what else a name is asked, beside place and folder."""
        asked = {name: (self.place, self.folder, *more) for name, more in calls.items()}
        own = {name: _own_answer(function, asked.pop(name)) for name in [DRIVER] if name in asked}
        by_id = answers(
            function, [(self.nodes[n], words) for n, words in asked.items()], self.seconds
        )
        return own | {name: by_id[self.nodes[name].id] for name in asked}


def _own_answer(function: Callable, arguments: tuple) -> Answer:
    try:
        return Answer(value=function(*arguments))
    except Exception as error:  # noqa: BLE001 - what the driver runs into is its answer
        return Answer(silence=said(error))


def _missing(names: Sequence[str], seen: Sequence[str] | None) -> tuple[str, ...]:
    """None has not looked at all, which is told elsewhere."""
    return () if seen is None else tuple(name for name in names if name not in seen)
