"""`sbert run`, `init`, `dedup` and the report: whole jobs on a small corpus."""

import csv
import gzip
import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from support.embedding import files_of, published_bytes

from pipelines.artifacts.errors import GateFailed
from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.cli.render import job_plan_text, run_text
from pipelines.dedup import job as dedup_job
from pipelines.dedup.spec import DedupSpec
from pipelines.init import job as init_job
from pipelines.run import job as run_job
from pipelines.run.gates import gates_of
from pipelines.run.jobfile import GATES, SPECS, JobFile, JobFileError
from pipelines.run.spec import RunSpec

WORDS = ("cat", "ship", "blue", "river", "stone", "music", "paper", "winter")
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'> </script><script>window.hacked = 1</script>",
    "\u202egnirts desrever\u202c and \u2066isolated\u2069",
    "{{7*7}} ${window.hacked=1} &lt;b&gt; \" ' ` \u2028 line",
)


def write_corpus(place):
    texts = [f"{a} and {b}" for a in WORDS for b in WORDS]
    texts += texts[:10] + [text.upper() for text in texts[:5]] + [*HOSTILE, *HOSTILE, "", None]
    ids = [f"row-{n}" if n % 9 else f"<i>row</i>-{n}" for n in range(len(texts))]
    table = pa.table({"id": ids, "text": texts, "source": ["a", "b"] * 44 + ["a"]})
    pq.write_table(table, place)
    return table


# -- the job file ----------------------------------------------------------------------------------


def read(tmp_path, text, *settings):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return JobFile.read(path, settings)


def test_the_example_is_a_job(tmp_path):
    path = init_job.run(tmp_path / "job.yaml", "texts.parquet", "out")
    job = JobFile.read(path)
    assert list(job.stages) == ["embed", "pairs", "cluster", "apply", "report"]
    assert job.stages["embed"].corpus == "texts.parquet"
    assert job.stages["pairs"].vectors == job.stages["embed"].out == "out/vectors"
    assert job.stages["cluster"].pairs == "out/pairs" and job.stages["cluster"].keep == "longest"
    assert job.gates == {"max_quarantined_share": 0.01, "min_recall": 0.99}
    with pytest.raises(ValueError, match="exists already; choose another name"):
        init_job.run(path, "x", "y")


def test_options_take_the_types_of_their_commands(tmp_path):
    text = """
corpus: c
out: o
stages:
  train: {base: demo, objective: cosine, matryoshka: "256,128", epochs: 2}
  prepare: {files: [a.tsv, b.tsv], format: scored, score-range: "0,5"}
  embed: {carry: [a, b], limit: 5}
  pairs: {threshold: 1, band: "0.8:0.9"}
  cluster: {thresholds: [0.9, 0.95], keep: [longest, "newest:date"]}
price_per_hour: 2
"""
    job = read(tmp_path, text, "embed.limit=7", "gates.max_removed_share=0.5", "out=p")
    assert list(job.stages) == ["prepare", "train", "embed", "pairs", "cluster"]
    assert job.stages["prepare"].files == ("a.tsv", "b.tsv")
    assert job.stages["prepare"].score_range == (0.0, 5.0)
    assert job.stages["train"].matryoshka == (256, 128)
    assert (job.stages["embed"].carry, job.stages["embed"].limit) == (("a", "b"), 7)
    assert job.stages["embed"].model == "p/encoder" and job.out == "p"
    assert job.stages["pairs"].band == (0.8, 0.9) and job.stages["pairs"].threshold == 1.0
    assert job.stages["cluster"].keep == "longest,newest:date"
    assert job.price_per_hour == 2.0 and job.gates == {"max_removed_share": 0.5}


