"""Errors of workers as rows of their results.

Ray Data wraps an error of a task in one of its own and loses the cause on the way; as a row it
reaches the driver as what it is.
"""

import pickle
from collections.abc import Callable
from functools import wraps

import pyarrow as pa

ERROR = "error"


def errors_as_rows(call: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    """The call, but an exception becomes a table of one column."""

    @wraps(call)
    def guarded(*arguments: object) -> pa.Table:
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001 - raised again by the driver
            return pa.table({ERROR: [_pickled(error)]})

    return guarded


def _pickled(error: Exception) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # some exceptions go in but do not come out
    except Exception:  # noqa: BLE001 - then its words must do
        data = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def raise_error_rows(table: pa.Table) -> None:
    """On the driver: raise the first error a worker has sent."""
    if ERROR in table.column_names:
        raise pickle.loads(table[ERROR][0].as_py())
