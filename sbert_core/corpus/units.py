"""Units: the row ranges of files that are a job's smallest pieces of work.

In:  each file's rows and bytes of text per row.
Out: fixed row ranges of one file, decided by its counts alone, so that adding or removing a file
     leaves the units of the others as they are.
"""

from dataclasses import dataclass

MAX_ROWS = 65_536
MIN_ROWS = 1024
MAX_TEXT_BYTES = 128 * 2**20
UNITS_PER_FILE = 64


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows first_row..first_row+num_rows of one file; one part and one commit."""

    number: int
    path: str
    first_row: int
    num_rows: int

    @property
    def name(self) -> str:
        """Sorts in the order of the corpus; changes when files are added before this one."""
        return f"{self.number:06d}"

    @property
    def place(self) -> str:
        """File and first row: does not depend on other files."""
        return f"{self.path}:{self.first_row}"


def rows_per_unit(num_rows: int, text_bytes_per_row: float, wanted: int | None = None) -> int:
    """Rows of a unit: a power of two that gives a large file some 64 units, or `wanted`.

    Bounded by rows and by MAX_TEXT_BYTES of text. With few units the last one keeps one worker
    busy while the others wait: 15 units on two workers cost 6 %. Fewer rows than 1024 leave too
    few texts of equal length to share a batch; more than 65,536 are much work to lose.
    """
    rows = wanted or min(MAX_ROWS, max(MIN_ROWS, _power_of_two(num_rows // UNITS_PER_FILE)))
    by_bytes = int(MAX_TEXT_BYTES / max(1.0, text_bytes_per_row))
    return max(1, min(rows, by_bytes))


def _power_of_two(number: int) -> int:
    """The smallest power of two not below the number."""
    return 1 << max(0, number - 1).bit_length()


def unit_ranges(path: str, num_rows: int, per_unit: int) -> list[tuple[str, int, int]]:
    """Path, first row and number of rows of each unit of a file."""
    return [
        (path, first, min(per_unit, num_rows - first)) for first in range(0, num_rows, per_unit)
    ]
