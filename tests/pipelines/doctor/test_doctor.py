"""`sbert doctor`: verdicts on made-up findings, and real clusters of one and two nodes."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from pipelines.cli.doctor_table import doctor_text
from pipelines.cli.render_run import doctor_json
from pipelines.doctor import job as doctor
from pipelines.doctor.collect import collect_findings
from pipelines.doctor.findings import Findings, NodeFindings, StorageFindings
from pipelines.doctor.job import DoctorReport
from pipelines.doctor.nodes import short_error
from pipelines.doctor.spec import DoctorSpec
from pipelines.doctor.verdicts import Verdict, check_findings
from pipelines.runtime.session import ray_session
from workers.doctor.gpu import GpuReport
from workers.doctor.node import ByteUsage, ClockSkew, NodeFacts

pytestmark = [pytest.mark.timeout(180)]

SBERT = Path(sys.executable).parent / "sbert"
GIB = 2**30
A100 = "NVIDIA A100-SXM4-80GB, 81920 MiB, 550.54"
WELL = NodeFacts(
    host="a",
    python="3.11.7",
    versions={"sbert-mill": "0.1.0", "ray": "2.60.0", "torch": "2.13.0", "transformers": "5.22.2"},
    gpus=(),
    disk=ByteUsage(100 * GIB, 50 * GIB),
    shared_memory=ByteUsage(8 * GIB, 8 * GIB),
    memory=ByteUsage(16 * GIB, 8 * GIB),
    has_token=True,
    token_file="/run/token",
    token_mode=0o600,
)


def node(name="a", facts=WELL, **changes):
    own = {"object_store_bytes": GIB, "clock": ClockSkew(0.001, 0.002)} | changes
    return NodeFindings(name=name, facts=facts, **own)


def verdicts(*nodes, **changes):
    """check -> (verdict, found, remedy), of rows that are not ok."""
    found = Findings(driver=WELL, nodes=nodes or (node(),), **changes)
    rows = check_findings(found)
    assert all(bool(row.remedy) == (row.verdict is not Verdict.OK) for row in rows)
    return {
        row.check: (row.verdict, row.found, row.remedy)
        for row in rows
        if row.verdict is not Verdict.OK
    }


def test_check_findings_two_equal_nodes_are_well_in_one_row_each():
    rows = check_findings(Findings(driver=WELL, nodes=(node("a"), node("b"))))
    assert {row.verdict for row in rows} == {Verdict.OK}
    found = {row.check: row.found for row in rows}
    assert len(found) == len(rows)
    assert found["ray"] == "2.60.0 (driver, a, b)"
    assert found["nodes"] == "answers (a, b)"
    assert found["dashboard"] == "none"


@pytest.mark.parametrize(
    ("package", "version", "verdict"),
    [
        ("ray", "2.59.0", Verdict.FAIL),
        ("sbert-mill", "0.0.9", Verdict.FAIL),
        ("torch", "2.12.0", Verdict.WARN),
        ("transformers", None, Verdict.FAIL),
    ],
)
def test_check_findings_other_version_on_a_node_is_named_with_the_remedy(package, version, verdict):
    other = replace(WELL, versions=WELL.versions | {package: version})
    bad = verdicts(node("a"), node("b", other))
    ours = WELL.versions[package]
    assert set(bad) == {package}
    assert bad[package][0] is verdict
    assert bad[package][1] == f"{ours} (driver, a); {version or 'missing'} (b)"
    assert f"{package}=={ours}" in bad[package][2]


def test_check_findings_other_python_minor_fails_and_other_patch_does_not():
    assert verdicts(node("b", replace(WELL, python="3.11.9"))) == {}
    assert verdicts(node("b", replace(WELL, python="3.12.1")))["Python"][0] is Verdict.FAIL


@pytest.mark.parametrize(
    ("clock", "verdict"),
    [
        (ClockSkew(-120.0, 0.01), Verdict.FAIL),
        (ClockSkew(3.0, 0.01), Verdict.WARN),
        (ClockSkew(3.0, 2.5), None),  # the round trip may explain it
        (None, Verdict.WARN),
    ],
)
def test_check_findings_clock_counts_only_what_the_round_trip_cannot_explain(clock, verdict):
    bad = verdicts(node("b", clock=clock))
    assert bad.get("clock", (None,))[0] is verdict


@pytest.mark.parametrize(
    ("facts", "changes", "check", "verdict"),
    [
        ({"disk": ByteUsage(100, 4)}, {}, "temporary folder", Verdict.FAIL),
        ({"disk": ByteUsage(100, 10)}, {}, "temporary folder", Verdict.WARN),
        ({"memory": ByteUsage(100, 3)}, {}, "memory", Verdict.FAIL),
        ({"shared_memory": ByteUsage(2**26, 2**26)}, {}, "shared memory", Verdict.WARN),
        ({"has_token": False}, {}, "token", Verdict.FAIL),
        ({"token_mode": 0o644}, {}, "token file", Verdict.WARN),
        ({}, {"num_gpus": 1.0}, "GPUs", Verdict.FAIL),
        ({"gpus": (A100, A100)}, {"num_gpus": 1.0}, "GPUs", Verdict.WARN),
    ],
)
def test_check_findings_trouble_of_one_node_is_one_row_beside_the_others(
    facts, changes, check, verdict
):
    bad = verdicts(node("a"), node("b", replace(WELL, **facts), **changes))
    assert set(bad) == {check}
    assert bad[check][0] is verdict
    assert bad[check][1].endswith("(b)")


def test_check_findings_gpus_need_a_torch_for_them():
    versions = WELL.versions | {"torch": "2.13.0+cpu"}
    facts = replace(WELL, gpus=(A100,), versions=versions)
    rows = check_findings(Findings(driver=facts, nodes=(node("a", facts, num_gpus=1.0),)))
    (row,) = [row for row in rows if row.check == "GPUs"]
    assert row.verdict is Verdict.FAIL and "CUDA" in row.remedy
    well = replace(facts, versions=WELL.versions)
    rows = check_findings(Findings(driver=well, nodes=(node("a", well, num_gpus=1.0),)))
    (row,) = [row for row in rows if row.check == "GPUs"]
    assert (row.verdict, row.found) == (Verdict.OK, f"1 x {A100}; Ray offers 1 (a)")


def test_check_findings_silent_node_fails_and_the_others_are_judged():
    silent = NodeFindings(name="b", silence="RayError: gone")
    bad = verdicts(node("a"), silent)
    assert set(bad) == {"nodes"}
    assert bad["nodes"][:2] == (Verdict.FAIL, "RayError: gone (b)")


@pytest.mark.parametrize(
    ("address", "has_token", "verdict"),
    [
        ("127.0.0.1:8265", False, None),
        ("10.0.0.5:8265", True, Verdict.WARN),
        ("10.0.0.5:8265", False, Verdict.FAIL),
    ],
)
def test_check_findings_dashboard_open_to_the_network_is_noticed(address, has_token, verdict):
    bad = verdicts(node("a", replace(WELL, has_token=has_token)), dashboard=address)
    assert bad.get("dashboard", (None,))[0] is verdict


def test_check_findings_storage_names_who_cannot_write_and_who_does_not_see():
    storage = StorageFindings(
        place="/mnt/x",
        names=("driver", "a"),
        errors={"b": "PermissionError: no", "c": "PermissionError: no"},
        unseen={"a": ("driver",)},
    )
    rows = check_findings(Findings(driver=WELL, nodes=(node(),), storages=(storage,)))[-2:]
    assert rows[0].found == "PermissionError: no (b, c)"
    assert rows[1].found.startswith("a ") and "driver" in rows[1].found
    assert {row.verdict for row in rows} == {Verdict.FAIL}


def test_report_says_the_same_as_a_table_and_as_json():
    findings = Findings(driver=WELL, nodes=(node("a", replace(WELL, token_mode=0o604)),))
    report = DoctorReport(checks=tuple(check_findings(findings)))
    assert (report.num_failed, report.num_warned) == (0, 1)
    text = doctor_text(report)
    assert "chmod 600" in text and text.endswith("0 failed, 1 warnings")
    rows = json.loads(doctor_json(report).text)["checks"]
    assert [row["verdict"] for row in rows].count("warn") == 1
    assert {row["check"] for row in rows} == {check.check for check in report.checks}


def test_short_error_of_many_lines_is_the_first():
    assert short_error(OSError("no route\n\nDebug: {\n}")) == "OSError: no route"


def test_gpu_file_holds_measurements_and_checks(tmp_path):
    gpu = GpuReport(device="cpu", torch="2.13.0", transformers="5.22.2", texts=3)
    checks = check_findings(Findings(driver=WELL, nodes=(node(),)))
    sent = json.loads(doctor.write_gpu_file(tmp_path, gpu, checks).read_text())
    assert sent["gpu"] == {
        "device": "cpu", "torch": "2.13.0", "transformers": "5.22.2", "texts": 3
    }  # fmt: skip
    assert [row["check"] for row in sent["checks"]] == [row.check for row in checks]


# -- real clusters ---------------------------------------------------------------------------------


@pytest.mark.ray
def test_doctor_on_this_machine_is_content_and_leaves_nothing(tmp_path):
    shared, home = tmp_path / "shared", tmp_path / "home"
    shared.mkdir()
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_A")}
    done = subprocess.run(
        [str(SBERT), "doctor", "--json", "--storage", str(shared)],
        env=kept | {"HOME": str(home), "TMPDIR": str(home)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    rows = json.loads(done.stdout)["checks"]
    by_check = {row["check"]: row for row in rows}
    assert by_check["token"]["verdict"] == "ok"
    assert by_check["token file"]["found"].startswith("mode 0600")
    assert by_check[f"storage {shared}"]["verdict"] == "ok"
    room = {"temporary folder", "memory"}  # of the machine that runs this
    failed = {row["check"] for row in rows if row["verdict"] == "fail"} - room
    assert failed == set()
    assert done.returncode == (2 if any(row["verdict"] == "fail" for row in rows) else 0)
    assert list(shared.iterdir()) == []
    assert list(home.rglob("*")) == []


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    """A cluster whose nodes run in folders of their own, and this process joined to it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_AUTH_MODE", "disabled")
    folders = [tmp_path_factory.mktemp(name) for name in ("head", "worker", "driver")]
    options = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    patch.chdir(folders[0])
    cluster = Cluster(initialize_head=True, head_node_args=options | {"include_dashboard": False})
    patch.chdir(folders[1])
    worker = cluster.add_node(**options)
    patch.chdir(folders[2])
    cluster.wait_for_nodes()
    try:
        with ray_session(tmp_path_factory.mktemp("ray"), address=cluster.address):
            yield cluster.address, worker, folders
    finally:
        cluster.shutdown()
        patch.undo()


