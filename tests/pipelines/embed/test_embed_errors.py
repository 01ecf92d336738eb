"""Bad input: exit code, one line, nothing published."""

import os
import signal

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.embedding import embed, quarantine_of, rows_of, sentences, table_of, write_corpus
from support.kills import Job

from pipelines.cli.main import main
from sbert_core.corpus.errors import CorruptFile
from sbert_core.storage import LocalStorage

TEXTS = sentences(60)


@pytest.fixture
def call(bert_folder, tmp_path):
    """Run the command; exit code and the one line it prints."""

    def run(*words):
        words = [str(word) for word in words]
        if "--out" not in words:
            words += ["--out", str(tmp_path / "out")]
        result = CliRunner().invoke(main, ["embed", *words, "--model", str(bert_folder)])
        lines = result.stderr.strip().splitlines()
        return result.exit_code, lines[-1] if lines else ""

    return run


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "in", {"x.parquet": rows_of(TEXTS)})


def assert_refused(found, message, out):
    code, line = found
    assert code == 2
    assert message in line
    assert "Traceback" not in line
    assert not (out / "_manifest.json").exists()


def test_missing_and_empty_places(call, tmp_path):
    assert_refused(call(tmp_path / "nowhere"), "nowhere does not exist", tmp_path / "out")
    (tmp_path / "in").mkdir()
    assert_refused(call(tmp_path / "in"), "holds no data file", tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--text-column", "nix"], "x.parquet has no column 'nix'; it has: id, text"),
        (["--text", "{nix}"], "has no column 'nix'"),
        (["--id-column", "nix"], "has no column 'nix'"),
        (["--carry", "nix"], "has no column 'nix'"),
        (["--where", "nix == 1"], "has no column 'nix'"),
        (["--where", "text =="], "is not understood"),
        (["--limit", "0"], "limit is 0; give a whole number from 1 up"),
        (["--unit-rows", "100000"], "at most 65536"),
        (["--text", "no column"], "names no column"),
        (["--id", "content", "--id-column", "id"], "not both"),
        (["--id", "content", "--distinct", "unit"], "needs --distinct corpus"),
        (["--max-length", "9999"], "exceeds the model's"),
        (["--truncate-dim", "33"], "not within 1..32"),
    ],
)
def test_options_that_do_not_fit(words, message, call, corpus, tmp_path):
    assert_refused(call(corpus, *words), message, tmp_path / "out")


def test_wrongly_typed_text_and_id_columns(call, tmp_path):
    columns = {"id": [1.5, 2.5], "text": ["a", "b"], "n": [1, 2]}
    write_corpus(tmp_path / "in", {"x.parquet": columns})
    found = call(tmp_path / "in", "--text-column", "n")
    assert_refused(found, "column 'n' of x.parquet holds int64, not text", tmp_path / "out")
    found = call(tmp_path / "in")
    assert_refused(found, "id column 'id' of x.parquet holds double", tmp_path / "out")


def test_files_with_differing_schemas(call, corpus, tmp_path):
    write_corpus(corpus, {"y.parquet": {"id": [1, 2], "text": ["a", "b"]}})
    found = call(corpus)
    message = "column 'id' is int64 in y.parquet but string in x.parquet"
    assert_refused(found, message, tmp_path / "out")


def test_output_inside_the_corpus(call, corpus, tmp_path):
    code, line = call(corpus, "--out", corpus / "vectors")
    assert (code, "lies inside corpus" in line) == (2, True)
    assert not (corpus / "vectors").exists()


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs a place not even root can write")
def test_output_not_writable(call, corpus):
    code, line = call(corpus, "--out", "/proc/vectors")
    assert (code, "out /proc/vectors cannot be written" in line) == (2, True)


def test_output_that_is_a_file(call, corpus, tmp_path):
    (tmp_path / "file").write_text("x")
    code, line = call(corpus, "--out", tmp_path / "file")
    assert (code, "is a file" in line) == (2, True)


