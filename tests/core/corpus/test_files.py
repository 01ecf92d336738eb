"""Which files a word names, what is looked at to find them, and what their folders say."""

import itertools
import os
import random
import re
from dataclasses import asdict
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from pipelines.embed.plan import partition_types
from sbert_core.corpus.errors import InvalidFileName, InvalidPattern
from sbert_core.corpus.files import CorpusFile, find_corpus
from sbert_core.corpus.glob import Glob
from sbert_core.corpus.reader import CorpusReader, IdKind
from sbert_core.corpus.row_filter import RowFilter
from sbert_core.corpus.source import CorpusSource, SourceFile
from sbert_core.corpus.text_lookup import TextLookup
from sbert_core.storage import s3 as objects
from sbert_core.storage import storage_at


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def paths(place) -> list[str]:
    return [file.path for file in find_corpus(str(place)).files]


@pytest.fixture
def looked_into(monkeypatch):
    """Folders that were listed, in order."""
    found = []
    scandir = os.scandir

    def counted(path="."):
        found.append(os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    return found


def test_corpus_of_one_file_lists_no_folder(tmp_path, looked_into):
    touch(tmp_path, "posts.csv", "other/a.csv", *(f"{n}.csv" for n in range(20)))
    (tmp_path / "other/up").symlink_to(tmp_path)
    assert paths(tmp_path / "posts.csv") == ["posts.csv"]
    assert looked_into == []


def test_corpus_folder_lists_nothing_beside_it_and_no_tools_folder(tmp_path, looked_into):
    touch(tmp_path, "c/a.csv", "c/sub/b.csv", "beside/c.csv", "c/_work/d.csv", "c/.git/e.csv")
    assert paths(tmp_path / "c") == ["a.csv", "sub/b.csv"]
    assert looked_into == [str(tmp_path / "c"), str(tmp_path / "c/sub")]


@pytest.mark.parametrize(
    ("pattern", "folders"),
    [
        ("c/*.csv", ["c"]),
        ("c/2*/*.csv", ["c", "c/2023", "c/2024"]),
        ("c/2024/**/x.csv", ["c/2024", "c/2024/01", "c/2024/02"]),
        ("c/*/01/*.csv", ["c", "c/2023", "c/2023/01", "c/2024", "c/2024/01", "c/other"]),
    ],
)
def test_glob_lists_only_folders_it_can_match_in(pattern, folders, tmp_path, looked_into):
    years = [f"c/{year}/{month}/x.csv" for year in (2023, 2024) for month in ("01", "02")]
    touch(tmp_path, *years, "c/2023/y.csv", "c/z.csv", "c/other/w.csv", "d/v.csv", "u.csv")
    paths(tmp_path / pattern)
    assert sorted(looked_into) == sorted(str(tmp_path / folder) for folder in folders)


ALPHABET = ("a", "b", "ab", "x.csv", "b.csv", "a=1")


def translated(pattern: str) -> re.Pattern[str]:
    """The plain meaning: one regular expression over whole paths."""
    parts = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    tokens = re.findall(r"(?:(?<=/)|^)\*\*/|\*\*|\*|\?|\[[^\]]*\]|.", pattern)
    return re.compile("".join(parts.get(t) or (t if t[0] == "[" else re.escape(t)) for t in tokens))


@pytest.mark.parametrize("seed", range(100))
def test_glob_random_means_what_its_regular_expression_means(seed):
    rng = random.Random(seed)
    words = ["*", "**", "?", "[ab]", "a", "b", "*.csv", "x.csv", "a**", "**b", "a*b", "**.csv"]
    pattern = "/".join(rng.choices(words, k=rng.randint(1, 4)))
    whole = translated(pattern)
    for depth in (1, 2, 3):
        for parts in itertools.product(ALPHABET, repeat=depth):
            scope = Glob.parse(pattern)
            for folder in parts[:-1]:
                scope = scope and scope.inside(folder)
            found = scope is not None and scope.has(parts[-1])
            assert found == bool(whole.fullmatch("/".join(parts))), (pattern, parts)


@pytest.mark.parametrize("pattern", ["[z-a]*.csv", "x[!].csv", "d/[\\]/*.csv"])
def test_glob_with_a_bad_set_is_refused_by_name(pattern, tmp_path):
    touch(tmp_path, "x.csv", "d/y.csv")
    with pytest.raises(InvalidPattern) as caught:
        find_corpus(f"{tmp_path}/{pattern}")
    assert caught.value.pattern in pattern


def test_link_to_the_folder_itself_adds_no_file(tmp_path, looked_into):
    touch(tmp_path, "c/a.csv", "c/sub/b.csv")
    (tmp_path / "c/self").symlink_to(".")
    (tmp_path / "c/sub/up").symlink_to("..")
    (tmp_path / "c/sub/loop").symlink_to("loop")
    (tmp_path / "c/gone").symlink_to("nowhere")
    (tmp_path / "c/gone.csv").symlink_to("nowhere.csv")
    for place in ("c", "c/**/*.csv", "c/**"):
        looked_into.clear()
        assert paths(tmp_path / place) == ["a.csv", "sub/b.csv"]
        assert len(looked_into) <= 4
    assert sorted(stat.name for stat in storage_at(tmp_path / "c").list()) == ["a.csv", "sub/b.csv"]


def test_folder_with_several_links_comes_once_by_its_first_path(tmp_path):
    touch(tmp_path, "far/x.csv", "c/m/y.csv")
    for name in ("c/zz", "c/b", "c/b-b"):
        (tmp_path / name).symlink_to(tmp_path / "far")
    (tmp_path / "c/link.csv").symlink_to(tmp_path / "far/x.csv")
    assert paths(tmp_path / "c") == ["b-b/x.csv", "link.csv", "m/y.csv"]  # "b-b/" is below "b/"


def test_folder_that_a_tools_folder_links_to_is_not_lost(tmp_path):
    touch(tmp_path, "c/data/x.csv")
    (tmp_path / "c/_old").symlink_to("data")
    (tmp_path / "c/.cache").mkdir()
    (tmp_path / "c/.cache/data").symlink_to(tmp_path / "c/data")
    assert paths(tmp_path / "c") == ["data/x.csv"]


def test_glob_finds_what_it_names_though_another_name_comes_first(tmp_path):
    touch(tmp_path, "c/b/x.csv", "c/d/y.csv")
    (tmp_path / "c/a").symlink_to("b")
    assert paths(tmp_path / "c/**/b/*.csv") == ["b/x.csv"]
    assert paths(tmp_path / "c/*/x.csv") == ["a/x.csv"]
    assert paths(tmp_path / "c/[b-d]/*.csv") == ["b/x.csv", "d/y.csv"]


@pytest.mark.parametrize("seed", range(40))
def test_random_trees_with_links_give_every_file_once(seed, tmp_path):
    """Against a walk over real folders: each file that a path leads to, by its smallest path."""
    rng = random.Random(seed)
    root = tmp_path / "c"
    folders = [root]
    root.mkdir()
    for n in range(rng.randint(1, 7)):
        folders.append(rng.choice(folders) / rng.choice(["a", "b", "b-", "_t", "z"]) / str(n))
        folders[-1].mkdir(parents=True)
    for n, folder in enumerate(folders):
        touch(folder, f"{n}.csv")
    for n in range(rng.randint(0, 6)):
        place = rng.choice(folders) / f"{rng.choice('amz')}{n}"
        place.symlink_to(rng.choice(folders), target_is_directory=True)
    found = paths(root)
    real = [os.path.realpath(root / path) for path in found]
    assert len(set(real)) == len(real)
    assert dict(zip(real, found, strict=True)) == smallest_paths(root)


def smallest_paths(root: Path) -> dict[str, str]:
    """Real path of each visible file -> the smallest of its names; loops are left after 8 steps."""
    best: dict[str, str] = {}
    todo = [(root, "", frozenset())]
    while todo:
        folder, name, above = todo.pop()
        real = os.path.realpath(folder)
        if real in above:
            continue
        for entry in folder.iterdir():
            if entry.name[0] in "_.":
                continue
            path = f"{name}{entry.name}"
            if entry.is_dir():
                todo.append((entry, f"{path}/", above | {real}))
            else:
                key = os.path.realpath(entry)
                best[key] = min(best.get(key, path), path, key=str.encode)
    return best


def test_name_that_is_no_utf8_is_refused_by_name(tmp_path):
    touch(tmp_path, "a.csv")
    bad = os.fsencode(tmp_path) + b"/caf\xe9.csv"
    with open(bad, "wb") as file:
        file.write(b"x")
    with pytest.raises(InvalidFileName) as caught:
        find_corpus(str(tmp_path))
    assert caught.value.path == "caf\udce9.csv"
    os.rename(bad, os.fsencode(tmp_path) + b"/caf\xe9.md")
    assert paths(tmp_path) == ["a.csv"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_folder_that_cannot_be_read_is_an_error(tmp_path):
    touch(tmp_path, "a.csv", "sub/b.csv")
    (tmp_path / "sub").chmod(0)
    with pytest.raises(PermissionError):
        find_corpus(str(tmp_path))
    (tmp_path / "sub").chmod(0o700)


VALUES = ["v%20w", "a%2Fb", "100%", "%zz", "a+b", "a=b", "", "%C3%A9", "__HIVE_DEFAULT_PARTITION__"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", ["k", "k%20a"])
def test_hive_value_is_what_pyarrow_reads(key, value):
    path = f"{key}={value}/x.parquet"
    schema = pa.schema([("k", pa.string()), ("k a", pa.string())])
    want = ds.get_partition_keys(ds.partitioning(schema, flavor="hive").parse(path))
    assert CorpusFile(path, 0, "").partitions == want


def hive_corpus(root: Path) -> Path:
    values = ["2019", "2024", "__HIVE_DEFAULT_PARTITION__"]
    for number, year in enumerate(values):
        folder = root / f"year={year}" / "lang=v%20w"
        folder.mkdir(parents=True)
        texts = [f"text {number} {n}" for n in range(3)]
        pq.write_table(pa.table({"text": texts}), folder / "x.parquet")
    return root


def test_hive_columns_are_typed_filtered_and_carried_as_by_pyarrow(tmp_path):
    corpus = find_corpus(str(hive_corpus(tmp_path)))
    types = partition_types(corpus.files)
    assert types == {"year": "int64", "lang": "string"}
    reading = CorpusReader(
        root=corpus.root,
        template="{lang}: {text}",
        id_kind=IdKind.POSITION,
        id_column=None,
        carry={"when": "year", "lang": "lang"},
        where=RowFilter("year >= 2020 or year is None"),
        partition_types=types,
        staged={},
    )
    rows = [reading.read(file.path, 0, 3) for file in corpus.files]
    found = [
        dict(zip(("text", "year", "lang"), row, strict=True))
        for own in rows
        for row in zip(
            own.texts, own.carried["when"].to_pylist(), own.carried["lang"].to_pylist(), strict=True
        )
    ]
    table = ds.dataset(tmp_path, partitioning="hive").to_table()
    want = [
        {"text": f"{row['lang']}: {row['text']}", "year": row["year"], "lang": row["lang"]}
        for row in table.to_pylist()
        if row["year"] is None or row["year"] >= 2020
    ]
    key = lambda row: row["text"]  # noqa: E731
    assert sorted(found, key=key) == sorted(want, key=key)
    assert {i for own in rows for i in own.ids.to_pylist()} == {
        f"year={year}/lang=v%20w/x.parquet#{n}"
        for year in ("2024", "__HIVE_DEFAULT_PARTITION__")
        for n in range(3)
    }


def test_hive_null_in_a_text_is_left_empty_when_it_is_fetched(tmp_path):
    corpus = find_corpus(str(hive_corpus(tmp_path)))
    files = tuple(SourceFile(**asdict(file)) for file in corpus.files)
    source = CorpusSource(corpus=corpus.root, text="{year}|{lang}|{text}", files=files)
    texts = TextLookup(source).get([(file.path, 1) for file in corpus.files])
    assert texts == ["2019|v w|text 0 1", "2024|v w|text 1 1", "|v w|text 2 1"]


def test_hive_column_of_nothing_but_nulls_is_text():
    files = [CorpusFile(f"k=__HIVE_DEFAULT_PARTITION__/{n}.parquet", 0, "") for n in range(2)]
    assert partition_types(files) == {"k": "string"}


@pytest.fixture
def bucket(monkeypatch):
    """A bucket in memory, and the requests that were made of it."""
    store, requests = MemoryStore(), []
    monkeypatch.setattr(objects, "S3Store", lambda bucket, **options: store)
    for name in ("list", "list_with_delimiter", "head"):
        call = getattr(obstore, name)

        def counted(store, place=None, _name=name, _call=call):
            requests.append((_name, place))
            return _call(store, place)

        monkeypatch.setattr(obstore, name, counted)
    keys = ["c/a.csv", "c/b.csv", "c/sub/x.csv", "c/sub/deep/y.csv", "c/_t/z.csv", "d/e.csv"]
    for key in [*keys, "c/out.parquet/part-0.parquet"]:
        obstore.put(store, key, b"x")
    return requests


@pytest.mark.parametrize(
    ("place", "found", "requests"),
    [
        ("c/a.csv", ["a.csv"], [("head", "c/a.csv")]),
        ("c/*.csv", ["a.csv", "b.csv"], [("head", "c/*.csv"), ("list_with_delimiter", "c")]),
        (
            "c/*/x.csv",
            ["sub/x.csv"],
            [
                ("head", "c/*/x.csv"),  # an object of that very name would be meant
                *(("list_with_delimiter", p) for p in ("c", "c/out.parquet", "c/sub")),
            ],
        ),
        ("c/sub", ["deep/y.csv", "x.csv"], [("list", "c/sub")]),
        ("c/**/y.csv", ["sub/deep/y.csv"], [("head", "c/**/y.csv"), ("list", "c")]),
        (
            "c/out.parquet",
            ["part-0.parquet"],
            [("head", "c/out.parquet"), ("list", "c/out.parquet")],
        ),
    ],
)
def test_store_is_asked_for_what_is_named_alone(place, found, requests, bucket):
    assert paths(f"s3://bucket/{place}") == found
    # One look more tells a published corpus from a plain folder.
    plain = [request for request in bucket if not str(request[1]).endswith("/_manifest.json")]
    assert len(bucket) - len(plain) == (place != "c/a.csv")
    assert sorted(plain) == requests
