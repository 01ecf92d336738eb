"""Jobs whose processes have one method changed, to fail in a chosen way."""

import importlib.abc
import importlib.util
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

PLAN = "SBERT_TEST_SABOTAGE"


def deadly(plain, self, texts, **options):
    if any("deadly" in str(text) for text in texts):
        os._exit(9)
    return plain(self, texts, **options)


def full(plain, self, name, data):
    if name.startswith("data/"):
        raise OSError(28, "No space left on device")
    return plain(self, name, data)


def hungry(plain, self, texts, **options):
    _waste = [bytearray(b"x" * 2**26) for _ in range(96)]
    return plain(self, texts, **options)


def heavy(plain, *args, **options):
    _waste = [bytearray(b"x" * 2**26) for _ in range(96)]
    return plain(*args, **options)


def untidy(plain, self, published):
    os.kill(os.getpid(), signal.SIGKILL)


PLANS = {
    "heavy": ("sbert_core.encoder.encoder", "Encoder", "load", heavy),
    "hungry": ("sbert_core.encoder.encoder", "Encoder", "encode_report", hungry),
    "deadly": ("sbert_core.encoder.encoder", "Encoder", "encode_report", deadly),
    "untidy": ("pipelines.artifacts.writer", "Writer", "tidy", untidy),
    "full": ("sbert_core.storage", "LocalStorage", "put", full),
}


def apply() -> None:
    """Change the method that the environment names, if it names one. Called after a fork."""
    if plan := os.environ.get(PLAN):
        module_name, class_name, method, change = PLANS[plan]
        owner = getattr(import_module(module_name), class_name)
        plain = getattr(owner, method)
        setattr(owner, method, lambda *args, **options: change(plain, *args, **options))


class OnImport(importlib.abc.MetaPathFinder):
    """Applies the plan as soon as its module is imported."""

    def find_spec(self, name, path, target=None):
        if name != PLANS[os.environ[PLAN]][0]:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            apply()

        spec.loader.exec_module = exec_module
        return spec


def sabotaged(tmp_path: Path, plan: str) -> dict[str, str]:
    """Environment of Python processes that are not forked: they apply the plan by themselves."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from support.sabotage import PLAN, OnImport\ndel sys.path[0]\n"
        "if PLAN in os.environ:\n    sys.meta_path.insert(0, OnImport())\n"
    )
    return {"PYTHONPATH": str(tmp_path), PLAN: plan}
