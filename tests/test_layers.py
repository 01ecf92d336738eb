"""Who may import whom, and where the order of the flow is written down."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import STAGES
from pipelines.cli.main import main

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "sbert_core": {"ray", "click", "rich", "workers", "pipelines"},
    "workers": {"click", "rich", "pipelines"},
}
# A file of the encoder imports only files above it.
READING_ORDER = (
    "hub batching tokenizer attention fused_linear flat_model backbone pooling head result "
    "untrusted checkpoint limits prompts fingerprint encode cross_encoder probe encoder chunking "
    "documents"
).split()


def imported_modules(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_layers_import_downwards_only():
    bad = [
        f"{path.relative_to(ROOT)}: {module}"
        for layer, banned in FORBIDDEN.items()
        for path in (ROOT / layer).rglob("*.py")
        for module in imported_modules(path)
        if module.partition(".")[0] in banned
    ]
    assert not bad, "\n".join(bad)


def test_click_is_known_to_the_command_line_alone():
    users = {
        path.name
        for path in (ROOT / "pipelines").rglob("*.py")
        if "click" in {module.partition(".")[0] for module in imported_modules(path)}
    }
    assert users == {"main.py"}


def test_jobs_meet_only_through_artifacts():
    """Those that run other jobs excepted."""
    jobs = {f"pipelines.{stage}" for stage in STAGES}
    bad = [
        f"{stage}: {module}"
        for stage in STAGES
        if stage not in ("run", "dedup", "demo", "submit")
        for path in (ROOT / "pipelines" / stage).glob("*.py")
        for module in imported_modules(path)
        if ".".join(module.split(".")[:2]) in jobs - {f"pipelines.{stage}"}
    ]
    assert not bad


def test_ray_init_stands_in_the_session_alone():
    users = {
        path.name
        for layer in ("sbert_core", "workers", "pipelines")
        for path in (ROOT / layer).rglob("*.py")
        if "ray.init(" in path.read_text(encoding="utf-8")
    }
    assert users == {"session.py"}


def test_encoder_files_import_only_files_above_them():
    folder = ROOT / "sbert_core" / "encoder"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == set(READING_ORDER)
    for name in READING_ORDER:
        imported = {m.rpartition(".")[2] for m in imported_modules(folder / f"{name}.py")}
        later = set(READING_ORDER[READING_ORDER.index(name) :])
        assert not imported & later, f"{name} imports {imported & later}"


def test_stages_help_and_readme_agree_on_the_order():
    assert tuple(main.list_commands(None)) == STAGES
    assert set(main.commands) == set(STAGES)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| `sbert (\w+)", readme, re.MULTILINE)) == STAGES


@pytest.mark.parametrize("module", ["sbert_core.encoder", "sbert_core.join.bounded"])
def test_core_leaves_ray_unloaded(module):
    code = f"import sys, {module}; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_help_loads_no_heavy_library():
    code = (
        "import sys; from pipelines.cli.main import main; "
        "sys.exit(bool({'ray', 'torch', 'transformers', 'pyarrow', 'faiss'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
