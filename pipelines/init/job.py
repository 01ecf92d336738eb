"""A commented job file to begin with.

Comments of options are their help texts and values without another example are their defaults, so
that the file cannot differ from what the commands take.
"""

from dataclasses import dataclass
from pathlib import Path

from pipelines.init.spec import InitSpec
from pipelines.options import SpecOption, options_of
from pipelines.run.jobfile import SPECS

COMMENT_COLUMN = 33
HEAD = """\
# A job for `sbert run`. Paths are relative to this file. Every stage takes the options of its
# command (`sbert embed --help`), with its inputs and outputs below `out` unless you name others.

corpus: {corpus}        # a Parquet, CSV or JSON lines file, a folder, a glob or s3://...
out: {out}              # vectors/, pairs/, clusters/, corpus/, report.html, run.json

stages:
"""
GATES = """\
gates:                   # exit code 4 if one fails; the report says which
  max_quarantined_share: 0.01
  min_recall: 0.99
  # max_removed_share: 0.5
  # min_score: 80        # of stage evaluate

# price_per_hour: 1.20   # of the whole cluster; --plan and the report then include money
"""


@dataclass(frozen=True, slots=True)
class ExampleOption:
    """An option of the example. value: in YAML, the default if None. is_off: commented out."""

    name: str
    value: str | None = None
    is_off: bool = False


@dataclass(frozen=True, slots=True)
class ExampleStage:
    """A stage of the example. note: what it makes. is_off: commented out."""

    name: str
    options: tuple[ExampleOption, ...] = ()
    note: str = ""
    is_off: bool = False


EXAMPLE = (
    ExampleStage(
        "embed",
        (
            ExampleOption("model", "demo"),
            ExampleOption("precision", "auto"),
            ExampleOption("text_column"),
            ExampleOption("id_column", "id", is_off=True),
            ExampleOption("carry", "[source]", is_off=True),
        ),
    ),
    ExampleStage(
        "index", (ExampleOption("kind"),), 'then: sbert search {out}/index "..."', is_off=True
    ),
    ExampleStage(
        "pairs",
        (
            ExampleOption("threshold", "0.9"),
            ExampleOption("method", is_off=True),
            ExampleOption("recall", is_off=True),
        ),
        "sbert threshold {out}/vectors helps to choose a threshold",
    ),
    ExampleStage(
        "cluster", (ExampleOption("keep", "longest"), ExampleOption("topics", "20", is_off=True))
    ),
    ExampleStage("apply", note="{out}/corpus: the same files without removed rows"),
    ExampleStage("report", note="{out}/report.html and report.json"),
)


def run(spec: InitSpec) -> Path:
    """Write the example; a file that exists is not replaced."""
    if spec.job.exists():
        raise ValueError(f"{spec.job} exists already; choose another name")
    spec.job.write_text(example_text(spec.corpus, spec.out), encoding="utf-8")
    return spec.job


def example_text(corpus: str, out: str) -> str:
    """The example for a corpus and a folder of outputs."""
    stages = "\n".join(_stage_text(stage, out.rstrip("/")) for stage in EXAMPLE)
    return f"{HEAD.format(corpus=corpus, out=out)}{stages}\n{GATES}"


def _stage_text(stage: ExampleStage, out: str) -> str:
    declared = {option.name: option for option in options_of(SPECS[stage.name])}
    mark = "# " if stage.is_off else ""
    lines = [_with_comment(f"  {mark}{stage.name}:", stage.note.format(out=out))]
    lines += [_option_line(option, declared[option.name], mark) for option in stage.options]
    return "\n".join(lines) + "\n"


def _option_line(example: ExampleOption, declared: SpecOption, mark: str) -> str:
    value = declared.default_text if example.value is None else example.value
    off = "# " if example.is_off else ""
    return _with_comment(f"  {mark}  {off}{example.name}: {value}", declared.info.help)


def _with_comment(line: str, comment: str) -> str:
    return f"{line:<{COMMENT_COLUMN}}# {comment}" if comment else line
