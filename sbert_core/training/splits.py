"""Keys of examples' texts -> which rows repeat, which go to dev, and into which shard.

In:  one row of text keys per example (see examples.text_keys), lengths, a seed.
Out: row numbers. They depend on the rows and the seed alone, not on the order of tasks.
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


def first_occurrences(keys: np.ndarray) -> np.ndarray:
    """For each row, the first row with the same texts."""
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first[group.reshape(-1)]


def text_components(keys: np.ndarray) -> np.ndarray:
    """The component of each row: rows that share a text, directly or through others, are one."""
    if not len(keys):
        return np.empty(0, np.int64)
    names, text = np.unique(keys, return_inverse=True)
    text = text.reshape(keys.shape)
    left = np.repeat(text[:, 0], keys.shape[1] - 1)
    right = text[:, 1:].reshape(-1)
    ones = np.ones(len(left), np.int8)
    graph = coo_array((ones, (left, right)), shape=(len(names), len(names)))
    component: np.ndarray = connected_components(graph, directed=False)[1]
    return component[text[:, 0]]


def is_dev(keys: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Is a row held out? Whole components of connected texts are, about `fraction` of the rows.

    Components are visited in random order; one that would exceed the fraction stays in train.
    """
    component = text_components(keys)
    sizes = np.bincount(component)
    num_left = round(fraction * len(keys))
    is_chosen = np.zeros(len(sizes), bool)
    for number in np.random.default_rng(seed).permutation(len(sizes)).tolist():
        if num_left == 0:
            break
        if sizes[number] <= num_left:
            is_chosen[number] = True
            num_left -= int(sizes[number])
    is_held_out: np.ndarray = is_chosen[component]
    return is_held_out


def balanced_shards(lengths: np.ndarray, num_shards: int, seed: int) -> list[np.ndarray]:
    """Rows of each shard: equal in total length and similar in the distribution of lengths.

    Rows go to the shards by falling length, forwards and backwards in turn, so two shards differ by
    less than the longest row; equal lengths are in random order. A shard's longest rows come first.
    """
    tie = np.random.default_rng(seed).permutation(len(lengths))
    order = np.lexsort((tie, -lengths))
    rank = np.arange(len(order))
    sweep, position = rank // num_shards, rank % num_shards
    shard = np.where(sweep % 2 == 0, position, num_shards - 1 - position)
    return [order[shard == number] for number in range(num_shards)]
