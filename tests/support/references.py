"""What an encoder must agree with: pooling in numpy, and sentence-transformers."""

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling as TheirPooling
from sentence_transformers.sentence_transformer.modules import Transformer

from sbert_core.choices import Pooling

# By pooling: states of one text, and the number of leading tokens to leave out -> the vector.
POOLING_REFERENCES = {
    Pooling.MEAN: lambda x, s: x[s:].mean(0),
    Pooling.CLS: lambda x, s: x[s],
    Pooling.MAX: lambda x, s: x[s:].max(0),
    Pooling.MEAN_SQRT_LEN: lambda x, s: x[s:].sum(0) / np.sqrt(len(x) - s),
    Pooling.WEIGHTED_MEAN: lambda x, s: np.average(
        x[s:], axis=0, weights=np.arange(s + 1, len(x) + 1)
    ),
    Pooling.LAST_TOKEN: lambda x, s: x[-1],
}


def their_model(folder, mode, *tail, **options) -> SentenceTransformer:
    """A sentence-transformers model over a plain encoder."""
    transformer = Transformer(str(folder))
    pooling = TheirPooling(transformer.get_embedding_dimension(), pooling_mode=mode, **options)
    return SentenceTransformer(modules=[transformer, pooling, *tail], device="cpu")
