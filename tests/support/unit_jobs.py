"""Units of a small corpus, and the tasks of an embed job as plain calls on them."""

from dataclasses import asdict, replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sbert_core.choices import LongTexts, VectorType
from sbert_core.corpus.reader import CorpusReader, IdKind
from sbert_core.corpus.units import Unit, unit_ranges
from sbert_core.encoder.encoder import Encoder
from workers.common.errors import raise_error_rows
from workers.embed.encoder_config import EncoderConfig
from workers.embed.fill import fill_units
from workers.embed.lend import lend_vectors
from workers.embed.records import UnitResult, read_commits
from workers.embed.scan import (
    EarlierPart,
    assign_owners,
    gather_claims,
    index_maps,
    scan_parts,
    scan_units,
)
from workers.embed.scan_files import ScanFiles, map_name
from workers.embed.unit_job import UnitJob

NUM_REDUCES = 3
UNITS_PER_BAND = 2
CORPUS = {
    "a.parquet": ["one word", "two words", None, "one word", "how are you", " ", "there"],
    "b.parquet": ["there", "one word", "which way", "", "two words", "which way", "so"],
    "c.parquet": ["so", "so", "there", "one word"],
}
LONG_TEXT = " ".join(["the other time you said that all of them"] * 12)


@pytest.fixture(scope="module")
def encoder(bert_folder) -> Encoder:
    return Encoder.load(bert_folder)


@pytest.fixture
def make_job(tmp_path):
    """corpus -> its units and an UnitJob in a folder below tmp_path; nothing is scanned."""

    def make(corpus, name="out", rows=3, earlier=(), with_texts=True, **changes):
        folder = tmp_path / name
        places = []
        for path, texts in corpus.items():
            folder.joinpath("corpus").mkdir(parents=True, exist_ok=True)
            ids = [f"{path[0]}{n}" for n in range(len(texts))]
            table = pa.table({"id": ids, "text": pa.array(texts, pa.string())})
            pq.write_table(table, folder / "corpus" / path)
            places += unit_ranges(path, len(texts), rows)
        units = [Unit(number, *place) for number, place in enumerate(places)]
        reader = CorpusReader(
            root=str(folder / "corpus"),
            template="{text}",
            id_kind=IdKind.COLUMN,
            id_column="id",
            carry={},
            where=None,
            partition_types={},
            staged={},
        )
        bands = range(0, len(units), UNITS_PER_BAND)
        parts = [len(units) + number for number in range(len(earlier))]  # a band each
        files = ScanFiles(
            place=str(tmp_path / "artifact"),
            folder=f"_work/{name}/scan",
            num_units=len(units),
            bands=(*bands, *parts),
            num_unit_bands=len(bands),
            num_reduces=NUM_REDUCES,
            with_texts=with_texts,
            with_ids=True,
        )
        job = UnitJob(
            out=str(tmp_path / "artifact"),
            generation=name,
            reader=reader,
            num_units=len(units),
            scanned=files,
            sources=tuple(record.data.path for record in earlier),
            source_paths=tuple(record.file for record in earlier),
            dtype=VectorType.FLOAT32,
            scale=None,
            has_chunks=False,
            metadata={},
        )
        return units, replace(job, **changes)

    return make


def bands_of(job, units):
    """Units by band."""
    bands = {}
    for unit in units:
        bands.setdefault(job.scanned.band_of(unit.number), []).append(unit)
    return bands


def scan(units, job, earlier=()):
    """The scan as the driver runs it: counts of units, of reduces, and what each unit encodes."""
    files, bands = job.scanned, bands_of(job, units)
    counts = []
    for band, own in bands.items():
        counts += scan_units(files, job.reader, band, own).units
    parts = [
        EarlierPart(number=job.num_units + number, name=record.data.path, linked=None,
                    quarantine=None, file=record.file, first_row=record.first_row,
                    num_rows=record.num_rows)
        for number, record in enumerate(earlier)
    ]  # fmt: skip
    for part in parts:
        scan_parts(files, job.out, files.band_of(part.number), [part])
    maps = [map_name(band) for band in range(len(files.bands))]
    for kind, shuffle in {"texts": files.texts, "ids": files.ids}.items():
        if kind == "ids" or files.with_texts:
            index_maps(files, kind, shuffle, maps)
    reduces = [assign_owners(files, reduce) for reduce in range(NUM_REDUCES)]
    if not files.with_texts:
        return counts, reduces, []
    index_maps(files, "claims", files.claims, [map_name(n) for n in range(NUM_REDUCES)])
    claims = []
    for band, own in bands.items():
        claims += gather_claims(files, band, own, parts).units
    index_maps(files, "loans", files.loans, [map_name(band) for band in bands])
    return counts, reduces, claims


def fill(units, job, dim):
    """Pass 2 over these units, in their bands."""
    files = job.scanned
    if files.with_texts:
        bands = range(len(files.bands))
        lent = [lend_vectors(files, job, dim, band) for band in bands]
        names = [name for one in lent for name in one.maps]
        index_maps(files, "vectors", files.vectors(dim, job.dtype), names)
    for band, own in bands_of(job, units).items():
        fill_units(job, dim, band, own)


def config_of(encoder, folder, long=LongTexts.TRUNCATE):
    return EncoderConfig(
        model=str(folder),
        recipe=encoder.recipe(prompt="", long=long),
        prompt="",
        long=long,
        max_length=encoder.max_length,
        truncate_dim=None,
        token_budget=None,
        precision=encoder.precision,
        wanted_precision=encoder.precision,
        threads=1,
    )


def call(embedder, unit) -> UnitResult:
    table = embedder(pa.Table.from_pylist([asdict(unit)]))
    raise_error_rows(table)
    [result] = UnitResult.from_table(table)
    return result


def parts(job):
    """All rows of data and quarantine, in order of units."""
    records = sorted(read_commits(job.storage, job.work), key=lambda record: record.unit)
    data = [pq.read_table(f"{job.out}/{record.data.path}") for record in records]
    bad = [pq.read_table(f"{job.out}/{r.quarantine.path}") for r in records if r.quarantine]
    return pa.concat_tables(data), pa.concat_tables(bad) if bad else None
