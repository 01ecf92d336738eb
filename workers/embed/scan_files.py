"""Where the scan of an embed job keeps its files, and what its tasks have done.

Everything goes through four shuffles. Units and parts of earlier runs are cut into bands of
neighbours, which are the maps of one and the reduces of the next:

    texts, ids   bands -> reduces by hash   which texts and ids there are
    claims       reduces -> bands           the owner of the vector of each text of a unit
    loans        bands -> bands             the vectors that an owner is to lend, and to whom
    vectors      bands -> bands             these vectors, in the order of who borrows them

A task writes its result last. So a rerun repeats only what was not finished, and a driver needs to
know no more than these results.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from sbert_core.arrays import Int64Array, RecordArray, UInt32Array
from sbert_core.choices import VectorType
from sbert_core.corpus.units import Unit
from sbert_core.json_record import decode, encode
from sbert_core.storage import Storage, storage_at
from sbert_core.vectors.shuffle import Shuffle
from sbert_core.vectors.text_owners import CLAIM, LOAN, TEXT_RECORD

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFiles:
    """Names below `folder` of `place`.

    bands: the first unit or part of each; those of parts begin at `num_unit_bands`, since parts
    are numbered after the units. with_texts, with_ids: what is compared across units; ids that are
    not a column never repeat.
    """

    place: str
    folder: str
    num_units: int
    bands: tuple[int, ...]
    num_unit_bands: int
    num_reduces: int
    with_texts: bool
    with_ids: bool

    @property
    def storage(self) -> Storage:
        """Of the files."""
        return storage_at(self.place)

    def band_of(self, number: int) -> int:
        """The band of a unit or part."""
        return bisect_right(self.bands, number) - 1

    def bands_of(self, numbers: UInt32Array) -> Int64Array:
        """The same for many."""
        return np.searchsorted(np.array(self.bands), numbers, side="right") - 1

    @property
    def texts(self) -> Shuffle:
        """Hashes of texts, by hash."""
        return self._shuffle("texts", self.num_reduces, TEXT_RECORD)

    @property
    def ids(self) -> Shuffle:
        """Hashes of ids, by hash."""
        return self._shuffle("ids", self.num_reduces, TEXT_RECORD)

    @property
    def claims(self) -> Shuffle:
        """Owners of texts, by the band of the unit that has the text."""
        return self._shuffle("claims", self.num_unit_bands, CLAIM)

    @property
    def loans(self) -> Shuffle:
        """What is lent, by the band of the owner."""
        return self._shuffle("loans", len(self.bands), LOAN)

    def vectors(self, dim: int, dtype: VectorType) -> Shuffle:
        """Lent vectors, by the band of the unit that borrows them."""
        return self._shuffle("vectors", self.num_unit_bands, vector_record(dim, dtype))

    def claims_name(self, unit: Unit) -> str:
        """The claims of a unit."""
        return f"{self.folder}/units/{unit.name}"

    def reasons_folder(self, band: int) -> str:
        """Why texts of a band's units have no vector, if their owners have none to lend."""
        return f"{self.folder}/reasons/{band:06d}"

    def save(self, step: str, number: int, result: object) -> None:
        """Keep the result of a task, after everything else that it writes."""
        name = f"{self.folder}/done/{step}/{number:06d}.json"
        self.storage.put(name, json.dumps(encode(result)).encode())

    def load(self, step: str, number: int, kind: type[Result]) -> Result:
        """The result of a task."""
        name = f"{self.folder}/done/{step}/{number:06d}.json"
        return decode(kind, json.loads(self.storage.read(name)), name)

    def find_finished(self, step: str) -> set[int]:
        """Numbers of the tasks of a step that have ended."""
        names = (stat.name for stat in self.storage.list(f"{self.folder}/done/{step}"))
        return {int(name.rpartition("/")[2].removesuffix(".json")) for name in names}

    def _shuffle(self, kind: str, num_reduces: int, record: np.dtype[np.void]) -> Shuffle:
        return Shuffle(
            place=self.place,
            folder=f"{self.folder}/{kind}",
            num_reduces=num_reduces,
            record=record,
        )


def map_name(number: int) -> str:
    """The name of a task's map."""
    return f"{number:06d}"


def vector_record(dim: int, dtype: VectorType) -> np.dtype[np.void]:
    """A lent vector and what is stored beside it, for a row of a unit that borrows it."""
    counts = ("chunk", "start_char", "end_char", "num_tokens", "num_lost_tokens")
    return np.dtype(
        [
            ("unit", "<u4"),
            ("row", "<u4"),
            *((name, "<i8") for name in counts),
            ("vector", np.dtype(dtype.value).newbyteorder("<"), (dim,)),
        ]
    )


class UnitRecords:
    """Records in the order of their units, a unit at a time."""

    def __init__(self, stream: Iterator[RecordArray]) -> None:
        self._stream = stream
        self._rest: RecordArray | None = next(stream, None)

    def take(self, unit: int) -> RecordArray | None:
        """The records of a unit, None if it has none; those of units before it are passed over."""
        found = []
        while self._rest is not None:
            first, end = np.searchsorted(self._rest["unit"], [unit, unit + 1])
            if first < end:
                found.append(self._rest[first:end])
            self._rest = self._rest[end:]
            if len(self._rest):
                break
            self._rest = next(self._stream, None)
        return np.concatenate(found) if found else None
