"""What a report finds in folders of JSON files, and the tables it makes of it; no Ray."""

import json

import pytest

from pipelines.artifacts.sidecars import RunFacts
from pipelines.report import lengths, tables
from pipelines.report.sources import ReportSources

SCORE = {"task": "sts", "data": "stsb", "measure": "spearman", "value": 81.237, "is_main": True}
TRAINING = {
    "report": {"steps": 10, "rows": 99, "measure": "spearman", "start_score": 1, "best_score": 2},
    "loss": [[1, 2.5], [10, float("nan")]],
    "dev": [[0, 70.0], [2, 80.0]],
    "spec": {"other": "keys"},
}
RECORD = {
    "seconds": 7200.0,
    "stages": [{"name": "embed", "outcome": "done", "seconds": 1.5, "driver_bytes": 5_000_000}],
    "gates": [{"name": "min_recall", "limit": 0.9, "value": None, "is_met": False}],
    "price_per_hour": 3.0,
}


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_find_reads_scores_trainings_and_the_record(tmp_path):
    write(tmp_path, run=RECORD)
    write(tmp_path / "encoder", training=TRAINING)
    write(tmp_path / "scores", scores={"a": [SCORE], "b": [SCORE | {"is_main": False}]})
    write(tmp_path / "_hidden", scores={"c": [SCORE]})
    found = ReportSources.find([str(tmp_path)])
    assert list(found.trainings) == ["encoder"] and list(found.scores) == ["a", "b"]
    [table] = tables.make_score_tables(found)
    assert table.columns == ("task", "data", "measure", "a", "b")
    assert table.rows == (("sts", "stsb", "spearman", 81.24, "-"),)
    [curve] = tables.make_training_curves(found)
    assert curve.scores == ((0.0, 70.0), (10.0, 80.0)) and len(curve.loss) == 2
    [stages] = tables.make_stage_tables(found)
    assert stages.rows == (("embed", "done", 1.5, "", 5),)
    [gate] = tables.make_gate_lines(found)
    assert not gate.is_met
    assert [card.value for card in tables.make_headline(found)] == ["7,200", "6.00"]
    assert (found.vectors, found.vectors_run, found.topic_names()) == (None, RunFacts(), ())
    assert lengths.make_length_histogram(found) is None and lengths.make_throughput(found) is None


def test_find_passes_over_the_run_json_of_another_program(tmp_path):
    write(tmp_path, run={"seconds": "many"}, scores={"a": [SCORE]})
    assert ReportSources.find([str(tmp_path)]).record is None


def test_find_in_folders_without_anything_to_show_is_refused(tmp_path):
    write(tmp_path, run=RECORD)
    with pytest.raises(FileNotFoundError):
        ReportSources.find([str(tmp_path)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scores.json", "{"),
        ("scores.json", '{"a": [{"task": "sts"}]}'),
        ("training.json", json.dumps(TRAINING | {"loss": 3})),
        ("run.json", json.dumps(RECORD | {"stages": [{}]})),
        ("run.json", "[]"),
    ],
)
def test_find_names_a_broken_file(name, text, tmp_path):
    write(tmp_path, scores={"a": [SCORE]})
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        ReportSources.find([str(tmp_path)])
