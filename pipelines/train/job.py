"""Shards + base encoder -> a better encoder.

In:  a shards artifact of `sbert prepare` and a base model.
Out: a sentence-transformers folder with `training.json`, a plot of the losses, a model card, and
     the softmax head in `head/` if there is one.

The folder appears at the end, whole. Until then a hidden folder beside it holds checkpoints under
the fingerprint of the run: the same command goes on from the last one, another one starts anew.
"""

import contextlib
import json
import logging
import shutil
import signal
import statistics
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.train import (
    CheckpointConfig,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
)
from ray.train.torch import TorchConfig, TorchTrainer

from pipelines.artifacts.errors import PartialWork
from pipelines.artifacts.manifest import library_versions
from pipelines.artifacts.models import local_model
from pipelines.artifacts.reader import Artifact
from pipelines.runtime.capacity import wait_for_room
from pipelines.runtime.progress import polled, progress
from pipelines.runtime.session import job_session, num_cores
from pipelines.train.spec import TrainSpec
from sbert_core.corpus.labelled import scored_rows
from sbert_core.digest import digest, folder_digest
from sbert_core.encoder import Encoder
from sbert_core.encoder.head import Normalize
from sbert_core.errors import Unsettled
from sbert_core.report.line_chart import Series, line_chart
from sbert_core.storage import storage_at
from sbert_core.training.base_model import refuse_decoders, starting_parts
from sbert_core.training.dev_eval import DevRows
from sbert_core.training.examples import ExampleFormat
from sbert_core.training.history import History
from sbert_core.training.loop import Recipe
from sbert_core.training.losses import OBJECTIVES, features_of, objective_of
from sbert_core.training.model_card import model_card
from workers.train import ENCODER, HISTORY, TrainJob, train_rank

log = logging.getLogger(__name__)

# Workers may die this often before the run gives up; each time it goes on from a checkpoint.
MAX_FAILURES = 5
FAILURES: Any = {"max_failures": MAX_FAILURES, "controller_failure_limit": MAX_FAILURES}
COLLECTIVE_SECONDS = 1800
FACTS = "training.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport:
    """What came out of training. Scores are those of the best epoch on held-out rows."""

    out: str
    rows: int
    steps: int
    workers: int
    seconds: float
    rows_per_second: float
    measure: str | None
    start_score: float | None
    best_epoch: int
    best_score: float | None
    is_new: bool = True


def run(spec: TrainSpec) -> list[TrainReport]:
    """Train one encoder, or one for each seed in folders of their own."""
    if spec.seeds is None:
        return [_trained(spec)]
    reports = [
        _trained(replace(spec, seed=spec.seed + n, seeds=None, out=spec.out / f"seed-{n}"))
        for n in range(spec.seeds)
    ]
    scores = [report.best_score for report in reports if report.best_score is not None]
    spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
    facts = {"scores": scores, "mean": statistics.fmean(scores) if scores else None, "sd": spread}
    (spec.out / "seeds.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return reports


def _trained(spec: TrainSpec) -> TrainReport:
    job = _job(spec)
    out = spec.out.absolute()
    if (found := _facts(out)) is not None:
        if found["run"] == job.run:
            return TrainReport(**{**found["report"], "is_new": False})
        raise ValueError(
            f"{spec.out} holds an encoder of another run ({found['run'][:12]}; this one is "
            f"{job.run[:12]}); choose another --out, or remove it"
        )
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"out {spec.out} is not empty and holds no {FACTS}; choose another --out")
    work = out.parent / f".{out.name}.work"
    with storage_at(work).lock():
        with job_session(str(work), spec.address):
            num_workers, result = _fit(spec, job, work)
        report = _written(spec, job, result, num_workers, work / "result")
        out.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            out.rmdir()
        (work / "result").rename(out)
        shutil.rmtree(work)
    return report


