"""Which files are staged and left out while a plan is made; without Ray, tasks are plain calls."""

import csv
import json
from dataclasses import asdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.manifests import manifest_of

from pipelines.embed.plan import make_plan
from pipelines.embed.plan_record import Plan
from pipelines.embed.spec import EmbedSpec
from pipelines.embed.staging import Staging
from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import find_corpus
from sbert_core.data_file import DataFile
from workers.embed.staging import stage_file

ROWS = [{"id": f"r{n}", "text": f"text {n}", "n": n} for n in range(24)]


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory):
    """Eight rows each in a CSV, a Parquet file and JSON lines, between files without rows."""
    folder = tmp_path_factory.mktemp("corpus")
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS[:8])
    (folder / "a0.csv").write_text("id,text,n\n")
    (folder / "a1.jsonl").write_text("\n")
    pq.write_table(pa.Table.from_pylist(ROWS[8:16]), folder / "b.parquet")
    (folder / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS[16:]))
    return folder


def staging_of(folder, work, **options) -> Staging:
    spec = EmbedSpec(corpus=str(folder), out="unused", model="unused", **options)
    return Staging(
        spec=spec,
        corpus=find_corpus(str(folder)),
        place=str(work),
        folder="staged",
        stage=lambda calls: [stage_file(*call) for call in calls],
    )


def vectors_manifest(plan: Plan, staging: Staging, shape: str):
    """As the job would publish it, without vectors."""
    sources = [
        {"file": unit.path, "first_row": unit.first_row, "num_rows": unit.num_rows}
        for unit in plan.units
    ]
    files = [
        DataFile(path=f"data/{n}", rows=1, sha256="0" * 64, bytes=1, source=source)
        for n, source in enumerate(sources)
    ]
    return manifest_of(
        "vectors",
        generation="g",
        schema={},
        rows=len(files),
        quarantined=0,
        files=tuple(files),
        spec={"model": "m", "space": "s", "recipe": "r", "dim": 1, "scale": None},
        made_from={
            "shape": shape,
            "corpus": staging.corpus.root,
            "partition_types": plan.partition_types,
            "files": [asdict(file) for file in plan.files],
            "text": "{text}",
            "types": plan.types,
            "id": plan.id_kind,
            "id_column": plan.id_column,
        },
        facts={},
        versions={},
    )


wheres = st.sampled_from([None, "n >= 5", "n < 0", "n in (1, 9, 17, 23)"])
runs = st.lists(st.tuples(st.none() | st.integers(1, 30), wheres), min_size=1, max_size=5)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(runs, st.sampled_from([None, "content"]))
def test_plan_after_any_runs_reads_the_rows_of_a_plan_from_scratch(
    corpus_folder, tmp_path_factory, sequence, ids
):
    current = None
    for limit, where in sequence:
        options = {"limit": limit, "where": where, "unit_rows": 3, "id": ids}
        shape = str((where, ids))
        staging = staging_of(corpus_folder, tmp_path_factory.mktemp("w"), **options)
        plan = make_plan(staging, shape, current, [])
        scratch = make_plan(
            staging_of(corpus_folder, tmp_path_factory.mktemp("s"), **options), shape, None, []
        )
        assert (plan.units, plan.files, plan.types) == (scratch.units, scratch.files, scratch.types)
        reader = plan.reader(staging.spec, staging.corpus, staging.place)
        own = [f"text {n}" for n in range(24) if where is None or eval(where, {"n": n})][:limit]
        found = {
            unit.number: reader.read(unit.path, unit.first_row, unit.num_rows).texts
            for unit in plan.new_units
        }
        assert set(found) | set(plan.links) == {unit.number for unit in plan.units}
        assert {text for texts in found.values() for text in texts} <= set(own)
        if not plan.links:
            assert [text for texts in found.values() for text in texts] == own
        current = vectors_manifest(plan, staging, shape)


def test_plan_of_an_unchanged_corpus_stages_nothing(corpus_folder, tmp_path):
    first = staging_of(corpus_folder, tmp_path)
    plan = make_plan(first, "shape", None, [])
    again = staging_of(corpus_folder, tmp_path)
    assert not make_plan(again, "shape", vectors_manifest(plan, first, "shape"), []).new_units
    assert set(first.copies) == {"a.csv", "a0.csv", "a1.jsonl", "c.jsonl"} and not again.copies


names = st.lists(
    st.text("ab/", min_size=1, max_size=6).map(
        lambda name: "/".join(part or "a" for part in name.split("/")) + ".jsonl"
    ),
    min_size=2,
    max_size=6,
    unique=True,
)


@settings(max_examples=40, deadline=None)
@given(names, st.data())
def test_corrupt_files_of_any_names_are_left_out_alone(tmp_path_factory, names, data):
    folder = tmp_path_factory.mktemp("in")
    corrupt = set(data.draw(st.lists(st.sampled_from(names), unique=True)))
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"text": ' if name in corrupt else '{"text": "good"}\n')
    staging = staging_of(folder, tmp_path_factory.mktemp("w"), skip_corrupt=True)
    plan = make_plan(staging, "shape", None, [])
    assert {path for path, _ in plan.corrupt} == corrupt
    assert {unit.path for unit in plan.units} == set(names) - corrupt
    # A file that proves corrupt later, while it is scanned.
    good = sorted(set(names) - corrupt)
    for path in good[:1]:
        staging.leave_out(CorruptFile(staging.corpus.storage.uri, path, "a broken page"))
        plan = make_plan(staging, "shape", None, [])
        assert {path for path, _ in plan.corrupt} == corrupt | {path}
        assert {unit.path for unit in plan.units} == set(good[1:])


def test_corrupt_file_that_may_not_be_left_out_is_raised(corpus_folder, tmp_path):
    strict = staging_of(corpus_folder, tmp_path)
    lenient = staging_of(corpus_folder, tmp_path, skip_corrupt=True)
    root = strict.corpus.storage.uri
    cases = [(strict, root, "a.csv"), (lenient, "elsewhere", "a.csv"), (lenient, root, "csv")]
    for staging, place, path in cases:
        with pytest.raises(CorruptFile):
            staging.leave_out(CorruptFile(place, path, "a reason"))
