"""What publishing removes where manifests list files of older generations, and after kills.

The oracle: the files of generations that exist are those that the published manifest or the one it
replaced lists, and nothing else; files of others stay.
"""

import os
import random
import shutil
import signal

import pytest
from support.embedding import files_of
from support.manifests import manifest_of
from support.s3 import NO_SERVER, WEED

from pipelines.artifacts.layout import REPLACED
from pipelines.artifacts.manifest import read_manifest
from pipelines.artifacts.writer import Writer
from sbert_core.data_file import DataFile
from sbert_core.storage import LocalStorage, storage_at

THEIRS = ("data/raw/precious.csv", "data/0123456789abcdef", "notes/0123456789abcdef/x.txt")
NUM_STEPS = 12


def generation_name(number: int) -> str:
    return f"{number:016x}"


def data_file(path: str) -> DataFile:
    return DataFile(path=path, rows=1, sha256="0" * 64, bytes=len(path))


def manifest_listing(generation: str, paths: list[str]):
    return manifest_of(
        "corpus",
        generation=generation,
        rows=sum(path.startswith("data/") for path in paths),
        quarantined=sum(path.startswith("_quarantine/") for path in paths),
        files=tuple(data_file(path) for path in paths if path.startswith("data/")),
        quarantine=tuple(data_file(path) for path in paths if path.startswith("_quarantine/")),
        spec={"threshold": 0.9},
        made_from={"clusters": "c", "corpus": "in"},
        facts={"rows_in": len(paths), "removed": 0},
        versions={},
    )


class Change:
    """An update: some listed files stay where they are, some new ones are written."""

    def __init__(self, rng: random.Random, number: int, listed: list[str]) -> None:
        # Now and then a generation comes back, as that of a corpus does that is restored.
        self.generation = generation_name(rng.choice((number, max(0, number - 2))))
        self.kept = [path for path in listed if rng.random() < 0.6]
        self.new = [
            f"{folder}/{self.generation}/{number:03d}-{n}.parquet"
            for n in range(rng.randint(1, 3))
            for folder in (("data", "_quarantine") if n else ("data",))
        ]
        self.unlisted = [f"data/{self.generation}/torn-{number}", "data/00000000000000ff/half"]

    @property
    def listed(self) -> list[str]:
        return [*self.kept, *self.new]

    def publish(self, storage) -> None:
        """As a job does: files, work in progress, then the manifest."""
        writer = Writer(storage)
        manifest = manifest_listing(self.generation, self.listed)
        if writer.current == manifest:
            writer.tidy_after_kill()
            return
        for path in [*self.new, *self.unlisted, "_work/plan.json"]:
            storage.put(path, path.encode())
        rows = sum(path.startswith("data/") for path in self.listed)
        writer.publish(manifest, rows_in=len(self.listed), rows_out=rows, run={})


def names_in(storage) -> set[str]:
    return {stat.name for stat in storage.list()} - {"_lock"}


def generation_files(storage) -> set[str]:
    found = names_in(storage) - set(THEIRS)
    return {name for name in found if name.startswith(("data/", "_quarantine/"))}


def changes_of(seed: int) -> list[Change]:
    rng, listed, found = random.Random(seed), [], []
    for number in range(NUM_STEPS):
        found.append(Change(rng, number, listed))
        listed = found[-1].listed
    return found


def check_random_updates(storage, seed: int) -> None:
    for name in THEIRS:
        storage.put(name, b"theirs")
    replaced: set[str] = set()
    for change in changes_of(seed):
        change.publish(storage)
        assert generation_files(storage) == set(change.listed) | replaced
        assert set(THEIRS) <= names_in(storage)
        listed = read_manifest(storage.read("_manifest.json")).listed
        assert {file.path for file in listed} == set(change.listed)
        assert not [name for name in names_in(storage) if name.startswith("_work")]
        records = [name for name in names_in(storage) if name.startswith(f"{REPLACED}/")]
        assert len(records) == bool(replaced)
        replaced = set(change.listed)


@pytest.mark.parametrize("seed", range(20))
def test_publish_removes_what_neither_manifest_lists(seed, tmp_path):
    check_random_updates(storage_at(tmp_path), seed)
    generations = [path for path in tmp_path.glob("*/*") if path.is_dir()]
    assert generations and all(any(path.iterdir()) for path in generations)


