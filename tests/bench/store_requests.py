"""Requests and bytes of an embed job as its rows grow: the real steps over a counting store.

    python tests/bench/store_requests.py [--rows 15000]

In:  made-up rows, a fifth of them repeats, at n, 2n, 4n and 8n; constants shrunk so that units,
     bands and ranges of hashes are many.
Out: a table, and as the last line the worst exponent between 4n and 8n; above 1.05 the exit code is
     1. Driver and tasks run one after the other in this process, and no model: the vectors are
     random numbers.

A step's time in a store is what its requests take at 20 ms each, as many at once as it has tasks,
at most 6,144; the requests of one task follow each other.
"""

import argparse
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.embed import find_owners
from pipelines.embed.find_owners import OwnerSearch, by_band, lend, make_scan_files
from pipelines.embed.plan_record import NO_SCHEMA, Plan
from sbert_core.choices import VectorType
from sbert_core.corpus.reader import CorpusReader, IdKind
from sbert_core.corpus.units import Unit, unit_ranges
from sbert_core.encoder.documents import DocumentVectors
from sbert_core.storage import LocalStorage
from workers.embed.fill import fill_units
from workers.embed.unit_job import UnitJob
from workers.embed.unit_steps import EncodedUnit, read_unit, write_unit

DIM = 8
FILE_ROWS, UNIT_ROWS = 512, 32
RECORDS_PER_RANGE, LEAST_BAND_ROWS = 4, 64
REQUEST_SECONDS, SLOTS = 0.02, 6144
LARGEST_EXPONENT = 1.05
COUNTED = ("read", "read_range", "buffer", "open", "stat", "list", "put")


@dataclass
class Counter:
    """Requests and bytes by step; `longest`: requests of the busiest task."""

    requests: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    num_bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    longest: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    step: str = "driver"

    def count(self, size: int) -> None:
        self.requests[self.step] += 1
        self.num_bytes[self.step] += size

    @contextmanager
    def task(self, step: str) -> Iterator[None]:
        """What is requested inside belongs to one task of a step."""
        outer, self.step, before = self.step, step, self.requests[step]
        yield
        self.longest[step] = max(self.longest[step], self.requests[step] - before)
        self.step = outer

    def seconds(self) -> float:
        """Of all steps, one after the other, in a store."""
        spread = sum(max(n / SLOTS, self.longest[step]) for step, n in self.requests.items())
        return spread * REQUEST_SECONDS


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=15_000, help="n")
    options = parser.parse_args()
    sizes = [options.rows * times for times in (1, 2, 4, 8)]
    counters = [measure(size) for size in sizes]
    print(
        f"| step | {' | '.join(f'{size:,} rows' for size in sizes)} | exponent: requests | bytes |"
    )
    print("|---|" + "---:|" * (len(sizes) + 2))
    worst = 0.0
    for step in [*counters[-1].requests, "all"]:
        requests = [total(counter.requests, step) for counter in counters]
        num_bytes = [total(counter.num_bytes, step) for counter in counters]
        slopes = [math.log2(own[3] / own[2]) if own[2] else 0.0 for own in (requests, num_bytes)]
        # A step of few requests grows by whole ones.
        worst = max(worst, *slopes) if requests[2] > 100 else worst
        counts = " | ".join(f"{number:,}" for number in requests)
        print(f"| {step} | {counts} | {slopes[0]:.2f} | {slopes[1]:.2f} |")
    print(", ".join(f"{counter.seconds():.0f}" for counter in counters), "seconds in a store")
    print(f"worst exponent {worst:.2f}")
    sys.exit(worst > LARGEST_EXPONENT)


def total(counts: dict[str, int], step: str) -> int:
    return sum(counts.values()) if step == "all" else counts[step]


def measure(num_rows: int) -> Counter:
    """Scan, made-up vectors, lend and fill over so many rows."""
    counter = Counter()
    with tempfile.TemporaryDirectory() as folder, counting(counter):
        units, reader = write_corpus(Path(folder), num_rows)
        counter.requests.clear()
        counter.num_bytes.clear()
        embed(units, reader, f"{folder}/out", counter)
    return counter


