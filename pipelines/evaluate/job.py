"""Models + benchmark files -> scores, side by side.

In:  encoders (and baselines of the paper), and files under the names public data sets use.
Out: a table on the terminal; every number in `scores.json` and `scores.md` if there is an --out.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pipelines.artifacts import sidecars
from pipelines.artifacts.models import resolve_model
from pipelines.evaluate.benchmarks import read_benchmarks, shorten_names
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.runtime.readable import ReadableReport
from pipelines.runtime.session import job_session
from pipelines.runtime.tasks import in_order
from sbert_core.evaluation.benchmarks import Score
from sbert_core.json_record import decode
from workers.evaluate import ModelKind, ModelSource, score_model

SCORES_TABLE = "scores.md"

# Scores of each model, under its name in the table.
ModelScores = dict[str, list[Score]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateReport(ReadableReport):
    """The table of main scores in Markdown, and all scores by model.

    is_new: False for scores of an earlier run.
    """

    table: str
    scores: ModelScores
    out: Path | None
    is_new: bool = True


def run(spec: EvaluateSpec) -> EvaluateReport:
    """Read all benchmark files, score all models, and write the scores if there is an --out."""
    benchmarks = read_benchmarks(spec)
    calls = [(source, benchmarks) for source in _model_sources(spec)]
    if spec.address is None:  # one model after the other in this process, without a Ray session
        found = [score_model(*call) for call in calls]
    else:  # side by side, a task per model
        with job_session(str(spec.out or Path.cwd()), spec.address):
            found = in_order(score_model, calls)
    scores = dict(zip(_model_names(spec), found, strict=True))
    if spec.out is not None:
        _write(spec.out, scores)
    return EvaluateReport(table=score_table(scores), scores=scores, out=spec.out)


def reread(spec: EvaluateSpec) -> EvaluateReport:
    """The report of an earlier run of the same spec, from its files."""
    assert spec.out is not None
    path = spec.out / sidecars.SCORES
    facts = json.loads(path.read_text(encoding="utf-8"))
    saved = decode(dict[str, tuple[Score, ...]], facts, str(path))
    scores = {model: list(found) for model, found in saved.items()}
    return EvaluateReport(table=score_table(scores), scores=scores, out=spec.out, is_new=False)


def _model_sources(spec: EvaluateSpec) -> list[ModelSource]:
    """Models, then baselines, with their folders on this machine."""
    sources = [
        ModelSource(ModelKind.MODEL, resolve_model(model), spec.precision) for model in spec.models
    ]
    for baseline in spec.baselines:
        word, _, place = baseline.partition("=")
        kind = ModelKind(word)
        if kind in (ModelKind.MEAN, ModelKind.CLS):
            place = resolve_model(place)
        elif place:
            place = str(Path(place).absolute())
        sources.append(ModelSource(kind, place, spec.precision))
    return sources


def _model_names(spec: EvaluateSpec) -> list[str]:
    """Names of models and baselines: as short as still distinguishes them, else as given."""
    given = [*spec.models, *spec.baselines]
    places = shorten_names([baseline.partition("=")[2] for baseline in spec.baselines])
    kinds = [baseline.partition("=")[0] for baseline in spec.baselines]
    baselines = [f"{k}={place}" if place else k for k, place in zip(kinds, places, strict=True)]
    names = [*shorten_names(list(spec.models)), *baselines]
    return names if len(set(names)) == len(set(given)) else given


def score_table(scores: ModelScores) -> str:
    """Main scores as a Markdown table: data sets down, models across."""
    mains = [s for found in scores.values() for s in found if s.is_main]
    rows = list(dict.fromkeys((s.task, s.data, s.measure) for s in mains))
    lines = [
        f"| task | data | measure | {' | '.join(scores)} |",
        f"|---|---|---|{'---:|' * len(scores)}",
    ]
    values = {
        model: {(s.task, s.data, s.measure): s.value for s in found}
        for model, found in scores.items()
    }
    for row in rows:
        cells = [f"{v[row]:.2f}" if row in v else "-" for v in values.values()]
        lines.append(f"| {' | '.join(row)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _write(out: Path, scores: ModelScores) -> None:
    out.mkdir(parents=True, exist_ok=True)
    facts = {model: [asdict(score) for score in found] for model, found in scores.items()}
    (out / sidecars.SCORES).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    every = {m: [replace(score, is_main=True) for score in found] for m, found in scores.items()}
    text = f"{score_table(scores)}\n\n## All measures\n\n{score_table(every)}\n"
    (out / SCORES_TABLE).write_text(text, encoding="utf-8")
