"""Options of `sbert export`, checked when they are given."""

import re
from enum import StrEnum

from pipelines.options import PathKind, Spec, argument, option, spec_class


class VectorStore(StrEnum):
    """The vector stores that files are written for."""

    LANCE = "lance"
    PGVECTOR = "pgvector"
    QDRANT = "qdrant"


@spec_class
class ExportSpec(Spec):
    """Write vectors as files a vector store loads."""

    vectors: str = argument("Vectors of `sbert embed`.", path=PathKind.INPUT)
    to: VectorStore = option("Vector store to write files for.")
    out: str = option("New folder for the files.", path=PathKind.OUTPUT)
    name: str = option("Table or collection.", default="vectors")

    def check(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w{0,62}", self.name):
            raise ValueError(f"name {self.name!r} is no plain name; use letters, digits and _")
