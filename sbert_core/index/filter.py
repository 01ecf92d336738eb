"""A condition on carried columns -> which rows of a shard may be found."""

import numpy as np
import pyarrow as pa

from sbert_core.corpus.row_filter import Where


def rows_where(rows: pa.Table, where: str) -> np.ndarray:
    """A mask of the rows that fulfil a condition."""
    condition = Where(where)
    if missing := sorted(set(condition.columns) - set(rows.column_names)):
        raise ValueError(
            f"filter names {missing[0]!r}, which the index does not hold; it has "
            f"{', '.join(rows.column_names)}: embed with --carry to add columns"
        )
    return condition.mask({name: rows[name] for name in condition.columns}, "filter")
