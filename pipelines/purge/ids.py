"""Ids that must be forgotten, as the user gives them."""

from pathlib import Path

import pyarrow as pa

from pipelines.purge.spec import PurgeSpec


def read_ids(spec: PurgeSpec) -> pa.Array:
    """Distinct ids as text, from --id and --ids; ValueError where there are none."""
    found = list(spec.id)
    if spec.ids is not None:
        path = Path(spec.ids)
        try:
            found += [line for line in path.read_text(encoding="utf-8").splitlines() if line]
        except UnicodeDecodeError as error:
            raise ValueError(
                f"ids {path} is not UTF-8 text ({error.reason} at byte {error.start}); give a text "
                "file with an id on each line"
            ) from None
        except IsADirectoryError:
            raise ValueError(
                f"ids {path} is a folder; give a text file with an id on each line"
            ) from None
    if not found:
        raise ValueError(f"ids {spec.ids} holds no id; give a text file with an id on each line")
    return pa.array(sorted(set(found)), pa.large_string())
