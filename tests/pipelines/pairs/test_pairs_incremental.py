"""`sbert pairs` over generations of a vectors artifact: always the pairs of brute force."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.synthetic import write_vectors

from pipelines.artifacts.reader import Artifact
from pipelines.pairs import job as pairs_job
from pipelines.pairs.spec import PairsSpec
from sbert_core.join.bounded import paired_cosines

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
DIM = 6
THRESHOLD = 0.9


class Corpus:
    """Files of rows that come and go. Every row has a name of its own."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.base = self.rng.standard_normal((12, DIM)).astype(np.float32)
        self.files = []
        self.num_made = 0

    def add(self, number, kind):
        own = self.rng.standard_normal((number, DIM)).astype(np.float32)
        if kind == "near":
            own = self.base[self.rng.integers(0, 12, number)] + np.float32(0.1) * own
        elif kind == "equal":
            own = self.base[self.rng.integers(0, 12, number)]
        elif kind == "apart":  # no two of these are alike, nor like any other row
            own = np.zeros((number, DIM), np.float32)
            own[np.arange(number), np.arange(number) % DIM] = 1 if self.num_made % 2 else -1
        names = self.rng.permutation(np.arange(self.num_made, self.num_made + number))
        self.num_made += number
        self.files.append((pa.array([f"row-{n}" for n in names], pa.string()), own))

    def go(self, *numbers):
        self.files = [file for n, file in enumerate(self.files) if n not in numbers]

    def write(self, out):
        ids, vectors = zip(*self.files, strict=True)
        write_vectors(out, vectors, ids=ids)

    def pairs(self):
        ids = np.concatenate([names.to_numpy(zero_copy_only=False) for names, _ in self.files])
        rows = np.concatenate([vectors for _, vectors in self.files])
        a, b = np.triu_indices(len(rows), 1)
        cos = paired_cosines(rows[a], rows[b])
        reach = cos >= np.float32(THRESHOLD)
        return {
            tuple(sorted((ids[i], ids[j]))): float(c)
            for i, j, c in zip(a[reach], b[reach], cos[reach], strict=True)
        }

    def num_distinct(self):
        return len(np.unique(np.concatenate([vectors for _, vectors in self.files]), axis=0))


def check_join(corpus, folder, address):
    corpus.write(folder / "v")
    spec = PairsSpec(
        vectors=str(folder / "v"), out=str(folder / "p"), threshold=THRESHOLD, address=address
    )
    report = pairs_job.run(spec)
    table = pq.read_table(Artifact.open(folder / "p").folder)
    assert [str(field.type) for field in table.schema] == ["string", "string", "float"]
    found = table.to_pydict()
    names = list(zip(found["id_a"], found["id_b"], strict=True))
    assert len(set(names)) == len(names)
    assert dict(zip(names, found["cos"], strict=True)) == corpus.pairs()
    assert report.distinct == corpus.num_distinct()
    return report


def test_pairs_rows_went_and_no_pair_is_left_publishes_none(tmp_path, ray_address):
    corpus = Corpus(0)
    corpus.add(3, "apart")
    corpus.add(2, "equal")
    corpus.files[1][1][:] = corpus.base[0]
    assert check_join(corpus, tmp_path, ray_address).pairs == 1
    corpus.go(1)
    report = check_join(corpus, tmp_path, ray_address)
    assert report.pairs == 0 and report.grown is not None


@pytest.mark.parametrize("seed", range(3))
def test_pairs_random_generations_equal_brute_force(seed, tmp_path, ray_address):
    """Files are added, emptied, exchanged and taken away, down to one row, and come again."""
    corpus = Corpus(seed)
    rng = np.random.default_rng((seed, 1))
    kinds = ["near", "equal", "apart", "random"]
    num_grown = 0
    for step in range(12):
        if step == 6:
            corpus.files = corpus.files[:1]
            corpus.files[0] = tuple(column[:1] for column in corpus.files[0])
        num_gone = int(rng.integers(0, len(corpus.files) + 1)) if step % 3 else 0
        corpus.go(*rng.permutation(len(corpus.files))[:num_gone].tolist())
        for _ in range(int(rng.integers(0, 4))):
            corpus.add(int(rng.choice([0, 1, 5, 30])), str(rng.choice(kinds)))
        if not sum(len(own) for _, own in corpus.files):
            corpus.add(1 + step, str(rng.choice(kinds)))
        num_grown += check_join(corpus, tmp_path, ray_address).grown is not None
    assert num_grown, "no generation was grown from the one before"
