"""An update is a function of the corpus and the options.

A state machine edits a small corpus and the options at random and runs embed, pairs, cluster, apply
and index through the command line. After every step each artifact must be what a plain loop makes
of the corpus as it is now; after every fifth, embed must have the bytes of a run from scratch.

`make test` takes a few steps, `make chaos` 500. A failure prints its seed:
SBERT_UPDATE_SEED=N repeats it and goes on from there.
"""

import os
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from support.embedding import published_bytes, quarantine_of, table_of, vectors_of
from support.small_corpus import CONDITIONS, SmallCorpus, plain_rows, read_rows, written

from pipelines.artifacts.reader import Artifact
from pipelines.cli.main import main
from pipelines.search.index import Index
from sbert_core.choices import LongTexts, VectorType
from sbert_core.corpus.parquet import content_hash
from sbert_core.encoder.documents import encode_documents
from sbert_core.encoder.encoder import Encoder
from sbert_core.vectors.quantize import dequantize, quantize

pytestmark = [pytest.mark.ray, pytest.mark.timeout(7200)]

NUM_STEPS = int(os.environ.get("SBERT_UPDATE_STEPS", "5"))
FIRST_SEED = int(os.environ.get("SBERT_UPDATE_SEED", "0"))
STEPS_OF_A_MACHINE = 25
MACHINES_OF_A_SEED = 4  # the first of each is the simplest that hypothesis can draw
STEPS_TO_SCRATCH = 5
K = 7
CHANCE = st.integers(0, 2**32 - 1)


