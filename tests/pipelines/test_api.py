"""One way in from Python: every verb has the options of its job, and its example runs."""

import doctest
import inspect
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import STAGES, api
from pipelines.cluster.spec import ClusterSpec
from pipelines.dedup.spec import DedupSpec
from pipelines.embed.spec import EmbedSpec
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.index.spec import IndexSpec
from pipelines.options import options_of
from pipelines.pairs.spec import PairsSpec
from pipelines.prepare.spec import PrepareSpec
from pipelines.run.spec import RunSpec
from pipelines.search.spec import SearchSpec
from pipelines.train.spec import TrainSpec

# In the order in which their examples build on each other.
VERBS = {
    "embed": EmbedSpec,
    "build_index": IndexSpec,
    "search": SearchSpec,
    "find_pairs": PairsSpec,
    "cluster": ClusterSpec,
    "deduplicate": DedupSpec,
    "prepare": PrepareSpec,
    "train": TrainSpec,
    "evaluate": EvaluateSpec,
    "run": RunSpec,
}
LEFT_OUT = {"embed": {"plan"}}  # an estimate is not a report; `run(job, plan=True)` gives one
JOB = """\
corpus: texts.parquet
out: made
stages:
  embed: {model: encoder}
  pairs: {threshold: 0.9999}
  cluster:
"""


def test_public_names_are_the_verbs_and_two_classes():
    assert set(api.__all__) == {*VERBS, "Artifact", "Index"}
    assert api.Artifact.__name__ == "Artifact" and api.Index.__name__ == "Index"
    with pytest.raises(AttributeError):
        api.nothing  # noqa: B018 - the access is the test


@pytest.mark.parametrize("verb", VERBS)
def test_verb_has_the_fields_and_defaults_of_its_spec(verb):
    parameters = inspect.signature(getattr(api, verb)).parameters
    declared = {
        own.name: own for own in options_of(VERBS[verb]) if own.name not in LEFT_OUT.get(verb, ())
    }
    assert list(parameters) == list(declared)
    for name, parameter in parameters.items():
        own = declared[name]
        assert (parameter.kind is parameter.POSITIONAL_OR_KEYWORD) == own.info.is_argument
        assert (parameter.default is parameter.empty) == own.is_required
        if not own.is_required:
            assert parameter.default == own.default


@pytest.mark.slow
def test_verbs_stay_functions_after_every_job_was_imported():
    """`pipelines.embed` is the job's package: the verb of that name must not become it."""
    code = f"""
import importlib, sys
heavy = {{"ray", "torch", "pyarrow"}}
import pipelines.api as api
assert not heavy & set(sys.modules), heavy & set(sys.modules)
for stage in {STAGES}:
    importlib.import_module(f"pipelines.{{stage}}.job")
calls = {{
    "embed": dict(corpus="c", model="m", out="o", limit=0),
    "build_index": dict(vectors="v", out="o", m=0),
    "search": dict(index="i"),
    "find_pairs": dict(vectors="v", out="o", threshold=2),
    "cluster": dict(pairs="p", out="o", topics=0),
    "deduplicate": dict(file="f", out="o", threshold=2),
    "prepare": dict(files="f", out="o", format="x"),
    "train": dict(shards="s", base="b", out="o"),
    "evaluate": dict(models="m"),
    "run": dict(job="missing.yaml"),
}}
for verb, options in calls.items():
    try:
        getattr(api, verb)(**options)
    except ValueError:
        continue
    sys.exit(verb)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture
def example_folder(tmp_path, bert_folder, monkeypatch):
    """The working directory of the examples: texts, scored pairs, a job file and an encoder."""
    names = "cat ship river stone music paper winter copy".split()
    texts = [f"a {name} in winter" for name in names[:-1]] + ["a cat in winter"]
    pq.write_table(pa.table({"id": names, "text": texts}), tmp_path / "texts.parquet")
    pairs = {
        "sentence1": texts,
        "sentence2": [*texts[1:], texts[0]],
        "score": [n / 8 for n in range(8)],
    }
    pq.write_table(pa.table(pairs), tmp_path / "scored.parquet")
    (tmp_path / "job.yaml").write_text(JOB)
    shutil.copytree(bert_folder, tmp_path / "encoder")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.ray
def test_examples_of_all_verbs_run(example_folder, ray_address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    shown = []
    for verb in VERBS:
        names = {name: getattr(api, name) for name in api.__all__}
        [example] = finder.find(getattr(api, verb), verb, globs=names)
        runner.run(example, out=shown.append)
        assert runner.failures == 0, "".join(shown)
    assert runner.tries > len(VERBS)
    again = api.find_pairs(example_folder / "vectors", out="pairs", threshold=0.9999)
    assert not again.is_new
    assert repr(again).startswith("PairsReport\n") and "<table>" in again._repr_html_()
    assert api.Artifact.open("vectors").rows == api.Index.open("index").rows == 8
