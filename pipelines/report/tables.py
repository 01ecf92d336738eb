"""Records of stages, scores, cards and certificates -> headline, tables and curves."""

from pipelines.artifacts.certificate import max_missed
from pipelines.artifacts.sidecars import IndexCard
from pipelines.report.sources import ReportSources
from sbert_core.report.facts import GateLine, Headline, Table, TrainingCurve


def make_headline(found: ReportSources) -> tuple[Headline, ...]:
    """The numbers at the top of the page."""
    cards = [*_vectors_headline(found), *_pairs_headline(found)]
    if found.clusters is not None:
        removed = found.clusters.manifest.metrics.removed
        least = min(removed, key=float)
        cards.append((f"near-duplicates removed at {least}", f"{removed[least]:,}"))
    if (record := found.record) is not None:
        cards.append(("seconds, all stages", f"{record.seconds:,.0f}"))
        if record.price_per_hour is not None:
            cost = record.price_per_hour * record.seconds / 3600
            cards.append(("cost of the run", f"{cost:,.2f}"))
    return tuple(Headline(label=label, value=value) for label, value in cards)


def _vectors_headline(found: ReportSources) -> list[tuple[str, str]]:
    if (vectors := found.vectors) is None:
        return []
    run = found.vectors_run
    cards = [("rows embedded", f"{vectors.rows:,}")]
    if run.repeats is not None:
        cards.append(("distinct texts", f"{vectors.rows - run.repeats:,}"))
    if run.tokens_per_second:
        cards.append(("tokens per second", f"{run.tokens_per_second:,.0f}"))
    return [*cards, ("in quarantine", f"{vectors.manifest.quarantined:,}")]


def _pairs_headline(found: ReportSources) -> list[tuple[str, str]]:
    if found.pairs is None:
        return []
    certificate = found.pairs.manifest.metrics.certificate
    count = ("similar pairs", f"{found.pairs.rows:,}")
    if certificate is None:
        return [count, ("recall of pairs", "exact")]
    if certificate.is_rare:
        return [count, ("similar pairs missing", f"\u2264 {max_missed(certificate):,.0f}")]
    return [count, ("recall of pairs", f"\u2265 {certificate.low:.4f}")]


def make_gate_lines(found: ReportSources) -> tuple[GateLine, ...]:
    """The limits of the job file and what was measured."""
    if found.record is None:
        return ()
    return tuple(
        GateLine(
            is_met=gate.is_met,
            note=f"{gate.name} {gate.limit:g}: "
            + ("not measured" if gate.value is None else f"{gate.value:.6g}"),
        )
        for gate in found.record.gates
    )


def make_stage_tables(found: ReportSources) -> tuple[Table, ...]:
    """Time of each stage of the run, and of the phases of each artifact's last run."""
    rows: list[tuple[object, ...]] = []
    for stage in found.record.stages if found.record else ():
        memory = round(stage.driver_bytes / 1e6) or None
        rows.append((stage.name, stage.outcome, round(float(stage.seconds), 2), "", memory))
    for kind, run in found.runs.items():
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in run.phases.items())
        memory = round(max(run.private_bytes.values(), default=0) / 1e6) or None
        rows.append((kind, "last run", round(float(run.seconds), 2), phases, memory))
    if not rows:
        return ()
    columns = ("stage", "outcome", "seconds", "phases", "MB of a process")
    return (Table(columns=columns, rows=tuple(rows)),)


def make_score_tables(found: ReportSources) -> tuple[Table, ...]:
    """The main scores of all models side by side."""
    models = list(found.scores)
    by_task: dict[tuple[str, str, str], dict[str, float]] = {}
    for model, scores in found.scores.items():
        for score in scores:
            if score.is_main:
                key = (score.task, score.data, score.measure)
                by_task.setdefault(key, {})[model] = score.value
    if not by_task:
        return ()
    rows = tuple(
        (*key, *(round(values[m], 2) if m in values else "-" for m in models))
        for key, values in by_task.items()
    )
    return (Table(columns=("task", "data", "measure", *models), rows=rows),)


def make_index_tables(found: ReportSources) -> tuple[Table, ...]:
    """The card of the index."""
    return () if found.card is None else (_index_table(found.card),)


def _index_table(card: IndexCard) -> Table:
    rows: list[tuple[object, ...]] = [
        ("kind", card.kind),
        ("rows", card.rows),
        ("distinct", card.distinct),
        ("shards", card.shards),
        ("bytes", card.bytes),
        ("build_seconds", card.build_seconds),
    ]
    if card.queries_per_second is not None:
        rows.append(("queries_per_second", card.queries_per_second))
    for sample, by_k in card.recall.items():
        for k, own in by_k.items():
            value = f"{own.value:.4f} ({own.low:.4f} to {own.high:.4f})"
            rows.append((f"recall@{k}, {sample}", value))
    for times in (card.single_query_ms, card.extrapolated_query_ms):
        how = "" if times.how is None else f" ({times.how})"
        value = f"p50 {times.p50:.2f} ms, p99 {times.p99:.2f} ms{how}"
        rows.append((f"one query among {times.rows:,} rows", value))
    return Table(columns=("", ""), rows=tuple(rows))


def make_certificate_tables(found: ReportSources) -> tuple[Table, ...]:
    """The recall of an approximate join by band of cosines; empty for an exact one."""
    own = None if found.pairs is None else found.pairs.manifest.metrics.certificate
    if own is None:
        return ()
    note = (
        f"{own.rows_sampled:,} of {own.rows:,} rows were looked up exactly; recall "
        f"{own.value:.4f}, at least {own.low:.4f}, and at most {max_missed(own):,.0f} "
        f"pairs are missing, with confidence {own.confidence:.4g}"
    )
    rows = tuple(
        (
            f"{band.start:.2f}",
            band.found,
            round(band.missed, 1),
            round(band.value, 4),
            round(band.low, 4),
        )
        for band in own.bands
    )
    columns = ("cosine from", "found", "missed, estimated", "recall", "at least")
    return (Table(columns=columns, rows=rows, note=note),)


def make_training_curves(found: ReportSources) -> tuple[TrainingCurve, ...]:
    """Loss and held-out score of each training, both over steps."""
    curves = []
    for name, own in found.trainings.items():
        report = own.report
        steps = max(1, report.steps)
        epochs = max((epoch for epoch, _ in own.dev), default=1) or 1
        note = f"{report.rows:,} rows in {steps:,} steps"
        if report.best_score is not None:
            note += f"; {report.measure} {report.start_score:.2f} before, "
            note += f"{report.best_score:.2f} after"
        curves.append(
            TrainingCurve(
                name=name,
                loss=own.loss,
                scores=tuple((epoch * steps / epochs, score) for epoch, score in own.dev),
                measure=report.measure or "score",
                note=note,
            )
        )
    return tuple(curves)
