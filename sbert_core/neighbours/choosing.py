"""A condition on carried columns -> which rows of a shard may be found."""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from sbert_core.corpus.where import Where

PLACE = "#"


def rows_where(rows: pa.Table, where: str) -> np.ndarray:
    """A mask of the rows that fulfil a condition."""
    condition = Where(where)
    if missing := sorted(set(condition.columns) - set(rows.column_names)):
        raise ValueError(
            f"filter names {missing[0]!r}, which the index does not hold; it has "
            f"{', '.join(rows.column_names)}: embed with --carry to add columns"
        )
    places = pa.array(np.arange(rows.num_rows))
    numbered = rows.select(list(condition.columns)).append_column(PLACE, places)
    try:
        found = ds.dataset(numbered).to_table([PLACE], filter=condition.expression())[PLACE]
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"filter {where!r} does not fit the columns: {reason}") from None
    mask = np.zeros(rows.num_rows, bool)
    mask[found.to_numpy()] = True
    return mask
