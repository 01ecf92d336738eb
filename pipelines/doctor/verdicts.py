"""What was found on a cluster -> checks with a verdict and, where it is bad, a remedy.

In:  Findings, as the driver and the nodes told them.
Out: Check rows. Pure: nothing here asks anybody.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from workers.doctor.node import Clock, NodeFacts, Room

DRIVER = "driver"
NODES_SHOWN = 4
GIB = 2**30
# Ray puts nothing more on a disk, and kills work on a node, at 95 % in use.
FULL_SHARE, NARROW_SHARE = 0.95, 0.85
SKEW_FAIL_SECONDS, SKEW_WARN_SECONDS = 30.0, 1.0
# Ray refuses drivers of another Ray; nodes with other code of ours would run other code.
MUST_BE_EQUAL = ("sbert-mill", "ray")
LOOPBACK = ("127.", "localhost", "[::1]", "::1")


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table."""

    check: str
    found: str
    verdict: Verdict
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFindings:
    """silence: why there are no facts."""

    name: str
    num_gpus: float = 0.0
    object_store_bytes: int = 0
    facts: NodeFacts | None = None
    silence: str | None = None
    clock: Clock | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFindings:
    """errors: of those who could not write or read, by name. unseen: whose marks a name misses."""

    place: str
    names: tuple[str, ...]
    errors: dict[str, str]
    unseen: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """dashboard: host:port, empty if there is none."""

    driver: NodeFacts
    nodes: tuple[NodeFindings, ...]
    storages: tuple[StorageFindings, ...] = ()
    dashboard: str = ""


def judged(found: Findings) -> list[Check]:
    """All checks, in the order in which they matter."""
    known = [(node, node.facts) for node in found.nodes if node.facts is not None]
    facts = [(node.name, own) for node, own in known]
    machines = [(DRIVER, found.driver), *facts]
    checks = [*_grouped("nodes", ((n.name, *_presence(n)) for n in found.nodes))]
    checks += _pythons(machines)
    for package in found.driver.versions:
        checks += _versions(package, machines)
    checks += _grouped("GPUs", ((node.name, *_gpus(node, own)) for node, own in known))
    checks += _grouped("clock", ((node.name, *_skew(node.clock)) for node, _ in known))
    checks += _grouped("temporary folder", ((name, *_disk(own.disk)) for name, own in facts))
    checks += _grouped("shared memory", ((node.name, *_shared(node, own)) for node, own in known))
    checks += _grouped("memory", ((name, *_memory(own.memory)) for name, own in facts))
    checks += _grouped("token", ((name, *_token(own)) for name, own in facts))
    checks += _grouped("token file", ((name, *_token_file(own)) for name, own in machines))
    checks.append(_dashboard(found.dashboard, all(own.has_token for _, own in facts)))
    for storage in found.storages:
        checks += _storage(storage)
    return checks


Judgement = tuple[str, Verdict, str]


def _grouped(check: str, told: Iterable[tuple[str, str, Verdict, str]]) -> list[Check]:
    """One row for all machines that are well, one for each kind of trouble."""
    rows: dict[tuple[Verdict, str], dict[str, list[str]]] = {}
    for name, found, verdict, remedy in told:
        rows.setdefault((verdict, remedy), {}).setdefault(found, []).append(name)
    return [
        Check(check, "; ".join(f"{found} ({_names(names)})" for found, names in by.items()), *key)
        for key, by in rows.items()
    ]


