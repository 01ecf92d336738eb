"""What is not trusted stays outside: pickles, code that comes with a model, foreign files."""

import ast
import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import faiss
import hnswlib
import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.embedding import rows_of, sentences, write_corpus
from support.manifests import manifest_of
from support.poison import Poison
from support.synthetic import random_vectors, write_vectors

import sbert_core.index.hnsw
from pipelines.artifacts.reader import Artifact
from pipelines.artifacts.writer import Writer
from pipelines.cli.main import main
from pipelines.index import job as index_job
from pipelines.index.spec import IndexSpec
from pipelines.search.index import Index
from sbert_core.data_file import ListedFile
from sbert_core.encoder.encoder import Encoder
from sbert_core.storage import LocalStorage, NameOutsideStorage
from workers.index.build import build_shard
from workers.index.job import IndexJob, RecallQueries
from workers.index.measure import measure_shard
from workers.index.search import SearchJob, search_shard

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.timeout(300)]


# -- no pickle, no code ----------------------------------------------------------------------------


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


def shards_of(place: Path) -> Path:
    """As `sbert prepare` leaves them, without a row."""
    with Writer.claim(place) as writer:
        manifest = manifest_of(
            "shards",
            generation="made",
            rows=0,
            files=(),
            spec={"format": "scored", "classes": None},
            made_from={},
            facts={},
        )
        writer.publish(manifest, rows_in=0, rows_out=manifest.rows, run={})
    return place


def test_train_base_with_code_of_its_own_is_refused_and_asks_nothing(bert_folder, tmp_path):
    model = Path(shutil.copytree(bert_folder, tmp_path / "model"))
    (model / "evil.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'mark')!r})\n"
        "from transformers import BertConfig\n"
        "class Config(BertConfig):\n    model_type = 'evil'\n"
    )
    settings = json.loads((model / "config.json").read_text())
    settings |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}
    (model / "config.json").write_text(json.dumps(settings))
    words = ["train", shards_of(tmp_path / "shards"), "--base", model, "--out", tmp_path / "out"]
    words += ["--objective", "cosine"]
    done = CliRunner().invoke(main, [str(word) for word in words], input="y\n" * 100)
    assert not (tmp_path / "mark").exists()
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert len(said) == 1
    assert str(model) in said[0]
    assert not (tmp_path / "out").exists()


# What may run code from a file, and what must be said for it not to.
FORBIDDEN = {
    "pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads",
    "joblib.load", "dill.load", "dill.loads", "shelve.open", "marshal.load", "marshal.loads",
    "yaml.load", "yaml.unsafe_load", "yaml.full_load", "pandas.read_pickle", "pd.read_pickle",
    "eval", "exec", "os.system", "os.popen",
}  # fmt: skip
NEEDED = {"torch.load": ("weights_only", True)}
# Methods of transformers that load what a folder describes, and libraries that load on their own.
LOADERS = {"from_pretrained", "from_config"}
LIBRARIES_OF_LOADERS = {"sentence_transformers"}
NEVER = {"trust_remote_code": True, "allow_pickle": True, "shell": True, "weights_only": False}
# Errors of our own workers come back to the driver through Ray, which pickles everything anyway.
# Both read what a worker of the same job has written into Ray's object store.
ALLOWED = {
    ("workers/common/errors.py", "pickle.loads"),
    ("workers/embed/stages.py", "pickle.loads"),
}


