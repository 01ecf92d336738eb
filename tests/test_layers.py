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
# A room of core imports only rooms above it; a file directly in sbert_core is a room, too.
CORE_ORDER = (
    "errors choices text arrays threads freed_memory digest large_strings faiss_library "
    "json_record storage data_file corpus encoder vectors index join clusters evaluation training "
    "report"
).split()
SHELVES = ("options", "syntax", "artifacts", "runtime")  # a shelf imports only shelves before it
RUNNERS = ("run", "dedup", "demo", "submit", "api")  # they run other jobs
# A file of the encoder imports only files above it.
READING_ORDER = (
    "hub batching tokenizer transfer attention bfloat16_attention batch_filler int8_products "
    "calibration linear_products fused_linear families flat_model interface_model pooling "
    "untrusted static_model backbone head result windows pretrained checkpoint limits "
    "load_tokenizer prompts fingerprint instructions device encode cross_encoder probe encoder "
    "chunking documents"
).split()


def imported_modules(path: Path) -> set[str]:
    """Modules a file imports, and what it takes from them, under their whole names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def rooms_of(layer: str) -> set[str]:
    """Folders and modules directly in a package."""
    found = {path.stem for path in (ROOT / layer).iterdir() if path.suffix == ".py"}
    return (found | {path.parent.name for path in (ROOT / layer).glob("*/__init__.py")}) - {
        "__init__"
    }


def imports_between_rooms(layer: str) -> set[tuple[str, str]]:
    """(room, room it imports) inside one package."""
    rooms = rooms_of(layer)
    found = set()
    for path in (ROOT / layer).rglob("*.py"):
        own = path.relative_to(ROOT / layer).parts[0].removesuffix(".py")
        for module in imported_modules(path):
            package, _, rest = module.partition(".")
            room = rest.partition(".")[0]
            if package == layer and room in rooms - {own}:
                found.add((own, room))
    return found


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
        path.parent.relative_to(ROOT).as_posix()
        for path in (ROOT / "pipelines").rglob("*.py")
        if "click" in {module.partition(".")[0] for module in imported_modules(path)}
    }
    assert users == {"pipelines/cli"}


def test_core_rooms_import_only_rooms_above_them():
    assert rooms_of("sbert_core") == set(CORE_ORDER)
    place = {room: number for number, room in enumerate(CORE_ORDER)} | {"__init__": len(CORE_ORDER)}
    pairs = imports_between_rooms("sbert_core")
    assert not {(room, imported) for room, imported in pairs if place[imported] > place[room]}


def test_jobs_meet_only_through_artifacts():
    """Those that run other jobs excepted; the whole room counts, not only its job."""
    free = {*SHELVES, *RUNNERS, "cli"}
    jobs = rooms_of("pipelines") - free
    assert set(STAGES) - set(RUNNERS) <= jobs
    sideways = {pair for pair in imports_between_rooms("pipelines") if set(pair) <= jobs}
    assert not sideways


def test_workers_of_different_jobs_do_not_meet():
    sideways = {pair for pair in imports_between_rooms("workers") if pair[1] != "common"}
    assert not sideways
    assert not {pair for pair in imports_between_rooms("workers") if pair[0] == "common"}


def test_shelves_import_no_job_and_only_shelves_before_them():
    bad = {
        (shelf, imported)
        for shelf, imported in imports_between_rooms("pipelines")
        if shelf in SHELVES and imported not in SHELVES[: SHELVES.index(shelf)]
    }
    assert not bad


def test_the_command_line_is_imported_by_no_room():
    users = {room for room, imported in imports_between_rooms("pipelines") if imported == "cli"}
    assert not users


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


@pytest.mark.parametrize(
    "module",
    [pytest.param("sbert_core.encoder", marks=pytest.mark.slow), "sbert_core.join.bounded"],
)
def test_core_leaves_ray_unloaded(module):
    code = f"import sys, {module}; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_help_loads_no_heavy_library():
    code = (
        "import sys; from pipelines.cli.main import main; "
        "sys.exit(bool({'ray', 'torch', 'transformers', 'pyarrow', 'faiss'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
