"""Reports of whole runs and of their surroundings -> sentences."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from pipelines.cli.rendered import Rendered
from pipelines.runtime.exit_codes import EXIT_BAD_INPUT

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.dedup.job import DedupReport
    from pipelines.demo.job import DemoReport
    from pipelines.doctor.job import DoctorReport
    from pipelines.purge.job import PurgedArtifact, PurgeReport
    from pipelines.report.job import ReportResult
    from pipelines.run.estimate import JobPlan
    from pipelines.run.job import RunReport
    from pipelines.submit.job import SubmitResult

SNIPPET_CHARS = 80


def render_init(path: "Path") -> str:
    return f"job -> {path}\nsbert run {path}"


def render_run(report: "RunReport") -> str:
    """Stages, gates and places of a run; the estimates of one that was only planned."""
    if report.plan is not None:
        return _render_plan(report.plan)
    lines = [
        f"{stage.name:9} {stage.outcome:14} {stage.seconds:8,.1f} s" for stage in report.stages
    ]
    lines += [f"gate met  {gate}" for gate in report.gates]
    lines.append(f"{report.seconds:,.1f} s in all -> {report.out}")
    return "\n".join([*lines, f"report -> {report.page}"] if report.page else lines)


def _render_plan(plan: "JobPlan") -> str:
    lines = []
    for stage in plan.stages:
        words = [stage.what]
        if stage.rows is not None:
            words.append(f"{stage.rows:,} rows")
        if stage.tokens is not None:
            words.append(f"{stage.tokens:,} tokens")
        if stage.seconds is not None:
            words.append(f"{_span(stage.seconds)} s")
        if stage.bytes is not None:
            words.append(f"{stage.bytes / 1e6:,.1f} MB")
        lines.append(f"{stage.name:9} {', '.join(words)}")
    kind = "GPU" if plan.is_gpu else "actor"
    unknown = [s.name for s in plan.stages if s.seconds is None and s.what != "nothing to do"]
    if unknown:
        lines.append(f"without   {', '.join(unknown)}:")
    lines.append(
        f"in all    {_span(plan.seconds)} s, {plan.bytes / 1e6:,.1f} MB on disk, "
        f"{plan.worker_hours[0]:.3g} to {plan.worker_hours[1]:.3g} {kind}-hours"
    )
    if plan.money is not None:
        lines.append(f"cost      {plan.money[0]:,.2f} to {plan.money[1]:,.2f}")
    return "\n".join(lines)


def _span(seconds: tuple[float, float]) -> str:
    return f"{seconds[0]:,.0f} to {seconds[1]:,.0f}"


def render_dedup(report: "DedupReport") -> str:
    return (
        f"{report.num_removed:,} of {report.rows:,} rows are near-duplicates (cosine >= "
        f"{report.threshold:g}), each with a kept witness; {report.seconds:,.1f} s\n"
        f"kept -> {report.kept}\nremoved -> {report.removed}\nreport -> {report.page}"
    )


def render_demo(report: "DemoReport") -> str:
    after, before = list(report.scores.values())[:2]
    cost = report.comparison
    lines = ["", render_run(report.run), ""]
    for question, hits in report.answers.items():
        lines.append(f'"{question}"')
        lines += [f"  {cos:.3f}  {text[:SNIPPET_CHARS]}" for cos, text in hits]
    lines += [
        "",
        f"fine-tuning: nDCG@10 on held-out docstrings {before:.1f} before, {after:.1f} after",
        f"all {cost.pairs:,} pairs of {cost.sentences:,} sentences: by vectors "
        f"{cost.encoder_seconds:,.1f} s, measured; by a cross-encoder of the same size "
        f"{cost.cross_seconds / 3600:,.1f} h, estimated from {cost.sampled} pairs",
        "",
        f"{report.removed:,} of {report.rows:,} docstrings are near-duplicates, each with a kept "
        f"witness; {report.seconds:,.0f} s in all",
        f"report -> {report.page}",
        f"next: edit {report.job} and run: sbert run {report.job}",
    ]
    return "\n".join(lines)


def render_report(report: "ReportResult") -> str:
    return f"{report.bytes / 1e6:,.1f} MB\nreport -> {report.page}"


def render_submit(report: "SubmitResult") -> Rendered:
    """The name of a job that is not followed, or how it ended."""
    if report.exit_code is None:
        lines = [f"{word}: {command}" for word, command in report.commands.items()]
        return Rendered("\n".join([f"submitted -> {report.job_id}", *lines]))
    text = f"{report.job_id}: {report.reason or 'done'}"
    return Rendered(text, exit_code=report.exit_code, is_error=report.exit_code != 0)


def render_doctor(report: "DoctorReport") -> Rendered:
    from pipelines.cli.doctor_table import doctor_text

    return Rendered(doctor_text(report), exit_code=_doctor_code(report), is_coloured=True)


def doctor_json(report: "DoctorReport") -> Rendered:
    text = json.dumps(asdict(report), indent=1, ensure_ascii=False)
    return Rendered(text, exit_code=_doctor_code(report))


def _doctor_code(report: "DoctorReport") -> int:
    return EXIT_BAD_INPUT if report.num_failed else 0


def render_purge(report: "PurgeReport") -> Rendered:
    lines = [_purged_line(done, report.num_ids) for done in report.artifacts]
    notes: tuple[str, ...] = ()
    if any(done.kind == "vectors" and done.rows_removed for done in report.artifacts):
        notes = (
            "what was made from these vectors may still hold the rows: purge their indexes, make "
            "pairs, clusters and exports again; an update embeds rows again that the corpus has",
        )
    return Rendered("\n".join(lines), notes)


def _purged_line(done: "PurgedArtifact", num_ids: int) -> str:
    proof = done.proof
    others = f"; {proof.others:,} files of others were not read" if proof.others else ""
    if done.is_removed:
        return (
            f"{done.out}: held {done.rows_removed:,} of the rows and was removed, nothing of it is "
            "left: an index keeps the vectors of rows until it is built again (sbert index VECTORS "
            f"--out {done.out}){others}"
        )
    if done.kind is None:
        return f"{done.out}: nothing is published, and no unfinished work is left{others}"
    return (
        f"{done.out}: {done.rows_removed:,} rows removed, {done.files_written:,} files written "
        f"again; proof: none of {num_ids:,} ids in {proof.rows:,} rows of {proof.files:,} files, "
        f"no other generation and no unfinished work is left{others}"
    )
