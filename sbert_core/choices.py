"""The closed sets of values that options and functions choose from.

Only the standard library is imported here, so that a command line or a notebook can list the
choices without loading torch or pyarrow. The members are strings: they are written to manifests
and into digests as they are spelled here, so a spelling never changes.
"""

from enum import StrEnum


class VectorType(StrEnum):
    """How a component of a vector is stored."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


class Precision(StrEnum):
    """Number format of an encoder's products. Vectors are float32 in any case."""

    AUTO = "auto"  # float32 on a CPU; on a GPU bfloat16 where it has it, else float16
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"


class LongTexts(StrEnum):
    """What becomes of a text longer than the model's length."""

    TRUNCATE = "truncate"
    POOL = "pool"
    CHUNKS = "chunks"


class Pooling(StrEnum):
    """How token states become one vector; the names are those of sentence-transformers."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"
    MEAN_SQRT_LEN = "mean_sqrt_len_tokens"
    WEIGHTED_MEAN = "weightedmean"
    LAST_TOKEN = "lasttoken"


class ExampleFormat(StrEnum):
    """What a row of training data holds."""

    PAIRS = "pairs"  # two texts and a class
    SCORED = "scored"  # two texts and how similar they are
    TRIPLETS = "triplets"  # an anchor, a text closer to it and one farther away
    RANKING = "ranking"  # a query, its answer, and texts that do not answer it


class ObjectiveName(StrEnum):
    """The losses an encoder can be trained with."""

    SOFTMAX = "softmax"
    COSINE = "cosine"
    TRIPLET = "triplet"
    RANKING = "ranking"
    COSENT = "cosent"


class Distance(StrEnum):
    """How far two vectors are apart, for the triplet objective."""

    EUCLIDEAN = "euclidean"
    COSINE = "cosine"
    MANHATTAN = "manhattan"


class TrainPrecision(StrEnum):
    """Number format of the forward pass in training."""

    BF16 = "bf16"
    FP32 = "fp32"


class Aggregate(StrEnum):
    """How subsets of one data set become one number."""

    ALL = "all"
    MEAN = "mean"
    WEIGHTED_MEAN = "wmean"
