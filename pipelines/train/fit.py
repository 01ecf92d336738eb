"""A planned training -> its last checkpoint, by the ranks of Ray Train."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import ray
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
from ray.train.torch import TorchConfig, TorchTrainer

from pipelines.artifacts.errors import PartialWork
from pipelines.runtime.capacity import check_capacity, wait_for_capacity
from pipelines.runtime.progress import poll_progress, progress
from pipelines.runtime.session import num_cores
from pipelines.train.spec import TrainSpec
from sbert_core.choices import TrainPrecision
from workers.train import TrainJob, train_rank

# Workers may die this often before the run gives up; each time it goes on from a checkpoint.
MAX_FAILURES = 5
COLLECTIVE_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Ranks:
    """The workers of a run: how many, and the resources of each."""

    number: int
    threads: int
    gpus: float

    @classmethod
    def choose(cls, spec: TrainSpec) -> "Ranks":
        """As the options ask for: by default one rank per GPU, or one with all cores."""
        num_gpus = ray.cluster_resources().get("GPU", 0)
        gpus = spec.gpus_per_worker
        if gpus is None:
            gpus = 1.0 if num_gpus else 0.0
        if spec.precision is TrainPrecision.BF16 and not gpus:
            raise ValueError("precision bf16 needs a GPU; use fp32 on a CPU")
        number = spec.workers or (max(1, int(num_gpus / gpus)) if gpus else 1)
        threads = spec.cpus_per_worker or (1 if gpus else max(1, num_cores() // number))
        return cls(number, threads, gpus)

    @property
    def resources(self) -> dict[str, float]:
        """Of one rank."""
        return {"CPU": float(self.threads)} | ({"GPU": self.gpus} if self.gpus else {})


def fit(spec: TrainSpec, job: TrainJob, work: Path) -> tuple[int, Path]:
    """Run the ranks to the end; their number, and the folder of the last checkpoint.

    work: where Ray Train keeps checkpoints. PartialWork after Ctrl-C; ValueError if the data stop
    the training; RuntimeError if workers die too often.
    """
    ranks = Ranks.choose(spec)
    is_bf16 = bool(ranks.gpus) and spec.precision is not TrainPrecision.FP32
    job = replace(job, threads=ranks.threads, recipe=replace(job.recipe, bf16=is_bf16))
    total = spec.epochs * sum(job.order(ranks.number).shard_rows)
    wait_for_capacity(ranks.resources, ranks.number)
    check_capacity(
        ranks.resources,
        ranks.number,
        remedy="use fewer --workers or smaller ones (--cpus-per-worker, --gpus-per-worker)",
    )
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    trainer = TorchTrainer(
        train_rank,
        train_loop_config={"job": job},
        torch_config=TorchConfig(timeout_s=COLLECTIVE_SECONDS),
        scaling_config=ScalingConfig(
            num_workers=ranks.number,
            use_gpu=bool(ranks.gpus),
            resources_per_worker=ranks.resources,
        ),
        run_config=RunConfig(
            name=f"{job.run}-{ranks.number}x{ranks.threads}",
            storage_path=str(work),
            # Ray's stubs lack the field of Train V2.
            failure_config=FailureConfig(
                max_failures=MAX_FAILURES,
                controller_failure_limit=MAX_FAILURES,  # type: ignore[call-arg]
            ),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
    )
    by = f"{ranks.number} workers of {ranks.threads} threads"
    with progress("train", total, by=by) as advance, poll_progress(job.run, advance):
        with _explain_failures(), _keep_interrupt_handler():
            result = trainer.fit()
    assert result.checkpoint is not None
    if failure := (result.metrics or {}).get("failure"):
        raise ValueError(failure)
    return ranks.number, Path(result.checkpoint.path)


@contextmanager
def _explain_failures() -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):  # Ray Train answers Ctrl-C with sys.exit(0)
        raise PartialWork("stopped; the same command goes on from the last checkpoint") from None
    except TrainingFailedError as error:
        failures = list(getattr(error, "worker_failures", {}).values()) or [error]
        reason = str(failures[0]).strip().splitlines()[-1]
        raise RuntimeError(
            f"workers failed {MAX_FAILURES + 1} times: {reason}; checkpoints are kept, and the "
            "same command goes on from the last one"
        ) from error


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Restore our SIGINT handler, which Ray Train replaces."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
