"""Tasks of the exact join: two blocks -> the edges between them.

Each task holds two blocks and a bounded number of edges at a time, whatever the size of the corpus.
"""

import tempfile
from pathlib import Path

import numpy as np

from sbert_core.neighbours.edges import EdgeWriter
from sbert_core.neighbours.join import Block, Edges, joined
from workers.board import Board
from workers.join_blocks import BlockOf, JoinJob, opened


def edges_name(job: JoinJob, a: BlockOf, b: BlockOf) -> str:
    return f"{job.work}/edges-{a.name}-{b.name}"


def partner_counts(job: JoinJob, block: BlockOf, sample: Block) -> np.ndarray:
    """How many rows of a block reach the threshold with each sampled row."""
    counts = np.zeros(len(sample), np.int64)
    with tempfile.TemporaryDirectory() as folder:
        other = opened(job, block, Path(folder)).block
        for edges in joined(sample, other, job.threshold):
            counts += np.bincount(edges.a, minlength=len(sample))
    return counts


def join_blocks(job: JoinJob, a: BlockOf, b: BlockOf, starts: np.ndarray) -> int:
    """Write the edges between two blocks; how many there are."""
    board = Board(job.run)
    is_same = a.name == b.name
    writer = EdgeWriter(job.storage, edges_name(job, a, b), starts)
    with tempfile.TemporaryDirectory() as folder:
        left, right = (opened(job, side, Path(folder)) for side in (a, b))
        for edges in joined(left.block, right.block, job.threshold, is_same=is_same):
            writer.add(Edges(left.rows[edges.a], right.rows[edges.b], edges.cos))
    board.add(a.size * b.size // (2 if is_same else 1), 0)
    board.write()
    return writer.close()