def test_second_job_on_the_same_output(call, corpus, tmp_path):
    with LocalStorage(tmp_path / "out").lock():
        code, line = call(corpus)
    assert (code, "is being written by another run" in line) == (5, True)


def test_corrupt_file_names_itself(call, corpus, tmp_path):
    (corpus / "torn.parquet").write_bytes((corpus / "x.parquet").read_bytes()[:500])
    assert_refused(call(corpus), "torn.parquet cannot be read", tmp_path / "out")


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_corrupt_files_can_be_left_out_and_are_listed(corpus, ray_address, bert_folder, tmp_path):
    (corpus / "torn.parquet").write_bytes((corpus / "x.parquet").read_bytes()[:500])
    (corpus / "bad.jsonl").write_text('{"id": "q", "text": ')
    data = bytearray((corpus / "x.parquet").read_bytes())
    data[100:1000] = bytes(900)  # the footer is whole, the pages are not
    (corpus / "pages.parquet").write_bytes(data)
    with pytest.raises(CorruptFile) as caught:
        embed(corpus, tmp_path / "out", bert_folder, address=ray_address)
    assert (caught.value.path, caught.value.line) == ("bad.jsonl", 1)
    embed(corpus, tmp_path / "out", bert_folder, address=ray_address, skip_corrupt=True)
    assert table_of(tmp_path / "out")["id"].to_pylist() == rows_of(TEXTS)["id"]
    bad = {row["file"]: row["reason"] for row in quarantine_of(tmp_path / "out")}
    assert set(bad) == {"torn.parquet", "bad.jsonl", "pages.parquet"}
    assert all("cannot be read" in reason for reason in bad.values())


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_invalid_utf8_costs_one_row_and_csv_equals_parquet(ray_address, bert_folder, tmp_path):
    rows = [f'{row},"{text}"'.encode() for row, text in enumerate(TEXTS)]
    data = b"id,text\n" + b"\n".join([*rows[:30], b"30,\xff\xfe", *rows[31:]]) + b"\n"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.csv").write_bytes(data)
    embed(tmp_path / "in", tmp_path / "csv", bert_folder, address=ray_address, unit_rows=16)
    raw = [text.encode() for text in TEXTS]
    raw[30] = b"\xff\xfe"
    columns = {"id": [str(row) for row in range(60)], "text": pa.array(raw, pa.binary())}
    corpus = write_corpus(tmp_path / "parquet-in", {"x.parquet": columns})
    embed(corpus, tmp_path / "parquet", bert_folder, address=ray_address, unit_rows=16)
    for out in ("csv", "parquet"):
        assert [row["reason"] for row in quarantine_of(tmp_path / out)] == [
            "invalid UTF-8 at byte 0"
        ]
    columns = ["id", "vector", "row"]
    a, b = (table_of(tmp_path / out).select(columns) for out in ("csv", "parquet"))
    assert a.equals(b)


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_interrupt_stops_cleanly_and_the_rerun_goes_on(
    ray_address, bert_folder, minilm_folder, tmp_path
):
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(640, longest=120))})
    out = tmp_path / "out"
    words = ["embed", corpus, "--out", out, "--model", minilm_folder, "--address", ray_address]
    words = [*map(str, words), "--unit-rows", "40", "--actors", "2"]
    for number, stop in enumerate((signal.SIGINT, signal.SIGTERM), start=1):
        log = tmp_path / f"{number}.log"
        job = Job(words, log)
        job.start()
        job.until(lambda n=number: len(list(out.glob("_work/*/commits/*"))) >= 4 * n)
        job.process.send_signal(stop)
        assert job.wait(25) == 3, log.read_text()  # a scheduler kills after 30 s
        last = log.read_text().splitlines()[-1]
        assert "units are saved, the same command goes on from there" in last
        assert not (out / "_manifest.json").exists()
        assert not (out / "_ray").exists()
    report = embed(corpus, out, minilm_folder, address=ray_address, unit_rows=40, actors=2)
    assert report.embedded <= 640 - 8 * 40
    assert report.rows == 640
