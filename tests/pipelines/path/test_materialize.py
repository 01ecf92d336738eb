"""One folder for all files: of every kind that updates leave scattered in a store."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.embedding import published_bytes, table_of, vectors_of

from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.path.materialize import own_paths, with_paths
from pipelines.search.index import Index

MADE = Path(__file__).parents[2] / "support" / "old" / "made"
OLDER = "0" * 15


def scatter(name: str, folder: Path) -> Path:
    """A copy of an artifact whose files lie in generations by turns, two older ones and its own."""
    place = Path(shutil.copytree(MADE / name, folder / name))
    manifest = Artifact.open(place).manifest
    paths = {}
    for number, file in enumerate(manifest.listed):
        top, _, rest = file.path.partition("/")
        if number % 3 != 1:
            paths[file.path] = f"{top}/{OLDER}{number % 3}/{rest.partition('/')[2]}"
    for old, new in paths.items():
        (place / new).parent.mkdir(parents=True, exist_ok=True)
        (place / old).rename(place / new)
    (place / "_manifest.json").write_bytes(with_paths(manifest, paths).to_json())
    return place


def materialize(place: Path, address: str):
    return CliRunner().invoke(main, ["path", "--materialize", str(place), "--address", address])


@pytest.mark.ray
@pytest.mark.parametrize("name", ["vectors", "chunks", "pairs", "hnsw", "faiss"])
def test_materialize_brings_back_the_manifest_of_one_folder(name, ray_address, tmp_path):
    place = scatter(name, tmp_path)
    before = Artifact.open(place).manifest
    assert before != Artifact.open(MADE / name).manifest
    done = materialize(place, ray_address)
    assert done.exit_code == 0, done.output
    after = Artifact.open(place)
    assert after.manifest == Artifact.open(MADE / name).manifest
    assert done.stdout.strip() == after.folder
    published_bytes(place)  # every file is there, with the hash that the manifest lists
    assert all((place / file.path).exists() for file in before.listed)


@pytest.mark.parametrize("name", ["hnsw", "faiss"])
def test_scattered_index_finds_its_rows(name, tmp_path):
    vectors = vectors_of(table_of(MADE / "vectors"))[:5]
    found = Index.open(scatter(name, tmp_path)).search(vectors, 3)
    assert found.ids == Index.open(MADE / name).search(vectors, 3).ids


@pytest.mark.ray
def test_materialize_after_a_kill_keeps_whole_copies_alone(ray_address, tmp_path):
    place = scatter("hnsw", tmp_path)
    manifest = Artifact.open(place).manifest
    (whole, own), (torn, other) = list(own_paths(manifest).items())[:2]
    shutil.copy(place / whole, place / own)
    (place / other).write_bytes((place / torn).read_bytes()[:-1])
    inode = (place / own).stat().st_ino
    assert materialize(place, ray_address).exit_code == 0
    assert (place / own).stat().st_ino == inode
    published_bytes(place)


@pytest.mark.ray
def test_materialize_of_a_file_cut_short_publishes_nothing(ray_address, tmp_path):
    place = scatter("vectors", tmp_path)
    manifest = (place / "_manifest.json").read_bytes()
    source = next(iter(own_paths(Artifact.open(place).manifest)))
    (place / source).write_bytes((place / source).read_bytes()[:-1])
    done = materialize(place, ray_address)
    assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1
    assert (place / "_manifest.json").read_bytes() == manifest


def test_path_without_copies_loads_no_ray():
    code = (
        "import sys\nfrom pipelines.cli.main import main\n"
        f"main(['path', '--files', {str(MADE / 'vectors')!r}], standalone_mode=False)\n"
        "sys.exit('ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [Path(line).suffix for line in done.stdout.splitlines()] == [".parquet"] * len(
        Artifact.open(MADE / "vectors").files
    )
