"""A commented job file to begin with."""

from pathlib import Path

from pipelines.init.spec import InitSpec

EXAMPLE = """\
# A job for `sbert run`. Paths are relative to this file. Every stage takes the options of its
# command (`sbert embed --help`), with its inputs and outputs below `out` unless you name others.

corpus: {corpus}        # a Parquet, CSV or JSON lines file, a folder, a glob or s3://...
out: {out}              # vectors/, pairs/, clusters/, corpus/, report.html, run.json

stages:
  embed:
    model: demo          # a sentence-transformers folder, a hub id, or the demo's MiniLM
    text_column: text
    # id_column: id      # ids that stay when rows move; without them rows are known by place
    # carry: [source]    # columns that later rules need

  # index:               # search: sbert search {out}/index "..."
  #   kind: hnsw

  pairs:
    threshold: 0.9       # sbert threshold {out}/vectors helps to choose
    # method: auto       # exact up to two core-hours of work, above it cells with a certificate
    # recall: 0.99

  cluster:
    keep: longest        # first choice first, e.g. source=wiki>web,longest,newest:date
    # topics: 20

  apply:                 # {out}/corpus: the same files without removed rows

  report:                # {out}/report.html and report.json

gates:                   # exit code 4 if one fails; the report says which
  max_quarantined_share: 0.01
  min_recall: 0.99
  # max_removed_share: 0.5
  # min_score: 80        # of stage evaluate

# price_per_hour: 1.20   # of the whole cluster; --plan and the report then speak of money
"""


def run(spec: InitSpec) -> Path:
    """Write the example; a file that exists is not replaced."""
    if spec.job.exists():
        raise ValueError(f"{spec.job} exists already; choose another name")
    spec.job.write_text(EXAMPLE.format(corpus=spec.corpus, out=spec.out), encoding="utf-8")
    return spec.job
