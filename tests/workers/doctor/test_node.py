"""Facts of this machine and marker files in shared places, without Ray."""

import platform
import shutil
import socket
import time
from importlib.metadata import version

import pytest

from workers.doctor import node
from workers.doctor.node import (
    ByteUsage,
    find_marks,
    read_clock,
    read_node_facts,
    remove_marks,
    write_mark,
)


def test_read_node_facts_are_those_of_this_machine(tmp_path, monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o640)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    facts = read_node_facts(str(tmp_path / "not" / "there"))
    assert (facts.host, facts.python) == (socket.gethostname(), platform.python_version())
    assert facts.versions["torch"] == version("torch")
    assert facts.disk.total == shutil.disk_usage(tmp_path).total
    assert 0 < facts.memory.free <= facts.memory.total
    assert (facts.token_file, facts.token_mode) == (str(token), 0o640)
    assert "secret" not in repr(facts)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert read_node_facts(str(tmp_path)).token_file is None


def test_memory_of_a_container_is_its_limit_without_cached_files(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 900 kB\n")
    monkeypatch.setattr(node, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(node, "CGROUP", tmp_path)
    assert read_node_facts("/").memory == ByteUsage(1_024_000, 921_600)
    (tmp_path / "memory.max").write_text("500000\n")
    (tmp_path / "memory.current").write_text("300000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 100000\n")
    assert read_node_facts("/").memory == ByteUsage(500_000, 300_000)


def test_used_share_of_unknown_bytes_is_zero():
    assert ByteUsage(0, 0).used_share == 0.0
    assert ByteUsage(100, 5).used_share == pytest.approx(0.95)


def test_read_clock_is_the_time_of_this_machine():
    assert abs(read_clock() - time.time()) < 60


def test_marks_written_here_are_found_here_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "SEEN_SECONDS", 0.0)
    place = str(tmp_path)
    for name in ("a", "b"):
        write_mark(place, "_doctor-1", name)
    assert find_marks(place, "_doctor-1", ("a", "b", "c")) == ("a", "b")
    (tmp_path / "_doctor-1" / "b" / node.MARK).write_text("of another machine")
    assert find_marks(place, "_doctor-1", ("a", "b")) == ("a",)
    remove_marks(place, "_doctor-1")
    remove_marks(place, "_doctor-1")
    assert list(tmp_path.iterdir()) == []


def test_write_mark_in_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_mark(str(tmp_path / "none"), "_doctor-1", "a")
    assert list(tmp_path.iterdir()) == []
