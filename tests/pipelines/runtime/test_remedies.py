"""After a refusal: nothing changed ends as before, the remedy that was named helps at once."""

import csv
import shutil

import pytest
import yaml
from click.testing import CliRunner
from support.embedding import sentences
from support.encoders import tiny_model, tiny_tokenizer

from pipelines.cli.main import main

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
TEXTS = sentences(6)
GOOD = {"id": ["1", "2", "3"], "text": TEXTS[:3]}
REPEATED = {"id": ["1", "2", "2"], "text": TEXTS[:3]}
NO_TEXT = {"id": ["1", "2", "3"], "body": TEXTS[:3]}
BLANK = {"id": ["1", "2", "3"], "text": [TEXTS[0], "", ""]}


def write(place, columns):
    place.parent.mkdir(exist_ok=True)
    with place.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.fixture
def sbert(ray_address, bert_folder, tmp_path, monkeypatch):
    """Run a command in an empty folder, where `model` is an encoder; its exit code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(bert_folder)
    job = {
        "corpus": "runs/",
        "out": "run",
        "stages": {"embed": {"model": "model"}},
        "gates": {"max_quarantined_share": 0.1},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))

    def call(*words):
        result = CliRunner().invoke(main, [*words, "--address", ray_address])
        assert not isinstance(result.exception, Exception), result.exception
        return result.exit_code

    return call


def embed(corpus):
    return ("embed", corpus, "--out", "v", "--model", "model")


# What is given, the file it reads, and how the file makes it fail, with the exit code.
FAILURES = {
    # The corpus is a folder whose name begins as the name of the output does.
    "job": (("run", "job.yaml"), "runs/a.csv", [(REPEATED, 2), (BLANK, 4), (NO_TEXT, 2)]),
    "glob": (embed("*.csv"), "a.csv", [(REPEATED, 2), (None, 2)]),
    "name like a glob": (embed("a[1].csv"), "a[1].csv", [(REPEATED, 2)]),
}


@pytest.mark.parametrize("command", FAILURES)
def test_failure_repeated_fails_again_and_repaired_succeeds(command, sbert, tmp_path):
    words, name, failures = FAILURES[command]
    write(tmp_path / name, GOOD)
    assert sbert(*words) == 0
    for spoilt, code in failures:
        if spoilt is None:
            (tmp_path / name).unlink()
        else:
            write(tmp_path / name, spoilt)
        assert [sbert(*words), sbert(*words)] == [code, code]
        write(tmp_path / name, GOOD)
        assert sbert(*words) == 0


def test_refusal_of_a_scanned_corpus_leaves_no_new_output(sbert, tmp_path):
    write(tmp_path / "a.csv", REPEATED)
    assert sbert(*embed("a.csv")) == 2
    assert not (tmp_path / "v").exists()


def test_work_of_another_model_removed_as_told_succeeds(sbert, tmp_path, monkeypatch):
    write(tmp_path / "a.csv", GOOD)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pipelines.embed.job._fill", stop)
        assert sbert(*embed("a.csv")) == 3
    (tmp_path / "model").unlink()
    tiny_model("bert", seed=1).save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    assert [sbert(*embed("a.csv")), sbert(*embed("a.csv"))] == [2, 2]
    shutil.rmtree(tmp_path / "v/_work")
    assert sbert(*embed("a.csv")) == 0
