"""Results of finished tasks, kept beside the work until the artifact is published.

In:  a result under a name.
Out: the same result for a rerun, or None. A file is an `.npz` with a JSON record and arrays.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sbert_core.arrays import Float32Array
from sbert_core.data_file import ListedFile
from sbert_core.index.shard_record import ShardRecord
from sbert_core.json_record import Count, Number, decode, encode
from sbert_core.storage import Storage
from workers.index.build import BuiltShard, TrainedIndex

JSON = "json"
HELD = "held"
TRAINED = "trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedStep:
    """JSON record of the trained FAISS index."""

    file: ListedFile
    seconds: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardStep:
    """JSON record of a built shard; its cosines for held-out queries are arrays beside it."""

    number: Count
    rows: Count
    live: Count
    nodes: Count
    parts: tuple[str, ...]
    files: tuple[ListedFile, ...]
    seconds: Number


@dataclass(frozen=True, slots=True)
class _StepFile:
    """What a checkpoint holds: its JSON record as text, and the arrays beside it."""

    text: str
    arrays: dict[str, Float32Array]


class StepCheckpoints:
    """Checkpoints of one build, in a folder of the output's storage."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def save_trained(self, trained: TrainedIndex) -> None:
        """Keep the trained FAISS index."""
        self._save(TRAINED, TrainedStep(file=trained.file, seconds=trained.seconds), {})

    def load_trained(self) -> TrainedIndex | None:
        """The trained FAISS index, None before `save_trained`."""
        if (file := self._load(TRAINED)) is None:
            return None
        step = decode(TrainedStep, json.loads(file.text), self._path(TRAINED))
        return TrainedIndex(step.file, step.seconds)

    def save_shard(self, built: BuiltShard) -> None:
        """Keep a built shard under its number."""
        record = built.record
        step = ShardStep(
            number=built.number,
            rows=record.rows,
            live=record.live,
            nodes=record.nodes,
            parts=record.parts,
            files=record.files,
            seconds=built.seconds,
        )
        held = {f"{HELD}/{effort}": cosines for effort, cosines in built.held.items()}
        self._save(_shard_name(built.number), step, held)

    def load_shard(self, number: int) -> BuiltShard | None:
        """The shard of that number, None before `save_shard`."""
        name = _shard_name(number)
        if (file := self._load(name)) is None:
            return None
        step = decode(ShardStep, json.loads(file.text), self._path(name))
        record = ShardRecord(
            rows=step.rows, live=step.live, nodes=step.nodes, parts=step.parts, files=step.files
        )
        held = {int(key.partition("/")[2]): cosines for key, cosines in file.arrays.items()}
        return BuiltShard(number=step.number, record=record, seconds=step.seconds, held=held)

    def _save(self, name: str, record: object, arrays: Mapping[str, Float32Array]) -> None:
        sink = io.BytesIO()
        text = np.array(json.dumps(encode(record)))
        # numpy's stub takes keywords for the option allow_pickle.
        np.savez(sink, **{JSON: text, **arrays})  # type: ignore[arg-type]
        self._storage.put(self._path(name), sink.getvalue())

    def _load(self, name: str) -> _StepFile | None:
        if self._storage.stat(self._path(name)) is None:
            return None
        with np.load(io.BytesIO(self._storage.read(self._path(name)))) as file:
            arrays = dict(file)
        return _StepFile(str(arrays.pop(JSON)), arrays)

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}.npz"


def _shard_name(number: int) -> str:
    return f"shard-{number:05d}"