@pytest.mark.skipif(WEED is None, reason=NO_SERVER)
def test_publish_in_a_store_removes_what_neither_manifest_lists(bucket):
    check_random_updates(storage_at(f"{bucket}/retention"), seed=3)


class DyingStorage(LocalStorage):
    """Kills this process instead of making the change of a number."""

    def __init__(self, root, changes_left: int) -> None:
        super().__init__(root)
        self.changes_left = changes_left

    def _count(self) -> None:
        self.changes_left -= 1
        if self.changes_left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def put(self, name, data):
        self._count()
        super().put(name, data)

    def delete(self, names):
        for name in names:
            self._count()
            super().delete([name])

    def delete_files(self, names):
        for name in names:
            self._count()
            super().delete_files([name])


def is_killed(change: Change, place, changes_left: int) -> bool:
    """Publish in a process of its own that dies at a change; False if it came to its end."""
    child = os.fork()
    if child == 0:
        change.publish(DyingStorage(place, changes_left))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def contents(place) -> dict[str, bytes]:
    return {name: (place / name).read_bytes() for name in files_of(place) - {"_lock"}}


@pytest.mark.parametrize("num_before", [0, 1, 2, 5])
def test_publish_killed_at_any_change_ends_as_undisturbed(num_before, tmp_path):
    *before, change, after = changes_of(seed=num_before)[: num_before + 2]
    for earlier in before:
        earlier.publish(storage_at(tmp_path / "start"))
    (tmp_path / "start").mkdir(exist_ok=True)
    calm = shutil.copytree(tmp_path / "start", tmp_path / "calm")
    change.publish(storage_at(calm))
    want = contents(calm)
    after.publish(storage_at(calm))
    want_after = contents(calm)
    num_kills = 0
    while True:
        place = shutil.copytree(tmp_path / "start", tmp_path / f"killed-{num_kills}")
        if not is_killed(change, place, num_kills):
            break
        num_kills += 1
        other = shutil.copytree(place, tmp_path / "other", dirs_exist_ok=True)
        # What readers opened before is whole until the next publish.
        if before:
            assert set(before[-1].listed) <= set(contents(place))
        change.publish(storage_at(place))
        assert contents(place) == want
        # Without a rerun the next publish ends the work.
        if read_manifest_of(other) == change.listed:
            after.publish(storage_at(other))
            assert contents(other) == want_after
        shutil.rmtree(other)
    assert num_kills > len(change.new) + 5


def read_manifest_of(place) -> list[str] | None:
    path = place / "_manifest.json"
    return [f.path for f in read_manifest(path.read_bytes()).listed] if path.exists() else None


def test_discard_removes_what_was_written_but_nothing_in_use(tmp_path):
    storage = storage_at(tmp_path)
    generations = [generation_name(n) for n in range(3)]
    first = [f"data/{generations[0]}/a", f"data/{generations[0]}/b"]
    second = [first[0], f"data/{generations[1]}/c"]
    for generation, listed in ((generations[0], first), (generations[1], second)):
        for path in listed:
            storage.put(path, path.encode())
        Writer(storage).publish(manifest_listing(generation, listed), rows_in=2, rows_out=2, run={})
    for generation in (generations[0], generations[2]):
        for name in (f"data/{generation}/new", f"_quarantine/{generation}/bad"):
            storage.put(name, b"unpublished")
        storage.put(f"_work/{generation}/plan.json", b"{}")
        Writer(storage).discard(generation)
        assert generation_files(storage) == {*first, *second}
        assert not list(storage.list("_work"))


def test_rerun_on_an_artifact_of_an_earlier_version_removes_no_generation(tmp_path):
    storage = storage_at(tmp_path)
    old, new = (f"data/{generation_name(n)}/a" for n in (1, 2))
    for path in (old, new):
        storage.put(path, b"x")
    storage.put("_manifest.json", manifest_listing(generation_name(2), [new]).to_json())
    storage.put("_work/left", b"x")
    Writer(storage).tidy_after_kill()
    assert generation_files(storage) == {old, new}
    assert not list(storage.list("_work"))
