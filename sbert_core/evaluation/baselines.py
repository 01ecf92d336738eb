"""Baselines of a sentence encoder: averages of word vectors, and tf-idf.

Both turn texts into vectors as an encoder does. Untuned encoders, pooled by their mean or CLS
token, are encoders: `Encoder.load(folder, pooling="mean")` and `"cls"`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

WORD = re.compile(r"\w+|[^\w\s]")


class WordAverage:
    """The average vector of a text's words; texts of unknown words are zero."""

    def __init__(self, words: Sequence[str], vectors: np.ndarray) -> None:
        self.row_of = {word: number for number, word in enumerate(words)}
        self.vectors = vectors

    @classmethod
    def load(cls, path: Path) -> "WordAverage":
        """Read a Parquet file of word and vector, or GloVe's text format.

        Raises ValueError for a file without vectors, or with vectors of several lengths.
        """
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=["word", "vector"])
            return cls(table["word"].to_pylist(), np.array(table["vector"].to_pylist(), np.float32))
        words: list[str] = []
        rows: list[np.ndarray] = []
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                word, *numbers = line.rstrip("\n").split(" ")
                if rows and len(numbers) != len(rows[0]):
                    raise ValueError(
                        f"line {number} of {path} has {len(numbers)} numbers, the first has "
                        f"{len(rows[0])}; give a file of word vectors"
                    )
                words.append(word)
                rows.append(np.array(numbers, np.float32))
        if not rows:
            raise ValueError(f"{path} holds no word vectors")
        return cls(words, np.stack(rows))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """One vector per text."""
        vectors = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        for row, text in enumerate(texts):
            words = [self.row_of[w] for w in WORD.findall(text.lower()) if w in self.row_of]
            if words:
                vectors[row] = self.vectors[words].mean(0)
        return vectors


class TfIdf:
    """tf-idf over the texts to be compared, in at most `dim` dimensions (truncated SVD)."""

    def __init__(self, dim: int = 512, seed: int = 0) -> None:
        self.dim = dim
        self.seed = seed

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """One vector per text; vectors of two calls cannot be compared."""
        weights = TfidfVectorizer().fit_transform(texts)
        vectors: np.ndarray
        if min(weights.shape) <= self.dim:
            vectors = weights.toarray()
        else:
            vectors = TruncatedSVD(self.dim, random_state=self.seed).fit_transform(weights)
        return vectors
