"""A shuffle through files: every map writes records for every reduce, every reduce reads its own.

In:  numpy records, each with the number of its reduce and a key.
Out: one file per map and an index of all of them; for each reduce a stream of its records in the
     order of their keys.

With as many maps as reduces, both about the root of the records, requests and bytes grow as the
records do. A map file holds its records by reduce and key, then the end of every reduce. The index
holds these ends by reduce: one range tells a reduce where its records are in all maps.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sbert_core.arrays import Int64Array, RecordArray, UInt64Array
from sbert_core.storage import Storage, storage_at

Kind = TypeVar("Kind", bound=np.generic)
Key = Callable[[RecordArray], UInt64Array]

END = np.dtype("<u8")
RECORDS_PER_RANGE = 1024  # on average: what one ranged read is worth
STREAMED_BYTES = 64 * 2**20  # of a reduce in memory at once, where its keys allow
LEAST_READ_BYTES = 64 * 2**10
READERS = 32  # requests of a task at once: each waits for the store most of its time


def choose_fan(num_records: int) -> int:
    """Maps, and reduces, for this many records."""
    return max(1, math.ceil(math.sqrt(num_records / RECORDS_PER_RANGE)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffle:
    """Where the files are: `folder` below `place`. record: type of a record."""

    place: str
    folder: str
    num_reduces: int
    record: np.dtype[np.void]

    @property
    def storage(self) -> Storage:
        """Of the files."""
        return storage_at(self.place)

    def write_map(self, name: str, reduce: Int64Array, records: RecordArray, key: Key) -> None:
        """Write the records of one map. reduce: of each record; equal keys stay in their order."""
        assert records.dtype == self.record, "a shuffle has records of one type"
        order = np.lexsort((key(records), reduce))
        ends = np.searchsorted(reduce[order], np.arange(self.num_reduces), side="right")
        data = records[order].tobytes() + ends.astype(END).tobytes()
        self.storage.put(self._map_path(name), data)

    def write_index(self, names: Sequence[str]) -> Int64Array:
        """Collect the ends of all maps, after the last of them; how many records each reduce has.

        Maps come in the order of `names`.
        """
        storage = self.storage
        sizes = {stat.name: stat.size for stat in storage.list(f"{self.folder}/maps")}
        tail_bytes = self.num_reduces * END.itemsize

        def ends_of(name: str) -> UInt64Array:
            path = self._map_path(name)
            return self._read(path, sizes[path] - tail_bytes, self.num_reduces, END)

        ends = np.zeros((self.num_reduces + 1, len(names)), END)
        with ThreadPoolExecutor(READERS) as pool:
            for number, found in enumerate(pool.map(ends_of, names)):
                ends[1:, number] = found
        storage.put(f"{self.folder}/index", ends.tobytes())
        storage.put(f"{self.folder}/index.json", json.dumps(list(names)).encode())
        counts: Int64Array = np.diff(ends.astype(np.int64), axis=0).sum(axis=1)
        return counts

    def stream(
        self, reduce: int, key: Key, num_bytes: int = STREAMED_BYTES
    ) -> Iterator[RecordArray]:
        """The records of a reduce in the order of their keys, about `num_bytes` at a time.

        Records of equal keys come together, those of lower maps first; they alone can take more.
        """
        with ThreadPoolExecutor(READERS) as pool:
            yield from self._merged(reduce, key, num_bytes, pool)

    def read(self, reduce: int, key: Key) -> RecordArray:
        """The same at once."""
        return np.concatenate([np.empty(0, self.record), *self.stream(reduce, key)])

    def _merged(
        self, reduce: int, key: Key, num_bytes: int, pool: ThreadPoolExecutor
    ) -> Iterator[RecordArray]:
        """Merge the sorted ranges of all maps, reading on where one has run out.

        What is complete is what lies below the least last key of the ranges that go on.
        """
        names = json.loads(self.storage.read(f"{self.folder}/index.json"))
        bounds = self._read(
            f"{self.folder}/index", reduce * len(names) * END.itemsize, 2 * len(names), END
        )
        at, end = bounds.astype(np.int64).reshape(2, len(names))
        maps = np.flatnonzero(at < end)
        each = max(num_bytes // max(1, len(maps)), LEAST_READ_BYTES) // self.record.itemsize
        step = max(1, each)
        waiting = {number: np.empty(0, self.record) for number in maps.tolist()}
        hungry = list(waiting)

        def read_on(number: int) -> RecordArray:
            count = int(min(step, end[number] - at[number]))
            start = int(at[number]) * self.record.itemsize
            return self._read(self._map_path(names[number]), start, count, self.record)

        while waiting:
            for number, more in zip(hungry, pool.map(read_on, hungry), strict=True):
                at[number] += len(more)
                waiting[number] = np.concatenate([waiting[number], more])
            keys = {number: key(records) for number, records in waiting.items()}
            last = {n: int(own[-1]) for n, own in keys.items() if at[n] < end[n]}
            bound = min(last.values(), default=None)
            ready = []
            for number, records in list(waiting.items()):
                cut = len(records) if bound is None else np.searchsorted(keys[number], bound)
                ready.append(records[:cut])
                waiting[number] = records[cut:]
                if not len(waiting[number]) and at[number] == end[number]:
                    del waiting[number]
            hungry = [number for number, own in last.items() if own == bound]
            found = np.concatenate(ready)
            if len(found):
                yield found[np.argsort(key(found), kind="stable")]

    def _read(self, name: str, start: int, count: int, kind: np.dtype[Kind]) -> NDArray[Kind]:
        data = self.storage.read_range(name, start, count * kind.itemsize)
        if len(data) != count * kind.itemsize:
            raise OSError(f"{self.place}/{name} ends early; remove the work folder and repeat")
        return np.frombuffer(data, kind)

    def _map_path(self, name: str) -> str:
        return f"{self.folder}/maps/{name}"
