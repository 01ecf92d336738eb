"""Tasks of the IVF join, called as plain functions: with a margin of 2 they miss nothing."""

import numpy as np
import pytest
from support.joins import all_cosines, near_rows, prepare_join, vector_table

from sbert_core.join.edges import EdgePart
from sbert_core.join.ivf import NO_PROBES, IvfPartition
from workers.pairs import ivf
from workers.pairs.ivf import (
    CellLayout,
    ProbeRound,
    ShuffleFiles,
    cell_edges_name,
    count_edges,
    edges_touching,
    find_exact_pairs,
    join_cells,
    num_shuffles,
    read_projections,
    read_sampled_rows,
    shuffle_name,
    shuffle_rows,
)

DIM, NUM_CELLS, THRESHOLD = 20, 9, 0.5
HOME = ProbeRound(0, 0.0, 0.0)


@pytest.fixture
def small_shuffle(monkeypatch):
    monkeypatch.setattr(ivf, "SHUFFLED_ROWS", 16)  # several files for a block


def learn_layout(join):
    blocks = {block.name: block for block in (*join.blocks_a, *join.blocks_b)}.values()
    sample = [read_projections(join.job, block, np.arange(block.size)) for block in blocks]
    cells = IvfPartition.fit(np.concatenate(sample), NUM_CELLS, seed=0)
    return CellLayout(cells, np.arange(NUM_CELLS) // 4, DIM)


def file_names(join, blocks, probe):
    return [
        shuffle_name(join.job, probe, block, number)
        for block in blocks
        for number in range(num_shuffles(block))
    ]


def join_round(join, layout, probe):
    """One round over all groups of cells; the names of its edges."""
    blocks = {block.name: block for block in (*join.blocks_a, *join.blocks_b)}.values()
    for block in blocks:
        shuffle_rows(join.job, block, layout, probe)
    files = ShuffleFiles(
        homes_a=file_names(join, join.blocks_a, HOME),
        homes_b=file_names(join, join.blocks_b, HOME),
        probes_a=file_names(join, join.blocks_a, probe),
        probes_b=file_names(join, join.blocks_b, probe),
    )
    groups = range(layout.num_groups)
    for group in groups:
        join_cells(join.job, layout, group, probe, files, join.starts)
    return [cell_edges_name(join.job, probe, group) for group in groups]


def true_edges(join, a, b):
    """Pairs of distinct first rows that reach the threshold, by brute force."""
    first_a, first_b = join.groups.a.first, join.groups.b.first
    keep = all_cosines(a[first_a], b[first_b]) >= np.float32(THRESHOLD)
    if join.job.is_self:
        keep &= np.triu(np.ones(keep.shape, bool), 1)
    return {(int(first_a[i]), int(first_b[j])) for i, j in np.argwhere(keep)}


@pytest.mark.parametrize("is_self", [True, False])
def test_ivf_rounds_with_every_cell_probed_find_every_edge(is_self, tmp_path, small_shuffle):
    rows, others = near_rows(150, DIM), near_rows(80, DIM)
    a = vector_table(tmp_path, np.array_split(rows, 2))
    b = None if is_self else vector_table(tmp_path, [others], "b")
    join = prepare_join(tmp_path, a, b, THRESHOLD)
    layout = learn_layout(join)
    names = join_round(join, layout, HOME)
    want = true_edges(join, rows, rows if is_self else others)
    num_parts = len(join.starts)

    def edges():
        parts = [EdgePart(names, number, num_parts) for number in range(num_parts)]
        return np.concatenate([part.read(join.job.storage) for part in parts])

    at_home = set(zip(edges()["a"].tolist(), edges()["b"].tolist(), strict=True))
    assert at_home < want, "cells are to cut some pairs apart"
    names += join_round(join, layout, ProbeRound(1, NO_PROBES, 2.0))
    everything = set(zip(edges()["a"].tolist(), edges()["b"].tolist(), strict=True))
    assert everything == want
    # Counted apart from the edges that are read here: as pairs of rows, by band and by end.
    groups = join.written_groups
    counts = [
        count_edges(join.job, EdgePart(names, number, num_parts), groups)
        for number in range(num_parts)
    ]
    num_pairs = sum(int(count.bands.sum()) for count in counts)
    assert num_pairs == groups.count_pairs(edges()["a"], edges()["b"]) > len(want)
    some = np.array(sorted({i for i, _ in want})[:3])
    touching = [
        edges_touching(join.job, EdgePart(names, number, num_parts), some, some[:0])
        for number in range(num_parts)
    ]
    ends = {(i, j) for i, j, _ in np.concatenate(touching).tolist()}
    assert ends == {(i, j) for i, j in want if i in some}


def test_exact_search_of_sampled_rows_finds_all_partners_and_their_margins(tmp_path):
    rows = near_rows(120, DIM)
    join = prepare_join(tmp_path, vector_table(tmp_path, np.array_split(rows, 2)), None, THRESHOLD)
    layout = learn_layout(join)
    chosen = join.groups.a.first[::7]
    taken = [read_sampled_rows(join.job, block, chosen) for block in join.blocks_a]
    sample = tuple(np.concatenate(parts) for parts in zip(*taken, strict=True))
    found = [
        find_exact_pairs(join.job, block, sample, True, layout.cells) for block in join.blocks_b
    ]
    pairs = {
        (int(i), int(j)): float(margin)
        for part in found
        for i, j, margin in zip(part.row, part.partner, part.margin, strict=True)
    }
    want = true_edges(join, rows, rows)
    want |= {(j, i) for i, j in want}
    assert set(pairs) == {(i, j) for i, j in want if i in chosen}
    names = join_round(join, layout, HOME)
    joined = EdgePart(names, 0, len(join.starts)).read(join.job.storage).tolist()
    joined += EdgePart(names, 1, len(join.starts)).read(join.job.storage).tolist()
    at_home = {(i, j) for i, j, _ in joined} | {(j, i) for i, j, _ in joined}
    assert {pair for pair, margin in pairs.items() if margin == 0} == at_home & set(pairs)
