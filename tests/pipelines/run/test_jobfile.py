"""Job files: options with the types of their commands, errors with file and line."""

import pytest
import yaml

from pipelines.embed.spec import EmbedSpec
from pipelines.init import job as init_job
from pipelines.init.spec import InitSpec
from pipelines.pairs.spec import JoinMethod, PairsSpec
from pipelines.run.jobfile import JobFile
from pipelines.run.portability import relative_places
from pipelines.run.yaml_tree import JobFileError
from pipelines.train.spec import TrainSpec


def read(tmp_path, text, *settings):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return JobFile.read(path, settings)


def test_the_example_is_a_job_and_is_never_replaced(tmp_path):
    spec = InitSpec(job=tmp_path / "job.yaml", corpus="texts.parquet", out="out")
    job = JobFile.read(init_job.run(spec))
    assert list(job.stages) == ["embed", "pairs", "cluster", "apply", "report"]
    assert job.stages["embed"].corpus == "texts.parquet"
    assert job.stages["pairs"].vectors == job.stages["embed"].out == "out/vectors"
    assert job.stages["cluster"].pairs == "out/pairs" and job.stages["cluster"].keep == "longest"
    assert job.gates == {"max_quarantined_share": 0.01, "min_recall": 0.99}
    before = spec.job.read_bytes()
    with pytest.raises(ValueError):
        init_job.run(InitSpec(job=spec.job))
    assert spec.job.read_bytes() == before


def test_options_take_the_types_of_their_commands(tmp_path):
    text = """
corpus: c
out: o
stages:
  train: {base: demo, objective: cosine, matryoshka: "256,128", epochs: 2}
  prepare: {files: [a.tsv, b.tsv], format: scored, score-range: "0,5"}
  embed: {carry: [a, b], limit: 5}
  index: {shards: auto}
  pairs: {threshold: 1, band: "0.8:0.9", method: exact}
  cluster: {thresholds: [0.9, 0.95], keep: [longest, "newest:date"]}
price_per_hour: 2
"""
    job = read(tmp_path, text, "embed.limit=7", "gates.max_removed_share=0.5", "out=p")
    assert list(job.stages) == ["prepare", "train", "embed", "index", "pairs", "cluster"]
    assert job.stages["prepare"].files == ("a.tsv", "b.tsv")
    assert job.stages["prepare"].score_range == (0.0, 5.0)
    assert job.stages["train"].matryoshka == (256, 128)
    assert (job.stages["embed"].carry, job.stages["embed"].limit) == (("a", "b"), 7)
    assert job.stages["embed"].model == "p/encoder" and job.out == "p"
    assert job.stages["index"].shards is None
    assert job.stages["pairs"].band == (0.8, 0.9) and job.stages["pairs"].threshold == 1.0
    assert job.stages["pairs"].method is JoinMethod.EXACT
    assert job.stages["cluster"].keep == "longest,newest:date"
    assert job.price_per_hour == 2.0 and job.gates == {"max_removed_share": 0.5}


def test_find_gives_a_stage_by_the_type_of_its_spec(tmp_path):
    job = read(tmp_path, "corpus: c\nout: o\nstages:\n  embed: {model: demo}\n")
    found = job.find(EmbedSpec)
    assert found is not None and found.model == "demo" and found.out == "o/vectors"
    assert job.find(TrainSpec) is None and job.find(PairsSpec) is None


