"""Words -> specs, reports -> words: every command and its options."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipelines import STAGES
from pipelines.cli.exit_codes import EXIT_BAD_INPUT, run_call, run_job
from pipelines.cli.render import (
    apply_text,
    cluster_text,
    dedup_text,
    demo_text,
    embed_text,
    index_text,
    job_plan_text,
    mine_text,
    pairs_text,
    plan_text,
    prepare_text,
    run_text,
    search_json,
    search_text,
    submit_text,
    threshold_text,
    train_text,
)
from pipelines.options import band_of, number_or_auto, numbers_of, range_of, unescaped, words_of
from pipelines.runtime.terminal import printable

if TYPE_CHECKING:
    from pipelines.apply.job import ApplyReport
    from pipelines.cluster.job import ClusterReport
    from pipelines.dedup.job import DedupReport
    from pipelines.demo.job import DemoReport
    from pipelines.doctor.job import DoctorReport
    from pipelines.evaluate.job import EvaluateReport
    from pipelines.index.job import IndexReport
    from pipelines.mine.job import MineReport
    from pipelines.pairs.job import PairsReport
    from pipelines.prepare.job import PrepareReport
    from pipelines.report.job import ReportReport
    from pipelines.run.job import RunReport
    from pipelines.search.job import SearchReport
    from pipelines.submit.job import Submitted
    from pipelines.threshold.job import ThresholdReport
    from pipelines.train.job import TrainReport

Value = TypeVar("Value")


def say(text: str, *, err: bool = False) -> None:
    """Show what may hold words of a corpus."""
    click.echo(printable(text), err=err)


class Flow(click.Group):
    """Lists commands in the order of the flow; click sorts them by letter."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [stage for stage in STAGES if stage in self.commands]

    def make_context(self, *words: Any, **options: Any) -> click.Context:  # noqa: ANN401
        with _shown_safely():
            return super().make_context(*words, **options)

    def invoke(self, ctx: click.Context) -> object:
        with _shown_safely():
            return super().invoke(ctx)


@contextmanager
def _shown_safely() -> Iterator[None]:
    """A shell may put names of a corpus's files among the words that click complains of."""
    try:
        yield
    except click.UsageError as error:
        words = error.format_message()
        if printable(words) == words:
            raise
        raise click.UsageError(printable(words), error.ctx) from None


@click.group(cls=Flow)
@click.version_option(package_name="sbert-mill")
def main() -> None:
    """Sentence vectors for whole corpora: embed, index, find and remove near-duplicates.

    Every command runs on an embedded Ray unless --address (or RAY_ADDRESS) names a cluster.
    """


