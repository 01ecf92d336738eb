"""Options, shards and base model -> the job that all ranks share, and its identity."""

import logging
from dataclasses import asdict
from pathlib import Path

from pipelines.artifacts.manifest import library_versions
from pipelines.artifacts.models import resolve_model
from pipelines.artifacts.reader import Artifact, ShardsArtifact
from pipelines.train.spec import TrainSpec
from sbert_core.choices import ExampleFormat, ObjectiveName
from sbert_core.corpus.labelled import read_scored_pairs
from sbert_core.digest import digest, folder_digest
from sbert_core.training.base_model import inspect_base_model, refuse_decoders
from sbert_core.training.dev_eval import DevSet
from sbert_core.training.loop import OptimConfig
from sbert_core.training.losses import OBJECTIVES, Objective, make_objective, parse_features
from workers.train import TrainJob

log = logging.getLogger(__name__)


def plan_training(spec: TrainSpec) -> TrainJob:
    """Check everything that can be checked before Ray starts; what all ranks need to know."""
    shards = Artifact.shards(spec.shards)
    settings = shards.manifest.settings
    kind = ExampleFormat(settings.format)
    objective = _make_objective(spec, kind)
    base = Path(resolve_model(spec.base))
    refuse_decoders(base)
    _check_dims(spec, base)
    dev_rows = _read_dev_rows(spec, kind)
    files = [file for file in shards.manifest.files if file.source_text("split") == "train"]
    dev = [file for file in shards.manifest.files if file.source_text("split") == "dev"]
    return TrainJob(
        run=_identify(spec, shards, base, dev_rows),
        shards=shards.uri,
        kind=kind,
        train_files=tuple((file.path, file.rows) for file in files),
        dev_files=tuple(file.path for file in dev),
        dev_rows=dev_rows,
        classes=settings.classes or None,
        base=str(base),
        objective=objective,
        concat=spec.concat,
        pooling=spec.pooling,
        dense=spec.dense,
        max_length=spec.max_length,
        recipe=OptimConfig(
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


def _make_objective(spec: TrainSpec, kind: ExampleFormat) -> Objective | None:
    """The loss of an encoder; None for a cross-encoder. ValueError if the shards do not fit."""
    if spec.objective is None:
        if kind not in (ExampleFormat.PAIRS, ExampleFormat.SCORED):
            raise ValueError(f"a cross-encoder learns from pairs or scored pairs, not from {kind}")
        return None
    if OBJECTIVES[spec.objective] != kind:
        raise ValueError(
            f"objective {spec.objective} learns from {OBJECTIVES[spec.objective]}, but "
            f"{spec.shards} holds {kind}; choose another objective or prepare again"
        )
    parse_features(spec.concat)
    return make_objective(
        spec.objective, margin=spec.margin, distance=spec.distance, dims=spec.matryoshka
    )


def _identify(spec: TrainSpec, shards: ShardsArtifact, base: Path, dev_rows: DevSet | None) -> str:
    """The identity of the run: options, data, base and software."""
    options = asdict(spec)
    for name in ("shards", "base", "out", "address", "seeds", "checkpoint_steps", "eval"):
        del options[name]
    by_split = {
        split: [f.sha256 for f in shards.manifest.files if f.source_text("split") == split]
        for split in ("train", "dev")
    }
    identity = {
        "options": options,
        "shards": [*by_split["train"], *by_split["dev"]],
        "base": folder_digest(base),
        "classes": shards.manifest.settings.classes,
        "eval": dev_rows and dev_rows.identity,
        "versions": library_versions(),
    }
    return digest(identity)[:16]


def _check_dims(spec: TrainSpec, base: Path) -> None:
    if spec.cross_encoder:
        return
    info = inspect_base_model(base, spec.pooling, spec.dense, spec.max_length)
    if spec.objective is ObjectiveName.SOFTMAX and info.has_unit_vectors:
        log.info("%s makes unit vectors; a softmax head learns from lengths too: kept", spec.base)
    if too_large := [dim for dim in spec.matryoshka if dim >= info.dim]:
        raise ValueError(
            f"matryoshka {too_large[0]} is not below the {info.dim} dimensions of the base"
        )


def _read_dev_rows(spec: TrainSpec, kind: ExampleFormat) -> DevSet | None:
    if spec.eval is None:
        return None
    if spec.cross_encoder and kind is ExampleFormat.PAIRS:
        raise ValueError("--eval takes scored pairs; a classifier is judged by the dev split")
    texts, scores = read_scored_pairs(spec.eval)
    return DevSet(ExampleFormat.SCORED, texts, scores)