@pytest.mark.ray
def test_doctor_on_two_nodes_hears_both_and_misses_the_token(two_nodes, tmp_path):
    address, _, folders = two_nodes
    # The working directory of whoever looks: a place that each has by the same name.
    places = (str(tmp_path), "/proc/self/cwd", str(tmp_path / "none"))
    report = doctor.run(DoctorSpec(address=address, storage=places))
    rows = {row.check: row for row in report.checks}
    assert rows["nodes"].verdict is Verdict.OK and rows["nodes"].found.count(",") == 1
    assert rows["token"].verdict is Verdict.FAIL
    assert rows["clock"].verdict is Verdict.OK
    shared = rows[f"storage {tmp_path}"]
    assert shared.verdict is Verdict.OK and shared.found.count(",") == 2
    lonely = [row for row in report.checks if row.check == "storage /proc/self/cwd"]
    assert len(lonely) == 3
    assert all(row.verdict is Verdict.FAIL for row in lonely)
    assert "FileNotFoundError" in rows[f"storage {tmp_path / 'none'}"].found
    assert [list(folder.iterdir()) for folder in (*folders, tmp_path)] == [[], [], [], []]


@pytest.mark.ray
def test_node_that_does_not_answer_is_a_failed_check_and_no_hang(two_nodes):
    _, worker, _ = two_nodes
    raylet = worker.all_processes["raylet"][0].process.pid
    os.kill(raylet, signal.SIGSTOP)
    try:
        found = collect_findings((), seconds=3.0)
    finally:
        os.kill(raylet, signal.SIGCONT)
    assert sorted(node.silence is None for node in found.nodes) == [False, True]
    assert [node.facts for node in found.nodes if node.silence] == [None]
    failed = {row.check for row in check_findings(found) if row.verdict is Verdict.FAIL}
    assert "nodes" in failed


@pytest.mark.ray
def test_gpu_to_measure_that_is_not_there_is_one_sentence(two_nodes):
    with pytest.raises(ValueError, match="GPU"):
        doctor.run(DoctorSpec(address=two_nodes[0], gpu=True))
