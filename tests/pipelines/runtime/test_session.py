"""Ray through `ray_session`: whose code workers run, and what is left on disk."""

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pipelines.runtime.ray_home import MAX_RAY_HOME_BYTES, make_ray_home
from pipelines.runtime.session import ray_session

pytestmark = [pytest.mark.timeout(180)]

DRIVER = """
import os, pathlib, ray, sys
from pipelines.runtime.session import ray_session
import workers.embed.actor

folder = pathlib.Path(sys.argv[1])

@ray.remote
def seen_by_a_worker():
    import pipelines.runtime.session, workers.embed.actor
    return [pipelines.runtime.session.__file__, workers.embed.actor.__file__]

with ray_session(folder, num_cpus=1):
    (home,) = (folder / "_ray").iterdir()
    print("token", oct((home / "token").stat().st_mode & 0o777))
    for path in [workers.embed.actor.__file__, *ray.get(seen_by_a_worker.remote())]:
        print("module", path)
print("cwd", os.getcwd())
print("environment", os.environ.get("RAY_AUTH_TOKEN_PATH"))
"""


def run_driver(cwd: Path, folder: Path, home: Path) -> dict[str, list[str]]:
    """A real driver in a process of its own; its printed facts by name."""
    script = cwd / "driver_script.py"
    script.write_text(DRIVER)
    environment = os.environ | {"HOME": str(home), "TMPDIR": str(home)}
    # -P keeps the script's own folder off the path, as a console command does.
    done = subprocess.run(
        [sys.executable, "-P", str(script), str(folder)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        facts.setdefault(name, []).append(value)
    return facts


@pytest.mark.ray
def test_session_beside_folders_of_the_same_names_runs_our_code_and_leaves_nothing(tmp_path):
    cwd = tmp_path / "a-project-folder-with-a-name-too-long-for-unix-sockets" / "project"
    for package in ("pipelines", "workers"):
        (cwd / package).mkdir(parents=True)
        (cwd / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    home = tmp_path / "home"
    home.mkdir()
    folder = cwd / "out"
    facts = run_driver(cwd, folder, home)
    assert facts["token"] == ["0o600"]
    assert len(facts["module"]) == 3
    assert all(str(tmp_path) not in path for path in facts["module"])
    assert facts["cwd"] == [str(cwd)]
    assert facts["environment"] == ["None"]
    assert list(folder.iterdir()) == []
    assert list(home.rglob("*")) == []


@pytest.mark.ray
def test_session_after_one_with_a_token_keeps_its_actors(ray_cluster, tmp_path, monkeypatch):
    import ray  # noqa: PLC0415 - only this test needs it

    @ray.remote(num_cpus=0)
    class Echo:
        def answer(self):
            return 1

    with monkeypatch.context() as patch:
        patch.delenv("RAY_AUTH_MODE")
        with ray_session(tmp_path, num_cpus=1):
            assert ray.get(Echo.remote().answer.remote(), timeout=60) == 1
        assert "RAY_AUTH_MODE" not in os.environ
    with ray_session(tmp_path, address=ray_cluster):
        assert ray.get(Echo.remote().answer.remote(), timeout=60) == 1


def test_ray_home_is_short_private_and_removed(tmp_path):
    with make_ray_home(tmp_path / "x") as home:
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert len(str(home)) <= MAX_RAY_HOME_BYTES
        (home / "file").touch()
    assert list((tmp_path / "x").iterdir()) == []


def test_session_that_fails_to_start_is_shut_down_and_leaves_nothing(tmp_path, monkeypatch):
    calls = []

    def init(**options):
        raise ConnectionError("no Ray there")

    monkeypatch.setattr("pipelines.runtime.session.ray.init", init)
    monkeypatch.setattr("pipelines.runtime.session.ray.shutdown", lambda: calls.append("shutdown"))
    before = dict(os.environ), os.getcwd()
    with pytest.raises(ConnectionError), ray_session(tmp_path):
        pass
    assert calls == ["shutdown"]
    assert (dict(os.environ), os.getcwd()) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(30)
@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nowhere.invalid:6379"])
def test_cluster_that_does_not_answer_is_named_with_the_remedy(address, tmp_path):
    with (
        pytest.raises(ValueError, match=f"no Ray cluster answers at '{address}'; check"),
        ray_session(tmp_path, address=address),
    ):
        pass


def test_ray_home_removes_what_a_killed_session_left_but_no_living_one(tmp_path):
    homes = tmp_path / "_ray"
    (homes / "dead").mkdir(parents=True)
    (homes / "dead" / "log").touch()
    (tmp_path / "ray-thesis").mkdir()
    code = textwrap.dedent(
        """
        import pathlib, sys
        from pipelines.runtime.ray_home import make_ray_home
        with make_ray_home(pathlib.Path(sys.argv[1])):
            print("ready", flush=True)
            sys.stdin.read()
        """
    )
    living = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert living.stdout.readline() == "ready\n"
        assert not (homes / "dead").exists()
        (kept,) = homes.iterdir()
        with make_ray_home(tmp_path):
            assert kept.exists()
        living.kill()
        living.wait()
        with make_ray_home(tmp_path):
            assert not kept.exists()
    finally:
        living.kill()
        living.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["ray-thesis"]