def job(command: Callable[..., None]) -> Callable[..., None]:
    """The options of every job on Ray."""

    @wraps(command)
    def patient(max_wait: float, when_busy: str, **options: object) -> None:
        from pipelines.runtime.wait_policy import patience

        with patience(max_wait, waits_for_others=when_busy == "wait"):
            command(**options)

    options = (
        click.option("--address", envvar="RAY_ADDRESS", help="Ray cluster; embedded by default."),
        click.option(
            "--max-wait",
            type=click.FloatRange(min=0),
            default=600.0,
            show_default=True,
            help="Seconds to wait for room on a cluster, or for another run.",
        ),
        click.option(
            "--when-busy",
            type=click.Choice(["exit", "wait"]),
            default="exit",
            show_default=True,
            help="If another run holds the output: exit with code 5, or wait for its end.",
        ),
    )
    decorated = local_job(patient)
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def local_job(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a job that runs where it is called."""
    options = (
        click.option("--debug", is_flag=True, help="Show tracebacks and more log lines."),
        click.option("--json-log", is_flag=True, help="Log lines as JSON."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def parsed(read: Callable[[str], Value], text: str, option: str) -> Value:
    """A value of an option, or a word on what is wrong with it."""
    try:
        return read(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


@main.command()
@click.argument("job", type=click.Path(path_type=Path), default="job.yaml")
@click.option("--corpus", default="corpus/", show_default=True, help="What the job reads.")
@click.option("--out", default="run/", show_default=True, help="What it writes below.")
@local_job
def init(debug: bool, json_log: bool, job: Path, corpus: str, out: str) -> None:
    """Write a commented job file to begin with."""
    made = run_call("init", debug, json_log, job, corpus, out)
    say(f"job -> {made}\nsbert run {made}")


@main.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option("--set", "settings", multiple=True, help="STAGE.OPTION=VALUE, above the job file.")
@click.option("--plan", is_flag=True, help="Say what would run and cost; write nothing.")
@click.option("--from", "start", help="Begin with this stage; earlier ones are as they are.")
@job
def run(debug: bool, json_log: bool, **options: object) -> None:
    """Run the stages of a job file; finished ones have nothing to do."""
    report: RunReport = run_job("run", "RunSpec", debug, json_log, **options)
    say(job_plan_text(report.plan) if report.plan is not None else run_text(report))


@main.command()
@click.argument("file")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for results.")
@click.option("--text-column", default="text", show_default=True, help="Column of texts.")
@click.option("--id-column", help="Column of ids; 'id' if there is one.")
@click.option("--threshold", default="auto", show_default=True, help="Least cosine, or auto.")
@click.option("--keep", default="", help='What to keep: "longest,newest:date"; the first by id.')
@click.option("--model", default="demo", show_default=True, help="Folder, hub id or 'demo'.")
@job
def dedup(debug: bool, json_log: bool, **options: object) -> None:
    """Remove near-duplicates from one file: kept, removed with witnesses, report."""
    report: DedupReport = run_job("dedup", "DedupSpec", debug, json_log, **options)
    say(dedup_text(report))


@main.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--out", required=True, help="Folder or s3:// URI of the shards.")
@click.option(
    "--format",
    type=click.Choice(["pairs", "scored", "triplets", "ranking"]),
    required=True,
    help="Two texts and a class; and a score; anchor, positive, negative; query and answer.",
)
@click.option("--columns", default="", help="Columns of texts and label, in order: a,b,label.")
@click.option("--exclude", multiple=True, help="Evaluation file whose texts must not be learned.")
@click.option("--labels", default="", help="All classes, in order; found in the data by default.")
@click.option("--skip-label", multiple=True, help="Class whose rows are left out.")
@click.option("--score-range", default="0,1", show_default=True, help="LOW,HIGH of scores.")
@click.option("--dev-fraction", type=float, default=0.0, show_default=True, help="Held out.")
@click.option("--shards", type=int, help="Files to write; 8 or more by default.")
@click.option("--tokenizer", help="Model to count tokens with; characters by default.")
@click.option("--seed", type=int, default=0, show_default=True)
@job
def prepare(
    debug: bool, json_log: bool, columns: str, labels: str, score_range: str, **options: object
) -> None:
    """Turn labelled files into shards to train on, without repeats and leaks."""
    options["columns"], options["labels"] = words_of(columns), words_of(labels)
    options["score_range"] = parsed(range_of, score_range, "--score-range")
    report: PrepareReport = run_job("prepare", "PrepareSpec", debug, json_log, **options)
    say(prepare_text(report))


@main.command()
@click.argument("shards")
@click.option("--model", required=True, help="Encoder to search with: folder, hub id or 'demo'.")
@click.option("--out", required=True, help="Folder or s3:// URI of the new shards.")
@click.option("--negatives", type=int, default=1, show_default=True, help="Per row.")
@click.option(
    "--margin", type=float, default=0.05, show_default=True, help="Cosine below the answer's."
)
@click.option(
    "--ceiling", type=float, default=0.9, show_default=True, help="Cosine with the answer itself."
)
@job
def mine(debug: bool, json_log: bool, **options: object) -> None:
    """Add hard negatives to ranking shards, by exact search."""
    report: MineReport = run_job("mine", "MineSpec", debug, json_log, **options)
    say(mine_text(report))


@main.command()
@click.argument("shards")
@click.option("--base", required=True, help="Encoder to start from: folder, hub id or 'demo'.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="New encoder folder.")
@click.option(
    "--objective", type=click.Choice(["softmax", "cosine", "triplet", "ranking", "cosent"])
)
@click.option("--cross-encoder", is_flag=True, help="Train a cross-encoder instead.")
@click.option("--concat", default="u,v,|u-v|", show_default=True, help="What softmax sees.")
@click.option("--margin", type=float, default=1.0, show_default=True, help="Of triplets.")
@click.option(
    "--distance",
    type=click.Choice(["euclidean", "cosine", "manhattan"]),
    default="euclidean",
    show_default=True,
    help="Of triplets.",
)
@click.option("--matryoshka", default="", help="Also train the first 256,128,64 dimensions.")
@click.option("--pooling", type=click.Choice(["mean", "cls", "max"]), help="The base's own.")
@click.option("--dense", type=int, help="Add a projection to D dimensions.")
@click.option("--max-length", type=int, help="Tokens of a text; the base's own.")
@click.option("--workers", type=int, help="Ranks; one per GPU, or 1.")
@click.option("--gpus-per-worker", type=float, help="1 where there are GPUs, else 0.")
@click.option("--cpus-per-worker", type=int, help="Threads of a rank; all cores shared evenly.")
@click.option("--epochs", type=int, default=1, show_default=True)
@click.option("--batch-size", type=int, default=16, show_default=True, help="Rows per worker.")
@click.option("--accumulate", type=int, default=1, show_default=True, help="Batches per step.")
@click.option("--lr", type=float, default=2e-5, show_default=True)
@click.option("--warmup", type=float, default=0.1, show_default=True, help="Share of steps.")
@click.option("--weight-decay", type=float, default=0.0, show_default=True)
@click.option("--precision", type=click.Choice(["bf16", "fp32"]), help="bf16 on GPUs, else fp32.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--seeds", type=int, help="Train N encoders, from --seed on, in folders of --out.")
@click.option("--eval", help="STS file to judge epochs by; the dev split by default.")
@click.option("--checkpoint-steps", type=int, default=500, show_default=True)
@job
def train(debug: bool, json_log: bool, matryoshka: str, **options: object) -> None:
    """Fine-tune an encoder, or a cross-encoder, on shards."""
    options["matryoshka"] = parsed(numbers_of, matryoshka, "--matryoshka")
    reports: list[TrainReport] = run_job("train", "TrainSpec", debug, json_log, **options)
    say("\n".join(map(train_text, reports)))


@main.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--sts", multiple=True, help="Scored pairs: sentence1, sentence2, score.")
@click.option(
    "--sts-aggregate",
    type=click.Choice(["all", "mean", "wmean"]),
    default="all",
    show_default=True,
    help="Subsets of one file together, averaged, or weighted by their pairs.",
)
@click.option("--nli", multiple=True, help="Classed pairs, for models with a softmax head.")
@click.option("--triplets", multiple=True, help="anchor, positive, negative.")
@click.option("--pairs", multiple=True, help="Two texts and label 1 (same) or 0.")
@click.option("--transfer", help="Folder of the SentEval tasks: mr.parquet, trec_train.parquet...")
@click.option("--retrieval", help="Folder with NAME_docs, NAME_queries, NAME_qrels.")
@click.option("--clusters", multiple=True, help="id, cluster, text.")
@click.option("--facets", multiple=True, help="Argument pairs with score and topic.")
@click.option(
    "--baselines", multiple=True, help="glove=FILE, tfidf, mean=MODEL or cls=MODEL, as a column."
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for scores.json, scores.md.")
@job
def evaluate(debug: bool, json_log: bool, **options: object) -> None:
    """Score models on the benchmarks of the paper, side by side."""
    report: EvaluateReport = run_job("evaluate", "EvaluateSpec", debug, json_log, **options)
    say(report.table)
    if report.out is not None:
        say(f"scores -> {report.out}")


@main.command()
@click.argument("corpus")
@click.option("--model", required=True, help="Folder, s3:// URI, hub id org/name@rev, or 'demo'.")
@click.option("--out", required=True, help="Folder or s3:// URI of the vectors, new or to update.")
@click.option("--text-column", default="text", show_default=True, help="Column of texts.")
@click.option("--text", help=r"Template of several columns instead: '{title}\n{body}'.")
@click.option("--id-column", help="Column of unique ids; 'id' if there is one, else positions.")
@click.option("--id", type=click.Choice(["content"]), help="Make ids from the texts themselves.")
@click.option("--carry", default="", help="Columns to copy beside the vectors: a,b=c (b as c).")
@click.option(
    "--where",
    help="Rows to take: \"lang in ('en', 'de') and not year < 2020\". A null fulfils nothing but "
    "'is None', neither year < 2020 nor its opposite.",
)
@click.option("--limit", type=int, help="Take the first N rows only.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "int8"]),
    default="float32",
    show_default=True,
    help="How vectors are stored.",
)
@click.option("--max-length", type=int, help="Tokens of a text the model sees; the model's own.")
@click.option("--prompt", help="Text in front of every text; the model's document prompt.")
@click.option("--truncate-dim", type=int, help="Keep the first D dimensions.")
@click.option(
    "--long",
    type=click.Choice(["truncate", "pool", "chunks"]),
    default="truncate",
    show_default=True,
    help="Texts beyond the length: cut, average their windows, or one row per window.",
)
@click.option(
    "--distinct",
    type=click.Choice(["corpus", "unit"]),
    default="corpus",
    show_default=True,
    help="Encode each text once in the whole corpus, or once per unit (fewer passes).",
)
@click.option("--actors", type=int, help="Embedding actors; one per GPU, or per core.")
@click.option("--gpus-per-actor", type=float, help="1 where there are GPUs, else 0.")
@click.option("--cpus-per-actor", type=int, default=1, show_default=True)
@click.option("--unit-rows", type=int, help="Rows per unit of work; 1,024 to 65,536 by file size.")
@click.option("--skip-corrupt", is_flag=True, help="Quarantine unreadable files and go on.")
@click.option("--plan", is_flag=True, help="Show what would be done; write nothing.")
@job
def embed(debug: bool, json_log: bool, carry: str, text: str | None, **options: object) -> None:
    """Turn a corpus of texts into vectors; only what is new or changed is embedded."""
    options["carry"] = words_of(carry)
    options["text"] = None if text is None else unescaped(text)
    report = run_job("embed", "EmbedSpec", debug, json_log, **options)
    say(plan_text(report) if options["plan"] else embed_text(report))


@main.command()
@click.argument("vectors")
@click.option("--out", required=True, help="Folder or s3:// URI of the index, new or to update.")
@click.option(
    "--kind",
    default="hnsw",
    show_default=True,
    help='hnsw, or a FAISS factory string: "faiss:IVF4096,PQ48".',
)
@click.option("--shards", default="auto", show_default=True, help="Files side by side, or auto.")
@click.option("--m", type=int, default=16, show_default=True, help="Links of a node (hnsw).")
@click.option(
    "--ef-construction", type=int, default=200, show_default=True, help="Care in building (hnsw)."
)
@click.option("--train-sample", type=int, help="Rows FAISS learns cells and codes from.")
@click.option(
    "--recall-sample", type=int, default=1000, show_default=True, help="Queries to measure with."
)
@click.option(
    "--recall-target", type=float, help="Raise the search effort until recall@10 is this, or fail."
)
@click.option("--seed", type=int, default=0, show_default=True)
@job
def index(debug: bool, json_log: bool, shards: str, **options: object) -> None:
    """Build or update an index of vectors, and measure what it misses."""
    options["shards"] = parsed(number_or_auto, shards, "--shards")
    report: IndexReport = run_job("index", "IndexSpec", debug, json_log, **options)
    say(index_text(report))


@main.command()
@click.argument("index")
@click.argument("text", required=False)
@click.option("--queries", help="File of queries instead: Parquet, CSV, TSV or JSON lines.")
@click.option("--text-column", default="text", show_default=True, help="Of --queries.")
@click.option("--id-column", help="Of --queries; 'id' if there is one, else row numbers.")
@click.option("--k", type=int, default=10, show_default=True, help="Hits per query.")
@click.option("--model", help="Encoder of the queries; the one that made the vectors.")
@click.option("--rerank", help="Cross-encoder that has the last word on the hits.")
@click.option("--filter", help="Rows to find, as embed's --where: \"source == 'x' and year > 9\".")
@click.option("--out", help="Parquet file for the hits of --queries.")
@click.option("--json", "as_json", is_flag=True, help="Print hits as JSON.")
@job
def search(debug: bool, json_log: bool, as_json: bool, **options: object) -> None:
    """Find the closest rows of an index to a text, or to each text of a file."""
    report: SearchReport = run_job("search", "SearchSpec", debug, json_log, **options)
    say(search_json(report) if as_json else search_text(report))
    for note in report.notes:
        say(note, err=True)


@main.command()
@click.argument("vectors")
@click.option("--out", required=True, help="Folder or s3:// URI of the pairs.")
@click.option("--threshold", type=float, help="Least cosine; 0.9, or none with --top-k.")
@click.option("--against", help="Vectors to compare with instead of the rows themselves.")
@click.option(
    "--method",
    type=click.Choice(["auto", "exact", "ivf"]),
    default="auto",
    show_default=True,
    help="All pairs; through cells, with a certificate; or what fits.",
)
@click.option(
    "--recall", type=float, default=0.99, show_default=True, help="What ivf must be sure of."
)
@click.option("--top-k", type=int, help="The K nearest rows of each row instead.")
@click.option("--max-edges", type=int, help="Stop before writing if there are more pairs.")
@click.option("--rerank", help="Cross-encoder that scores the pairs in --band.")
@click.option("--band", default="0.85:0.95", show_default=True, help="Cosines LOW:HIGH to rerank.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of samples and cells.")
@job
def pairs(debug: bool, json_log: bool, band: str, **options: object) -> None:
    """Find all pairs of rows that are at least as similar as a threshold."""
    options["band"] = parsed(band_of, band, "--band")
    report: PairsReport = run_job("pairs", "PairsSpec", debug, json_log, **options)
    say(pairs_text(report))


@main.command()
@click.argument("source", metavar="VECTORS|PAIRS")
@click.option("--labelled", help="Pairs of ids with a label 1 (same) or 0: id_a, id_b, label.")
@click.option("--samples", type=int, default=3, show_default=True, help="Pairs shown at a level.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@local_job
def threshold(debug: bool, json_log: bool, as_json: bool, **options: object) -> None:
    """Help to choose a threshold: chance pairs and samples by cosine, or scores against labels."""
    report: ThresholdReport = run_job("threshold", "ThresholdSpec", debug, json_log, **options)
    say(threshold_text(report, as_json))


@main.command()
@click.argument("pairs")
@click.option("--out", required=True, help="Folder or s3:// URI of the clusters.")
@click.option(
    "--method",
    type=click.Choice(["leaders", "components"]),
    default="leaders",
    show_default=True,
    help="How rows are grouped; what is kept follows leaders.",
)
@click.option("--threshold", "thresholds", type=float, multiple=True, help="That of the pairs.")
@click.option("--keep", default="", help='First choice first: "source=a>b,longest,newest:date".')
@click.option("--protect", help="Ids never to remove: lines of text, or a table with a column id.")
@click.option("--metadata", help="Corpus with the columns of --keep that the vectors lack.")
@click.option("--vectors", help="Where the vectors are now, if they moved.")
@click.option("--min-rerank", type=float, help="Leave out pairs with a lower cross-encoder score.")
@click.option(
    "--max-cluster-share",
    type=float,
    default=0.01,
    show_default=True,
    help="Of all rows that one component may chain together.",
)
@click.option("--topics", type=int, help="Also sort rows into K topics, named by keywords.")
@click.option("--compare-fresh", is_flag=True, help="Say how an update differs from a fresh run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of topics.")
@local_job
def cluster(debug: bool, json_log: bool, **options: object) -> None:
    """Decide which rows to keep; every other row has a kept witness."""
    report: ClusterReport = run_job("cluster", "ClusterSpec", debug, json_log, **options)
    say(cluster_text(report))


@main.command()
@click.argument("clusters")
@click.argument("corpus")
@click.option("--out", required=True, help="Folder or s3:// URI of the smaller corpus.")
@click.option("--threshold", type=float, help="Which one, if the clusters have several.")
@job
def apply(debug: bool, json_log: bool, **options: object) -> None:
    """Write the corpus without removed rows: same files, schema and order."""
    report: ApplyReport = run_job("apply", "ApplySpec", debug, json_log, **options)
    say(apply_text(report))


@main.command()
@click.argument("sources", nargs=-1, required=True)
@click.option("--out", default="report.html", show_default=True, help="The page.")
@click.option("--title", help="Of the page.")
@click.option("--sample", type=int, default=4000, show_default=True, help="Points of the map.")
@click.option("--clusters", type=int, default=2000, show_default=True, help="Clusters to read.")
@click.option("--seed", type=int, default=0, show_default=True)
@local_job
def report(debug: bool, json_log: bool, **options: object) -> None:
    """Write one page on a run or on artifacts, and the same as JSON."""
    made: ReportReport = run_job("report", "ReportSpec", debug, json_log, **options)
    say(f"{made.bytes / 1e6:,.1f} MB\nreport -> {made.page}")


@main.command()
@click.argument("artifact")
def path(artifact: str) -> None:
    """Print the published data folder of an artifact, for any Parquet reader."""
    say(run_job("path", "PathSpec", False, False, artifact=artifact))


@main.command()
@click.argument("vectors")
@click.option("--to", type=click.Choice(["lance", "pgvector", "qdrant"]), required=True)
@click.option("--out", required=True, help="New folder for the files.")
@click.option("--name", default="vectors", show_default=True, help="Table or collection.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def export(debug: bool, **options: object) -> None:
    """Write vectors as files a vector store loads."""
    rows, folder = run_job("export", "ExportSpec", debug, False, **options)
    say(f"{rows:,} vectors -> {folder}")


@main.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for everything it makes.",
)
@click.option("--small", is_flag=True, help="Less of everything: under two minutes.")
@click.option("--docstrings", type=int, help="Texts to embed; 4,000, or 1,000 with --small.")
@job
def demo(debug: bool, json_log: bool, **options: object) -> None:
    """The whole flow on the docstrings of this machine's Python: train, embed, search, clean."""
    report: DemoReport = run_job("demo", "DemoSpec", debug, json_log, **options)
    say(demo_text(report))


@main.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.argument("words", nargs=-1, metavar="[-- OPTIONS OF RUN]")
@click.option(
    "--address",
    envvar="RAY_API_SERVER_ADDRESS",
    required=True,
    help="URL of the cluster's dashboard: http://head:8265.",
)
@click.option("--set", "settings", multiple=True, help="STAGE.OPTION=VALUE, above the job file.")
@click.option(
    "--env",
    multiple=True,
    help="NAME=VALUE for the job, or NAME for its value here. Ray logs it on its nodes.",
)
@click.option("--job-id", help="Ray's name for the job; if it is there already, it is followed.")
@click.option("--no-wait", is_flag=True, help="Submit, and do not follow.")
@local_job
def submit(
    debug: bool, json_log: bool, no_wait: bool, words: tuple[str, ...], **options: object
) -> None:
    """Run a job file on a cluster through Ray Jobs: its log here, its exit code ours."""
    run.make_context("run", [str(options["job"]), *words])  # a wrong word ends here, not there
    flags = ("--debug",) * debug + ("--json-log",) * json_log
    options |= {"wait": not no_wait, "words": (*flags, *words)}
    report: Submitted = run_job("submit", "SubmitSpec", debug, json_log, **options)
    say(submit_text(report), err=bool(report.exit_code))
    sys.exit(report.exit_code or 0)


@main.command()
@click.option("--address", envvar="RAY_ADDRESS", help="Ray cluster; this machine by default.")
@click.option("--storage", multiple=True, help="Folder or s3:// URI that all nodes should share.")
@click.option("--gpu", is_flag=True, help="Also measure a GPU (five minutes), and write a report.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@local_job
def doctor(debug: bool, json_log: bool, as_json: bool, **options: object) -> None:
    """Check versions, GPUs, storage, clocks, room and locks of every node; say what to do."""
    from pipelines.cli.doctor_table import doctor_json, doctor_text

    report: DoctorReport = run_job("doctor", "DoctorSpec", debug, json_log, **options)
    if as_json:
        say(doctor_json(report))
    else:
        click.echo(doctor_text(report))  # clean, but for its own colours
    sys.exit(EXIT_BAD_INPUT if report.num_failed else 0)
