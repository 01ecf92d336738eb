"""The shuffle, against a sorted array."""

from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbert_core.storage import LocalStorage
from sbert_core.vectors import shuffle as shuffle_module
from sbert_core.vectors.shuffle import Shuffle, choose_fan

RECORD = np.dtype([("key", "<u8"), ("map", "<u4"), ("place", "<u4")])


def by_key(records):
    return records["key"]


def write(place, maps, num_reduces) -> Shuffle:
    """maps: by name a list of reduce and key."""
    made = Shuffle(place=str(place), folder="s", num_reduces=num_reduces, record=RECORD)
    for number, (name, entries) in enumerate(maps.items()):
        records = np.empty(len(entries), RECORD)
        records["key"] = [key for _, key in entries]
        records["map"], records["place"] = number, np.arange(len(entries))
        made.write_map(name, np.array([r for r, _ in entries], np.int64), records, by_key)
    return made


def expected(maps, reduce) -> list[tuple[int, int, int]]:
    """Key, map and place of each record of a reduce, in the order in which they must come."""
    return sorted(
        (key, number, place)
        for number, entries in enumerate(maps.values())
        for place, (own, key) in enumerate(entries)
        if own == reduce
    )


ENTRIES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=40)


@settings(deadline=None, max_examples=100)
@given(st.lists(ENTRIES, max_size=5), st.integers(1, 5))
def test_a_reduce_gets_its_records_sorted_and_equal_keys_together(lists, step):
    maps = {f"{number:03d}": entries for number, entries in enumerate(lists)}
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as place:
        patch.setattr(shuffle_module, "LEAST_READ_BYTES", step * RECORD.itemsize)
        made = write(place, maps, 4)
        counts = made.write_index(list(maps))
        for reduce in range(4):
            want = expected(maps, reduce)
            pieces = list(made.stream(reduce, by_key, num_bytes=1))
            assert [tuple(map(int, record)) for piece in pieces for record in piece] == want
            assert counts[reduce] == len(want)
            for one, other in zip(pieces, pieces[1:], strict=False):
                assert one["key"][-1] < other["key"][0], "equal keys were parted"
            assert made.read(reduce, by_key)["key"].tolist() == [key for key, *_ in want]


def test_a_stream_holds_few_records_and_reads_no_range_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(shuffle_module, "LEAST_READ_BYTES", 10 * RECORD.itemsize)
    rng = np.random.default_rng(0)
    keys = rng.permutation(4000)
    maps = {
        f"{number}": [(int(key) % 2, int(key)) for key in keys[number::4]] for number in range(4)
    }
    made = write(tmp_path, maps, 2)
    made.write_index(list(maps))
    read = []
    whole = LocalStorage.read_range

    def counted(self, name, start, length):
        if "/maps/" in name:
            read.append(length)
        return whole(self, name, start, length)

    monkeypatch.setattr(LocalStorage, "read_range", counted)
    pieces = list(made.stream(1, by_key, num_bytes=1))
    assert sum(map(len, pieces)) == 2000
    assert sum(read) == 2000 * RECORD.itemsize
    assert max(map(len, pieces)) <= 4 * 20


def test_a_map_that_was_cut_short_is_refused(tmp_path):
    made = write(tmp_path, {"a": [(0, 1), (1, 2)]}, 2)
    made.write_index(["a"])
    path = tmp_path / "s/maps/a"
    path.write_bytes(path.read_bytes()[:8])
    with pytest.raises(OSError):
        made.read(1, by_key)


def test_maps_and_reduces_grow_as_the_root_of_the_records():
    assert [choose_fan(n) for n in (0, 1, 1024, 1025, 4096, 4097)] == [1, 1, 1, 2, 2, 3]
    assert choose_fan(10**9) ** 2 == pytest.approx(10**9 / 1024, rel=1e-2)
