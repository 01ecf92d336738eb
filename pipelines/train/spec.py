"""Options of `sbert train`, checked when they are given."""

from pathlib import Path

from pipelines.options import (
    ADDRESS,
    RAY_ADDRESS,
    PathKind,
    Spec,
    argument,
    check_positive,
    option,
    options_of,
    refuse_uri,
    spec_class,
)
from pipelines.syntax import INTS
from sbert_core.choices import Distance, ObjectiveName, Pooling, TrainPrecision

ENCODER_ONLY = ("pooling", "dense", "matryoshka", "concat", "margin", "distance")


@spec_class
class TrainSpec(Spec):
    """Fine-tune an encoder, or a cross-encoder, on shards."""

    shards: str = argument("Shards of `sbert prepare` or `sbert mine`.", path=PathKind.INPUT)
    base: str = option("Encoder to start from: folder, hub id or 'demo'.", path=PathKind.MODEL)
    out: Path = option("New encoder folder.", path=PathKind.OUTPUT)
    objective: ObjectiveName | None = option("Loss of an encoder.", default=None)
    cross_encoder: bool = option("Train a cross-encoder instead.", default=False)
    concat: str = option(
        "Features of the two sentence vectors that the softmax classifier gets.",
        default="u,v,|u-v|",
    )
    margin: float = option("Margin of the triplet objective.", default=1.0)
    distance: Distance = option("Distance of the triplet objective.", default=Distance.EUCLIDEAN)
    matryoshka: tuple[int, ...] = option(
        "Also train the first 256,128,64 dimensions.", default=(), syntax=INTS
    )
    pooling: Pooling | None = option("Pooling; the base model's by default.", default=None)
    dense: int | None = option("Add a projection to D dimensions.", default=None)
    max_length: int | None = option(
        "Tokens per text, the rest is cut; the base model's length by default.", default=None
    )
    workers: int | None = option("Training processes (ranks); one per GPU, or 1.", default=None)
    gpus_per_worker: float | None = option(
        "GPUs per worker; 1 where there are GPUs, else 0.", default=None
    )
    cpus_per_worker: int | None = option(
        "Threads per worker; all cores shared evenly by default.", default=None
    )
    epochs: int = option("Passes over the shards.", default=1)
    batch_size: int = option("Rows per worker and batch.", default=16)
    accumulate: int = option("Batches per optimizer step.", default=1)
    lr: float = option("Peak learning rate of AdamW.", default=2e-5)
    warmup: float = option("Share of steps with a rising learning rate.", default=0.1)
    weight_decay: float = option("Weight decay of AdamW.", default=0.0)
    precision: TrainPrecision | None = option(
        "Number format of the forward pass; bf16 on GPUs, else fp32.", default=None
    )
    seed: int = option("Random seed of the row order, dropout and new weights.", default=0)
    seeds: int | None = option(
        "Train N encoders, with seeds from --seed on, in folders below --out.", default=None
    )
    eval: str | None = option(
        "STS file to choose the best epoch with; the held-out rows by default.",
        default=None,
        path=PathKind.INPUT,
    )
    checkpoint_steps: int = option("Steps between checkpoints.", default=500)
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        if (self.objective is None) == (not self.cross_encoder):
            raise ValueError("give --objective for an encoder, or --cross-encoder, one of both")
        if not 0 <= self.warmup <= 1:
            raise ValueError(f"warmup is {self.warmup}; give a share of the steps, 0 to 1")
        for name in ("lr", "margin"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above 0")
        check_positive(
            self, "dense", "max_length", "workers", "cpus_per_worker", "epochs", "batch_size",
            "accumulate", "seeds", "checkpoint_steps",
        )  # fmt: skip
        if any(dim < 1 for dim in self.matryoshka):
            raise ValueError(f"matryoshka is {self.matryoshka}; give dimensions from 1 up")
        refuse_uri(self.out)
        for declared in options_of(TrainSpec) if self.cross_encoder else ():
            name = declared.name
            if name in ENCODER_ONLY and getattr(self, name) != declared.default:
                raise ValueError(f"{name} is for encoders; a --cross-encoder has none")
