"""What was found on a cluster -> checks with a verdict and, where it is bad, a remedy.

In:  Findings.
Out: Check rows. Pure functions: no Ray, no network, no files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipelines.doctor.findings import DRIVER, Findings, NodeFindings, StorageFindings
from workers.doctor.node import ByteUsage, ClockSkew, NodeFacts

NODES_SHOWN = 4
GIB = 2**30
# Ray puts nothing more on a disk, and kills work on a node, at 95 % in use.
FULL_SHARE, NARROW_SHARE = 0.95, 0.85
SKEW_FAIL_SECONDS, SKEW_WARN_SECONDS = 30.0, 1.0
# Ray refuses drivers of another Ray; nodes with other code of ours would run other code.
MUST_BE_EQUAL = ("sbert-mill", "ray")
LOOPBACK = ("127.", "localhost", "[::1]", "::1")


class Verdict(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the table. remedy: empty if all is well."""

    check: str
    found: str
    verdict: Verdict
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was found on one machine, and how bad it is."""

    found: str
    verdict: Verdict = Verdict.OK
    remedy: str = ""


def check_findings(findings: Findings) -> list[Check]:
    """All checks of a cluster, the most important first."""
    nodes = [(node, node.facts) for node in findings.nodes if node.facts is not None]
    facts = [(node.name, own) for node, own in nodes]
    machines = [(DRIVER, findings.driver), *facts]
    checks = _group("nodes", ((node.name, _judge_presence(node)) for node in findings.nodes))
    checks += _check_python(machines)
    for package in findings.driver.versions:
        checks += _check_version(package, machines)
    checks += _group("GPUs", ((node.name, _judge_gpus(node, own)) for node, own in nodes))
    checks += _group("clock", ((node.name, _judge_clock(node.clock)) for node, _ in nodes))
    checks += _group("temporary folder", ((name, _judge_disk(own.disk)) for name, own in facts))
    checks += _group(
        "shared memory", ((node.name, _judge_shared_memory(node, own)) for node, own in nodes)
    )
    checks += _group("memory", ((name, _judge_memory(own.memory)) for name, own in facts))
    checks += _group("token", ((name, _judge_token(own)) for name, own in facts))
    checks += _group("token file", ((name, _judge_token_file(own)) for name, own in machines))
    has_token = all(own.has_token for _, own in facts)
    checks.append(_check_dashboard(findings.dashboard, has_token))
    for storage in findings.storages:
        checks += _check_storage(storage)
    return checks


def _group(check: str, judgements: Iterable[tuple[str, Judgement]]) -> list[Check]:
    """One row for all machines that are well, one for each kind of trouble."""
    rows: dict[tuple[Verdict, str], dict[str, list[str]]] = {}
    for name, own in judgements:
        rows.setdefault((own.verdict, own.remedy), {}).setdefault(own.found, []).append(name)
    return [
        Check(
            check,
            "; ".join(f"{found} ({_names(names)})" for found, names in by_found.items()),
            verdict,
            remedy,
        )
        for (verdict, remedy), by_found in rows.items()
    ]


def _names(names: Sequence[str]) -> str:
    more = len(names) - NODES_SHOWN
    return ", ".join(names[:NODES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _judge_presence(node: NodeFindings) -> Judgement:
    if node.facts is not None:
        return Judgement("answers")
    return Judgement(
        node.silence or "no answer",
        Verdict.FAIL,
        "install the same sbert-mill there; see that the node is well, or remove it",
    )


def _check_python(machines: Sequence[tuple[str, NodeFacts]]) -> list[Check]:
    minors = {own.python.rpartition(".")[0] for _, own in machines}
    verdict = Verdict.OK if len(minors) == 1 else Verdict.FAIL
    remedy = "" if len(minors) == 1 else "use one Python minor version everywhere"
    judgements = ((name, Judgement(own.python, verdict, remedy)) for name, own in machines)
    return _group("Python", judgements)


def _check_version(package: str, machines: Sequence[tuple[str, NodeFacts]]) -> list[Check]:
    """Compare a package with the driver's version of it."""
    versions = [(name, own.versions[package]) for name, own in machines]
    wanted = versions[0][1]
    verdict, remedy = Verdict.OK, ""
    if any(found != wanted for _, found in versions):
        is_hard = package in MUST_BE_EQUAL or any(found is None for _, found in versions)
        verdict = Verdict.FAIL if is_hard else Verdict.WARN
        remedy = f"install {package}=={wanted} everywhere, as constraints.txt has it"
        if not is_hard:
            remedy += "; until then bits of vectors depend on the node"
    return _group(
        package,
        ((name, Judgement(found or "missing", verdict, remedy)) for name, found in versions),
    )


