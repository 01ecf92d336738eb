"""Broken input: one line and an exit code, never a traceback, a hang or a wrong artifact.

`make test` tries some sixty cases, `make chaos` two thousand. The seed and every failing case are
printed; SBERT_FUZZ_CASE="FileCase(...)" runs one again.
"""

import hashlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, seed, settings
from support import broken
from support.broken import FileCase, FolderCase, JobCase
from support.broken_files import Lines, Parquet, plain_columns
from torch import nn

from pipelines.cli.main import main
from sbert_core.corpus.published import MANIFEST
from sbert_core.encoder.checkpoint import read_parts
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.head import Dense, Normalize

CASES = int(os.environ.get("SBERT_FUZZ_CASES", "60"))
SEED = int(os.environ.get("SBERT_FUZZ_SEED", "8"))
CASE_SECONDS = 120
pytestmark = [pytest.mark.ray, pytest.mark.timeout(300 + 10 * CASES)]
GOOD_ENDS = {0, 2, 4}  # 1 is unexpected; 3 would have a scheduler try for ever; nobody else is here


class TookTooLong(BaseException):
    """Passes every handler of ours."""


@dataclass
class World:
    """Artifacts of every kind at one place, as good as new before each case."""

    root: Path
    address: str
    pristine: Path
    mark: Path

    def path(self, name: str) -> Path:
        return self.root / name

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.pristine, self.root, symlinks=True)

    def call(self, *words: object) -> tuple[int, str]:
        """Exit code and output of a command."""
        with deadline(CASE_SECONDS):
            done = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=True)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise AssertionError(f"escaped: {done.exception!r}") from done.exception
        return done.exit_code, done.output

    def words(self, command: str) -> list[object]:
        """What is typed for a command on the folders of this world."""
        at, here = self.path, ["--address", self.address]
        new = ["--out", at("new")]
        return {
            "index": ["index", at("vectors"), *new, *GRAPH, *here],
            "pairs": ["pairs", at("vectors"), "--threshold", 0.9, *new, *here],
            "against": ["pairs", at("grown"), "--against", at("vectors"), *new, *here],
            "threshold": ["threshold", at("vectors")],
            "report": ["report", at("vectors"), at("index"), "--out", at("report.html")],
            "path": ["path", at("vectors")],
            "export": ["export", at("vectors"), "--to", "qdrant", *new],
            "update": self._embed("corpus", "vectors", "model"),
            "cluster": ["cluster", at("pairs"), *new],
            "apply": ["apply", at("clusters"), at("corpus"), *new, *here],
            "search": ["search", at("index"), "the word", "--model", at("model")],
            "queries": self._queries(at("corpus")),
            "grow index": ["index", at("grown"), "--out", at("index"), *GRAPH, *here],
            "grow cells": ["index", at("grown"), "--out", at("cells"), *CELLS, *here],
            "threshold pairs": ["threshold", at("pairs")],
            "report pairs": ["report", at("pairs"), "--out", at("report.html")],
            "grow pairs": ["pairs", at("grown"), "--threshold", 0.9, "--out", at("pairs"), *here],
            "report clusters": ["report", at("clusters"), "--out", at("report.html")],
            "grow clusters": ["cluster", at("pairs of grown"), "--out", at("clusters")],
            "apply again": ["apply", at("other clusters"), at("corpus"), "--out", at("applied"),
                            *here],
            "embed model": self._embed("corpus", "new", "model"),
            "plan model": [*self._embed("corpus", "new", "model"), "--plan"],
            "search model": ["search", at("index"), "the word", "--model", at("model")],
            "rerank": ["search", at("index"), "the word", "--model", at("good model"), "--rerank",
                       at("model")],
        }[command]  # fmt: skip

    def _embed(self, corpus: str, out: str, model: str, *options: str) -> list[object]:
        places = [self.path(corpus), "--out", self.path(out), "--model", self.path(model)]
        return ["embed", *places, "--address", self.address, "--unit-rows", 8, *options]

    def _queries(self, place: Path) -> list[object]:
        return ["search", self.path("index"), "--queries", place, "--model", self.path("model"),
                "--out", self.path("hits.parquet"), "--address", self.address]  # fmt: skip

    def file_words(self, case: FileCase) -> list[object]:
        at, here = self.path, ["--address", self.address]
        new = ["--out", at("new")]
        return {
            # Most texts are known to these vectors: the model has little to do.
            "embed": self._embed("in", "vectors", "model", *case.options),
            "queries": self._queries(at("in")),
            "metadata": ["cluster", at("pairs"), "--keep", "newest:year", "--metadata", at("in"),
                         *new],
            "protect": ["cluster", at("pairs"), "--protect", at("in"), *new],
            "labelled": ["threshold", at("vectors"), "--labelled", at("in")],
            "prepare": ["prepare", at("in"), "--format", "ranking", "--columns", "query,answer",
                        *new, *here],
            "dedup": ["dedup", next(at("in").iterdir()), "--model", at("model"), *new, *here],
        }[case.command]  # fmt: skip


