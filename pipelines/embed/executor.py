"""Run the tasks and actors of the embed job on Ray.

In:  units and the settings that workers share.
Out: counts and results of units. Everything else is in files.
"""

import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import ray

from pipelines.embed.find_owners import OwnerSearch, by_band, lend
from pipelines.embed.model import ResolvedModel
from pipelines.embed.plan_record import ScanCounts
from pipelines.embed.spec import EmbedSpec
from pipelines.embed.staging import StageCall
from pipelines.embed.unit_dataset import IN_FLIGHT, ActorPool, embed_units
from pipelines.runtime.capacity import wait_for_capacity
from pipelines.runtime.metrics import observe
from pipelines.runtime.progress import SpeedLog, poll_progress, progress
from pipelines.runtime.session import is_embedded, job_session
from pipelines.runtime.shutdown import raise_if_requested
from pipelines.runtime.tasks import as_they_come, in_order, unwrap_errors
from pipelines.runtime.watchdog import terminate_if_stalled
from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.formats import ConvertedFile
from sbert_core.corpus.units import Unit
from sbert_core.storage import Storage
from workers.embed.encoder_config import EncoderConfig
from workers.embed.fill import FilledUnit, fill_units
from workers.embed.precision import PrecisionProbe, probe_precision
from workers.embed.records import UnitResult
from workers.embed.staging import stage_file
from workers.embed.unit_job import UnitJob

log = logging.getLogger(__name__)


class EmbedExecutor(contextlib.ExitStack):
    """Runs the steps of the job. Ray is started or joined by the first task, and left on exit."""

    def __init__(self, spec: EmbedSpec) -> None:
        super().__init__()
        self.spec = spec
        self.num_actors = 0
        self.num_done = 0
        self.speeds = SpeedLog()
        self._is_connected = False

    def _connect(self) -> None:
        if self._is_connected:
            return
        place = self.spec.out
        if self.spec.plan:  # nothing may be written there
            place = self.enter_context(tempfile.TemporaryDirectory(prefix="sbert-"))
        self.enter_context(job_session(place, self.spec.address))
        self._is_connected = True

    # -- before the model ------------------------------------------------------------------------

    def stage(self, calls: list[StageCall]) -> list[ConvertedFile | CorruptFile]:
        """Convert text files to Parquet; what each holds, or why it cannot be read."""
        self._connect()
        return in_order(stage_file, calls)

    def scan(self, search: OwnerSearch) -> ScanCounts:
        """Hash all texts and ids, and assign the owner of each vector."""
        self._connect()
        return search.run()

    # -- the model -------------------------------------------------------------------------------

    def place_model(self, model: ResolvedModel, storage: Storage, work: str) -> str:
        """Where actors load the model from: its folder, or a copy in the bucket of the output."""
        if "://" not in storage.uri:
            return model.folder
        for path in Path(model.folder).rglob("*"):
            if path.is_file():
                name = path.relative_to(model.folder).as_posix()
                storage.put(f"{work}/model/{name}", path.read_bytes())
        return f"{storage.uri}/{work}/model"

    def probe_precision(self, config: EncoderConfig, texts: Sequence[object]) -> PrecisionProbe:
        """The number format that a worker like the actors computes in, and its error."""
        self._connect()
        num_gpus = self._gpus_per_actor()
        self._wait_for_actor(num_gpus)
        num_cpus = 0 if num_gpus else self.spec.cpus_per_actor
        remote = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus)(probe_precision)
        with unwrap_errors():
            probe: PrecisionProbe = ray.get(remote.remote(config, texts))
        return probe

    def _wait_for_actor(self, num_gpus: float) -> None:
        cpus = float(self.spec.cpus_per_actor)
        wait_for_capacity({"GPU": num_gpus} if num_gpus else {"CPU": cpus})

    def embed(
        self, units: list[Unit], num_rows: int, num_tokens: int, job: UnitJob, config: EncoderConfig
    ) -> list[UnitResult]:
        """Pass 1: encode units on warm actors, which report through the progress board.

        num_rows, num_tokens: to encode; the second is an estimate, for the time that is left.
        """
        self._connect()
        num_gpus = self._gpus_per_actor()
        self._wait_for_actor(num_gpus)
        self.num_actors = min(self._num_actors(num_gpus), len(units))
        with (
            progress("embed", num_rows, num_tokens, f"{self.num_actors} actors") as advance,
            poll_progress(job.generation, self.speeds.record(advance)),
            terminate_if_stalled(self._progress),
        ):
            pool = ActorPool(
                num_actors=self.num_actors,
                is_fixed=self.spec.actors is not None or is_embedded(),
                cpus_per_actor=self.spec.cpus_per_actor,
                gpus_per_actor=num_gpus,
                num_cpus=ray.cluster_resources().get("CPU", 1.0),
            )
            # Closed before the session ends: Ray Data stops its actors then, and needs Ray for it.
            with contextlib.closing(embed_units(units, job, config, pool)) as results:
                return self._collect_results(results, len(units))

    def _collect_results(self, results: Iterator[UnitResult], num_units: int) -> list[UnitResult]:
        """Results of all units; metrics are updated as each ends."""
        began = time.time()
        done: list[UnitResult] = []
        num_bad, num_crashes, model_seconds = 0, 0, 0.0
        for result in results:
            raise_if_requested()
            done.append(result)
            self.num_done = len(done)
            if result.num_crashes:
                fields = {"unit": result.unit, "reason": "worker died"}
                log.warning(
                    "unit %d took %d tries", result.unit, result.num_crashes + 1, extra=fields
                )
            num_bad += result.num_bad
            num_crashes += result.num_crashes
            model_seconds += result.model_seconds
            observe(
                "embed",
                units_done=len(done),
                units_total=num_units,
                queue_depth=max(0, num_units - len(done) - IN_FLIGHT * self.num_actors),
                quarantined_rows_total=num_bad,
                retries_total=num_crashes,
                actor_busy_share=model_seconds / max(1e-9, time.time() - began) / self.num_actors,
            )
        return done

    def _progress(self) -> tuple[int, int]:
        return self.num_done, self.speeds.tokens

    def fill(self, units: Sequence[Unit], job: UnitJob, dim: int) -> Iterator[FilledUnit]:
        """Pass 2: write the parts of units that use vectors of others, in tasks without a model."""
        self._connect()
        lend(job, dim)
        with progress("fill", sum(unit.num_rows for unit in units)) as advance:
            calls = [(dim, band, own) for band, own in by_band(job.scanned, units).items()]
            for _, filled in as_they_come(fill_units, calls, shared=(job,)):
                advance(sum(unit.commit.num_rows for unit in filled), 0)
                yield from filled

    def _gpus_per_actor(self) -> float:
        if self.spec.gpus_per_actor is not None:
            return self.spec.gpus_per_actor
        return 1.0 if ray.cluster_resources().get("GPU", 0) else 0.0

    def _num_actors(self, num_gpus: float) -> int:
        if self.spec.actors is not None:
            return self.spec.actors
        found = ray.cluster_resources()
        if num_gpus:
            return max(1, int(found.get("GPU", 0) / num_gpus))
        return max(1, int(found["CPU"] - 1) // self.spec.cpus_per_actor)
