"""A job that cannot succeed is not tried twice; one that may is."""

import json
import time

import pytest
import yaml
from click.testing import CliRunner
from embedding import rows_of, sentences, write_corpus

from pipelines import run as run_job
from pipelines.artifacts import GateFailed
from pipelines.cli import main
from pipelines.outcome import OUTCOME, fingerprint_of, remembered
from pipelines.specs import EmbedSpec
from sbert_core.errors import Unsettled


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").touch()
    return tmp_path / "out"


def ended(out, fingerprint, error=None):
    with remembered(str(out), fingerprint):
        if error is not None:
            raise error


@pytest.mark.parametrize("kind, code", [(ValueError, 2), (GateFailed, 4)])
def test_the_same_end_without_trying(out, kind, code):
    with pytest.raises(kind, match="^too few rows$"):
        ended(out, "one", kind("too few rows"))
    assert json.loads((out / OUTCOME).read_text())["code"] == code
    for _ in range(2):  # the words do not grow
        with pytest.raises(kind, match=r"^too few rows \(as before, [-\d: ]+: nothing was tried"):
            ended(out, "one")
    ended(out, "another")
    assert not (out / OUTCOME).exists()
    ended(out, "one")


@pytest.mark.parametrize(
    "error", [Unsettled("no cluster"), RuntimeError("odd"), OSError(28, "full")]
)
def test_what_may_pass_is_not_remembered(out, error):
    with pytest.raises(type(error)):
        ended(out, "one", error)
    assert not (out / OUTCOME).exists()


def test_an_output_that_is_not_there_is_not_made_for_an_error(tmp_path):
    with pytest.raises(ValueError, match="bad"):
        ended(tmp_path / "out", "one", ValueError("bad"))
    assert not (tmp_path / "out").exists()


def test_a_torn_record_counts_for_nothing(out):
    (out / OUTCOME).write_text('{"finger')
    ended(out, "one")
    assert not (out / OUTCOME).exists()


def test_a_changed_input_is_another_job(tmp_path):
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of(sentences(3))})
    for place in (str(corpus), str(corpus / "a.parquet"), str(corpus / "*.parquet")):
        spec = EmbedSpec(corpus=place, out=str(tmp_path / "out"), model="demo")
        before = fingerprint_of(spec)
        assert before == fingerprint_of(spec)
        time.sleep(0.01)
        write_corpus(corpus, {"a.parquet": rows_of(sentences(3))})
        assert fingerprint_of(spec) != before
    other = EmbedSpec(corpus=place, out=str(tmp_path / "else"), model="demo", address="x")
    assert fingerprint_of(other) == fingerprint_of(spec)


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_a_failed_gate_is_not_tried_again(bert_folder, ray_address, tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "in", {"a.parquet": rows_of([*sentences(40), "", None])})
    job = {
        "corpus": str(corpus),
        "out": str(tmp_path / "run"),
        "stages": {"embed": {"model": str(bert_folder)}},
        "gates": {"max_quarantined_share": 0.01},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    words = ["run", str(tmp_path / "job.yaml"), "--address", ray_address]
    first = CliRunner().invoke(main, words)
    assert (first.exit_code, "as before" in first.stderr) == (4, False), first.stderr
    carried_out = run_job.Run.carried_out

    def forbidden(self):
        raise AssertionError("a worker was asked for")

    monkeypatch.setattr(run_job.Run, "carried_out", forbidden)
    again = CliRunner().invoke(main, words)
    assert (again.exit_code, "as before" in again.stderr) == (4, True), again.stderr
    monkeypatch.setattr(run_job.Run, "carried_out", carried_out)
    write_corpus(corpus, {"a.parquet": rows_of(sentences(40))})
    assert CliRunner().invoke(main, words).exit_code == 0
    assert not (tmp_path / "run" / OUTCOME).exists()