GRAPH = ["--recall-sample", "20", "--shards", "2"]
CELLS = ["--recall-sample", "20", "--kind", "faiss:IVF4,PQ4x4"]


@contextmanager
def deadline(seconds: float):
    def ring(number, frame):
        raise TookTooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def world(tmp_path_factory, ray_address, bert_folder):
    base = tmp_path_factory.mktemp("fuzz")
    world = World(base / "world", ray_address, base / "pristine", base / "mark")
    (base / "elsewhere").write_text("not ours")
    at = world.path
    at("corpus").mkdir(parents=True)
    table = pa.table(plain_columns())
    pq.write_table(table, at("corpus") / "x.parquet", row_group_size=5)
    void = {"id": ["void"], "text": pa.array([None], pa.string()), "year": [0]}
    pq.write_table(pa.table(void), at("corpus") / "y.parquet")
    shutil.copytree(at("corpus"), at("more"))
    few = table.slice(3, 6).set_column(0, "id", [[f"s{n}" for n in range(6)]])
    pq.write_table(few, at("more") / "z.parquet")
    parts = read_parts(bert_folder, None)
    dense = Dense(nn.Linear(32, 16), "torch.nn.modules.activation.Tanh")
    head = nn.ModuleList([dense, Normalize()])
    Encoder(replace(parts, head=head)).save(at("model"))
    shutil.copytree(at("model"), at("good model"))
    here = ["--address", ray_address]
    code, output = world.call(*world._embed("corpus", "vectors", "model"))
    assert code == 0, output
    shutil.copytree(
        at("vectors"), at("grown")
    )  # its texts are known: the model is not started again
    for words in (
        world._embed("more", "grown", "model"),
        ["index", at("vectors"), "--out", at("index"), *GRAPH, *here],
        ["index", at("vectors"), "--out", at("cells"), *CELLS, *here],
        ["pairs", at("vectors"), "--threshold", 0.9, "--out", at("pairs"), *here],
        ["pairs", at("grown"), "--threshold", 0.9, "--out", at("pairs of grown"), *here],
        ["cluster", at("pairs"), "--out", at("clusters")],
        ["cluster", at("pairs"), "--out", at("other clusters"), "--threshold", 0.95],
        ["apply", at("clusters"), at("corpus"), "--out", at("applied"), *here],
    ):
        code, output = world.call(*words)
        assert code == 0, output
    world.root.rename(world.pristine)
    world.root.mkdir()
    return world


# -- one case ------------------------------------------------------------------------------------


def prepared(world: World, case: object) -> list[object]:
    """Break what the case breaks; the words to type."""
    if isinstance(case, FileCase):
        world.path("in").mkdir()
        file = case.file
        name = f"x{file.suffix}{file.packed if isinstance(file, Lines) else ''}"
        (world.path("in") / name).write_bytes(file.data())
        return world.file_words(case)
    if isinstance(case, JobCase):
        path = world.path("job.yaml")
        path.write_bytes(case.file.data())
        settings = [word for setting in case.file.settings for word in ("--set", setting)]
        plan = ["--plan"] if case.is_planned else []
        return ["run", path, *settings, *plan, "--address", world.address]
    assert isinstance(case, FolderCase)
    if case.command == "update":
        shutil.copy2(world.path("more") / "z.parquet", world.path("corpus"))
    for damage in case.damages:
        damage.done(world.path(case.folder), world.mark)
    return world.words(case.command)


def manifests(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob(MANIFEST) if path.is_file()}


