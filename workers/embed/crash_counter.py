"""How often a unit has killed the processes that worked on it.

Counted by marker files, which a process that dies leaves behind.
"""

import errno
import secrets

from sbert_core.corpus.units import Unit
from workers.embed.unit_job import UnitJob

# A unit whose workers crashed this often may hold a text that crashes the encoder.
SUSPECT_CRASHES = 2
MAX_CRASHES = 12  # then neither the unit nor loading the model is tried again


class CrashCounter:
    """An attempt at a unit, or at one stage of it. number: of crashes before it.

    OSError (ENOMEM) if there were too many. is_last: after this stage nothing is left to crash on.
    """

    def __init__(self, job: UnitJob, unit: Unit, *, is_last: bool = True) -> None:
        self.storage = job.storage
        self.is_last = is_last
        self.folder = f"{job.work}/attempts/{unit.name}"
        self.number = sum(1 for _ in self.storage.list(self.folder))
        if self.number >= MAX_CRASHES:
            raise OSError(
                errno.ENOMEM,
                f"{self.number} workers died on rows {unit.first_row} to "
                f"{unit.first_row + unit.num_rows} of {unit.path}, even with every row apart; "
                "look for a lack of memory",
            )
        self.marker = f"{self.folder}/{secrets.token_hex(8)}"
        self.storage.put(self.marker, b"")

    @property
    def is_suspect(self) -> bool:
        """Whether the unit may hold a text that crashes the encoder."""
        return self.number >= SUSPECT_CRASHES

    def __enter__(self) -> "CrashCounter":
        return self

    def __exit__(self, *error: object) -> None:
        """Remove this attempt's marker; after success of the last stage all of the unit."""
        is_done = self.is_last and error[0] is None
        self.storage.delete([self.folder if is_done else self.marker])


def require_few_crashes(num_load_crashes: int) -> None:
    """OSError (ENOMEM) if too many processes have died while they loaded the model."""
    if num_load_crashes >= MAX_CRASHES:
        raise OSError(
            errno.ENOMEM,
            f"a worker died {num_load_crashes} times while it loaded the model; look for a lack "
            "of memory",
        )
