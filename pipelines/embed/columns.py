"""Which columns of a corpus are text, id and payload.

In:  the spec, and the schemas of files.
Out: the id column, and the types all files must share; ValueError with the file that differs.
"""

import pyarrow as pa

from pipelines.artifacts.manifest import VectorsManifest
from pipelines.embed.spec import EmbedSpec
from sbert_core.corpus.columns import FIELD
from sbert_core.corpus.files import CorpusFile
from sbert_core.corpus.formats import ConvertedFile, check_columns
from sbert_core.corpus.parquet import is_text_type
from sbert_core.corpus.reader import IdKind
from sbert_core.corpus.row_filter import RowFilter


class ColumnMapping:
    """Which columns are text, id and payload, checked file by file.

    types: of the id and carried columns, as Arrow spells them. schema: the same as Arrow types;
    without fields before the first file. first: the file that has set the types.
    """

    def __init__(
        self, spec: EmbedSpec, partition_types: dict[str, str], current: VectorsManifest | None
    ) -> None:
        self.spec = spec
        self.partition_types = partition_types
        self.text_columns = list(dict.fromkeys(FIELD.findall(spec.template)))
        self.where = RowFilter(spec.where) if spec.where else None
        self.first: str | None = None
        self.types: dict[str, str] = {}
        self.schema = pa.schema([])
        self.id_column = spec.id_column
        self.id_kind = IdKind.CONTENT if spec.id else IdKind.COLUMN
        if current is not None:
            self.first = "the last run"
            self.types = dict(current.inputs.types)
            self.id_kind = IdKind(current.inputs.id)
            self.id_column = current.inputs.id_column

    def check(self, file: CorpusFile, schema: pa.Schema, text: ConvertedFile | None) -> None:
        """ValueError if a column is missing or has another type than in the first file.

        schema: of the file or its copy. text: what was copied, None for Parquet; a text file
        without rows has no types.
        """
        names = [*(schema.names if text is None else text.names), *self.partition_types]
        if self.first is None and self.spec.id_column is None and not self.spec.id:
            self.id_column = "id" if "id" in names else None
            self.id_kind = IdKind.COLUMN if self.id_column else IdKind.POSITION
        carried = self.spec.carried.values()
        wanted = [*self.text_columns, *carried, *(self.where.columns if self.where else ())]
        wanted += [self.id_column] if self.id_column is not None else []
        if text is None or text.num_rows:
            check_columns(file, wanted, names)
            self._check_types(file, schema)
        elif text.names:
            check_columns(file, wanted, names)

    def _check_types(self, file: CorpusFile, schema: pa.Schema) -> None:
        found = {field.name: field.type for field in schema}
        found |= {name: pa.type_for_alias(kind) for name, kind in self.partition_types.items()}
        if self.where is not None:
            no_rows = {name: pa.array([], found[name]) for name in self.where.columns}
            self.where.mask(no_rows, f"{file.path}: where")
        for name in self.text_columns:
            if not is_text_type(found[name]):
                others = ", ".join(n for n, kind in found.items() if is_text_type(kind)) or "none"
                raise ValueError(
                    f"column {name!r} of {file.path} holds {found[name]}, not text; "
                    f"text columns are: {others}"
                )
        kinds = {name: _plain_type(found[name]) for name in self.spec.carried.values()}
        if self.id_column is not None:
            kinds[self.id_column] = self._id_type(file, found[self.id_column])
        self._compare(file, kinds)

    def _compare(self, file: CorpusFile, kinds: dict[str, pa.DataType]) -> None:
        """Compare types with those of the first file."""
        types = {name: str(kind) for name, kind in kinds.items()}
        self.schema = self.schema if len(self.schema) else pa.schema(kinds)
        if self.first is None:
            self.first, self.types = file.path, types
        for name, kind in types.items():
            if self.types.get(name) != kind:
                raise ValueError(
                    f"column {name!r} is {kind} in {file.path} but {self.types.get(name)} in "
                    f"{self.first}; give all files one schema"
                )

    def _id_type(self, file: CorpusFile, kind: pa.DataType) -> pa.DataType:
        plain = _plain_type(kind)
        if not (
            pa.types.is_integer(plain)
            or pa.types.is_string(plain)
            or pa.types.is_large_string(plain)
        ):
            raise ValueError(
                f"id column {self.id_column!r} of {file.path} holds {plain}; ids are strings or "
                "whole numbers, or leave them to the job with --id content"
            )
        return plain


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
