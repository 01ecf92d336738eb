"""What is not trusted stays outside: clients without the token, pickles, foreign files, secrets."""

import ast
import contextlib
import json
import os
import pickle
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import faiss
import hnswlib
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from embedding import rows_of, sentences, write_corpus
from s3 import BUCKET, KEY, NO_SERVER, SECRET, WEED, S3Server
from synthetic import random_vectors, write_vectors

import sbert_core.neighbours.index
from pipelines import index as index_job
from pipelines.artifacts import Artifact
from pipelines.cli import main
from pipelines.open_index import Index
from pipelines.specs import IndexSpec
from sbert_core.encoder import Encoder
from sbert_core.storage import LocalStorage, storage_at
from workers.index_shard import IndexJob, Queries, build_shard, measure_shard
from workers.search_shard import SearchJob, search_shard

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parent.parent.parent
pytestmark = [pytest.mark.timeout(300)]


def sbert(*words, env: dict[str, str], seconds: float = 240) -> subprocess.CompletedProcess:
    words = [str(word) for word in (BIN / "sbert", *words)]
    return subprocess.run(
        words, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )


# -- the token -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def head():
    """Address of a head that asks for a token, and the file with the token."""
    folder = Path(tempfile.mkdtemp(prefix="sb", dir="/tmp"))  # short: unix sockets lie below it
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    words = ["start", "--head", "--block", "--include-dashboard=false", f"--port={port}"]
    words += [f"--temp-dir={folder / 'r'}", "--num-cpus=3", f"--object-store-memory={150 * 2**20}"]
    environment = {
        **client(folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
    }
    process = None
    try:
        for _ in range(3):  # it gives up after 30 s, which a busy machine may need
            with (folder / "log").open("w") as log:
                process = subprocess.Popen(
                    [BIN / "ray", *words],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            if is_up(process, folder / "log"):
                break
        else:
            raise AssertionError((folder / "log").read_text())
        yield f"127.0.0.1:{port}", token
    finally:
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def is_up(process: subprocess.Popen, log: Path) -> bool:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if "Ray runtime started" in log.read_text():
            return True
        time.sleep(0.2)
    return False


def client(home: Path) -> dict[str, str]:
    """An environment that knows no token."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_A")}
    return {**kept, "HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"}


@pytest.mark.ray
def test_client_without_the_token_is_refused_in_one_line(head, bert_folder, tmp_path):
    """Both at once: each asks Ray for half a minute."""
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(5))})
    strangers = {"none": {}, "wrong": {"RAY_AUTH_TOKEN": "f" * 64}}
    clients = []
    for name, own in strangers.items():
        words = ["embed", corpus, "--model", bert_folder, "--out", tmp_path / name]
        clients.append(
            subprocess.Popen(
                [BIN / "sbert", *words, "--address", head[0]],
                env={**client(tmp_path), "RAY_AUTH_MODE": "token", **own},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for name, process in zip(strangers, clients, strict=True):
        said = process.communicate(timeout=240)[1]
        assert process.returncode == 2, said
        [line] = said.strip().splitlines()
        assert line.startswith("error: ") and head[0] in line and "token" in line
        assert not (tmp_path / name / "_manifest.json").exists()


@pytest.mark.ray
def test_client_with_the_token_works(head, bert_folder, tmp_path):
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(5))})
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(head[1])}
    words = ["embed", corpus, "--model", bert_folder, "--out", tmp_path / "out"]
    done = sbert(*words, "--address", head[0], env=client(tmp_path) | own)
    assert done.returncode == 0, done.stderr
    assert "5 vectors" in done.stdout
    assert head[1].read_text() not in done.stdout + done.stderr


# -- no pickle, no code ----------------------------------------------------------------------------


class Poison:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)


def test_poison_works(tmp_path):
    """Else the tests below could not fail."""
    pickle.loads(pickle.dumps(Poison(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


def only_a_pickle(model: Path, poison: bytes) -> None:
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(poison)


def an_index_that_names_a_pickle(model: Path, poison: bytes) -> None:
    (model / "model.safetensors").rename(model / "other.safetensors")
    (model / "pytorch_model.bin").write_bytes(poison)
    listing = {
        "metadata": {},
        "weight_map": {"embeddings.word_embeddings.weight": "pytorch_model.bin"},
    }
    (model / "model.safetensors.index.json").write_text(json.dumps(listing))


def a_pickle_under_another_name(model: Path, poison: bytes) -> None:
    (model / "model.safetensors").write_bytes(poison)


@pytest.mark.parametrize(
    "change", [only_a_pickle, an_index_that_names_a_pickle, a_pickle_under_another_name]
)
def test_model_with_a_pickle_is_refused_and_not_opened(change, bert_folder, tmp_path):
    model = Path(shutil.copytree(bert_folder, tmp_path / "model"))
    change(model, pickle.dumps(Poison(tmp_path / "mark")))
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(5))})
    words = ["embed", corpus, "--model", model, "--out", tmp_path / "out"]
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 2, done.output
    assert str(model) in done.stderr.splitlines()[-1]
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "out").exists()


def test_code_that_comes_with_a_model_is_not_run(bert_folder, tmp_path):
    model = Path(shutil.copytree(bert_folder, tmp_path / "model"))
    (model / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'mark')!r})\n")
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Poison(tmp_path / "mark")))
    for name, entry in (
        ("config.json", {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]}),
    ):
        settings = json.loads((model / name).read_text())
        (model / name).write_text(json.dumps({**settings, "auto_map": entry}))
    try:
        plain = Encoder.load(bert_folder).encode(["the word"])
        np.testing.assert_array_equal(Encoder.load(model).encode(["the word"]), plain)
    except ValueError as error:
        assert str(model) in str(error)
    assert not (tmp_path / "mark").exists()


# What may run code from a file, and what must be said for it not to.
FORBIDDEN = {
    "pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads",
    "joblib.load", "dill.load", "dill.loads", "shelve.open", "marshal.load", "marshal.loads",
    "yaml.load", "yaml.unsafe_load", "yaml.full_load", "pandas.read_pickle", "pd.read_pickle",
    "eval", "exec", "os.system", "os.popen",
}  # fmt: skip
NEEDED = {"torch.load": ("weights_only", True)}
NEVER = {"trust_remote_code": True, "allow_pickle": True, "shell": True, "weights_only": False}
# Errors of our own workers come back to the driver through Ray, which pickles everything anyway.
ALLOWED = {("workers/errors.py", "pickle.loads")}


def calls_in(source: str) -> list[tuple[str, dict[str, object]]]:
    """Dotted name and constant keywords of every call."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            known = [k for k in node.keywords if isinstance(k.value, ast.Constant)]
            found.append((ast.unparse(node.func), {k.arg: k.value.value for k in known}))
    return found


def dangers(path: str, source: str) -> list[str]:
    bad = []
    for name, keywords in calls_in(source):
        if name in FORBIDDEN and (path, name) not in ALLOWED:
            bad.append(f"{path}: {name}")
        if name in NEEDED and keywords.get(NEEDED[name][0]) is not NEEDED[name][1]:
            bad.append(f"{path}: {name} without {NEEDED[name][0]}")
        bad += [f"{path}: {word}={value}" for word, value in NEVER.items()
                if keywords.get(word) is value]  # fmt: skip
    return bad


def test_nothing_in_our_packages_runs_code_from_files():
    paths = [
        p for layer in ("sbert_core", "workers", "pipelines") for p in (ROOT / layer).rglob("*.py")
    ]
    assert len(paths) > 100
    found = [
        danger
        for path in paths
        for danger in dangers(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    ["pickle.load(f)", "torch.load(p)", "np.load(p, allow_pickle=True)", "yaml.load(t, Loader=L)",
     "AutoModel.from_pretrained(p, trust_remote_code=True)", "eval(text)",
     "torch.load(p, weights_only=False)", "subprocess.run(w, shell=True)"],
)  # fmt: skip
def test_the_search_for_dangers_finds_them(line):
    assert dangers("x.py", line)


def test_arrays_with_pickles_inside_are_refused(tmp_path):
    """By numpy's own default, which no call of ours changes."""
    np.save(tmp_path / "own.npy", np.array([Poison(tmp_path / "mark")], object), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        np.load(tmp_path / "own.npy", mmap_mode="r")
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(tmp_path / "own.npy")
    assert not (tmp_path / "mark").exists()


# -- files of artifacts ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def indexes(tmp_path_factory, ray_address):
    folder = tmp_path_factory.mktemp("indexes")
    write_vectors(folder / "vectors", random_vectors(200, 16))
    for name, kind in (("hnsw", "hnsw"), ("cells", "faiss:IVF4,PQ4x4")):
        index_job.run(
            IndexSpec(vectors=str(folder / "vectors"), out=str(folder / name), kind=kind,
                      recall_sample=20, address=ray_address)
        )  # fmt: skip
    return folder


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """Files that were given to a library that parses them."""
    seen: list[str] = []

    def noting(call):
        def noted(path, *arguments, **options):
            seen.append(Path(path).name)
            return call(path, *arguments, **options)

        return noted

    class Graph:
        """hnswlib's, which cannot be changed itself."""

        def __init__(self, *arguments) -> None:
            self.graph = hnswlib.Index(*arguments)

        def load_index(self, path, *arguments) -> None:
            noting(self.graph.load_index)(path, *arguments)

        def __getattr__(self, name):
            return getattr(self.graph, name)

    monkeypatch.setattr(sbert_core.neighbours.index, "hnswlib", SimpleNamespace(Index=Graph))
    monkeypatch.setattr(faiss, "read_index", noting(faiss.read_index))
    monkeypatch.setattr(pa, "memory_map", noting(pa.memory_map))
    monkeypatch.setattr(np, "load", noting(np.load))
    return seen


def everything_read(place: Path, vectors: Path) -> None:
    """By every way that leads to an index file: one search, many, measuring, building on."""
    index = Index.open(place)
    spec, [record] = index.manifest.spec, index.manifest.facts["shard_records"]
    query = np.ones((1, 16), np.float32) / 4
    queries = Queries(query, query[:0], {})
    file = next((f for f in index.manifest.files if f.path == spec["trained"]), None)
    job = IndexJob(run="x", vectors=str(vectors), out=str(place), folder="_work/x", dim=16, seed=0,
                   kind=index.kind, scale=None,
                   trained=file and {"path": file.path, "sha256": file.sha256})  # fmt: skip
    search = SearchJob(index=str(place), kind=index.kind, dim=16, effort=8, k=3, where=None,
                       columns=("id",))  # fmt: skip
    calls = [
        lambda: index.search(query, 3),
        lambda: search_shard(search, record["files"], [query]),
        lambda: measure_shard(job, {**record, "held": {}}, queries, [8], 0.1),
    ]
    if file is not None:
        pieces = Artifact.open(vectors).pieces
        calls.append(lambda: build_shard(job, 9, pieces, queries, [8]))
    refused = []
    for call in calls:
        try:
            call()
        except ValueError as error:
            refused.append(str(error))
    if refused:
        raise ValueError(" | ".join(refused))


@pytest.mark.ray
@pytest.mark.parametrize("name", ["hnsw", "cells"])
def test_index_files_are_checked_before_a_library_parses_them(name, indexes, opened, tmp_path):
    place = Path(shutil.copytree(indexes / name, tmp_path / "index"))
    listed = Index.open(place).manifest.files
    everything_read(place, indexes / "vectors")
    assert set(opened) >= {Path(file.path).name for file in listed}  # all of them, undamaged
    for file in listed:
        path = place / file.path
        data = path.read_bytes()
        for at in (0, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            opened.clear()
            with pytest.raises(ValueError, match="is corrupt: its sha256 is"):
                everything_read(place, indexes / "vectors")
            assert path.name not in opened
        path.write_bytes(data)


def test_names_in_artifacts_do_not_leave_their_folder(tmp_path):
    (tmp_path / "precious").write_text("mine")
    storage = LocalStorage(tmp_path / "artifact")
    storage.put("inside", b"x")
    for name in ("../precious", str(tmp_path / "precious"), "a/../../precious", "..", "a\0b"):
        for call in (
            lambda n=name: storage.read(n),
            lambda n=name: storage.open(n),
            lambda n=name: storage.buffer(n),
            lambda n=name: storage.stat(n),
            lambda n=name: list(storage.list(n)),
            lambda n=name: storage.put(n, b"evil"),
            lambda n=name: storage.link("inside", n),
            lambda n=name: storage.link(n, "inside too"),
            lambda n=name: storage.delete([n]),
        ):
            with pytest.raises(ValueError, match="is no name of a file in there"):
                call()
    assert (tmp_path / "precious").read_text() == "mine"


# -- secrets ---------------------------------------------------------------------------------------


@pytest.fixture
def bucket(tmp_path):
    with S3Server(tmp_path).running():
        yield BUCKET


class Watch(threading.Thread):
    """Looks for secrets while a job runs: in the titles of all processes and in Ray's files."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.words = [word.encode() for word in words]
        self.found: set[str] = set()
        self.files: set[str] = set()
        self.titles = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.3):
            titles = list(Path("/proc").glob("[0-9]*/cmdline"))
            logs = [path for path in self.folder.rglob("*") if path.suffix in LOGGED]
            self.titles = max(self.titles, len(titles))
            self.files |= {path.name for path in logs}
            for path in [*titles, *logs]:
                self._look(path)

    def _look(self, path: Path) -> None:
        try:
            data = path.read_bytes() if path.is_file() else b""
        except OSError:  # gone, or a process that has just ended
            return
        if any(word in data for word in self.words):
            self.found.add(str(path))

    def stop(self) -> None:
        self.over.set()
        self.join()


LOGGED = {".log", ".out", ".err", ".txt", ".json", ".yaml"}


@pytest.mark.ray
@pytest.mark.skipif(WEED is None, reason=NO_SERVER)
def test_credentials_are_in_no_file_line_or_title(bucket, bert_folder, tmp_path):
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of([*sentences(30), None])})
    storage_at(f"{bucket}/corpus").put("x.parquet", (corpus / "x.parquet").read_bytes())
    home = Path(tempfile.mkdtemp(prefix="sb", dir="/tmp"))
    environment = {**client(home), "TMPDIR": str(home)}
    watch = Watch(home, [SECRET, KEY])
    watch.start()
    said = []
    try:
        for words, code in (
            (("embed", f"{bucket}/corpus", "--model", bert_folder, "--out", f"{bucket}/v"), 0),
            (("pairs", f"{bucket}/v", "--out", f"{bucket}/p", "--threshold", "0.5"), 0),
            (("report", f"{bucket}/v", "--out", tmp_path / "report.html"), 0),
            (("embed", f"{bucket}/none", "--model", bert_folder, "--out", f"{bucket}/w"), 2),
        ):
            done = sbert(*words, "--debug", "--json-log", env=environment)
            assert done.returncode == code, done.stderr
            said.append(done.stdout + done.stderr)
    finally:
        watch.stop()
        shutil.rmtree(home, ignore_errors=True)
    assert not watch.found
    assert watch.titles > 5 and "raylet.out" in watch.files  # it has looked
    for word in (SECRET, KEY):
        assert word not in "".join(said)
        for stat in storage_at(bucket).list():
            assert word.encode() not in storage_at(bucket).read(stat.name), stat.name
        for path in tmp_path.glob("report.*"):
            assert word not in path.read_text()


@pytest.mark.skipif(WEED is None, reason=NO_SERVER)
def test_refused_credentials_are_not_repeated(bucket, bert_folder, tmp_path):
    wrong = "wrong-but-secret-all-the-same"
    environment = {**client(tmp_path), "AWS_SECRET_ACCESS_KEY": wrong}
    words = ["embed", f"{bucket}/corpus", "--model", bert_folder, "--out", f"{bucket}/v"]
    done = sbert(*words, "--debug", "--json-log", env=environment)
    assert done.returncode == 2, done.stderr
    assert "check the credentials" in done.stderr.splitlines()[-1]
    assert not any(word in done.stdout + done.stderr for word in (wrong, KEY, SECRET))


@pytest.mark.parametrize("key", ["AKIA:sec/ret+planted", "AKIA:secretplanted"])
@pytest.mark.parametrize("place", ["corpus", "--out", "--model"])
def test_credentials_in_an_address_are_refused_and_not_repeated(key, place, bert_folder, tmp_path):
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(5))})
    places = {"corpus": corpus, "--out": tmp_path / "out", "--model": bert_folder}
    places[place] = f"s3://{key}@bucket/x"
    words = ["embed", places["corpus"], "--out", places["--out"], "--model", places["--model"]]
    done = CliRunner().invoke(main, [*map(str, words), "--debug", "--json-log"])
    assert done.exit_code == 2, done.output
    assert "give s3://bucket/prefix, and keys through AWS_ACCESS_KEY_ID" in done.output
    assert "planted" not in done.output and "AKIA" not in done.output
    left = [
        path for path in tmp_path.rglob("*") if path.is_file() and b"planted" in path.read_bytes()
    ]
    assert left == []