HEAD = "corpus: c\nout: o\n"
EMBED = f"{HEAD}stages:\n  embed:\n    model: demo\n"
GATED = f"{HEAD}stages: {{pairs: }}\n"
BAD_LINES = {
    f"{HEAD}stages:\n  embed:\n    modle: demo\n": 5,
    f"{HEAD}stages:\n  embde:\n    model: demo\n": 5,
    f"{EMBED}    limit: many\n": 6,
    f"{EMBED}    out: x\n": 6,
    f"{EMBED}    dtype: int4\n": 6,
    f"{EMBED}    prompt: {{a: 1}}\n": 6,
    f"{HEAD}stages:\n  embed: {{}}\n": None,
    "out: o\nstages:\n  embed: {model: demo}\n": None,
    "corpus: c\nstages:\n  embed: {model: demo}\n": None,
    HEAD: None,
    f"{HEAD}stages:\n  pairs:\n    threshold: 2\n": 5,
    f"{HEAD}stages:\n  embed: demo\n": 4,
    "corpus: [\n": 2,
    "- a\n": 1,
    f"{HEAD}corpus: d\n": 3,
    f"{GATED}gates:\n  min_recal: 1\n": 5,
    f"{GATED}gates:\n  min_recall: high\n": 5,
    f"{GATED}gates: 3\n": 4,
    f"{GATED}price_per_hour: dear\n": 4,
    f"{GATED}price_per_hour: {{a: 1}}\n": 4,
    f"{EMBED}    limit: 2024-13-01\n": 6,
}


@pytest.mark.parametrize("text", BAD_LINES)
def test_faults_carry_their_file_and_line(text, tmp_path):
    with pytest.raises(JobFileError) as caught:
        read(tmp_path, text)
    path, line = str(tmp_path / "job.yaml"), BAD_LINES[text]
    assert (caught.value.path, caught.value.line) == (path, line)
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}: ")


def test_misspelt_option_is_reported_with_the_nearest_name(tmp_path):
    with pytest.raises(JobFileError, match=r":5: 'modle' is unknown; did you mean 'model'"):
        read(tmp_path, f"{HEAD}stages:\n  embed:\n    modle: demo\n")


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("embed.modle=x", "embed.modle"),
        ("pairs.threshold=0.9", "pairs.threshold"),
        ("embed", "embed"),
        ("a.b.c=1", "a.b.c=1"),
        ("embed.limit=[", "embed.limit=["),
        ("gates.min_recal=1", "gates.min_recal"),
    ],
)
def test_settings_are_checked_too(setting, named, tmp_path):
    with pytest.raises(JobFileError) as caught:
        read(tmp_path, f"{HEAD}stages:\n  embed: {{model: demo}}\n", setting)
    assert (caught.value.setting, caught.value.line) == (named, None)


def test_empty_blocks_are_filled_by_settings(tmp_path):
    text = f"{HEAD}stages:\n  embed: {{model: demo}}\ngates:\n"
    assert read(tmp_path, text, "gates.min_recall=0.9").gates == {"min_recall": 0.9}
    assert read(tmp_path, text).gates == {}
    with pytest.raises(JobFileError):
        read(tmp_path, f"{HEAD}stages:\n", "out=p")


def test_missing_file_is_a_job_file_error(tmp_path):
    with pytest.raises(JobFileError) as caught:
        JobFile.read(tmp_path / "none.yaml")
    assert caught.value.path == str(tmp_path / "none.yaml")


def test_relative_places_are_named_by_their_options(tmp_path):
    (tmp_path / "mine" / "encoder").mkdir(parents=True)
    stages = {
        "embed": {"model": "mine/encoder", "carry": ["lang"]},
        "evaluate": {
            "models": ["demo", "org/name@main", "enc"],
            "sts": ["s3://b/sts.tsv", "sts.tsv"],
            "baselines": ["tfidf", "glove=glove.txt", "mean=/shared/bert"],
        },
        "pairs": {"against": "../old"},
        "cluster": {"protect": "/shared/ids.txt"},
        "report": None,
    }
    text = yaml.safe_dump({"out": "run/", "corpus": "/shared/texts", "stages": stages})
    assert relative_places(read(tmp_path, text)) == {
        "out": "run/",
        "embed.model": "mine/encoder",
        "evaluate.models": "enc",
        "evaluate.sts": "sts.tsv",
        "evaluate.baselines": "glove.txt",
        "pairs.against": "../old",
    }
    shared = {"out": "s3://b/run", "corpus": "/c", "stages": {"embed": {"model": "demo"}}}
    assert relative_places(read(tmp_path, yaml.safe_dump(shared))) == {}
