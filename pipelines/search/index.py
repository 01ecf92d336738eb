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

import numpy as np
import pyarrow as pa

from pipelines.artifacts.kinds import INDEX, IndexSettings
from pipelines.artifacts.manifest import IndexManifest
from pipelines.artifacts.models import resolve_model
from pipelines.artifacts.reader import Artifact, typed
from pipelines.runtime.session import num_cores
from sbert_core.arrays import Float32Array, Int64Array, RealArray
from sbert_core.choices import Precision
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.result import require_vectors
from sbert_core.index.hits import NO_ROW, Hits, merge_hits
from sbert_core.index.kinds import IndexKind
from sbert_core.index.shard import Shard
from sbert_core.storage import storage_at
from workers.index.search import shard_mask
from workers.index.shard import open_shard


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best rows of each query, best first; a query with fewer than k rows has fewer.

    ids: texts or integers, as the corpus has them. rows: row numbers over all shards.
    """

    ids: list[list[object]]
    cos: list[Float32Array]
    rows: list[Int64Array]


class SpaceMismatch(ValueError):
    """A model whose vectors cannot be compared with those of the index. space: of the model."""

    exit_code = 2

    def __init__(self, model: str, space: str, settings: IndexSettings) -> None:
        super().__init__(
            f"model {model} makes vectors of space {space[:12]}, the index holds space "
            f"{settings.space[:12]}; they cannot be compared: use the model that made the vectors "
            f"({settings.model})"
        )
        self.model, self.space = model, space


class Index:
    """An index of one generation, opened by `Index.open`."""

    def __init__(self, uri: str, manifest: IndexManifest) -> None:
        self.uri = uri
        self.manifest = manifest
        self._storage = storage_at(uri)
        self._folder = tempfile.TemporaryDirectory(prefix="sbert-")
        self._shards: dict[int, Shard] = {}
        self._sizes = [record.rows for record in manifest.metrics.shard_records]

    @classmethod
    def open(cls, place: str | Path) -> "Index":
        """Open the index in a folder or at a URI.

        ValueError where none was published; WrongKind where another artifact is.
        """
        try:
            artifact = Artifact.open(place)
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(
                f"{place} holds no index made here; make one with sbert index (plain index files "
                "are not opened: nothing says what their rows are)"
            ) from None
        manifest = typed(artifact.manifest, INDEX, str(place), "make one with sbert index")
        return cls(artifact.uri, manifest)

    @property
    def rows(self) -> int:
        """Rows that can be found."""
        return self.manifest.rows

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return self.manifest.settings.dim

    @property
    def num_shards(self) -> int:
        """Shards, opened or not."""
        return len(self._sizes)

    @property
    def effort(self) -> int:
        """The search effort whose recall the card states."""
        return self.manifest.metrics.search.effort

    @cached_property
    def encoder(self) -> Encoder:
        """The model that made the vectors."""
        return self.load_encoder(None)

    def load_encoder(self, model: str | None, precision: Precision = Precision.FLOAT32) -> Encoder:
        """Load an encoder for queries; None: the model that made the vectors.

        SpaceMismatch if it makes vectors of another space.
        """
        word = model or self.manifest.settings.model
        encoder = Encoder.load(resolve_model(word), precision=precision)
        if encoder.dim > self.dim:
            encoder = Encoder.load(resolve_model(word), precision=precision, truncate_dim=self.dim)
        if (space := encoder.space()) != self.manifest.settings.space:
            raise SpaceMismatch(word, space, self.manifest.settings)
        return encoder

    def search_text(
        self, text: str | Sequence[str], k: int = 10, *, where: str | None = None
    ) -> SearchResult:
        """The rows closest to one text, or to each of several.

        Queries are encoded with the model's query prompt. where: a condition on the rows that may
        be found, as of --filter. ValueError for an empty text, and one that has no vector.
        """
        texts = [text] if isinstance(text, str) else list(text)
        if not all(t.strip() for t in texts):
            raise ValueError("the query is empty; give some text to search for")
        encoded = self.encoder.encode_report(texts, prompt=self.encoder.query_prompt)
        return self.search(require_vectors(encoded, texts), k, where=where)

    def search(self, vectors: RealArray, k: int = 10, *, where: str | None = None) -> SearchResult:
        """The rows closest to one vector, or to each of several, of the index's space.

        where: as of `search_text`. ValueError for other dimensions or a vector without direction.
        """
        queries = np.ascontiguousarray(np.atleast_2d(vectors), np.float32)
        if queries.shape[1] != self.dim:
            raise ValueError(
                f"queries have {queries.shape[1]} dimensions, the index {self.dim}; embed them "
                f"with the model that made the vectors ({self.manifest.settings.model})"
            )
        norms = np.linalg.norm(queries, axis=1, keepdims=True)
        if not (np.isfinite(norms) & (norms > 0)).all():
            raise ValueError("a query vector is zero or not finite; it has no direction")
        queries = queries / norms
        # One place more shows whether the last one is tied with what follows.
        hits = [self._search_shard(n, queries, k + 1, where) for n in range(self.num_shards)]
        return self._to_result(merge_hits(hits, k + 1), k)

    def _search_shard(self, number: int, queries: Float32Array, k: int, where: str | None) -> Hits:
        shard = self.shard(number)
        mask = shard_mask(shard, where)
        hits = shard.search(queries, k, self.effort, threads=num_cores(), mask=mask)
        return hits.with_offset(sum(self._sizes[:number]))

    def shard(self, number: int) -> Shard:
        """A shard, opened on first use; TransientError if a file is missing or corrupt."""
        if number not in self._shards:
            files = self.manifest.metrics.shard_records[number].files
            self._shards[number] = open_shard(
                self._storage, self.kind, self.dim, files, Path(self._folder.name)
            )
        return self._shards[number]

    @property
    def kind(self) -> IndexKind:
        """How its shards are read."""
        settings = self.manifest.settings
        if settings.factory is not None:
            return IndexKind(factory=settings.factory)
        return IndexKind(m=settings.m, ef_construction=settings.ef_construction)

    def _to_result(self, hits: Hits, k: int) -> SearchResult:
        """Replace row numbers by ids, order ties by id, and cut to k."""
        is_hit = hits.rows != NO_ROW
        ids = np.empty(hits.rows.shape, object)
        ids[is_hit] = self.columns(hits.rows[is_hit], ["id"])["id"].to_numpy(zero_copy_only=False)
        cos, rows = hits.cos.copy(), hits.rows.copy()
        has_ties = ((cos[:, 1:] == cos[:, :-1]) & is_hit[:, 1:]).any(axis=1)
        for query in np.flatnonzero(has_ties).tolist():
            order = np.arange(hits.k)
            own = np.flatnonzero(is_hit[query])
            order[own] = sorted(own.tolist(), key=lambda i: (-cos[query, i], ids[query, i]))  # noqa: B023
            for values in (ids, cos, rows):
                values[query] = values[query][order]
        counts = np.minimum(is_hit.sum(axis=1), k)
        if (counts == k).all():
            return SearchResult(ids[:, :k].tolist(), list(cos[:, :k]), list(rows[:, :k]))
        ends = list(enumerate(counts.tolist()))
        return SearchResult(
            [ids[query, :end].tolist() for query, end in ends],
            [cos[query, :end] for query, end in ends],
            [rows[query, :end] for query, end in ends],
        )

    def columns(self, rows: Int64Array, names: Sequence[str]) -> pa.Table:
        """Some columns of rows, given by their numbers over all shards."""
        ends = np.cumsum(self._sizes)
        shard = np.searchsorted(ends, rows, side="right")
        numbers = np.unique(shard).tolist()
        if not numbers:
            return pa.table({name: [] for name in names})
        parts, order = [], []
        for number in numbers:
            positions = np.flatnonzero(shard == number)
            within = rows[positions] - (ends[number] - self._sizes[number])
            parts.append(self.shard(number).rows.select(list(names)).take(pa.array(within)))
            order.append(positions)
        if len(parts) == 1:  # the common case; chunks are kept as they are
            return parts[0]
        back = np.argsort(np.concatenate(order), kind="stable")
        return pa.concat_tables(parts).combine_chunks().take(pa.array(back))