def _facts(out: Path) -> dict[str, Any] | None:
    path = out / FACTS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _job(spec: TrainSpec) -> TrainJob:
    """Check everything that can be checked before Ray starts."""
    shards = Artifact.open(spec.shards)
    if shards.manifest.kind != "shards":
        raise ValueError(
            f"{spec.shards} holds {shards.manifest.kind}, not shards; make some with sbert prepare"
        )
    kind = ExampleFormat(shards.manifest.spec["format"])
    classes = shards.manifest.spec["classes"]
    objective = None
    if spec.objective is not None:
        if OBJECTIVES[spec.objective] != kind:
            raise ValueError(
                f"objective {spec.objective} learns from {OBJECTIVES[spec.objective]}, but "
                f"{spec.shards} holds {kind}; choose another objective or prepare again"
            )
        objective = objective_of(
            spec.objective, margin=spec.margin, distance=spec.distance, dims=spec.matryoshka
        )
        features_of(spec.concat)
    elif kind not in (ExampleFormat.PAIRS, ExampleFormat.SCORED):
        raise ValueError(f"a cross-encoder learns from pairs or scored pairs, not from {kind}")
    base = Path(local_model(spec.base)).absolute()
    refuse_decoders(base)
    _check_dims(spec, base)
    files = [file for file in shards.manifest.files if file.source["split"] == "train"]
    dev = [file for file in shards.manifest.files if file.source["split"] == "dev"]
    options = asdict(spec)
    for name in ("shards", "base", "out", "address", "seeds", "checkpoint_steps", "eval"):
        del options[name]
    dev_rows = _dev_rows(spec, kind)
    identity = {
        "options": options,
        "shards": [file.sha256 for file in (*files, *dev)],
        "base": folder_digest(base),
        "classes": classes,
        "eval": dev_rows and dev_rows.identity,
        "versions": library_versions(),
    }
    return TrainJob(
        run=digest(identity)[:16],
        shards=shards.uri,
        kind=kind,
        train_files=tuple((file.path, file.rows) for file in files),
        dev_files=tuple(file.path for file in dev),
        dev_rows=dev_rows,
        classes=tuple(classes) if classes else None,
        base=str(base),
        objective=objective,
        concat=spec.concat,
        pooling=spec.pooling,
        dense=spec.dense,
        max_length=spec.max_length,
        recipe=Recipe(
            epochs=spec.epochs,
            lr=spec.lr,
            warmup=spec.warmup,
            weight_decay=spec.weight_decay,
            accumulate=spec.accumulate,
        ),
        batch_size=spec.batch_size,
        seed=spec.seed,
        threads=spec.cpus_per_worker or 1,
        checkpoint_steps=spec.checkpoint_steps,
    )


def _check_dims(spec: TrainSpec, base: Path) -> None:
    if spec.cross_encoder:
        return
    parts = starting_parts(base, spec.pooling, spec.dense, 0)
    if spec.objective == "softmax" and any(isinstance(module, Normalize) for module in parts.head):
        log.info("%s makes unit vectors; a softmax head learns from lengths too: kept", spec.base)
    dim = Encoder(parts, max_length=spec.max_length).dim
    if too_many := [d for d in spec.matryoshka if d >= dim]:
        raise ValueError(f"matryoshka {too_many[0]} is not below the {dim} dimensions of the base")


def _dev_rows(spec: TrainSpec, kind: ExampleFormat) -> DevRows | None:
    if spec.eval is None:
        return None
    if spec.cross_encoder and kind is ExampleFormat.PAIRS:
        raise ValueError("--eval takes scored pairs; a classifier is judged by the dev split")
    texts, scores = scored_rows(spec.eval)
    return DevRows(ExampleFormat.SCORED, texts, scores)


