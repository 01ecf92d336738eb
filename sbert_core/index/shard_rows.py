"""The rows of a shard, in an Arrow file that can be mapped.

Columns: node, own, is_dead, then those of the vectors artifact without the vector, at last part.
The first three and the last are found by position: carried columns may have any name.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

NODE, OWN, IS_DEAD, PART = "node", "own", "is_dead", "part"
NUM_BEFORE = 3  # columns the index adds before those of the vectors artifact


@dataclass(frozen=True, slots=True)
class ShardRows:
    """Rows of a shard: where each is in the index, and its columns of the vectors artifact.

    exact: position of the row's vector among the exact ones, NO_ROW if the index holds it as it is.
    part: file of the vectors artifact, by the first digits of its sha256.
    columns: of the vectors artifact, in a table of their own so that names cannot collide.
    """

    node: np.ndarray
    exact: np.ndarray
    is_dead: np.ndarray
    part: pa.ChunkedArray
    columns: pa.Table

    @classmethod
    def read(cls, path: Path) -> "ShardRows":
        """Map the file; pages are loaded when they are used."""
        return cls.from_table(pa.ipc.open_file(pa.memory_map(str(path))).read_all())

    @classmethod
    def from_table(cls, table: pa.Table) -> "ShardRows":
        """The inverse of `to_table`."""
        node, exact, is_dead = table.columns[:NUM_BEFORE]
        return cls(
            node.to_numpy(),
            exact.to_numpy(),
            is_dead.to_numpy(zero_copy_only=False),
            table.columns[-1],
            table.select(list(range(NUM_BEFORE, table.num_columns - 1))),
        )

    def to_table(self) -> pa.Table:
        """All columns in the order of the file."""
        before = [pa.array(values) for values in (self.node, self.exact, self.is_dead)]
        names = [pa.field(n, b.type) for n, b in zip((NODE, OWN, IS_DEAD), before, strict=True)]
        known = self.columns.schema
        schema = pa.schema([*names, *known, pa.field(PART, pa.string())], metadata=known.metadata)
        return pa.table([*before, *self.columns.columns, self.part], schema=schema)

    def write(self, path: Path) -> None:
        """Write an Arrow file that can be mapped."""
        table = self.to_table().combine_chunks()
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
