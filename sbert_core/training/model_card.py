"""The record of a training run -> the model card beside the weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sbert_core.choices import ObjectiveName
from sbert_core.json_record import decode


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """Options of a run that its model card shows, under their names in `training.json`."""

    out: str
    base: str
    shards: str
    cross_encoder: bool
    objective: str | None
    concat: str
    margin: float
    distance: str
    matryoshka: tuple[int, ...]
    epochs: int
    batch_size: int
    accumulate: int
    lr: float
    warmup: float
    weight_decay: float
    seed: int

    @property
    def name(self) -> str:
        """The model's name: that of its folder."""
        return Path(self.out).name


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """Speed and held-out scores of a run; scores are None without held-out rows."""

    workers: int
    seconds: float
    rows_per_second: float
    measure: str | None
    start_score: float | None
    best_epoch: int
    best_score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Rows of each shard."""

    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFacts:
    """What a model card shows of `training.json`. The fields are its keys."""

    spec: TrainingOptions
    report: TrainingResult
    data: TrainingData


def model_card(facts: Mapping[str, object]) -> str:
    """The model card of a run, from the contents of its `training.json`.

    Raises ValueError where a key is missing or has another type.
    """
    return render_model_card(decode(TrainingFacts, facts, "training.json"))


def render_model_card(facts: TrainingFacts) -> str:
    """Markdown with the header that model hubs read."""
    spec, report = facts.spec, facts.report
    kind = "cross-encoder" if spec.cross_encoder else "sentence encoder"
    task = "text-ranking" if spec.cross_encoder else "sentence-similarity"
    lines = [
        "---",
        "library_name: sentence-transformers",
        f"pipeline_tag: {task}",
        "---",
        "",
        f"# {spec.name}",
        "",
        f"A {kind}, trained from `{spec.base}` by `sbert train`.",
        "",
        "| | |",
        "|---|---|",
        f"| objective | {_objective(spec)} |",
        f"| data | `{spec.shards}`, {sum(facts.data.rows):,} rows |",
        f"| epochs | {spec.epochs} |",
        f"| batch_size | {spec.batch_size} |",
        f"| accumulate | {spec.accumulate} |",
        f"| lr | {spec.lr} |",
        f"| warmup | {spec.warmup} |",
        f"| weight_decay | {spec.weight_decay} |",
        f"| seed | {spec.seed} |",
        f"| workers | {report.workers} |",
        f"| throughput | {report.rows_per_second:,.1f} rows/s, {report.seconds:,.0f} s |",
        "",
        *_scores(report),
        "![loss and held-out score](training.svg)",
        "",
        "```python",
        *_usage(spec),
        "```",
        "",
    ]
    return "\n".join(lines)


def _scores(report: TrainingResult) -> list[str]:
    if report.best_score is None:
        return []
    return [
        f"Held-out {report.measure}: {report.start_score:.2f} before training, "
        f"**{report.best_score:.2f}** after epoch {report.best_epoch}, which is the one "
        "saved here.",
        "",
    ]


def _objective(spec: TrainingOptions) -> str:
    name = spec.objective or "scores or classes of pairs"
    if spec.objective == ObjectiveName.SOFTMAX:
        name += f" over ({spec.concat.replace('|', chr(92) + '|')})"
    if spec.objective == ObjectiveName.TRIPLET:
        name += f", {spec.distance} margin {spec.margin:g}"
    if spec.matryoshka:
        name += f", also at {', '.join(map(str, spec.matryoshka))} dimensions"
    return name


def _usage(spec: TrainingOptions) -> list[str]:
    if spec.cross_encoder:
        return [
            "from sentence_transformers import CrossEncoder",
            f'CrossEncoder("{spec.name}").predict([("a question", "an answer")])',
        ]
    return [
        "from sentence_transformers import SentenceTransformer",
        f'SentenceTransformer("{spec.name}").encode(["a sentence"])',
    ]
