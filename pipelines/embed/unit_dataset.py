"""The Ray Data pipeline of pass 1: one row per unit, from its descriptor to its result.

In:  units, and what their workers share.
Out: UnitResults as they come.

Where actors have no GPU, one actor does all of a unit's work. Where they have, CPUs anywhere in the
cluster read and tokenise, GPUs encode, and CPUs write; Ray Data holds the first ones back when
units wait for the next ones, by the bytes they take. The bytes that are written are the same.
"""

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial

import ray
from ray.data import ActorPoolStrategy, DataContext, Dataset

from sbert_core.corpus.units import Unit
from workers.common.errors import raise_error_rows
from workers.embed.actor import UnitEmbedder, UnitEncoder
from workers.embed.encoder_config import EncoderConfig
from workers.embed.records import UnitResult
from workers.embed.stages import UnitTokenizer, write_encoded
from workers.embed.unit_job import UnitJob

# Ray Data retries a unit without limit; the workers count crashes and give up themselves.
# This limits actors whose constructor raises.
MAX_START_DEATHS = 5
IN_FLIGHT = 2  # units of an actor: one has the model, the other reads or writes


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPool:
    """How many actors encode, and what each has. is_fixed: the pool does not grow.

    num_cpus: of a cluster's CPUs, for the stages beside a GPU.
    """

    num_actors: int
    is_fixed: bool
    cpus_per_actor: int
    gpus_per_actor: float
    num_cpus: float

    @property
    def feed_cpus(self) -> float:
        """CPUs of a task or actor that feeds GPUs: less than one where there are few."""
        return min(1.0, self.num_cpus / 2)

    def strategy(self, num_units: int) -> ActorPoolStrategy:
        """The pool that encodes, for this many units."""
        return ActorPoolStrategy(
            min_size=self.num_actors if self.is_fixed else 1,
            max_size=self.num_actors if self.is_fixed else max(self.num_actors, num_units),
            initial_size=self.num_actors,
            max_tasks_in_flight_per_actor=IN_FLIGHT,
            max_concurrent_calls_per_actor=2,
            enable_true_multi_threading=True,
        )

    def tokenizers(self, num_units: int) -> ActorPoolStrategy:
        """The pool that feeds it: up to all CPUs but one, which writes."""
        most = max(1, min(num_units, int(self.num_cpus) - 1))
        return ActorPoolStrategy(
            min_size=1, max_size=most, initial_size=1, max_tasks_in_flight_per_actor=IN_FLIGHT
        )


def embed_units(
    units: Sequence[Unit], job: UnitJob, config: EncoderConfig, pool: ActorPool
) -> Generator[UnitResult, None, None]:
    """Results of units as they come; the first error of a worker is raised."""
    shared = {"job": job, "config": config, "board": job.generation}
    dataset = _descriptors(units)
    if not pool.gpus_per_actor:
        dataset = dataset.map_batches(
            UnitEmbedder,
            batch_size=1,
            batch_format="pyarrow",
            compute=pool.strategy(len(units)),
            fn_constructor_kwargs=shared,
            num_cpus=pool.cpus_per_actor,
        )
    else:
        dataset = (
            dataset.map_batches(
                UnitTokenizer,
                batch_size=1,
                batch_format="pyarrow",
                compute=pool.tokenizers(len(units)),
                fn_constructor_kwargs=shared,
                num_cpus=pool.feed_cpus,
            )
            .map_batches(
                UnitEncoder,
                batch_size=1,
                batch_format="pyarrow",
                compute=pool.strategy(len(units)),
                fn_constructor_kwargs=shared,
                num_cpus=0,
                num_gpus=pool.gpus_per_actor,
            )
            .map_batches(
                partial(write_encoded, job),
                batch_size=1,
                batch_format="pyarrow",
                num_cpus=pool.feed_cpus,
            )
        )
    for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
        raise_error_rows(batch)
        yield from UnitResult.from_table(batch)


def _descriptors(units: Sequence[Unit]) -> Dataset:
    """A dataset with one unit per row and block, since Ray Data retries whole blocks."""
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # progress is logged by this job
    context = DataContext.get_current()
    context.target_max_block_size = None
    context.enable_progress_bars = False
    context.memory_usage_poll_interval_s = None
    context.execution_no_progress_timeout_s = -1  # it sees units alone; see terminate_if_stalled
    context.max_consecutive_actor_init_deaths = MAX_START_DEATHS
    # A pool that may grow does when all actors have what they can hold; by itself Ray Data waits
    # for more than IN_FLIGHT allows.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 1.0
    rows = [
        {"number": u.number, "path": u.path, "first_row": u.first_row, "num_rows": u.num_rows}
        for u in units
    ]
    return ray.data.from_items(rows, override_num_blocks=len(rows))
