"""What publishing removes, and what it leaves alone."""

import pytest
from support.decisions import vectors_by_hand

from pipelines.artifacts.reader import Artifact


@pytest.mark.parametrize("name", ["raw", "0123456789abcde", "0123456789abcdef0", "2024-01-01"])
def test_publish_into_a_folder_with_data_of_others_leaves_theirs(name, tmp_path):
    out = tmp_path / "project"
    theirs = out / "data" / name / "years_of_work.csv"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("irreplaceable")
    (tmp_path / "in.csv").write_text("id,text\n1,a\n")
    vectors_by_hand(tmp_path / "in.csv", out)
    assert theirs.read_text() == "irreplaceable"


def test_publish_removes_all_generations_but_the_last_two(tmp_path):
    corpus, out = tmp_path / "in.csv", tmp_path / "v"
    generations = []
    for n in range(3):
        corpus.write_text(f"id,text\n{n},a\n")
        vectors_by_hand(corpus, out)
        generations.append(Artifact.open(out).manifest.generation)
    assert {path.name for path in (out / "data").iterdir()} == set(generations[1:])
