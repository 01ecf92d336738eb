"""The stages of a unit as plain calls, against one actor that does all of them."""

import os
from dataclasses import asdict

import pyarrow as pa
import pytest
from support.ray_kv import ray_kv as ray_kv
from support.unit_jobs import CORPUS, LONG_TEXT, call, config_of, fill, parts, scan
from support.unit_jobs import encoder as encoder
from support.unit_jobs import make_job as make_job

from sbert_core.choices import LongTexts
from sbert_core.corpus.errors import CorruptFile
from workers.common.errors import raise_error_rows
from workers.embed.actor import UnitEmbedder, UnitEncoder
from workers.embed.crash_counter import MAX_CRASHES, SUSPECT_CRASHES
from workers.embed.records import UnitResult, read_commits
from workers.embed.stages import TokenizedUnit, UnitTokenizer, unpack, write_encoded


def descriptor(unit) -> pa.Table:
    return pa.Table.from_pylist([asdict(unit)])


def call_stages(stages, job, unit) -> UnitResult:
    tokenizer, encoder = stages
    table = write_encoded(job, encoder(tokenizer(descriptor(unit))))
    raise_error_rows(table)
    [result] = UnitResult.from_table(table)
    return result


def embed(units, job, dim, call_one) -> list[UnitResult]:
    """All units: those that encode through `call_one`, then pass 2."""
    _, _, claims = scan(units, job)
    own = {one.unit for one in claims if one.own_rows}
    results = [call_one(unit) for unit in units if unit.number in own]
    done = {record.unit for record in read_commits(job.storage, job.work)}
    fill([unit for unit in units if unit.number not in done], job, dim)
    return results


def note_isolated(encoder, monkeypatch) -> list[list[str]]:
    """The texts of each unit that is taken apart from now on; no process is started for them."""
    isolated: list[list[str]] = []

    def encode(config, texts):
        isolated.append(texts)
        return config.encode(encoder, texts)

    monkeypatch.setattr("workers.embed.actor.encode_excluding_crashers", encode)
    return isolated


@pytest.mark.parametrize("long", [LongTexts.TRUNCATE, LongTexts.CHUNKS, LongTexts.POOL])
def test_stages_write_the_bytes_of_one_actor(make_job, encoder, bert_folder, ray_kv, long):
    corpus = {**CORPUS, "d.parquet": ["so", LONG_TEXT, "so so", LONG_TEXT + " then"]}
    config = config_of(encoder, bert_folder, long)
    found = {}
    for form in ("one", "stages"):
        units, job = make_job(corpus, name=form, has_chunks=long is LongTexts.CHUNKS)
        if form == "one":
            actor = UnitEmbedder(job, config, "run")
            results = embed(units, job, encoder.dim, lambda unit, a=actor: call(a, unit))
        else:
            stages = UnitTokenizer(job, config, "run"), UnitEncoder(job, config, "run")
            results = embed(
                units, job, encoder.dim, lambda unit, s=stages, j=job: call_stages(s, j, unit)
            )
        records = sorted(read_commits(job.storage, job.work), key=lambda record: record.unit)
        hashes = [(r.data.sha256, r.quarantine and r.quarantine.sha256) for r in records]
        found[form] = hashes, [(r.unit, r.stats, r.num_bad) for r in results]
    assert found["stages"] == found["one"]


def test_a_tokenised_unit_has_no_texts_and_few_bytes(make_job, encoder, bert_folder, ray_kv):
    [unit], job = make_job(
        {"a.parquet": [f"the word number {n} of them" for n in range(500)]}, rows=500
    )
    scan([unit], job)
    table = UnitTokenizer(job, config_of(encoder, bert_folder), "run")(descriptor(unit))
    raise_error_rows(table)
    tokens = unpack(table, TokenizedUnit).tokens
    num_tokens = sum(int(one.lengths.sum()) for one in tokens.tables)
    # Two bytes a token, and some sixty a row: hash, id, claim, place.
    assert table.nbytes < 2 * num_tokens + 500 * 200
    assert b"word number" not in table["payload"][0].as_buffer().to_pybytes()


def test_a_suspect_unit_is_taken_apart_by_the_encoder(
    make_job, encoder, bert_folder, ray_kv, monkeypatch
):
    [unit], job = make_job({"a.parquet": ["one", "two words", "so"]})
    scan([unit], job)
    for number in range(SUSPECT_CRASHES):
        job.storage.put(f"{job.work}/attempts/{unit.name}/{number}", b"")
    isolated = note_isolated(encoder, monkeypatch)
    config = config_of(encoder, bert_folder)
    stages = UnitTokenizer(job, config, "run"), UnitEncoder(job, config, "run")
    result = call_stages(stages, job, unit)
    assert isolated == [["one", "two words", "so"]]
    assert result.num_crashes == SUSPECT_CRASHES
    assert list(job.storage.list(f"{job.work}/attempts")) == [], "nothing is left to count"
    assert parts(job)[0].num_rows == 3


def test_a_unit_that_became_suspect_after_its_tokens_is_taken_apart_too(
    make_job, encoder, bert_folder, ray_kv, monkeypatch
):
    [unit], job = make_job({"a.parquet": ["one", "two words"]})
    scan([unit], job)
    config = config_of(encoder, bert_folder)
    tokens = UnitTokenizer(job, config, "run")(descriptor(unit))
    for number in range(SUSPECT_CRASHES):
        job.storage.put(f"{job.work}/attempts/{unit.name}/{number}", b"")
    isolated = note_isolated(encoder, monkeypatch)
    table = UnitEncoder(job, config, "run")(tokens)
    raise_error_rows(table)
    assert isolated == [["one", "two words"]]


@pytest.mark.parametrize("stage", ["tokenize", "encode", "write"])
def test_every_stage_gives_up_on_a_unit_that_crashed_too_often(
    make_job, encoder, bert_folder, ray_kv, stage
):
    [unit], job = make_job({"a.parquet": ["one"]})
    scan([unit], job)
    config = config_of(encoder, bert_folder)
    tokenizer, actor = UnitTokenizer(job, config, "run"), UnitEncoder(job, config, "run")
    calls = {
        "tokenize": lambda table: tokenizer(table),
        "encode": lambda table: actor(table),
        "write": lambda table: write_encoded(job, table),
    }
    table = descriptor(unit)
    for name, run in calls.items():
        if name == stage:
            for number in range(MAX_CRASHES):
                job.storage.put(f"{job.work}/attempts/{unit.name}/{number}", b"")
        table = run(table)
    with pytest.raises(OSError, match=r"workers died on rows 0 to 1 of a\.parquet"):
        raise_error_rows(table)


def test_an_error_of_one_stage_passes_the_others(make_job, encoder, bert_folder, ray_kv, tmp_path):
    [unit], job = make_job({"a.parquet": ["one"]})
    scan([unit], job)
    (tmp_path / "out/corpus/a.parquet").unlink()
    config = config_of(encoder, bert_folder)
    table = UnitTokenizer(job, config, "run")(descriptor(unit))
    table = write_encoded(job, UnitEncoder(job, config, "run")(table))
    with pytest.raises(CorruptFile):
        raise_error_rows(table)


def test_the_tokenizer_of_a_stage_has_one_thread(
    make_job, encoder, bert_folder, ray_kv, monkeypatch
):
    _, job = make_job({"a.parquet": ["one"]})
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    UnitTokenizer(job, config_of(encoder, bert_folder), "run")
    assert os.environ["RAYON_NUM_THREADS"] == "1"