@contextmanager
def counting(counter: Counter) -> Iterator[None]:
    """Count what is asked of a store, and run the tasks of the driver's steps here."""

    def counted(name: str) -> Callable:
        whole = getattr(LocalStorage, name)

        def call(self: LocalStorage, *arguments: object) -> object:
            found = whole(self, *arguments)
            sent = arguments[1] if name == "put" else found
            counter.count(len(sent) if isinstance(sent, bytes) else getattr(sent, "size", 0))
            return found

        return call

    def run_here(
        function: Callable, calls: Sequence[tuple], shared: tuple = ()
    ) -> Iterator[tuple[int, object]]:
        for number, arguments in enumerate(calls):
            with counter.task(function.__name__):
                result = function(*shared, *arguments)
            yield number, result

    changes = [patch.object(LocalStorage, name, counted(name)) for name in COUNTED]
    changes += [
        patch("pipelines.embed.steps.as_they_come", run_here),
        patch.object(find_owners, "LEAST_BAND_ROWS", LEAST_BAND_ROWS),
        patch("sbert_core.vectors.shuffle.RECORDS_PER_RANGE", RECORDS_PER_RANGE),
    ]
    for change in changes:
        change.start()
    try:
        yield
    finally:
        for change in changes:
            change.stop()


def write_corpus(folder: Path, num_rows: int) -> tuple[list[Unit], CorpusReader]:
    """Files of made-up texts; every fifth row has the text of another one anywhere."""
    rng = np.random.default_rng(0)
    text = np.where(
        rng.random(num_rows) < 0.2, rng.integers(num_rows, size=num_rows), np.arange(num_rows)
    )
    places = []
    (folder / "in").mkdir()
    for first in range(0, num_rows, FILE_ROWS):
        own = text[first : first + FILE_ROWS]
        path = f"{first:09d}.parquet"
        columns = {"id": np.arange(first, first + len(own)), "text": [f"text {n}" for n in own]}
        pq.write_table(pa.table(columns), folder / "in" / path)
        places += unit_ranges(path, len(own), UNIT_ROWS)
    reader = CorpusReader(
        root=str(folder / "in"),
        template="{text}",
        id_kind=IdKind.COLUMN,
        id_column="id",
        carry={},
        where=None,
        partition_types={},
        staged={},
    )
    return [Unit(number, *place) for number, place in enumerate(places)], reader


def embed(units: list[Unit], reader: CorpusReader, out: str, counter: Counter) -> None:
    """The steps of the job in their order."""
    plan = Plan(
        files=(),
        units=tuple(units),
        links={},
        earlier=(),
        corrupt=(),
        types={},
        schema=NO_SCHEMA,
        id_kind=IdKind.COLUMN,
        id_column="id",
        partition_types={},
        staged={},
    )
    files = make_scan_files(plan, out, "_work/g", compares_texts=True)
    counts = OwnerSearch(plan=plan, reader=reader, files=files, out=out).run()
    job = UnitJob(
        out=out,
        generation="g",
        reader=reader,
        num_units=len(units),
        scanned=files,
        sources=(),
        source_paths=(),
        dtype=VectorType.FLOAT32,
        scale=None,
        has_chunks=False,
        metadata={},
    )
    waiting = []
    for unit in units:
        if counts.own_rows[unit.number]:
            with counter.task("encode"):
                if write_unit(job, make_vectors(job, unit)).commit is not None:
                    continue
        waiting.append(unit)
    lend(job, DIM)
    for band, own in by_band(files, waiting).items():
        with counter.task("fill_units"):
            fill_units(job, DIM, band, own)


def make_vectors(job: UnitJob, unit: Unit) -> EncodedUnit:
    """Random vectors in the place of a model's."""
    read, texts = read_unit(job, unit)
    number = len(texts)
    ones = np.ones(number, np.int64)
    documents = DocumentVectors(
        vectors=np.random.default_rng(unit.number).random((number, DIM), np.float32),
        document=np.arange(number),
        chunk=0 * ones,
        start_char=0 * ones,
        end_char=ones,
        num_tokens=ones,
        num_lost_tokens=0 * ones,
        reasons={},
        num_unknown_tokens=0,
        distinct_lengths=ones,
    )
    return EncodedUnit(
        read=read,
        documents=documents,
        batch_invariant=True,
        device="cpu",
        processor="",
        model_seconds=0.0,
        num_crashes=0,
        start=0.0,
        private_bytes=0,
    )


if __name__ == "__main__":
    main()
