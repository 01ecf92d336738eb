"""Corpora that lie in artifacts: what is published is read, once, under names that stay."""

import json
import shutil
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.corpus.errors import MissingFile, MixedGenerations, NotACorpus
from sbert_core.corpus.files import find_corpus
from sbert_core.corpus.source import CorpusSource, SourceFile
from sbert_core.corpus.text_lookup import TextLookup

NEW, OLD = "0123456789abcdef", "fedcba9876543210"
NAMES = ("a.parquet", "lang=de/b.parquet", "lang=de/data/c.parquet")


def write(path, texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts}), path)


def publish(root, generation, kind="corpus", names=NAMES):
    files = [{"path": f"data/{generation}/{name}"} for name in names]
    manifest = {"kind": kind, "generation": generation, "files": files}
    root.mkdir(parents=True, exist_ok=True)
    (root / "_manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def clean(tmp_path):
    """Two generations, of which the new one is published, and a file nobody lists."""
    root = tmp_path / "all" / "clean"
    for generation in (OLD, NEW):
        for name in (*NAMES, "unlisted.parquet"):
            write(root / "data" / generation / name, [f"{generation} {name}"])
    publish(root, NEW)
    write(tmp_path / "all" / "plain.parquet", ["plain"])
    return root


def texts_of(place):
    """Every text below a corpus, by file, or the class of the error."""
    try:
        corpus = find_corpus(str(place))
    except (ValueError, FileNotFoundError) as error:
        return type(error).__name__
    return {
        file.path: pq.read_table(corpus.storage.path(file.path))["text"].to_pylist()
        for file in corpus.files
    }


def test_corpus_published_in_generations_is_read_once(clean):
    want = {name: [f"{NEW} {name}"] for name in NAMES}
    assert texts_of(clean) == texts_of(f"{clean}/") == want
    assert texts_of(f"{clean}/**/*.parquet") == want
    assert texts_of(f"{clean}/*/b.parquet") == {NAMES[1]: want[NAMES[1]]}
    assert find_corpus(str(clean)).root == str(clean)
    assert find_corpus(str(clean)).files[1].partitions == {"lang": "de"}


def test_words_that_reach_two_generations_are_refused(clean):
    words = [
        clean.parent,
        f"{clean.parent}/**/*.parquet",
        f"{clean.parent}/*/data/*/a.parquet",
        clean / "data",
        f"{clean}/data/*/a.parquet",
        f"{clean}/data/*/*.parquet",
    ]
    assert {str(word): texts_of(word) for word in words} == {
        str(word): "MixedGenerations" for word in words
    }
    with pytest.raises(MixedGenerations) as caught:
        find_corpus(str(clean.parent))
    assert caught.value.artifact == str(clean)


def test_one_generation_by_name_is_a_plain_folder(clean):
    assert set(texts_of(clean / "data" / OLD)) == {*NAMES, "unlisted.parquet"}
    assert set(texts_of(clean / "data" / OLD / "lang=de")) == {"b.parquet", "data/c.parquet"}
    assert set(texts_of(clean / "data" / OLD / "a.parquet")) == {"a.parquet"}
    assert set(texts_of(f"{clean.parent}/*.parquet")) == {"plain.parquet"}


def test_artifact_of_another_kind_is_refused_with_the_remedy(clean):
    publish(clean, NEW, kind="vectors")
    with pytest.raises(NotACorpus) as caught:
        find_corpus(str(clean))
    assert (caught.value.root, caught.value.kind) == (str(clean), "vectors")
    write(clean / "mine.parquet", ["x"])
    assert texts_of(clean / "mine.parquet") == {"mine.parquet": ["x"]}


@pytest.mark.parametrize("manifest", ["{", "[]", '{"kind": "corpus"}', '{"files": 3}'])
def test_broken_manifest_is_not_taken_for_a_plain_folder(clean, manifest):
    (clean / "_manifest.json").write_text(manifest)
    assert texts_of(clean) == "MixedGenerations"


def test_manifest_of_another_tool_changes_nothing(tmp_path):
    write(tmp_path / "data" / "a.parquet", ["x"])
    (tmp_path / "_manifest.json").write_text('{"files": []}')
    assert texts_of(tmp_path) == {"data/a.parquet": ["x"]}


def test_generation_that_leads_elsewhere_is_not_followed(clean):
    write(clean.parent / "secret" / "a.parquet", ["secret"])
    publish(clean, "../../secret")
    assert texts_of(clean) == "MixedGenerations"
    corpus = CorpusSource(corpus=str(clean), text="{text}", files=())
    assert TextLookup(corpus).get([("a.parquet", 0)]) == [None]


def test_listed_file_that_is_missing_is_named(clean):
    (clean / "data" / NEW / NAMES[1]).unlink()
    with pytest.raises(MissingFile) as caught:
        find_corpus(str(clean))
    assert caught.value.path == "lang=de/b.parquet"


def test_texts_of_unchanged_files_are_found_in_later_generations(clean):
    corpus = find_corpus(str(clean))
    files = tuple(SourceFile(**asdict(file)) for file in corpus.files)
    texts = TextLookup(CorpusSource(corpus=corpus.root, text="{text}", files=files))
    later = clean / "data" / "aaaaaaaaaaaaaaaa"
    (later / "lang=de" / "data").mkdir(parents=True)
    (later / NAMES[0]).hardlink_to(clean / "data" / NEW / NAMES[0])
    write(later / NAMES[1], ["another text"])
    (later / NAMES[2]).hardlink_to(clean / "data" / NEW / NAMES[2])
    publish(clean, later.name)
    shutil.rmtree(clean / "data" / NEW)
    found = texts.get([(name, 0) for name in NAMES])
    assert found == [f"{NEW} {NAMES[0]}", None, f"{NEW} {NAMES[2]}"]
    assert len(texts.notes) == 1
