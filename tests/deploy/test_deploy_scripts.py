"""The two scripts of deploy/, run for real with stand-ins for kubectl, Ray, Slurm and sbert."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.deploy_files import DEPLOY, SCHEDULE_SCRIPT, SLURM_SCRIPT, manifest

pytestmark = pytest.mark.timeout(120)

# A RayJob whose states are the lines of `states`, one for each question; the last one stays, and
# "gone" is none.
KUBECTL = """#!/bin/bash
cd "$STATE" || exit 9
echo "$*" >> calls
case "$1 $*" in
    get*jobDeploymentStatus*)
        [ ! -e broken ] || exit 1
        [ -s states ] && [ "$(head -n 1 states)" != gone ] || exit 0
        echo "sbert:$(head -n 1 states)"
        [ "$(wc -l < states)" -lt 2 ] || sed -i 1d states ;;
    get*reason*) echo "$(cat result) said so" ;;
    get*jobStatus*) cat result ;;
    create*)
        [ ! -e refused ] || { [ ! -e quicker ] || cp quicker states; exit 1; }
        cp created states ;;
    delete*) : > states ;;
esac
"""
RAY = """#!/bin/bash
echo "$* mode=$RAY_AUTH_MODE token=$RAY_AUTH_TOKEN_PATH" >> "$STATE/ray"
case "$1" in
    start)
        case "$*" in *--head*) role=head ;; *) role=worker ;; esac
        echo $$ > "$STATE/$role.pid"
        [ ! -e "$STATE/dies" ] || exit 1
        trap 'touch "$STATE/$role.goodbye"; exit 0' TERM
        while :; do sleep 0.1; done ;;
    status) sed 's/.*/ 1 node_&/' "$STATE"/*.pid ;;
esac
"""
SBERT = """#!/bin/bash
trap 'exit 3' TERM
echo "$*" > "$STATE/sbert"
stat -c %a "$RAY_AUTH_TOKEN_PATH" "$(dirname "$RAY_AUTH_TOKEN_PATH")" "$RAY_HOME" > "$STATE/modes"
wc -c < "$RAY_AUTH_TOKEN_PATH" >> "$STATE/modes"
while [ -e "$STATE/long" ]; do sleep 0.1; done
exit "$CODE"
"""
SRUN = """#!/bin/bash
echo "$*" > "$STATE/srun"
while [ "$1" != bash ]; do shift; done
SLURM_PROCID=0 exec "$@"
"""
SCANCEL = """#!/bin/bash
echo "$*" > "$STATE/scancel"
kill -TERM "$(cat "$STATE/worker.pid")"
"""
# The script looks every two seconds whether Ray is up, and every second whether it is gone: here
# the first looks come sooner, and what is slow to go still has its seconds.
SLEEP = """#!/bin/bash
case "$1" in
    2) exec /bin/sleep 0.05 ;;
    1) echo >> "$STATE/looks"; [ "$(wc -l < "$STATE/looks")" -gt 6 ] || exec /bin/sleep 0.05 ;;
esac
exec /bin/sleep "$1"
"""
SLURM = {
    "sleep": SLEEP,
    "squeue": '#!/bin/bash\ncat "$STATE/job"\n',
    "scontrol": '#!/bin/bash\necho "$*" >> "$STATE/scontrol"\n',
    "srun": SRUN,
    "scancel": SCANCEL,
}


def stand_ins(folder: Path, **scripts: str) -> Path:
    folder.mkdir()
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


# -- schedule.sh -------------------------------------------------------------------------------


@pytest.fixture
def schedule(tmp_path):
    """Run one firing; its exit code and the words kubectl was called with."""
    commands = stand_ins(tmp_path / "bin", kubectl=KUBECTL)
    (tmp_path / "created").write_text("\nInitializing\nRunning\nRetrying\nComplete\n")
    (tmp_path / "result").write_text("SUCCEEDED")

    def fire() -> tuple[int, list[str]]:
        environment = {"PATH": f"{commands}:{os.environ['PATH']}", "STATE": str(tmp_path)}
        environment |= {"POLL_SECONDS": "0", "MANIFEST": "rayjob.yaml"}
        done = subprocess.run(["sh", SCHEDULE_SCRIPT], env=environment, timeout=60, check=False)
        return done.returncode, [
            line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()
        ]

    return fire


def test_schedule_creates_the_rayjob_and_stays_until_it_ends(schedule):
    code, calls = schedule()
    assert code == 0
    assert calls.count("create") == 1
    assert calls.count("get") == 1 + 5 + 2  # before, every state, the outcome


def test_schedule_replaces_a_rayjob_that_has_ended(schedule, tmp_path):
    (tmp_path / "states").write_text("Failed\n")
    code, calls = schedule()
    assert code == 0
    assert calls.index("delete") < calls.index("create")


def test_schedule_follows_a_rayjob_that_still_runs_and_starts_no_second(schedule, tmp_path):
    (tmp_path / "states").write_text("Running\nRunning\nComplete\n")
    code, calls = schedule()
    assert code == 0
    assert set(calls) == {"get"}


@pytest.mark.parametrize("result", ["FAILED", "STOPPED"])
def test_schedule_fails_with_its_rayjob(schedule, tmp_path, result):
    (tmp_path / "result").write_text(result)
    assert schedule()[0] == 1


def test_schedule_fails_if_its_rayjob_is_deleted_meanwhile(schedule, tmp_path):
    (tmp_path / "created").write_text("Running\nRunning\ngone\n")
    assert schedule()[0] == 1


def test_schedule_follows_the_rayjob_of_somebody_quicker(schedule, tmp_path):
    (tmp_path / "refused").touch()
    (tmp_path / "quicker").write_text("Running\nComplete\n")
    assert schedule()[0] == 0


@pytest.mark.parametrize("trouble", ["refused", "broken"])
def test_schedule_asks_for_another_try_if_nothing_could_be_started(schedule, tmp_path, trouble):
    (tmp_path / trouble).touch()
    code, calls = schedule()
    assert code == 75
    policy = manifest("cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]
    assert all(75 not in rule.get("onExitCodes", {}).get("values", []) for rule in policy["rules"])
    assert "delete" not in calls


# -- sbert.sbatch ------------------------------------------------------------------------------


@pytest.fixture
def batch(tmp_path):
    """Start the script as slurmd would on a node of two."""
    commands = stand_ins(tmp_path / "bin", ray=RAY, sbert=SBERT, **SLURM)
    (tmp_path / "job").write_text("RUNNING")
    number = str(9_000_000_000 + time.monotonic_ns() % 1_000_000_000)

    def start(code: int = 0, **more: str) -> subprocess.Popen:
        environment = {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "STATE": str(tmp_path),
            "CODE": str(code),
            "SBERT_HEAD_IP": "127.0.0.1",
            "SLURM_JOB_ID": number,
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_CPUS_ON_NODE": "4",
            "SLURMD_NODENAME": "n1",
        }
        command = ["bash", SLURM_SCRIPT, "job.yaml", "--max-wait", "60"]
        script = subprocess.Popen(
            command, env=environment | more, cwd=tmp_path, start_new_session=True
        )
        started.append(script.pid)
        return script

    started: list[int] = []
    yield start
    for group in started:  # what a failed test left
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    shutil.rmtree(f"/tmp/sbert-{number}", ignore_errors=True)


def requeued(folder: Path) -> bool:
    return (folder / "scontrol").exists()


@pytest.mark.parametrize("code", [0, 1, 2, 4, 5])
def test_batch_ends_with_the_code_of_the_run(batch, tmp_path, code):
    assert batch(code).wait(60) == code
    assert not requeued(tmp_path)


def test_batch_starts_ray_with_a_token_and_leaves_nothing(batch, tmp_path):
    assert batch(0).wait(60) == 0
    assert (tmp_path / "modes").read_text().split() == ["600", "700", "700", "64"]
    lines = (tmp_path / "ray").read_text().splitlines()
    starts = [line for line in lines if line.startswith("start")]
    worker, head = sorted(starts, key=lambda line: "--head" in line)
    assert "--head" in head and "--dashboard-host=127.0.0.1" in head
    port = next(word for word in head.split() if word.startswith("--port=")).partition("=")[2]
    assert f"--address=127.0.0.1:{port}" in worker
    assert "--num-cpus=4" in head and "--num-cpus=4" in worker
    assert all(f"mode=token token={tmp_path}/.sbert/" in line for line in (head, worker))
    assert "--exclude=n1" in (tmp_path / "srun").read_text()
    assert (tmp_path / "sbert").read_text() == (
        f"run job.yaml --address 127.0.0.1:{port} --max-wait 60\n"
    )
    assert not list((tmp_path / ".sbert").iterdir())
    home = head.partition("--temp-dir=")[2].split()[0]
    assert not Path(home).parent.exists()
    for role in ("head", "worker"):
        pid = (tmp_path / f"{role}.pid").read_text().strip()
        assert not Path("/proc", pid).exists(), f"a {role} was left running"
        assert (tmp_path / f"{role}.goodbye").exists(), f"the {role} was killed without a word"
    assert "ray stop" not in SLURM_SCRIPT.read_text().replace("`ray stop`", "")


@pytest.mark.parametrize(
    ("state", "restarts", "wanted"),
    [("RUNNING", "0", True), ("COMPLETING", "0", False), ("RUNNING", "20", False)],
)
def test_batch_is_queued_again_after_partial_work(batch, tmp_path, state, restarts, wanted):
    (tmp_path / "job").write_text(state)
    assert batch(3, SLURM_RESTART_COUNT=restarts).wait(60) == 3
    assert requeued(tmp_path) == wanted


def test_batch_passes_sigterm_on_and_is_queued_again(batch, tmp_path):
    (tmp_path / "long").touch()
    script = batch(0)
    while not (tmp_path / "modes").exists():
        time.sleep(0.1)
    script.send_signal(signal.SIGTERM)
    assert script.wait(60) == 3
    assert requeued(tmp_path)


def test_batch_takes_the_death_of_the_head_for_partial_work(batch, tmp_path):
    (tmp_path / "long").touch()
    script = batch(1)
    while not (tmp_path / "modes").exists():
        time.sleep(0.1)
    head = int((tmp_path / "head.pid").read_text())
    os.kill(head, signal.SIGKILL)
    while Path("/proc", str(head)).exists():
        time.sleep(0.1)
    (tmp_path / "long").unlink()
    assert script.wait(60) == 3


def test_batch_gives_up_if_the_head_does_not_start(batch, tmp_path):
    (tmp_path / "dies").touch()
    (tmp_path / "bin" / "ray").write_text(
        RAY.replace("    status)", "    health-check) exit 1 ;;\n    status)")
    )
    assert batch(0).wait(60) == 1
    assert not (tmp_path / "sbert").exists()


def test_batch_without_sbert_says_so(batch, tmp_path):
    (tmp_path / "bin" / "sbert").unlink()
    assert batch(0, PATH=f"{tmp_path}/bin:/usr/bin:/bin").wait(60) == 2


# -- both --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["bash -n", "shellcheck"])
@pytest.mark.parametrize("script", [SCHEDULE_SCRIPT, SLURM_SCRIPT], ids=lambda path: path.name)
def test_scripts_parse(command, script):
    words = command.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run([*words, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_script_is_tried_here():
    scripts = {path for path in DEPLOY.rglob("*") if path.suffix in (".sh", ".sbatch")}
    assert scripts == {SCHEDULE_SCRIPT, SLURM_SCRIPT}
