"""A published index, opened for search; no Ray.

    index = Index.open("index/")
    index.search_text("how do I open a file?").ids
    index.search(vectors, k=10).cos

Shards are read one after another as they are first needed, their rows mapped. Every file is
checked against the hash in the manifest before a library parses it.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.artifacts.manifest import Manifest
from pipelines.artifacts.models import local_model
from pipelines.artifacts.reader import Artifact
from pipelines.runtime.session import num_cores
from sbert_core.encoder import Encoder
from sbert_core.index.filter import rows_where
from sbert_core.index.hits import NOTHING, Hits, best_of
from sbert_core.index.kinds import IndexKind
from sbert_core.index.shard import Shard
from sbert_core.storage import storage_at
from workers.index.shard import open_shard


@dataclass(frozen=True, slots=True)
class Found:
    """The best rows of each query, best first; a query with fewer than k rows has fewer."""

    ids: list[list[Any]]
    cos: list[np.ndarray]
    rows: list[np.ndarray]  # numbers over all shards


class Index:
    """An index of one generation."""

    def __init__(self, uri: str, manifest: Manifest) -> None:
        self.uri = uri
        self.manifest = manifest
        self._storage = storage_at(uri)
        self._folder = tempfile.TemporaryDirectory(prefix="sbert-")
        self._shards: dict[int, Shard] = {}

    @classmethod
    def open(cls, place: str | Path) -> "Index":
        try:
            artifact = Artifact.open(place)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(
                f"{place} holds no index made here; make one with sbert index (plain index files "
                "are not opened: nothing says what their rows are)"
            ) from None
        if artifact.manifest.kind != "index":
            raise ValueError(
                f"{place} holds {artifact.manifest.kind}, not an index; make one with sbert index"
            )
        return cls(artifact.uri, artifact.manifest)

    @property
    def rows(self) -> int:
        return self.manifest.rows

    @property
    def dim(self) -> int:
        return self.manifest.spec["dim"]

    @property
    def num_shards(self) -> int:
        return len(self.manifest.facts["shard_records"])

    @property
    def effort(self) -> int:
        return self.manifest.facts["search"]["effort"]

    @cached_property
    def encoder(self) -> Encoder:
        return self.encoder_of(None)

    def encoder_of(self, model: str | None) -> Encoder:
        """The model that made the vectors, or another if it makes the same."""
        word = model or self.manifest.spec["model"]
        encoder = Encoder.load(local_model(word))
        if encoder.dim > self.dim:
            encoder = Encoder.load(local_model(word), truncate_dim=self.dim)
        if (space := encoder.space()) != (own := self.manifest.spec["space"]):
            raise ValueError(
                f"model {word} makes vectors of space {space[:12]}, the index holds space "
                f"{own[:12]}; they cannot be compared: use the model that made the vectors "
                f"({self.manifest.spec['model']})"
            )
        return encoder

    def search_text(
        self, text: str | Sequence[str], k: int = 10, *, where: str | None = None
    ) -> Found:
        """Texts -> the closest rows; queries are encoded with the model's query prompt."""
        texts = [text] if isinstance(text, str) else list(text)
        if not all(t.strip() for t in texts):
            raise ValueError("the query is empty; give some text to search for")
        vectors = self.encoder.encode(texts, prompt=self.encoder.query_prompt)
        return self.search(vectors, k, where=where)

    def search(self, vectors: np.ndarray, k: int = 10, *, where: str | None = None) -> Found:
        """Vectors of the index's space -> the closest rows. where: rows that may be found."""
        queries = np.ascontiguousarray(np.atleast_2d(vectors), np.float32)
        if queries.shape[1] != self.dim:
            raise ValueError(
                f"queries have {queries.shape[1]} dimensions, the index {self.dim}; embed them "
                f"with the model that made the vectors ({self.manifest.spec['model']})"
            )
        norms = np.linalg.norm(queries, axis=1, keepdims=True)
        if not (np.isfinite(norms) & (norms > 0)).all():
            raise ValueError("a query vector is zero or not finite; it has no direction")
        queries = queries / norms
        # One place more shows whether the last one is tied with what follows.
        hits = [self._hits(number, queries, k + 1, where) for number in range(self.num_shards)]
        return self._found(best_of(hits, k + 1), k)

    def _hits(self, number: int, queries: np.ndarray, k: int, where: str | None) -> Hits:
        shard = self.shard(number)
        # A shard of dead rows may lack columns that were carried later.
        wanted = rows_where(shard.rows, where) if where is not None and shard.num_live else None
        found = shard.search(queries, k, self.effort, threads=num_cores(), wanted=wanted)
        return found.moved(self._first_row(number))

    def _first_row(self, number: int) -> int:
        records = self.manifest.facts["shard_records"]
        return sum(record["rows"] for record in records[:number])

    def shard(self, number: int) -> Shard:
        if number not in self._shards:
            files = self.manifest.facts["shard_records"][number]["files"]
            self._shards[number] = open_shard(
                self._storage, self.kind, self.dim, files, Path(self._folder.name)
            )
        return self._shards[number]

    @property
    def kind(self) -> IndexKind:
        spec = self.manifest.spec
        if spec["factory"] is not None:
            return IndexKind(factory=spec["factory"])
        return IndexKind(m=spec["m"], ef_construction=spec["ef_construction"])

    def _found(self, hits: Hits, k: int) -> Found:
        """Ids in the place of row numbers, ties by id."""
        reached = hits.rows != NOTHING
        ids = np.empty(hits.rows.shape, object)
        ids[reached] = self.columns(hits.rows[reached], ["id"])["id"].to_numpy(zero_copy_only=False)
        cos, rows = hits.cos.copy(), hits.rows.copy()
        tied = (cos[:, 1:] == cos[:, :-1]) & reached[:, 1:]
        for query in np.flatnonzero(tied.any(axis=1)).tolist():
            order = np.arange(hits.k)
            own = np.flatnonzero(reached[query])
            order[own] = sorted(own.tolist(), key=lambda i: (-cos[query, i], ids[query, i]))  # noqa: B023
            ids[query], cos[query], rows[query] = (
                ids[query][order],
                cos[query][order],
                rows[query][order],
            )
        counts = np.minimum(reached.sum(axis=1), k)
        if (counts == k).all():
            return Found(ids[:, :k].tolist(), list(cos[:, :k]), list(rows[:, :k]))
        ends = list(enumerate(counts.tolist()))
        return Found(
            [ids[query, :end].tolist() for query, end in ends],
            [cos[query, :end] for query, end in ends],
            [rows[query, :end] for query, end in ends],
        )

    def columns(self, rows: np.ndarray, names: Sequence[str]) -> pa.Table:
        """Columns of rows by number."""
        sizes = [record["rows"] for record in self.manifest.facts["shard_records"]]
        ends = np.cumsum(sizes)
        owner = np.searchsorted(ends, rows, side="right")
        numbers = np.unique(owner).tolist()
        if len(numbers) == 1:
            [own] = numbers
            places = rows - (ends[own] - sizes[own])
            return self.shard(own).rows.select(list(names)).take(pa.array(places))
        pieces, order = [], []
        for number in numbers:
            mine = np.flatnonzero(owner == number)
            places = rows[mine] - (ends[number] - sizes[number])
            pieces.append(self.shard(number).rows.select(list(names)).take(pa.array(places)))
            order.append(mine)
        if not pieces:
            return pa.table({name: [] for name in names})
        back = np.argsort(np.concatenate(order), kind="stable")
        return pa.concat_tables(pieces).combine_chunks().take(pa.array(back))
