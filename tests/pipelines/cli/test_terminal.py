"""Words of strangers on a terminal: shown, never acted on."""

import ast
import json
import logging
import sys
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.decisions import clusters_by_hand, vectors_by_hand

from pipelines.artifacts.reader import Artifact
from pipelines.cli.doctor_table import doctor_text
from pipelines.cli.main import main
from pipelines.cli.render_hits import (
    render_search,
    render_threshold,
    search_json,
    threshold_json,
)
from pipelines.cli.render_run import doctor_json
from pipelines.doctor.job import DoctorReport
from pipelines.doctor.verdicts import Check, Verdict
from pipelines.runtime.logs import configure_logs
from pipelines.runtime.terminal import one_line, printable
from pipelines.search.job import Hit, SearchReport
from pipelines.threshold.job import Level, SamplePair, ThresholdReport

ROOT = Path(__file__).parents[3]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\b\x7f\u202eevil\u2066\u2028\udce9"


def acted_on(text: str) -> set[str]:
    """Characters of an output that a terminal may obey, by their classes."""
    marks = {"BN", "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "B", "S"}
    return {
        character
        for character in text
        if character not in "\n "
        and (
            unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
            or (
                unicodedata.category(character) == "Cf"
                and unicodedata.bidirectional(character) in marks - {"BN"}
            )
        )
    }


def test_printable_of_every_character_leaves_none_that_is_acted_on():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert acted_on(everything) and not acted_on(printable(everything))
    assert "\n" not in one_line(everything)


@pytest.mark.parametrize(
    "text", ["한국어", "é\U0001f600", "\U0001f468\u200d\U0001f469", "a\u00a0b"]
)
def test_printable_of_ordinary_writing_is_the_same(text):
    assert printable(text) == text == one_line(text)


def test_printable_of_json_keeps_its_meaning():
    value = {"id": HOSTILE, "text": "a\nb\t\U000e0001\u200f"}
    shown = printable(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(shown) == value and not acted_on(shown)


def test_words_with_hostile_ids_and_texts_stay_in_their_lines():
    hit = Hit(rank=1, cos=0.5, id=f"a\n{HOSTILE}", text=f"b\n{HOSTILE}")
    report = SearchReport(hits=(hit,))
    table = render_search(report).text
    assert len(table.splitlines()) == 2 and not acted_on(table)
    assert json.loads(printable(search_json(report).text))[0]["id"] == hit.id


@pytest.mark.parametrize("as_json", [False, True])
def test_logs_of_hostile_names_are_shown_and_not_acted_on(as_json, capsys):
    root, own = logging.getLogger(), logging.getLogger("pipelines.x")
    before = root.handlers[:], root.level
    try:
        configure_logs(as_json, False)
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            own.exception("file %s", HOSTILE)
    finally:
        root.handlers[:], root.level = before
    shown = capsys.readouterr().err
    assert "owned" in shown and not acted_on(shown)


@pytest.mark.parametrize(
    "words",
    [
        ["path", HOSTILE],
        ["path", "x", HOSTILE],
        [HOSTILE],
        [f"--{HOSTILE}"],
        ["export", "x", "--to", HOSTILE, "--out", "y"],
        ["search", "x", "--k", HOSTILE],
        ["embed", HOSTILE, "--model", HOSTILE, "--out", "o"],
        ["embed", HOSTILE, "--model", "m", "--out", "o", "--debug"],
        ["dedup", HOSTILE],
        ["run", HOSTILE],
        ["report", HOSTILE],
        ["evaluate", HOSTILE, "--sts", HOSTILE],
        ["threshold", HOSTILE],
        ["init", f"{HOSTILE}/job.yaml"],
    ],
)
def test_commands_refuse_hostile_words_without_repeating_them_raw(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, words)
    assert done.exit_code != 0
    assert not acted_on(done.stdout + done.stderr)


def test_doctor_shows_hostile_places_without_acting_on_them():
    rows = (Check(HOSTILE, f"[red]{HOSTILE}", Verdict.WARN, f"[/]{HOSTILE}"),)
    report = DoctorReport(checks=rows)
    assert "[red]" in doctor_text(report) and not acted_on(doctor_text(report))
    assert not acted_on(printable(doctor_json(report).text))


def test_threshold_shows_hostile_pairs_without_acting_on_them():
    pair = SamplePair(cos=0.9, id_a=HOSTILE, id_b=HOSTILE, text_a=HOSTILE, text_b=None)
    report = ThresholdReport(
        levels=(Level(cos=0.9, chance_per_million=0.0, expected=0, samples=(pair,)),),
        labelled_pairs=1,
    )
    for rendered in (render_threshold, threshold_json):
        assert not acted_on(printable(rendered(report)))


def test_nothing_but_the_cleaning_functions_writes_to_the_terminal():
    """Where else words leave the process: each of these lines was looked at."""
    writers = {"echo", "secho", "print_exc", "print"}
    found = set()
    for path in [
        p for layer in ("pipelines", "workers", "sbert_core") for p in ROOT.glob(f"{layer}/**/*.py")
    ]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name.rpartition(".")[2] in writers or name in (
                    "sys.stdout.write",
                    "sys.stderr.write",
                ):
                    found.add(f"{path.relative_to(ROOT)}: {ast.unparse(node)}")
    assert found == {
        "pipelines/cli/main.py: click.echo(shown.text if shown.is_coloured else "
        "printable(shown.text), err=shown.is_error)",
        "pipelines/cli/main.py: click.echo(printable(note), err=True)",
        "pipelines/cli/doctor_table.py: console.print(table, markup=True)",
        "pipelines/cli/reference.py: sys.stdout.write(reference_text())",
        "pipelines/cli/run_job.py: sys.stderr.write(printable(traceback.format_exc()))",
        "pipelines/cli/run_job.py: sys.stderr.write(f'{line}{hint}\\n')",
        "pipelines/submit/client.py: sys.stdout.write(printable(chunk[-num_new:]))",
    }


HIDDEN = HOSTILE.removesuffix("\udce9")  # as files and columns can have it


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A corpus with hostile names, ids and texts, its vectors, and clusters that remove a row."""
    home = tmp_path_factory.mktemp("stranger")
    (home / "in").mkdir()
    table = pa.table({"id": [f"{HIDDEN}{n}" for n in range(4)], "text": [HIDDEN] * 4})
    pq.write_table(table, home / "in" / f"{HIDDEN}.parquet")
    named = vectors_by_hand(home / "in", home / "named")
    placed = vectors_by_hand(home / "in", home / "placed", id_column=None)
    clusters_by_hand(placed, home / "clusters", {f"{HIDDEN}.parquet#1"})
    assert Artifact.open(named).rows == 4
    sts = {"sentence1": ["a", "b", "c"], "sentence2": ["b", "c", "d"], "score": [1.0, 2.0, 3.0]}
    pq.write_table(pa.table(sts), home / f"{HIDDEN}.parquet")
    pq.write_table(pa.table({HIDDEN: ["a"]}), home / "no_columns.parquet")
    (home / "elsewhere").mkdir()
    pq.write_table(table, home / "elsewhere" / "other.parquet")
    (home / "broken").mkdir()
    (home / "broken" / f"{HIDDEN}.parquet").write_bytes(b"PAR1")
    return home


COMMANDS = [
    (["threshold", "{named}"], 0),
    (["threshold", "{named}", "--json"], 0),
    (["threshold", "{placed}", "--json-log"], 0),
    (["threshold", "{named}", "--labelled", "{no_columns}.parquet"], 2),
    (["report", "{placed}", "--out", "{page}.html", "--title", HIDDEN], 0),
    (["path", "{named}"], 0),
    pytest.param(
        ["apply", "{clusters}", "{elsewhere}", "--out", "{new}"], 2, marks=pytest.mark.ray
    ),
    (["export", "{named}", "--to", "pgvector", "--out", f"{{new}}{HIDDEN}"], 0),
    (["evaluate", "{model}", "--sts", f"{{home}}/{HIDDEN}.parquet"], 0),
    (["evaluate", "{model}", "--sts", "{no_columns}.parquet"], 2),
    (["evaluate", "{model}", "--sts", "{broken}"], 2),
    (["search", "{named}", HIDDEN], 2),
]


@pytest.mark.parametrize(("words", "code"), COMMANDS, ids=lambda own: str(own)[:40])
def test_commands_over_a_hostile_corpus_show_nothing_raw(words, code, stranger, bert_folder):
    places = "named placed clusters elsewhere broken no_columns page new".split()
    known = {name: stranger / name for name in places} | {"home": stranger, "model": bert_folder}
    done = CliRunner().invoke(main, [word.format(**known) for word in words])
    assert done.exit_code == code, done.output
    assert not acted_on(done.stdout + done.stderr)
