"""Records by group in one file."""

import numpy as np

from sbert_core.storage import LocalStorage
from sbert_core.vectors.grouped_file import read_group, write_groups


def test_groups_are_read_back_each_group_in_order(tmp_path):
    rng = np.random.default_rng(0)
    every = np.empty(200, [("value", "<u8"), ("place", "<u4")])
    every["value"], every["place"] = rng.integers(0, 1000, 200), np.arange(200)
    group = rng.integers(0, 6, 200)  # the last one stays empty
    storage = LocalStorage(tmp_path)
    write_groups(storage, "a/groups", group, every, 7)
    for number in range(7):
        found = read_group(storage, "a/groups", number, 7, every.dtype)
        np.testing.assert_array_equal(found, every[group == number])
