"""What a sentence encoder must beat: averages of word vectors, and tf-idf.

Both give vectors for texts as an encoder does. Untuned encoders, averaged or by their CLS token,
are encoders themselves: `Encoder.load(folder, pooling="mean")` and `"cls"`.
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
        self.place = {word: number for number, word in enumerate(words)}
        self.vectors = vectors

    @classmethod
    def load(cls, path: Path) -> "WordAverage":
        """A Parquet file of word and vector, or GloVe's text: a word and its numbers a line."""
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
        found = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        for row, text in enumerate(texts):
            words = [self.place[w] for w in WORD.findall(text.lower()) if w in self.place]
            if words:
                found[row] = self.vectors[words].mean(0)
        return found


class TfIdf:
    """tf-idf over the texts to be compared, in at most `dim` dimensions (latent semantics)."""

    def __init__(self, dim: int = 512, seed: int = 0) -> None:
        self.dim = dim
        self.seed = seed

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        weights = TfidfVectorizer().fit_transform(texts)
        if min(weights.shape) <= self.dim:
            return weights.toarray()
        return TruncatedSVD(self.dim, random_state=self.seed).fit_transform(weights)