def _fit(spec: TrainSpec, job: TrainJob, work: Path) -> tuple[int, Path]:
    """Run the ranks to the end; their number, and the folder of the last checkpoint."""
    num_gpus = ray.cluster_resources().get("GPU", 0)
    gpus = spec.gpus_per_worker
    if gpus is None:
        gpus = 1.0 if num_gpus else 0.0
    if spec.precision == "bf16" and not gpus:
        raise ValueError("precision bf16 needs a GPU; use fp32 on a CPU")
    num_workers = spec.workers or (max(1, int(num_gpus / gpus)) if gpus else 1)
    threads = spec.cpus_per_worker or (1 if gpus else max(1, num_cores() // num_workers))
    recipe = replace(job.recipe, bf16=bool(gpus) and spec.precision != "fp32")
    job = replace(job, threads=threads, recipe=recipe)
    order = job.order(num_workers)
    resources = {"CPU": float(threads)} | ({"GPU": gpus} if gpus else {})
    wait_for_room(resources, num_workers)
    _check_room(resources, num_workers)
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    trainer = TorchTrainer(
        train_rank,
        train_loop_config={"job": job},
        torch_config=TorchConfig(timeout_s=COLLECTIVE_SECONDS),
        scaling_config=ScalingConfig(
            num_workers=num_workers, use_gpu=bool(gpus), resources_per_worker=resources
        ),
        run_config=RunConfig(
            name=f"{job.run}-{num_workers}x{threads}",
            storage_path=str(work),
            failure_config=FailureConfig(**FAILURES),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    total = spec.epochs * sum(order.shard_rows)
    by = f"{num_workers} workers of {threads} threads"
    with progress("train", total, by=by) as advance, polled(job.run, advance):
        handler = signal.getsignal(signal.SIGINT)
        try:
            result = trainer.fit()
        except (KeyboardInterrupt, SystemExit):  # Ray Train answers Ctrl-C with sys.exit(0)
            raise PartialWork(
                "stopped; the same command goes on from the last checkpoint"
            ) from None
        except TrainingFailedError as error:
            failures = list(getattr(error, "worker_failures", {}).values()) or [error]
            reason = str(failures[0]).strip().splitlines()[-1]
            raise RuntimeError(
                f"workers failed {MAX_FAILURES + 1} times: {reason}; checkpoints are kept, and the "
                "same command goes on from the last one"
            ) from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)
    assert result.checkpoint is not None
    if failure := (result.metrics or {}).get("failure"):
        raise ValueError(failure)
    return num_workers, Path(result.checkpoint.path)


def _check_room(resources: dict[str, float], num_workers: int) -> None:
    """Ray waits without end for workers that fit nowhere."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min(int(node.get(k, 0) / v) for k, v in resources.items()) for node in nodes)
    if room < num_workers:
        wanted = " and ".join(f"{amount:g} {kind}" for kind, amount in resources.items())
        raise Unsettled(
            f"{num_workers} workers of {wanted} each do not fit, {room} do; use fewer --workers "
            "or smaller ones (--cpus-per-worker, --gpus-per-worker)"
        )


def _written(
    spec: TrainSpec, job: TrainJob, checkpoint: Path, num_workers: int, result: Path
) -> TrainReport:
    """The encoder's folder with everything that is known of its making."""
    shutil.rmtree(result, ignore_errors=True)
    shutil.copytree(checkpoint / ENCODER, result)
    history = History(**json.loads((checkpoint / HISTORY).read_text(encoding="utf-8")))
    judged = {int(epoch): score for epoch, score in history.dev}
    held_out = job.dev_rows or (DevRows(job.kind, [], None) if job.dev_files else None)
    report = TrainReport(
        out=str(spec.out),
        rows=history.rows,
        steps=len(history.losses),
        workers=num_workers,
        seconds=round(history.seconds, 1),
        rows_per_second=round(history.rows / max(1e-9, history.seconds), 2),
        measure=held_out.measure if held_out else None,
        start_score=judged.get(0),
        best_epoch=history.best_epoch or spec.epochs,
        best_score=history.best_score if history.best_epoch else None,
    )
    facts = {
        "run": job.run,
        "report": asdict(report),
        "spec": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(spec).items()},
        "data": {"rows": [rows for _, rows in job.train_files], "classes": job.classes},
        "loss": history.curve(),
        "dev": history.dev,
        "versions": library_versions(),
    }
    steps_per_epoch = max(1, len(history.losses) // spec.epochs)
    chart = line_chart(
        f"{spec.objective or 'cross-encoder'} on {Path(spec.shards).name}",
        "step",
        [
            Series("loss", history.curve()),
            Series(
                f"dev {report.measure}",
                [(epoch * steps_per_epoch, score) for epoch, score in history.dev],
                is_second=True,
            ),
        ],
    )
    (result / "training.svg").write_text(chart, encoding="utf-8")
    (result / "README.md").write_text(model_card(facts), encoding="utf-8")
    (result / FACTS).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return report
