"""Names that carried columns may have, and what they are called."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.embed.spec import EmbedSpec
from sbert_core.clusters.keep_rules import named_columns, parse_rules, rename_columns
from sbert_core.corpus.columns import CHUNK_COLUMNS, RESERVED_COLUMNS, parse_carry, unreserved_names
from sbert_core.corpus.errors import InvalidCarry
from sbert_core.storage import storage_at
from sbert_core.vectors.reader import read_part, stream_part


def spec(**options) -> EmbedSpec:
    return EmbedSpec(corpus="c", model="m", out="o", **options)


def test_carried_columns_keep_their_names_or_take_others():
    words = ("lang", "row=source_row", "a=b=c", "lang=tongue")
    assert parse_carry(words) == {
        "lang": "lang",
        "source_row": "row",
        "c": "a=b",
        "tongue": "lang",
    }
    assert parse_carry(()) == {}


@pytest.mark.parametrize("name", RESERVED_COLUMNS)
@pytest.mark.parametrize("long", ["truncate", "chunks"])
def test_carry_of_a_name_that_vectors_have_is_refused_with_a_remedy_that_works(name, long):
    for word in (name, f"mine={name}"):
        with pytest.raises(InvalidCarry) as caught:
            spec(carry=(word,), long=long)
        assert (caught.value.word, caught.value.name) == (word, name)
        remedy = str(caught.value).rpartition("as ")[2]
        assert spec(carry=(remedy,), long=long).carried == {f"source_{name}": remedy.split("=")[0]}


@pytest.mark.parametrize("words", [("a", "a"), ("a", "b=a"), ("b=a", "c=a")])
def test_carry_under_one_name_twice_is_refused(words):
    with pytest.raises(InvalidCarry) as caught:
        spec(carry=words)
    assert (caught.value.word, caught.value.name) == (words[1], "a")


@pytest.mark.parametrize("word", ["a=", "=a", "="])
def test_carry_without_a_name_is_refused(word):
    with pytest.raises(InvalidCarry) as caught:
        spec(carry=(word,))
    assert caught.value.word == word


@pytest.mark.parametrize("text", ["a{b", "{}", "plain", "}{", ""])
def test_template_without_a_column_is_refused(text):
    with pytest.raises(ValueError, match="names no column; write one as"):
        spec(text=text)


@pytest.mark.parametrize("name", ["a{b", "a}b", "", "{x}"])
def test_text_column_with_braces_is_refused(name):
    with pytest.raises(ValueError, match="text_column"):
        spec(text_column=name)


def test_unreserved_names_are_no_name_of_vectors_and_all_different():
    for columns in (
        RESERVED_COLUMNS,
        ("row", "source_row", "source_source_row"),
        ("source_id", "id"),
        ("a=b", "a_b", "lang"),
    ):
        names = unreserved_names(columns)
        assert list(names) == list(columns)
        words = [c if c == name else f"{c}={name}" for c, name in names.items()]
        assert parse_carry(words) == {name: column for column, name in names.items()}
    assert unreserved_names(("lang", "date")) == {"lang": "lang", "date": "date"}


def test_rules_follow_their_columns_to_other_names():
    text = "source=wiki>web, longest,newest:row,lowest:num_chars"
    assert named_columns(text) == ["source", "row", "num_chars"]
    names = {"row": "source_row", "num_chars": "source_num_chars"}
    moved = rename_columns(text, names)
    assert parse_rules(moved) == parse_rules(
        "source=wiki>web,longest,newest:source_row,lowest:source_num_chars"
    )
    assert named_columns("") == [] and rename_columns("", {}) == ""


def test_chunk_columns_are_own_columns():
    assert set(CHUNK_COLUMNS) < set(RESERVED_COLUMNS)


def test_part_with_a_column_named_like_a_leaf_of_another_is_read_by_name(tmp_path):
    name = "vector.list.element"
    vector = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0]), 2)
    pq.write_table(pa.table({"id": ["a"], "vector": vector, name: [7]}), tmp_path / "a.parquet")
    storage = storage_at(tmp_path)
    for columns in ([name], ["vector"], [name, "id", name]):
        want = list(dict.fromkeys(columns))
        assert read_part(storage, "a.parquet", columns).column_names == want
        [batch] = stream_part(storage, "a.parquet", columns, 10)
        assert batch.schema.names == want
    assert read_part(storage, "a.parquet").column_names == ["id", "vector", name]