def calls_in(source: str) -> list[tuple[str, dict[str, object]]]:
    """Dotted name and constant keywords of every call."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            known = [k for k in node.keywords if isinstance(k.value, ast.Constant)]
            found.append((ast.unparse(node.func), {k.arg: k.value.value for k in known}))
    return found


def loads_that_trust(source: str) -> list[str]:
    """Every mention of a loader that is not a call with trust_remote_code=False."""
    nodes = list(ast.walk(ast.parse(source)))
    distrusting = {
        id(node.func)
        for node in nodes
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "trust_remote_code"
        if isinstance(keyword.value, ast.Constant) and keyword.value.value is False
    }
    names = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in LOADERS]
    found = [ast.unparse(node) for node in names if id(node) not in distrusting]
    words = [node.value for node in nodes if isinstance(node, ast.Constant)]
    found += [f"{word!r} by name" for word in words if word in LOADERS]
    for node in nodes:
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [m for m in modules if m.partition(".")[0] in LIBRARIES_OF_LOADERS]
        if isinstance(node, ast.ImportFrom) and node.module == "transformers":
            found += [alias.name for alias in node.names if alias.name == "pipeline"]
    return found


def dangers(path: str, source: str) -> list[str]:
    bad = [f"{path}: {load} may run a model's code" for load in loads_that_trust(source)]
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
     "torch.load(p, weights_only=False)", "subprocess.run(w, shell=True)",
     "AutoConfig.from_pretrained(p)", "AutoConfig.from_pretrained(p, trust_remote_code=trusted)",
     "load = AutoModel.from_pretrained", "getattr(AutoModel, 'from_pretrained')(p)",
     "AutoModel.from_config(c)", "import sentence_transformers",
     "from transformers import pipeline"],
)  # fmt: skip
def test_the_search_for_dangers_finds_them(line):
    assert dangers("x.py", line)


# Who names a folder that all users of a machine share: model_copy checks whose it is, the others
# look how much room it has.
SHARED_FOLDER = {
    "workers/common/model_cache.py", "workers/doctor/node.py", "pipelines/doctor/nodes.py",
    "pipelines/doctor/collect.py",
}  # fmt: skip


def test_nothing_in_our_packages_foresees_a_name_in_a_shared_folder():
    """Random names, made and opened in one step, are tempfile's others."""
    users = set()
    for layer in ("sbert_core", "workers", "pipelines"):
        for path in (ROOT / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                word = node.value if isinstance(node, ast.Constant) else ""
                name = node.attr if isinstance(node, ast.Attribute) else ""
                name = node.id if isinstance(node, ast.Name) else name
                is_path = isinstance(word, str) and word.startswith(
                    ("/tmp", "/var/tmp", "/dev/shm")
                )
                if is_path or name in ("gettempdir", "gettempdirb", "mktemp", "tempdir"):
                    users.add(path.relative_to(ROOT).as_posix())
    assert users == SHARED_FOLDER


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

    monkeypatch.setattr(sbert_core.index.hnsw, "hnswlib", SimpleNamespace(Index=Graph))
    monkeypatch.setattr(faiss, "read_index", noting(faiss.read_index))
    monkeypatch.setattr(pa, "memory_map", noting(pa.memory_map))
    monkeypatch.setattr(np, "load", noting(np.load))
    return seen


def everything_read(place: Path, vectors: Path) -> None:
    """By every way that leads to an index file: one search, many, measuring, building on."""
    index = Index.open(place)
    [record] = index.manifest.metrics.shard_records
    query = np.ones((1, 16), np.float32) / 4
    queries = RecallQueries(query, query[:0], {})
    trained = index.manifest.settings.trained
    file = next((f for f in index.manifest.files if f.path == trained), None)
    job = IndexJob(run="x", vectors=str(vectors), out=str(place), folder="_work/x", dim=16, seed=0,
                   kind=index.kind, scale=None,
                   trained=file and ListedFile(path=file.path, sha256=file.sha256, bytes=0),
                   )  # fmt: skip
    search = SearchJob(index=str(place), kind=index.kind, dim=16, effort=8, k=3, where=None,
                       columns=("id",))  # fmt: skip
    calls = [
        lambda: index.search(query, 3),
        lambda: search_shard(search, record.files, [query]),
        lambda: measure_shard(job, record.files, {}, queries, [8], 0.1),
    ]
    if file is not None:
        pieces = Artifact.open(vectors).row_ranges
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
            lambda n=name: storage.delete_files([n]),
            lambda n=name: storage.carry_over("inside", n),
            lambda n=name: storage.carry_over(n, "inside too"),
        ):
            with pytest.raises(NameOutsideStorage):
                call()
    assert (tmp_path / "precious").read_text() == "mine"