HEAD = "corpus: c\nout: o\n"
EMBED = f"{HEAD}stages:\n  embed:\n    model: demo\n"
GATED = f"{HEAD}stages: {{pairs: }}\n"
BAD = {
    f"{HEAD}stages:\n  embed:\n    modle: demo\n": r"job\.yaml:5: 'modle'.*'model'\?",
    f"{HEAD}stages:\n  embde:\n    model: demo\n": r":5: 'embde' is unknown; did you",
    f"{EMBED}    limit: many\n": r":6: embed.limit is",
    f"{EMBED}    out: x\n": r":6: 'out' is unknown",
    f"{HEAD}stages:\n  embed: {{}}\n": r"embed needs 'model'; give it below embed:",
    "out: o\nstages:\n  embed: {model: demo}\n": r"embed needs 'corpus'",
    "corpus: c\nstages:\n  embed: {model: demo}\n": r"'out:' is missing",
    HEAD: r"name at least one stage",
    f"{HEAD}stages:\n  pairs:\n    threshold: 2\n": r":5: pairs: threshold is 2; a cosine",
    f"{HEAD}stages:\n  embed: demo\n": r":4: embed has options, one a line",
    "corpus: [\n": r"job\.yaml:2: ",
    "- a\n": r":1: a job file maps names to values",
    f"{HEAD}corpus: d\n": r":3: 'corpus' is given twice",
    f"{GATED}gates:\n  min_recal: 1\n": r":5: 'min_recal'.*'min_recall'",
    f"{GATED}gates:\n  min_recall: high\n": r":5: gate min_recall is",
    f"{GATED}price_per_hour: dear\n": r":4: price_per_hour is 'dear'",
    f"{GATED}price_per_hour: {{a: 1}}\n": r":4: price_per_hour is",
    f"{EMBED}    limit: 2024-13-01\n": r":6: ",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_is_named_with_its_line(text, tmp_path):
    with pytest.raises(JobFileError, match=BAD[text]):
        read(tmp_path, text)


def test_settings_are_checked_too(tmp_path):
    text = "corpus: c\nout: o\nstages:\n  embed: {model: demo}\n"
    for setting, complaint in (
        ("embed.modle=x", "--set embed.modle: 'modle' is unknown"),
        ("pairs.threshold=0.9", "--set pairs.threshold: the job has no stage 'pairs'"),
        ("embed", "give STAGE.OPTION=VALUE"),
        ("embed.limit=[", "is no YAML value"),
    ):
        with pytest.raises(JobFileError, match=re.escape(complaint)):
            read(tmp_path, text, setting)
    empty = read(tmp_path, text + "gates:\n", "gates.min_recall=0.9")
    assert empty.gates == {"min_recall": 0.9} and read(tmp_path, text + "gates:\n").gates == {}
    with pytest.raises(JobFileError, match="name at least one stage"):
        read(tmp_path, "corpus: c\nout: o\nstages:\n", "out=p")
    with pytest.raises(JobFileError, match="cannot be read: No such file"):
        JobFile.read(tmp_path / "none.yaml")


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory, bert_folder, ray_address):
    """A folder with a job that has run."""
    folder = tmp_path_factory.mktemp("job")
    write_corpus(folder / "texts.parquet")
    job = {
        "corpus": "texts.parquet",
        "out": "run",
        "stages": {
            "embed": {"model": str(bert_folder), "carry": ["source"]},
            "index": None,
            "pairs": {"threshold": 0.97},
            "cluster": {"keep": "source=b>a", "topics": 3},
            "apply": None,
            "report": {"title": "Small <b>run</b>"},
        },
        "gates": {"max_quarantined_share": 0.2, "min_recall": 0.5},
        "price_per_hour": 3.6,
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    report = run_job.run(RunSpec(job=folder / "job.yaml", address=ray_address))
    return folder, report


def outcomes(report):
    return {stage.name: stage.outcome for stage in report.stages}


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_an_edit_reruns_what_depends_on_it(finished, ray_address):
    folder, report = finished
    assert set(outcomes(report).values()) == {"done"}
    assert run_text(report).endswith("run/report.html")
    job = folder / "job.yaml"
    again = outcomes(run_job.run(RunSpec(job=job, address=ray_address)))
    quiet = ("embed", "index", "pairs", "cluster", "apply")
    assert {again[name] for name in quiet} == {"nothing to do"}
    edited = RunSpec(job=job, settings=("pairs.threshold=0.98",), address=ray_address)
    changed = outcomes(run_job.run(edited))
    assert {changed[name] for name in ("embed", "index")} == {"nothing to do"}
    assert {changed[name] for name in ("pairs", "cluster", "apply")} == {"done"}
    assert Artifact.open(folder / "run" / "pairs").manifest.spec["threshold"] == 0.98
    record = json.loads((folder / "run" / "run.json").read_text())
    assert [stage["name"] for stage in record["stages"]][-1] == "report"
    assert all(gate["is_met"] for gate in record["gates"])
    part = run_job.run(RunSpec(job=job, start="cluster", address=ray_address))
    assert outcomes(part)["pairs"] == "passed over"
    with pytest.raises(ValueError, match="--from nothing: the job's stages are embed"):
        run_job.run(RunSpec(job=job, start="nothing", address=ray_address))


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_a_gate_that_fails_is_named_and_the_report_is_there(finished, ray_address):
    folder, _ = finished
    strict = RunSpec(
        job=folder / "job.yaml", settings=("gates.max_removed_share=0.001",), address=ray_address
    )
    with pytest.raises(GateFailed, match=r"max_removed_share 0.001: found 0\.\d+.*run/report.html"):
        run_job.run(strict)
    page = (folder / "run" / "report.html").read_text()
    assert '<li class="failed"><b>failed</b> max_removed_share' in page
    unknown = RunSpec(
        job=folder / "job.yaml", settings=("gates.min_score=10",), address=ray_address
    )
    with pytest.raises(GateFailed, match="min_score 10: no stage of the job measures it"):
        run_job.run(unknown)


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_a_gate_that_fails_leaves_the_applied_corpus_as_it_was(finished, ray_address):
    folder, _ = finished
    corpus = folder / "run" / "corpus"
    before = published_bytes(corpus), files_of(corpus)
    clusters = Artifact.open(folder / "run" / "clusters").manifest.generation
    job = RunSpec(job=folder / "job.yaml", settings=("pairs.threshold=0.96",), address=ray_address)
    gated = replace(job, settings=(*job.settings, "gates.max_removed_share=0.001"))
    with pytest.raises(GateFailed, match=r"max_removed_share 0.001: found"):
        run_job.run(gated)
    assert Artifact.open(folder / "run" / "clusters").manifest.generation != clusters
    assert (published_bytes(corpus), files_of(corpus)) == before
    record = json.loads((folder / "run" / "run.json").read_text())
    assert {s["name"]: s["outcome"] for s in record["stages"]}["apply"] == "held back"
    assert outcomes(run_job.run(job))["apply"] == "done"
    assert published_bytes(corpus) != before[0]


def test_gates_measure_nothing_but_stages_before_apply():
    class Asked(dict):
        def get(self, name, default=None):
            self[name] = None
            return default

    asked = Asked()
    gates_of(dict.fromkeys(GATES, 0.5), asked)
    order = list(SPECS)
    assert asked and all(order.index(name) < order.index("apply") for name in asked)


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_a_plan_writes_nothing(finished, tmp_path, ray_address):
    folder, _ = finished
    job = folder / "job.yaml"
    away = (f"out={tmp_path}/new",)
    plan = run_job.run(RunSpec(job=job, plan=True, settings=away, address=ray_address)).plan
    assert not (tmp_path / "new").exists()
    assert [stage.name for stage in plan.stages][:3] == ["embed", "index", "pairs"]
    assert plan.stages[0].rows == 87 + 2 and plan.stages[0].tokens > 0
    assert plan.money is not None and 0 < plan.money[0] < plan.money[1]
    text = job_plan_text(plan)
    assert "would run" in text and "actor-hours" in text and "cost " in text
    known = run_job.run(RunSpec(job=job, plan=True, address=ray_address)).plan
    assert "0 texts to embed" in known.stages[0].what


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_the_page_escapes_everything_and_needs_nothing(finished):
    folder, _ = finished
    page = (folder / "run" / "report.html").read_text()
    assert "<title>Small &lt;b&gt;run&lt;/b&gt;</title>" in page
    assert page.count("<script") == 2 and page.count("</script>") == 2
    assert "onerror='" not in page.replace("\\u003c", "<").split("<script")[0]
    assert not re.search(r'(src|href)="(?!#)', page) and "http" not in page.split("<script")[
        0
    ].replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "\u202e" not in page.split('id="data"')[0]
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None and "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    facts = json.loads((folder / "run" / "report.json").read_text())
    assert facts["quarantine"]["items"] and facts["clusters"]["items"] and facts["map"]["points"]


@pytest.mark.ray
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["texts.csv", "texts.jsonl.gz", "texts.parquet"])
def test_dedup_takes_a_file_and_gives_it_back_smaller(name, tmp_path, bert_folder, ray_address):
    texts = ["one, two", 'say "hi"', "one, two", "three\nlines", "last"]
    rows = [{"text": text, "n": number} for number, text in enumerate(texts)]
    path = tmp_path / name
    if name.endswith(".csv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["text", "n"])
            writer.writeheader()
            writer.writerows(rows)
    elif name.endswith(".gz"):
        with gzip.open(path, "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    spec = DedupSpec(
        file=str(path),
        out=tmp_path / "out",
        threshold="0.9999",
        model=str(bert_folder),
        address=ray_address,
    )
    report = dedup_job.run(spec)
    assert (report.rows, report.num_removed) == (5, 1)
    kept, removed = tmp_path / "out" / f"kept{name[5:]}", tmp_path / "out" / f"removed{name[5:]}"
    if name.endswith(".csv"):
        with kept.open(newline="") as file:
            assert [row["n"] for row in csv.DictReader(file)] == ["0", "1", "3", "4"]
        with removed.open(newline="") as file:
            [row] = csv.DictReader(file)
    elif name.endswith(".gz"):
        with gzip.open(kept, "rt") as file:
            assert [json.loads(line)["n"] for line in file] == [0, 1, 3, 4]
        with gzip.open(removed, "rt") as file:
            [row] = [json.loads(line) for line in file]
    else:
        assert pq.read_table(kept)["n"].to_pylist() == [0, 1, 3, 4]
        [row] = pq.read_table(removed).to_pylist()
    assert row["text"] == row["witness_text"] == "one, two" and float(row["cosine"]) == 1.0
    assert int(row["n"]) == 2 and row["witness"].endswith("#0")
    assert (tmp_path / "out" / "report.html").exists() and (tmp_path / "out" / "job.yaml").exists()


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_dedup_finds_its_own_threshold(tmp_path, bert_folder, ray_address):
    write_corpus(tmp_path / "t.parquet")
    spec = DedupSpec(
        file=str(tmp_path / "t.parquet"),
        out=tmp_path / "out",
        model=str(bert_folder),
        keep="source=b>a,longest",
        address=ray_address,
    )
    report = dedup_job.run(spec)
    # A model with random weights finds everything alike: chance drives the threshold up.
    assert report.threshold in dedup_job.LEVELS and report.num_removed >= 10
    with pytest.raises(ValueError, match="would be overwritten; choose another --out"):
        dedup_job.run(DedupSpec(file=str(tmp_path / "out" / "kept.parquet"), out=tmp_path / "out"))
    (tmp_path / "blank.csv").write_text('id,text\n1,\n2," "\n')
    for name, complaint in (("blank.csv", "holds no rows"), ("t.parquet", "has no column 'body'")):
        refused = DedupSpec(
            file=str(tmp_path / name),
            out=tmp_path / "refused",
            text_column="text" if name == "blank.csv" else "body",
            model=str(bert_folder),
            address=ray_address,
        )
        with pytest.raises(ValueError, match=complaint):
            dedup_job.run(refused)
        assert not (tmp_path / "refused").exists()
    with pytest.raises(ValueError, match="give a cosine or auto"):
        DedupSpec(file="x", out=tmp_path, threshold="high")


def test_commands_end_with_their_exit_codes(tmp_path):
    runner = CliRunner()
    assert runner.invoke(main, ["init", str(tmp_path / "job.yaml")]).exit_code == 0
    assert runner.invoke(main, ["init", str(tmp_path / "job.yaml")]).exit_code == 2
    bad = runner.invoke(main, ["run", str(tmp_path / "no.yaml")])
    assert bad.exit_code == 2 and "cannot be read" in bad.stderr
    nothing = runner.invoke(main, ["report", str(tmp_path)])
    assert nothing.exit_code == 2 and "holds nothing to report on" in nothing.stderr
