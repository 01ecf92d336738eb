"""Other ways to find near-duplicates, as their documentation runs them."""

import re

import numpy as np

from sbert_core.clusters.components import label_components
from sbert_core.join.bounded import Edges

SHINGLE = 5  # characters, as usual for short texts
PERMUTATIONS = 128


def semhash_groups(unit: np.ndarray, threshold: float) -> np.ndarray:
    """For each row the row it is a duplicate of, by SemHash.self_deduplicate."""
    from semhash import SemHash

    names = [str(number) for number in range(len(unit))]
    hashed = SemHash.from_embeddings(unit, names, model=None)  # type: ignore[arg-type]
    group = np.arange(len(unit))
    for found in hashed.self_deduplicate(threshold=threshold).filtered:
        group[int(found.record)] = int(found.duplicate_of)
    return group


class MinHashes:
    """datasketch: signatures once, candidates and their estimated likeness for any threshold."""

    def __init__(self, texts: list[str]) -> None:
        from datasketch import MinHash

        self.signatures = []
        for text in texts:
            plain = re.sub(r"\s+", " ", text.lower())
            words = {plain[i : i + SHINGLE] for i in range(max(1, len(plain) - SHINGLE + 1))}
            signature = MinHash(num_perm=PERMUTATIONS)
            signature.update_batch([word.encode() for word in sorted(words)])
            self.signatures.append(signature)

    def groups(self, threshold: float) -> np.ndarray:
        from datasketch import MinHashLSH

        index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
        pairs = []
        for number, signature in enumerate(self.signatures):
            for other in index.query(signature):
                if signature.jaccard(self.signatures[other]) >= threshold:
                    pairs.append((other, number))
            index.insert(number, signature)
        a, b = np.array(pairs, np.int32).reshape(-1, 2).T
        return label_components(Edges(a, b, np.ones(len(a), np.float32)), len(self.signatures))