def _names(names: Sequence[str]) -> str:
    more = len(names) - NODES_SHOWN
    return ", ".join(names[:NODES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _presence(node: NodeFindings) -> Judgement:
    if node.facts is not None:
        return "answers", Verdict.OK, ""
    return (
        node.silence or "no answer",
        Verdict.FAIL,
        "install the same sbert-mill there; see that the node is well, or remove it",
    )


def _pythons(machines: Sequence[tuple[str, NodeFacts]]) -> list[Check]:
    minors = {own.python.rpartition(".")[0] for _, own in machines}
    verdict = Verdict.OK if len(minors) == 1 else Verdict.FAIL
    remedy = "" if len(minors) == 1 else "use one Python minor version everywhere"
    return _grouped("Python", ((name, own.python, verdict, remedy) for name, own in machines))


def _versions(package: str, machines: Sequence[tuple[str, NodeFacts]]) -> list[Check]:
    wanted = machines[0][1].versions[package]
    is_equal = all(own.versions[package] == wanted for _, own in machines)
    verdict, remedy = Verdict.OK, ""
    if not is_equal:
        is_hard = package in MUST_BE_EQUAL or any(
            own.versions[package] is None for _, own in machines
        )
        verdict = Verdict.FAIL if is_hard else Verdict.WARN
        remedy = f"install {package}=={wanted} everywhere, as constraints.txt has it"
        if not is_hard:
            remedy += "; until then bits of vectors depend on the node"
    told = ((name, own.versions[package] or "missing", verdict, remedy) for name, own in machines)
    return _grouped(package, told)


def _gpus(node: NodeFindings, facts: NodeFacts) -> Judgement:
    kinds = sorted({(gpu, facts.gpus.count(gpu)) for gpu in facts.gpus})
    listed = ", ".join(f"{count} x {gpu}" for gpu, count in kinds)
    if not facts.gpus and not node.num_gpus:
        return "none", Verdict.OK, ""
    found = f"{listed or 'none'}; Ray offers {node.num_gpus:g}"
    if node.num_gpus > len(facts.gpus):
        return found, Verdict.FAIL, "give Ray's --num-gpus what the GPU driver lists, or mend it"
    if "+cpu" in (facts.versions.get("torch") or ""):
        return found, Verdict.FAIL, "install a torch with CUDA there; this one is for CPUs"
    if node.num_gpus < len(facts.gpus):
        return found, Verdict.WARN, "start Ray there with all GPUs, if they are meant for it"
    return found, Verdict.OK, ""


def _skew(clock: Clock | None) -> Judgement:
    if clock is None:
        return "unknown", Verdict.WARN, "the node stopped answering; try again"
    found = f"{clock.ahead:+.3f} s, give or take {clock.error:.3f}"
    least = abs(clock.ahead) - clock.error  # what the round trip cannot explain
    remedy = "run an NTP client on the node and on the driver's machine"
    if least > SKEW_FAIL_SECONDS:
        return found, Verdict.FAIL, remedy
    return found, *((Verdict.WARN, remedy) if least > SKEW_WARN_SECONDS else (Verdict.OK, ""))


def _disk(room: Room) -> Judgement:
    found = f"{room.free / GIB:,.1f} of {room.total / GIB:,.1f} GiB free"
    return found, *_by_share(
        room,
        "free space there, or start Ray with --temp-dir on another disk: above 95 % it stops",
    )


def _memory(room: Room) -> Judgement:
    found = f"{room.free / GIB:,.1f} of {room.total / GIB:,.1f} GiB free"
    return found, *_by_share(room, "end what else runs there: above 95 % Ray kills workers")


def _by_share(room: Room, remedy: str) -> tuple[Verdict, str]:
    if room.used_share >= FULL_SHARE:
        return Verdict.FAIL, remedy
    return (Verdict.WARN, remedy) if room.used_share >= NARROW_SHARE else (Verdict.OK, "")


def _shared(node: NodeFindings, facts: NodeFacts) -> Judgement:
    room, wanted = facts.shared_memory, node.object_store_bytes
    found = f"{room.total / GIB:,.1f} GiB for an object store of {wanted / GIB:,.1f}"
    if room.total >= wanted:
        return found, Verdict.OK, ""
    return (
        found,
        Verdict.WARN,
        "Ray uses the slow disk instead: enlarge /dev/shm (docker --shm-size, on Kubernetes an "
        "emptyDir of medium Memory), or start Ray with a smaller --object-store-memory",
    )


def _token(facts: NodeFacts) -> Judgement:
    if facts.has_token:
        return "asked for", Verdict.OK, ""
    return (
        "not asked for",
        Verdict.FAIL,
        "whoever reaches a port of Ray's runs code: start every node with RAY_AUTH_MODE=token "
        "and the same RAY_AUTH_TOKEN_PATH",
    )


def _token_file(facts: NodeFacts) -> Judgement:
    if facts.token_mode is None:
        return "none", Verdict.OK, ""
    found = f"mode {facts.token_mode:04o}"
    if facts.token_mode & 0o077:
        return found, Verdict.WARN, f"others can read it: chmod 600 {facts.token_file}"
    return found, Verdict.OK, ""


def _dashboard(address: str, has_token: bool) -> Check:
    if not address:
        return Check("dashboard", "none", Verdict.OK)
    if address.startswith(LOOPBACK):
        return Check("dashboard", f"{address}, for its own machine alone", Verdict.OK)
    remedy = "start the head with --dashboard-host=127.0.0.1 and reach it through a tunnel"
    if has_token:
        return Check(
            "dashboard",
            f"{address}, open to the network, asks for the token",
            Verdict.WARN,
            f"{remedy}, or keep it in a private network: the token travels in the clear",
        )
    return Check("dashboard", f"{address}, open to the network", Verdict.FAIL, remedy)


def _storage(found: StorageFindings) -> list[Check]:
    check = f"storage {found.place}"
    remedy = (
        "mount it there at the same path, with the right to write"
        if "://" not in found.place
        else "give that machine the store's credentials and endpoint (AWS_ACCESS_KEY_ID, ...)"
    )
    rows = _grouped(check, ((who, why, Verdict.FAIL, remedy) for who, why in found.errors.items()))
    rows += [
        Check(
            check,
            f"{who} does not see what {_names(others)} wrote",
            Verdict.FAIL,
            "each has a folder of its own by that name: use one that all machines share",
        )
        for who, others in found.unseen.items()
    ]
    return rows or [Check(check, f"written and seen by {_names(found.names)}", Verdict.OK)]
