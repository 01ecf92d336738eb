"""`sbert run`, `dedup` and the report: whole jobs on a small corpus."""

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
from pipelines.cli.render_run import render_run
from pipelines.dedup import job as dedup_job
from pipelines.dedup.spec import DedupSpec
from pipelines.run import job as run_job
from pipelines.run.gates import measure_gates
from pipelines.run.jobfile import GATES, SPECS
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
    assert render_run(report).endswith("run/report.html")
    job = folder / "job.yaml"
    again = outcomes(run_job.run(RunSpec(job=job, address=ray_address)))
    quiet = ("embed", "index", "pairs", "cluster", "apply")
    assert {again[name] for name in quiet} == {"nothing to do"}
    edited = RunSpec(job=job, settings=("pairs.threshold=0.98",), address=ray_address)
    changed = outcomes(run_job.run(edited))
    assert {changed[name] for name in ("embed", "index")} == {"nothing to do"}
    assert {changed[name] for name in ("pairs", "cluster", "apply")} == {"done"}
    assert Artifact.open(folder / "run" / "pairs").manifest.settings.threshold == 0.98
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
    measure_gates(dict.fromkeys(GATES, 0.5), asked)
    order = list(SPECS)
    assert asked and all(order.index(name) < order.index("apply") for name in asked)


@pytest.mark.ray
@pytest.mark.timeout(240)
def test_a_plan_writes_nothing(finished, tmp_path, ray_address):
    folder, _ = finished
    job = folder / "job.yaml"
    away = (f"out={tmp_path}/new",)
    report = run_job.run(RunSpec(job=job, plan=True, settings=away, address=ray_address))
    plan = report.plan
    assert not (tmp_path / "new").exists()
    assert [stage.name for stage in plan.stages][:3] == ["embed", "index", "pairs"]
    assert plan.stages[0].rows == 87 + 2 and plan.stages[0].tokens > 0
    assert plan.money is not None and 0 < plan.money[0] < plan.money[1]
    text = render_run(report)
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
