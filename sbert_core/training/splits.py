"""Keys of examples' texts -> which rows repeat, leak, go to dev, and into which shard.

In:  one row of text keys per example (see examples.text_keys), lengths, a seed.
Out: row numbers. All of it depends on the rows and the seed alone, not on who counted first.
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


def first_of(keys: np.ndarray) -> np.ndarray:
    """For each row, the first row with the same texts."""
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first[group.reshape(-1)]


def text_components(keys: np.ndarray) -> np.ndarray:
    """A number per row, equal for rows that share a text or are joined by rows that do."""
    if not len(keys):
        return np.empty(0, np.int64)
    names, text = np.unique(keys, return_inverse=True)
    text = text.reshape(keys.shape)
    left = np.repeat(text[:, 0], keys.shape[1] - 1)
    right = text[:, 1:].reshape(-1)
    ones = np.ones(len(left), np.int8)
    graph = coo_array((ones, (left, right)), shape=(len(names), len(names)))
    return connected_components(graph, directed=False)[1][text[:, 0]]


def is_dev(keys: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which rows are held out: whole components of connected texts, about `fraction` of rows.

    Components come in random order; one that would overshoot stays in train.
    """
    component = text_components(keys)
    sizes = np.bincount(component)
    left = round(fraction * len(keys))
    chosen = np.zeros(len(sizes), bool)
    for number in np.random.default_rng(seed).permutation(len(sizes)).tolist():
        if left == 0:
            break
        if sizes[number] <= left:
            chosen[number] = True
            left -= int(sizes[number])
    return chosen[component]


def dealt(lengths: np.ndarray, num_shards: int, seed: int) -> list[np.ndarray]:
    """Rows of each shard: equal in length altogether and alike in their mixture of lengths.

    Rows are dealt by falling length, there and back again, so two shards differ by less than the
    longest row; equal lengths are in random order. In a shard the long ones come first.
    """
    tie = np.random.default_rng(seed).permutation(len(lengths))
    order = np.lexsort((tie, -lengths))
    place = np.arange(len(order))
    turn, seat = place // num_shards, place % num_shards
    shard = np.where(turn % 2 == 0, seat, num_shards - 1 - seat)
    return [order[shard == number] for number in range(num_shards)]
