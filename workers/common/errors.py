"""Errors of Ray Data workers as rows of their results.

Ray Data wraps the error of a task and loses its cause on the way; as a pickled row it reaches the
driver unchanged.
"""

import pickle
from collections.abc import Callable
from functools import wraps
from typing import TypeVarTuple

import pyarrow as pa

ERROR = "error"

Arguments = TypeVarTuple("Arguments")


def errors_as_rows(call: Callable[[*Arguments], pa.Table]) -> Callable[[*Arguments], pa.Table]:
    """Wrap a call so that an exception becomes a table with one pickled row in column `error`.

    Such a table from the stage before is passed on.
    """

    @wraps(call)
    def guarded(*arguments: *Arguments) -> pa.Table:
        for one in arguments:
            if isinstance(one, pa.Table) and ERROR in one.column_names:
                return one
        try:
            return call(*arguments)
        except Exception as error:  # noqa: BLE001 - raised again by the driver
            return pa.table({ERROR: [_pickled(error)]})

    return guarded


def _pickled(error: Exception) -> bytes:
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # some exceptions can be pickled but not restored
    except Exception:  # noqa: BLE001 - then class name and message must do
        data = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def raise_error_rows(table: pa.Table) -> None:
    """On the driver: raise the first error of a table that `errors_as_rows` has made."""
    if ERROR in table.column_names:
        raise pickle.loads(table[ERROR][0].as_py())
