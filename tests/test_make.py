"""The Makefile's first line of defence: what stops an installation, it says in one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def make(*arguments: str, path: Path) -> subprocess.CompletedProcess:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CXX", "MAKEFLAGS")
    }
    return subprocess.run(
        [shutil.which("make"), *arguments],
        cwd=ROOT,
        env=environment | {"PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_install_without_a_compiler_is_one_line_with_the_remedy(tmp_path):
    (tmp_path / "sh").symlink_to(shutil.which("sh"))
    done = make("install", f"VENV={tmp_path}/venv", f"PYTHON={sys.executable}", path=tmp_path)
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(errors) == 1
    assert "no C++ compiler" in errors[0]
    assert "apt-get install g++" in errors[0]
    assert not (tmp_path / "venv").exists()


def test_install_with_an_old_python_is_one_line_with_the_remedy(tmp_path):
    (tmp_path / "sh").symlink_to(shutil.which("sh"))
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    done = make("install", f"VENV={tmp_path}/venv", path=tmp_path)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(errors) == 1
    assert "older than 3.11" in errors[0]
