"""Options of `sbert train`, checked when they are given."""

from dataclasses import dataclass, fields
from pathlib import Path

from pipelines.options import check_positive, refuse_uri


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSpec:
    """What `sbert train` does. Fields carry the names of the options."""

    shards: str
    base: str
    out: Path
    objective: str | None = None
    cross_encoder: bool = False
    concat: str = "u,v,|u-v|"
    margin: float = 1.0
    distance: str = "euclidean"
    matryoshka: tuple[int, ...] = ()
    pooling: str | None = None
    dense: int | None = None
    max_length: int | None = None
    workers: int | None = None
    gpus_per_worker: float | None = None
    cpus_per_worker: int | None = None
    epochs: int = 1
    batch_size: int = 16
    accumulate: int = 1
    lr: float = 2e-5
    warmup: float = 0.1
    weight_decay: float = 0.0
    precision: str | None = None
    seed: int = 0
    seeds: int | None = None
    eval: str | None = None
    checkpoint_steps: int = 500
    address: str | None = None

    def __post_init__(self) -> None:
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
        if self.cross_encoder:
            plain = {f.name: f.default for f in fields(self)}
            for name in ("pooling", "dense", "matryoshka", "concat", "margin", "distance"):
                if getattr(self, name) != plain[name]:
                    raise ValueError(f"{name} is for encoders; a --cross-encoder has none")