def _judge_gpus(node: NodeFindings, facts: NodeFacts) -> Judgement:
    kinds = sorted({(gpu, facts.gpus.count(gpu)) for gpu in facts.gpus})
    listed = ", ".join(f"{count} x {gpu}" for gpu, count in kinds)
    if not facts.gpus and not node.num_gpus:
        return Judgement("none")
    found = f"{listed or 'none'}; Ray offers {node.num_gpus:g}"
    if node.num_gpus > len(facts.gpus):
        remedy = "give Ray's --num-gpus what the GPU driver lists, or mend it"
        return Judgement(found, Verdict.FAIL, remedy)
    if "+cpu" in (facts.versions.get("torch") or ""):
        remedy = "install a torch with CUDA there; this one is for CPUs"
        return Judgement(found, Verdict.FAIL, remedy)
    if node.num_gpus < len(facts.gpus):
        remedy = "start Ray there with all GPUs, if they are meant for it"
        return Judgement(found, Verdict.WARN, remedy)
    return Judgement(found)


def _judge_clock(clock: ClockSkew | None) -> Judgement:
    if clock is None:
        return Judgement("unknown", Verdict.WARN, "the node stopped answering; try again")
    found = f"{clock.ahead:+.3f} s, give or take {clock.error:.3f}"
    least = abs(clock.ahead) - clock.error  # what the round trip cannot explain
    remedy = "run an NTP client on the node and on the driver's machine"
    if least > SKEW_FAIL_SECONDS:
        return Judgement(found, Verdict.FAIL, remedy)
    return Judgement(found, Verdict.WARN, remedy) if least > SKEW_WARN_SECONDS else Judgement(found)


def _judge_disk(disk: ByteUsage) -> Judgement:
    remedy = "free space there, or start Ray with --temp-dir on another disk: above 95 % it stops"
    return _judge_usage(disk, remedy)


def _judge_memory(memory: ByteUsage) -> Judgement:
    return _judge_usage(memory, "end what else runs there: above 95 % Ray kills workers")


def _judge_usage(usage: ByteUsage, remedy: str) -> Judgement:
    found = f"{usage.free / GIB:,.1f} of {usage.total / GIB:,.1f} GiB free"
    if usage.used_share >= FULL_SHARE:
        return Judgement(found, Verdict.FAIL, remedy)
    if usage.used_share >= NARROW_SHARE:
        return Judgement(found, Verdict.WARN, remedy)
    return Judgement(found)


def _judge_shared_memory(node: NodeFindings, facts: NodeFacts) -> Judgement:
    total, wanted = facts.shared_memory.total, node.object_store_bytes
    found = f"{total / GIB:,.1f} GiB for an object store of {wanted / GIB:,.1f}"
    if total >= wanted:
        return Judgement(found)
    return Judgement(
        found,
        Verdict.WARN,
        "Ray uses the slow disk instead: enlarge /dev/shm (docker --shm-size, on Kubernetes an "
        "emptyDir of medium Memory), or start Ray with a smaller --object-store-memory",
    )


def _judge_token(facts: NodeFacts) -> Judgement:
    if facts.has_token:
        return Judgement("asked for")
    return Judgement(
        "not asked for",
        Verdict.FAIL,
        "whoever reaches a port of Ray's runs code: start every node with RAY_AUTH_MODE=token "
        "and the same RAY_AUTH_TOKEN_PATH",
    )


def _judge_token_file(facts: NodeFacts) -> Judgement:
    if facts.token_mode is None:
        return Judgement("none")
    found = f"mode {facts.token_mode:04o}"
    if facts.token_mode & 0o077:
        remedy = f"others can read it: chmod 600 {facts.token_file}"
        return Judgement(found, Verdict.WARN, remedy)
    return Judgement(found)


def _check_dashboard(address: str, has_token: bool) -> Check:
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


def _check_storage(found: StorageFindings) -> list[Check]:
    check = f"storage {found.place}"
    remedy = (
        "mount it there at the same path, with the right to write"
        if "://" not in found.place
        else "give that machine the store's credentials and endpoint (AWS_ACCESS_KEY_ID, ...)"
    )
    failures = (
        (name, Judgement(reason, Verdict.FAIL, remedy)) for name, reason in found.errors.items()
    )
    rows = _group(check, failures)
    rows += [
        Check(
            check,
            f"{name} does not see what {_names(others)} wrote",
            Verdict.FAIL,
            "each has a folder of its own by that name: use one that all machines share",
        )
        for name, others in found.unseen.items()
    ]
    return rows or [Check(check, f"written and seen by {_names(found.names)}", Verdict.OK)]