def judged(world: World, case: object) -> int:
    """Run a case; AssertionError if it ends as none may. The exit code."""
    world.restore()
    words = prepared(world, case)
    before = manifests(world.root)
    code, output = world.call(*words)
    after = manifests(world.root)
    last = (output.strip().splitlines() or [""])[-1]
    assert code in GOOD_ENDS, f"exit code {code}: {last}"
    assert "Traceback" not in output, output
    assert not world.mark.exists(), "something was unpickled"
    assert (world.root.parent / "elsewhere").read_text() == "not ours"
    if code != 0:
        is_run = isinstance(case, JobCase)  # its first stages may have been fine
        assert after == before or is_run, f"exit code {code}, but an artifact was published"
        assert last.startswith(("error: ", "Error: ")), f"no reason in the last line: {output!r}"
        return code
    for path in after:
        if after[path] != before.get(path):
            assert_sound(path.parent)
            assert_as_undamaged(world, case, path)
    assert_every_row(world, case)
    return code


def assert_sound(out: Path) -> None:
    """Everything the manifest says is so."""
    manifest = json.loads((out / MANIFEST).read_bytes())
    for file in [*manifest["files"], *manifest["quarantine"], *manifest["beside"]]:
        data = (out / file["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == file["sha256"], f"{file['path']} has other bytes"
        assert len(data) == file["bytes"]
        if file["path"].endswith(".parquet"):
            assert pq.ParquetFile(out / file["path"]).metadata.num_rows == file["rows"]
    if manifest["kind"] != "index":
        assert sum(file["rows"] for file in manifest["files"]) == manifest["rows"]


def results(manifest: bytes) -> list[tuple[str, str]]:
    parsed = json.loads(manifest)
    return [(file["sha256"], file["rows"]) for file in [*parsed["files"], *parsed["beside"]]]


def assert_as_undamaged(world: World, case: object, path: Path) -> None:
    """Damage to data is noticed or does not matter. What a manifest says can only be believed."""
    if not isinstance(case, FolderCase) or not case.is_of_data(world.pristine):
        return
    published = results(path.read_bytes())
    world.restore()
    code, output = world.call(*prepared(world, replace(case, damages=())))
    assert code == 0, output
    assert published == results(path.read_bytes()), "another result than without the damage"


def assert_every_row(world: World, case: object) -> None:
    """Rows in = rows out + rows in quarantine, counted by another reader."""
    if not isinstance(case, FileCase) or case.command != "embed":
        return
    if {"--plan", "--where", "--limit", "--skip-corrupt"} & set(case.options):
        return
    manifest = json.loads((world.path("vectors") / MANIFEST).read_bytes())
    found = manifest["facts"].get("documents", manifest["rows"]) + manifest["quarantined"]
    [path] = world.path("in").iterdir()
    if isinstance(case.file, Parquet):
        assert found == pq.ParquetFile(path).read(["text"]).num_rows
    elif not case.file.packed and (number := countable(case.file)) is not None:
        assert found == number


def countable(file: Lines) -> int | None:
    """Rows of a file of lines where there is no doubt: nothing quoted, no lonely returns."""
    data = file.data().replace(b"\r\n", b"\n")
    if file.suffix == ".jsonl" or b'"' in data or b"\r" in data:
        return None
    return sum(1 for line in data.split(b"\n") if line) - 1


@dataclass
class Tally:
    """How the cases of a kind ended."""

    world: World
    codes: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    def run(self, case: object) -> None:
        """All failures are shown, not the first alone."""
        began = time.perf_counter()
        try:
            self.codes[judged(self.world, case)] += 1
        except (AssertionError, TookTooLong) as error:
            self.codes["failed"] += 1
            self.failures.append(f"{case!r}\n    {error}")
            print("FAILED", self.failures[-1], flush=True)  # noqa: T201 - before a crash may come
        self.slowest = max(self.slowest, (time.perf_counter() - began, repr(case)))


@pytest.mark.parametrize("kind", list(broken.KINDS))
def test_broken_input_ends_with_one_line_and_nothing_wrong_published(kind, world):
    share, cases = broken.KINDS[kind]
    known = broken.KNOWN[kind]
    tally = Tally(world)
    start = time.perf_counter()
    if one := os.environ.get("SBERT_FUZZ_CASE"):
        tally.run(eval(one, vars(broken)))
    else:
        for case in known:
            tally.run(case)
        drawn = settings(
            max_examples=max(1, round(CASES * share) - len(known)),
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        drawn(seed(SEED)(given(cases)(tally.run)))()
    seconds, slowest = tally.slowest
    print(  # noqa: T201 - shown by `make chaos`
        f"{kind}: seed {SEED}, {sum(tally.codes.values())} cases, exit codes {dict(tally.codes)}, "
        f"{time.perf_counter() - start:.0f} s; the slowest {seconds:.1f} s: {slowest[:200]}"
    )
    assert not tally.failures, "\n".join(tally.failures)
