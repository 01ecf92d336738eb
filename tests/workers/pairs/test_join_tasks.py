"""Tasks of the exact join, of top-k and of an update, called as plain functions."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.joins import all_cosines, near_rows, prepare_join, read_pairs, vector_table

from sbert_core.join.bounded import JoinBlock
from sbert_core.join.edges import EdgePart
from sbert_core.large_strings import widen_array
from workers.pairs import write
from workers.pairs.exact import (
    KnownPart,
    LargeGroups,
    NewRows,
    count_part,
    count_partners,
    edges_name,
    join_blocks,
    join_known_part,
)
from workers.pairs.join_job import JoinGroups, read_sample
from workers.pairs.top_k import (
    count_nearest_part,
    find_nearest,
    nearest_name,
    smallest_members,
    write_nearest,
)
from workers.pairs.write import (
    filter_pairs,
    write_empty,
    write_equal,
    write_groups,
    write_part,
)

DIM = 12
THRESHOLD = 0.9


def pairs_by_brute_force(a, b, threshold, ids_a, ids_b, is_self):
    cos = all_cosines(a, b)
    keep = cos >= np.float32(threshold)
    if is_self:
        keep &= np.triu(np.ones(keep.shape, bool), 1)
    found = {}
    for i, j in np.argwhere(keep).tolist():
        pair = (int(ids_a[i]), int(ids_b[j]))
        found[tuple(sorted(pair)) if is_self else pair] = float(cos[i, j])
    return found


def joined_parts(join):
    """Run every pair of blocks; the parts of the edges, and what the tasks counted."""
    job = join.job
    counts, names = [], []
    for a in join.blocks_a:
        own = [b for b in join.blocks_b if not job.is_self or a.number <= b.number]
        counts += [join_blocks(job, a, b, join.starts, join.written_groups) for b in own]
        names.append([edges_name(job, a, b) for b in own])
    return [EdgePart(own, number, len(names)) for number, own in enumerate(names)], counts


def written(join, parts):
    files = [write_part(join.job, part, join.written_groups) for part in parts]
    if join.job.is_self:
        places = np.flatnonzero(
            (join.groups.a.count > 1) & (join.groups.a.count == join.written_groups.a.count)
        )
        if len(places):
            files.append(write_equal(join.job, len(parts), join.written_groups, places))
    return [file for file in files if file is not None]


@pytest.mark.parametrize("is_self", [True, False])
def test_join_blocks_and_written_parts_equal_brute_force(is_self, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "WRITTEN_PAIRS", 50)  # several row groups in a file
    rows, others = near_rows(160, DIM), near_rows(90, DIM)
    a = vector_table(tmp_path, np.array_split(rows, 3))
    b = None if is_self else vector_table(tmp_path, np.array_split(others, 2), "b", first_id=1000)
    join = prepare_join(tmp_path, a, b, THRESHOLD)
    parts, counts = joined_parts(join)
    found = read_pairs(join.job, files := written(join, parts))
    ids_a = 159 - np.arange(160)
    if is_self:
        want = pairs_by_brute_force(rows, rows, THRESHOLD, ids_a, ids_a, True)
    else:
        want = pairs_by_brute_force(rows, others, THRESHOLD, ids_a, 1089 - np.arange(90), False)
    assert found == want and len(want) > 100
    num_equal = join.groups.a.num_pairs if is_self else 0
    counted = sum(count.pairs for count in counts) + num_equal
    assert counted == sum(file.rows for file in files) == len(want)
    assert sum(count.edges for count in counts) < counted
    # A second attempt counts what the first one wrote.
    again = [count_part(join.job, part, join.written_groups) for part in parts]
    assert sum(count.pairs for count in again) + num_equal == counted


def test_count_partners_of_a_sample_equals_brute_force(tmp_path):
    rows = near_rows(80, DIM)
    a = vector_table(tmp_path, [rows])
    join = prepare_join(tmp_path, a)
    sample = read_sample(a, a.row_ranges[0].take(np.arange(10)))
    assert sample.ids == list(range(79, 69, -1))
    block = JoinBlock.build(sample.vectors, join.rotation)
    [blocks] = join.blocks_a
    first = rows[join.groups.a.first]
    want = (all_cosines(rows[:10], first) >= np.float32(THRESHOLD)).sum(axis=1)
    assert count_partners(join.job, blocks, block).tolist() == want.tolist()


def test_large_group_is_written_as_a_group_with_one_row_in_the_pairs(tmp_path):
    rows = near_rows(60, DIM)
    rows = np.concatenate([rows, np.repeat(rows[5:6], 1001, axis=0)])
    a = vector_table(tmp_path, [rows])
    join = prepare_join(tmp_path, a)
    parts, counts = joined_parts(join)
    files = written(join, parts)
    found = read_pairs(join.job, files)
    assert sum(c.pairs for c in counts) + join.groups.a.num_pairs == len(found)
    table = pq.read_table(join.job.storage.path(write_groups(join.job, a, join.groups.a).path))
    [large] = join.groups.a.large_groups()
    members = join.groups.a.members(large)
    ids = len(rows) - 1 - members
    assert table["id"].to_pylist() == ids.tolist()
    assert set(table["representative"].to_pylist()) == {ids[0]}
    assert not set(ids[1:].tolist()) & {i for pair in found for i in pair}


def test_write_empty_has_the_columns_of_pairs(tmp_path):
    a = vector_table(tmp_path, [near_rows(20, DIM)])
    join = prepare_join(tmp_path, a, threshold=1.0)
    file = write_empty(join.job)
    table = pq.read_table(join.job.storage.path(file.path))
    assert (file.rows, table.num_rows) == (0, 0)
    assert table.schema.names == ["id_a", "id_b", "cos"]


@pytest.mark.parametrize("is_self", [True, False])
@pytest.mark.parametrize("k", [1, 3, 200])
@pytest.mark.parametrize("threshold", [-1.0, 0.95])
def test_nearest_rows_equal_brute_force_with_ties_by_id(is_self, k, threshold, tmp_path):
    rows, others = near_rows(70, DIM), near_rows(60, DIM)
    a = vector_table(tmp_path, np.array_split(rows, 2))
    b = None if is_self else vector_table(tmp_path, [others], "b")
    join = prepare_join(tmp_path, a, b, threshold)
    job, groups = join.job, join.groups
    names = [[nearest_name(job, block)] for block in join.blocks_a]
    counts = [
        find_nearest(job, block, join.blocks_b, k, join.starts, groups) for block in join.blocks_a
    ]
    parts = [EdgePart(own, number, len(names)) for number, own in enumerate(names)]
    places = np.flatnonzero(groups.b.count > k + 1)
    few = smallest_members(job.b, groups.b, places, k + 1)
    limited = groups.b.replace_members(dict(zip(places.tolist(), few, strict=True)))
    ends = [*join.starts[1:].tolist(), len(rows)]
    bounds = list(zip(join.starts.tolist(), ends, strict=True))
    files = [
        write_nearest(job, part, k, bounds[part.number], JoinGroups(groups.a, limited))
        for part in parts
    ]
    found = read_pairs(job, files := [file for file in files if file is not None])
    other = rows if is_self else others
    cos, want = all_cosines(rows, other), {}
    for i in range(len(rows)):
        near = [j for j in range(len(other)) if not (is_self and i == j)]
        near = [j for j in near if cos[i, j] >= np.float32(threshold)]
        near.sort(key=lambda j, i=i: (-cos[i, j], -j))  # ids fall while rows rise
        for j in near[:k]:
            want[len(rows) - 1 - i, len(other) - 1 - j] = float(cos[i, j])
    assert found == want
    assert sum(count.pairs for count in counts) == sum(file.rows for file in files)
    again = [count_nearest_part(job, part, k, bounds[part.number], groups) for part in parts]
    assert [c.pairs for c in again] == [c.pairs for c in counts]


@pytest.mark.parametrize("has_large", [True, False])
def test_join_known_part_finds_new_against_known_and_equal_rows(has_large, tmp_path):
    known, new = near_rows(90, DIM), near_rows(50, DIM, seed=1)
    new[:3] = known[[4, 4, 7]]
    side = vector_table(tmp_path, np.array_split(known, 2), "old", first_id=500)
    join = prepare_join(tmp_path, vector_table(tmp_path, [new], "new")).against(side)
    large = None
    if has_large:  # rows 8 and 9 stand for a group that has row 4 as representative
        ids = 589 - np.array([4, 8, 9])
        large = LargeGroups(widen_array(pa.array(ids[:1])), widen_array(pa.array(ids[1:])))
    parts = [KnownPart(0, side.row_ranges[0], 0), KnownPart(1, side.row_ranges[1], 45)]
    rows = NewRows(join.blocks_a, join.rotation, join.starts, join.written_groups, large)
    counts = [join_known_part(join.job, rows, part) for part in parts]
    edges = EdgePart([part.edges_name(join.job) for part in parts], 0, 1)
    found = read_pairs(join.job, [write_part(join.job, edges, join.written_groups)])
    want = pairs_by_brute_force(
        new, known, THRESHOLD, 49 - np.arange(50), 589 - np.arange(90), False
    )
    if has_large:
        want = {pair: cos for pair, cos in want.items() if pair[1] not in (589 - 8, 589 - 9)}
    assert found == want
    assert sum(count.pairs for count in counts) == len(found)
    equal = np.concatenate([part.equal_rows(join.job) for part in parts])
    weight = dict(equal.tolist())
    assert weight[0] == (1000 if has_large else 1)  # row 1 equals row 0, which is joined for both
    assert weight[2] == 1


def test_filter_pairs_leaves_out_rows_that_are_gone_and_counts_the_rest(tmp_path):
    rows = near_rows(100, DIM)
    files = np.array_split(rows, 2)
    a = vector_table(tmp_path, files)
    join = prepare_join(tmp_path, a)
    parts, _ = joined_parts(join)
    before = written(join, parts)
    pairs = read_pairs(join.job, before)
    kept = vector_table(tmp_path / "later", files[1:], first_id=0)  # ids 49 ... 0
    made = [filter_pairs(join.job, kept, file.path, n) for n, file in enumerate(before)]
    left = read_pairs(join.job, [result.file for result in made if result.file is not None])
    assert left == {pair: cos for pair, cos in pairs.items() if max(pair) < 50}
    assert 0 < sum(result.num_kept for result in made) == len(left) < len(pairs)
    nothing = vector_table(tmp_path / "none", [rows[:1]], first_id=1000)
    gone = filter_pairs(join.job, nothing, before[0].path, 7)
    assert (gone.file, gone.num_kept) == (None, 0)