class Updates(RuleBasedStateMachine):
    """A corpus that changes, and the artifacts that follow it."""

    model: Path
    address: str
    folder: Path
    num_machines = 0

    @initialize(chance=CHANCE)
    def begin(self, chance: int) -> None:
        Updates.num_machines += 1
        self.step = 0
        self.home = self.folder / f"machine-{Updates.num_machines}"
        self.rng = random.Random(chance)
        self.id = self.rng.choice(("column", "column", "position", "content"))
        self.dtype = self.rng.choice(("float32", "float32", "float16", "int8"))
        self.long = self.rng.choice(("truncate", "truncate", "pool", "chunks"))
        self.kind = self.rng.choice(("hnsw", "faiss:Flat", "faiss:SQ8"))
        self.keep = self.rng.choice(("", "longest", "lang=de>en"))
        self.threshold = self.rng.choice((0.9, 0.97, 1.0))
        self.corpus = SmallCorpus(self.home / "in", self.rng, has_ids=self.id == "column")
        self.encoder = Encoder.load(self.model)
        self.condition, self.limit = CONDITIONS[0], None
        self.unit_rows, self.distinct, self.carry = 4, "corpus", ("lang", "row=source_row")
        self.scale: float | None = None  # of int8, kept from the first run on
        self.was_kept: set = set()
        self.decided_files: set[str] = set()
        self.decided: tuple = ("", None)  # the generation of clusters, and what it was made of

    # -- edits -------------------------------------------------------------------------------------

    def _edit(self, name: str, chance: int) -> None:
        # The number of the step makes even the simplest draw differ from step to step.
        self.corpus.rng.seed(f"{chance}-{self.step}")
        getattr(self.corpus, name)()

    @rule(chance=CHANCE)
    def edit_rows(self, chance: int) -> None:
        self._edit("edit", chance)

    @rule(chance=CHANCE)
    def add_rows(self, chance: int) -> None:
        self._edit("add_rows", chance)

    @rule(chance=CHANCE)
    def remove_rows(self, chance: int) -> None:
        self._edit("remove_rows", chance)

    @rule(chance=CHANCE)
    def reorder_rows(self, chance: int) -> None:
        self._edit("reorder", chance)

    @rule(chance=CHANCE)
    def move_rows(self, chance: int) -> None:
        self._edit("move_rows", chance)

    @rule(chance=CHANCE)
    def add_file(self, chance: int) -> None:
        self._edit("add_file", chance)

    @rule(chance=CHANCE)
    def remove_file(self, chance: int) -> None:
        self._edit("remove_file", chance)

    @rule(chance=CHANCE)
    def swap_files(self, chance: int) -> None:
        self._edit("swap", chance)

    @rule(chance=CHANCE)
    def rename_file(self, chance: int) -> None:
        self._edit("rename", chance)

    @rule(chance=CHANCE)
    def touch_file(self, chance: int) -> None:
        self._edit("touch", chance)

    @rule(chance=CHANCE)
    def change_format(self, chance: int) -> None:
        self._edit("change_format", chance)

    @rule(condition=st.sampled_from(CONDITIONS))
    def filter_rows(self, condition) -> None:
        self.condition = condition

    @rule(limit=st.sampled_from((None, 1, 5, 13)))
    def limit_rows(self, limit: int | None) -> None:
        self.limit = limit

    @rule(carry=st.sampled_from((("lang", "row=source_row"), ("lang",), ("lang", "text=words"))))
    def carry_columns(self, carry: tuple[str, ...]) -> None:
        self.carry = carry

    @rule(unit_rows=st.sampled_from((1, 4, 5, 1024)), distinct=st.sampled_from(("corpus", "unit")))
    def change_units(self, unit_rows: int, distinct: str) -> None:
        self.unit_rows = unit_rows
        self.distinct = "corpus" if self.id == "content" else distinct

    @rule()
    def plan_only(self) -> None:
        before = self._bytes("vectors")
        self._embed("--plan")
        assert self._bytes("vectors") == before

    @rule(chance=CHANCE)
    def refuse(self, chance: int) -> None:
        """What cannot be done ends with 2 and changes nothing."""
        rng = random.Random(f"{chance}-{self.step}")
        before = self._bytes("vectors")
        bad = self.corpus.folder / "bad.parquet"
        table = pa.table({"id": ["new", "new"], "text": ["a word", "the word"]})
        ways = {
            "column": lambda: pq.write_table(table, bad),  # neither lang nor row
            "corrupt": lambda: bad.write_bytes(b"PAR1 and no more") and [],
            "length": lambda: ["--max-length", "9"],
            "dtype": lambda: ["--dtype", "int8" if self.dtype != "int8" else "float16"],
            "carry": lambda: ["--carry", "lang,row"],
            "where": lambda: ["--where", "lang >= 3"],
        }
        words = ways[rng.choice(sorted(ways))]() or []
        try:
            self._embed(*words, code=2)
            self._embed(*words, code=2)
        finally:
            bad.unlink(missing_ok=True)
        assert self._bytes("vectors") == before

    @rule(chance=CHANCE)
    def skip_corrupt(self, chance: int) -> None:
        """A file that cannot be read is left out, and that file alone."""
        rng = random.Random(f"{chance}-{self.step}")
        name = f"zz/{rng.choice(sorted(self.corpus.files)).partition('.')[0]}.parquet"
        data = written([self.corpus.new_row()] * 3, "parquet", self.corpus.has_ids, rng)
        broken = {"footer": data[:-6], "page": data[:4] + b"\xff" * 24 + data[28:]}
        path = self.corpus.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(broken[rng.choice(sorted(broken))])
        try:
            self._embed("--skip-corrupt")
        finally:
            shutil.rmtree(self.corpus.folder / "zz")
        reasons = [row for row in quarantine_of(self.home / "vectors") if row["row"] is None]
        found = [row["file"] for row in reasons]
        assert found == [name] or (self.limit is not None and found == [])  # beyond the limit
        self._check_vectors()

    # -- every stage after every step --------------------------------------------------------------

    @invariant()
    def artifacts_follow_the_corpus(self) -> None:
        self.step += 1
        self._embed()
        self._check_vectors()
        if self.step % STEPS_TO_SCRATCH == 0 and self.dtype == "float32":
            scratch = self.home / "scratch"
            self._embed(out=scratch)
            assert published_bytes(scratch) == self._bytes("vectors")
            shutil.rmtree(scratch)
        if not Artifact.open(self.home / "vectors").rows:
            self._follow("pairs", ["pairs", "vectors"], code=2)
            return  # what follows stays as it was
        self._follow("pairs", ["pairs", "vectors", "--threshold", f"{self.threshold}"])
        self._check_pairs()
        self._follow("clusters", ["cluster", "pairs", "--keep", self.keep], on_ray=False)
        self._check_clusters()
        if self.long != "chunks":
            self._follow("clean", ["apply", "clusters", "in"])
            self._check_clean()
        self._follow("index", ["index", "vectors", "--kind", self.kind])
        self._check_index()

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "home", self.folder / "none"), ignore_errors=True)

    # -- commands ----------------------------------------------------------------------------------

    def _embed(self, *more: str, out: Path | None = None, code: int = 0) -> None:
        words = ["embed", str(self.corpus.folder), "--out", str(out or self.home / "vectors")]
        words += ["--model", str(self.model), "--dtype", self.dtype, "--long", self.long]
        words += ["--unit-rows", str(self.unit_rows), "--distinct", self.distinct]
        words += ["--carry", ",".join(self.carry), "--actors", "1"]
        if self.id == "content":
            words += ["--id", "content"]
        if self.condition.text is not None:
            words += ["--where", self.condition.text]
        if self.limit is not None:
            words += ["--limit", str(self.limit)]
        self._sbert([*words, "--address", self.address, *more], code)

    def _follow(self, out: str, words: list[str], code: int = 0, on_ray: bool = True) -> None:
        places = ("vectors", "pairs", "clusters", "in")
        command, *rest = words
        rest = [str(self.home / word) if word in places else word for word in rest]
        words = [command, *rest, "--out", str(self.home / out)]
        self._sbert([*words, *(["--address", self.address] if on_ray else [])], code)

    def _sbert(self, words: list[str], code: int) -> Result:
        found = CliRunner().invoke(main, words)
        assert found.exit_code == code, f"sbert {' '.join(words)}\n{found.output}"
        return found

    def _bytes(self, name: str) -> dict[str, str]:
        return published_bytes(self.home / name)

    # -- oracles -----------------------------------------------------------------------------------

    def _check_vectors(self) -> None:
        """Every row that was asked for, in order, has the encoder's vector or is quarantined."""
        out = self.home / "vectors"
        wanted = self.corpus.rows(self.condition, self.limit)
        good = [(name, place, row) for name, place, row in wanted if row.is_valid]
        bad = {(name, place) for name, place, row in wanted if not row.is_valid}
        quarantined = [row for row in quarantine_of(out) if row["row"] is not None]
        assert {(row["file"], row["row"]) for row in quarantined} == bad
        manifest = Artifact.open(out).manifest
        assert manifest.quarantined == len(quarantined) == len(bad)
        table = pa.Table.from_batches(list(Artifact.open(out).read())) if good else None
        if table is None:
            assert manifest.rows == 0
            self.scale = None  # there is no vector left to keep it for
            return
        made = [
            encode_documents(self.encoder, [row.text], long=LongTexts(self.long))
            for *_, row in good
        ]
        sizes = [len(own.vectors) for own in made]
        names = np.repeat(np.arange(len(good)), sizes)
        assert table["file"].to_pylist() == [good[n][0] for n in names]
        assert table["row"].to_pylist() == [good[n][1] for n in names]
        assert table["num_chars"].to_pylist() == [len(good[n][2].text) for n in names]
        ids = self._ids(good)
        chunk = np.concatenate([own.chunk for own in made])
        is_chunked = self.long == "chunks"
        assert table["id"].to_pylist() == [
            f"{ids[n]}#{c}" if is_chunked else ids[n] for n, c in zip(names, chunk, strict=True)
        ]
        for word in self.carry:
            column, _, name = word.partition("=")
            values = [getattr(good[n][2], column) for n in names]
            assert table[name or column].to_pylist() == values
        exact = np.concatenate([own.vectors for own in made])
        self.scale = self.scale or manifest.settings.scale
        assert manifest.settings.scale == (self.scale if self.dtype == "int8" else None)
        kind = VectorType(self.dtype)
        np.testing.assert_array_equal(vectors_of(table), quantize(exact, kind, self.scale))
        stated = manifest.metrics.storage_error
        if stated.get("sample") == len(exact):
            self._check_error(exact, stated)

    def _ids(self, good: list) -> list[str]:
        if self.id == "column":
            return [row.id for *_, row in good]
        if self.id == "position":
            return [f"{name}#{place}" for name, place, _ in good]
        seen: dict[str, int] = {}
        ids = []
        for *_, row in good:
            name = content_hash(row.text).hex()
            seen[name] = seen.get(name, 0) + 1
            ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
        return ids

    def _check_error(self, exact: np.ndarray, stated: dict) -> None:
        coarse = dequantize(quantize(exact, VectorType(self.dtype), self.scale), self.scale)
        coarse = coarse.astype(np.float64)
        cos = (exact * coarse).sum(1) / np.linalg.norm(coarse, axis=1) / _norms(exact)
        assert 1 - cos.min() <= stated["self_max"] + 1e-6

    def _check_pairs(self) -> None:
        """All pairs at the threshold, each once, with the cosines of float64."""
        table = table_of(self.home / "vectors")
        order = np.argsort(table["id"].to_numpy(zero_copy_only=False), kind="stable")
        self.ids = [table["id"][int(n)].as_py() for n in order]
        vectors = dequantize(vectors_of(table)[order], self.scale).astype(np.float64)
        cos = vectors @ vectors.T / np.outer(_norms(vectors), _norms(vectors))
        cos = np.clip(cos.astype(np.float32), -1, 1)
        is_equal = (vectors[:, None] == vectors[None]).all(2)
        self.cos = np.where(is_equal, np.float32(1), cos)
        near = np.argwhere(np.triu(self.cos >= np.float32(self.threshold), 1))
        found = pq.read_table(Artifact.open(self.home / "pairs").folder).to_pylist()
        pairs = {(row["id_a"], row["id_b"]): row["cos"] for row in found}
        assert len(pairs) == len(found)
        want = {(self.ids[a], self.ids[b]): float(self.cos[a, b]) for a, b in near.tolist()}
        border = np.float32(1e-6)
        for pair in pairs.keys() ^ want.keys():
            a, b = (self.ids.index(name) for name in pair)
            assert abs(self.cos[a, b] - np.float32(self.threshold)) < border, pair
        for pair in pairs.keys() & want.keys():
            assert abs(pairs[pair] - want[pair]) <= 6e-8, pair
            assert (pairs[pair] == 1) == (want[pair] == 1), pair
        self.pairs = pairs

    def _check_clusters(self) -> None:
        """In order, with rows that were kept before first: stays unless a kept one is near."""
        table = table_of(self.home / "vectors")
        generation = Artifact.open(self.home / "clusters").manifest.generation
        decided_on = (self.pairs, table.drop_columns(["file", "row"]).to_pylist())
        if generation == self.decided[0]:  # there was nothing to decide
            assert decided_on == self.decided[1]
            return
        self.decided = (generation, decided_on)
        if not self.decided_files & self.corpus.files.keys():
            self.was_kept = set()  # other files have other rows, whatever their ids
        self.decided_files = set(self.corpus.files)
        column = dict(zip(table["id"].to_pylist(), table.to_pylist(), strict=True))
        near: dict = {name: {} for name in self.ids}
        for (a, b), cos in self.pairs.items():
            near[a][b] = near[b][a] = cos

        def place(name):
            row = column[name]
            rule = {
                "": 0,
                "longest": -row["num_chars"],
                "lang=de>en": {"de": 0, "en": 1}.get(row["lang"], 2),
            }[self.keep]
            return (name not in self.was_kept, rule, name.encode())

        kept: set = set()
        witness = {}
        for name in sorted(self.ids, key=place):
            before = {other: cos for other, cos in near[name].items() if other in kept}
            if before:
                witness[name] = min(before, key=lambda o: (-before[o], o.encode()))
            else:
                kept.add(name)
        found = table_of(self.home / "clusters").to_pylist()
        assert [row["id"] for row in found] == table["id"].to_pylist()
        assert {row["id"] for row in found if row["keep"]} == kept
        assert {row["id"]: row["witness"] for row in found if not row["keep"]} == witness
        self.was_kept = kept

    def _check_clean(self) -> None:
        """Every file without the rows that went, and with all others."""
        gone: dict[str, set[int]] = {}
        for row in table_of(self.home / "vectors").to_pylist():
            if row["id"] not in self.was_kept:
                gone.setdefault(row["file"], set()).add(row["row"])
        folder = Path(self._sbert(["path", str(self.home / "clean")], 0).output.strip())
        here = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
        assert here == set(self.corpus.files)
        for name, rows in self.corpus.files.items():
            stay = [row for n, row in enumerate(rows) if n not in gone.get(name, ())]
            found = read_rows(folder / name, self.corpus.has_ids)
            assert found == plain_rows(stay, self.corpus.has_ids), name

    def _check_index(self) -> None:
        """Rows that are there, none twice, with their own cosines, the row itself among them."""
        place = {name: n for n, name in enumerate(self.ids)}
        table = table_of(self.home / "vectors")
        vectors = dequantize(vectors_of(table), self.scale)
        names = table["id"].to_pylist()
        index = Index.open(self.home / "index")
        assert index.rows == len(names)
        found = index.search(vectors, K)
        for query, (ids, cos) in enumerate(zip(found.ids, found.cos, strict=True)):
            assert len(set(ids)) == len(ids) == min(K, len(names))
            own = self.cos[place[names[query]]]
            for name, value in zip(ids, cos.tolist(), strict=True):
                assert abs(own[place[name]] - value) < 2e-4
            assert own[place[ids[0]]] > 1 - 2e-4


def _norms(vectors: np.ndarray) -> np.ndarray:
    return np.linalg.norm(vectors, axis=1)


def _seeds() -> list[int]:
    per_seed = STEPS_OF_A_MACHINE * MACHINES_OF_A_SEED
    return list(range(FIRST_SEED, FIRST_SEED + max(1, NUM_STEPS // per_seed)))


@pytest.mark.parametrize("number", _seeds())
def test_artifacts_after_random_edits_equal_those_of_a_plain_loop(
    number, ray_address, bert_folder, tmp_path
):
    is_long = NUM_STEPS >= STEPS_OF_A_MACHINE * MACHINES_OF_A_SEED
    machine = seed(number)(
        type(
            "Machine",
            (Updates,),
            {"model": bert_folder, "address": ray_address, "folder": tmp_path},
        )
    )
    sys.stdout.write(f"SBERT_UPDATE_SEED={number}\n")
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=MACHINES_OF_A_SEED if is_long else 2,
            stateful_step_count=STEPS_OF_A_MACHINE if is_long else NUM_STEPS // 2,
            phases=[Phase.generate],  # to shrink a failure would take hours
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
