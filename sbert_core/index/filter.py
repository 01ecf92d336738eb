"""A condition on carried columns -> which rows of a shard a search may return."""

import numpy as np
import pyarrow as pa

from sbert_core.corpus.row_filter import RowFilter


def row_mask(rows: pa.Table, where: str) -> np.ndarray:
    """A boolean mask of the rows that fulfil a condition.

    rows: columns of a shard. where: the text of --filter. ValueError if it does not parse or names
    a column the index lacks.
    """
    condition = RowFilter(where)
    if missing := sorted(set(condition.columns) - set(rows.column_names)):
        raise ValueError(
            f"filter names {missing[0]!r}, which the index does not hold; it has "
            f"{', '.join(rows.column_names)}: embed with --carry to add columns"
        )
    return condition.mask({name: rows[name] for name in condition.columns}, "filter")
