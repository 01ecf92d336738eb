"""Which units are done: read once at the start, then kept up to date by their results.

In:  the work folder of a job, and what actors and tasks report.
Out: commit records and statistics by unit.
"""

from dataclasses import dataclass

from pipelines.artifacts.layout import QUARANTINE
from sbert_core.corpus.published import DATA
from workers.embed.fill import FilledUnit
from workers.embed.records import CommitRecord, UnitResult, UnitStats, read_commits, read_stats
from workers.embed.unit_job import UnitJob


@dataclass(frozen=True, slots=True)
class UnitLog:
    """commits: of units whose files exist. stashed: names of units that wait for pass 2."""

    commits: dict[int, CommitRecord]
    stats: dict[int, UnitStats]
    stashed: set[str]

    @classmethod
    def read(cls, job: UnitJob) -> "UnitLog":
        """What earlier attempts have left."""
        storage, generation = job.storage, job.generation
        sizes = {
            stat.name: stat.size
            for folder in (DATA, QUARANTINE)
            for stat in storage.list(f"{folder}/{generation}")
        }
        records = read_commits(storage, job.work)
        return cls(
            commits={record.unit: record for record in records if record.is_whole(sizes)},
            stats=read_stats(storage, job.work),
            stashed={s.name.rpartition("/")[2] for s in storage.list(f"{job.work}/stash")},
        )

    @property
    def device(self) -> str | None:
        """The kind of device that units were encoded on; None if none was."""
        return next((stats.device for stats in self.stats.values() if stats.device), None)

    def add_encoded(self, result: UnitResult) -> None:
        """A unit of pass 1."""
        self.stats[result.unit] = result.stats
        if result.commit is not None:
            self.commits[result.unit] = result.commit

    def add_filled(self, filled: FilledUnit) -> None:
        """A unit of pass 2."""
        self.commits[filled.commit.unit] = filled.commit
        if filled.stats is not None:
            self.stats[filled.commit.unit] = filled.stats
